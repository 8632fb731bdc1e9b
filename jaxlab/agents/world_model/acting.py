"""A learned world model in the three kinds of tests."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.agents.simulator_planner.config import PlannerConfig
from jaxlab.agents.simulator_planner.search import Goal, Plan, Search
from jaxlab.agents.simulator_planner.simulator import Simulator
from jaxlab.agents.world_model.learner import random_action
from jaxlab.agents.world_model.networks import Network

PyTree = Any

#: Steps of a plan that are taken before planning anew: predictions go astray.
COMMITTED = 4


@struct.dataclass
class Known:
    """What a model knows of a world.

    Attributes:
      hidden: Its state.
      frame: The picture, as it was seen, or as predicted where it was not.
      logits: What was predicted for it.
    """

    hidden: Float[Array, "rows columns channels"]
    frame: Int[Array, "rows columns"]
    logits: Float[Array, "rows columns colours"]


def learned_simulator(network: Network, params: PyTree, world: Simulator) -> Simulator:
    """A trained model as a simulator: the likeliest picture comes next.

    Args:
      network: Of the model.
      params: Its parameters.
      world: Whose table of actions is used, and nothing else.
    """

    def step(key: jax.Array, known: Known, action: jax.Array) -> Known:
        hidden, logits = network.predict(params, known.hidden, known.frame, action[0])
        return Known(hidden, logits.argmax(-1).astype(jnp.int32), logits)

    def fingerprint(known: Known) -> jax.Array:
        flat = known.frame.reshape(-1).astype(jnp.uint32)
        salt = np.arange(1, flat.shape[0] + 1, dtype=np.uint32) * np.uint32(2654435761)
        mixed = (flat ^ jnp.asarray(salt)) * np.uint32(2246822519)
        return (mixed ^ (mixed >> np.uint32(15))).sum(dtype=jnp.uint32)

    return Simulator(
        init=lambda key, index: unknown(network),
        step=step,
        refresh=lambda key, known: known,
        frame=lambda known: known.frame,
        failed=lambda known: jnp.zeros((), bool),
        fingerprint=fingerprint,
        features=lambda known: jnp.zeros(1, jnp.uint32),
        actions=np.arange(len(world.actions), dtype=np.int32)[:, None],
        places=world.places,
        colours=world.colours,
    )


def unknown(network: Network) -> Known:
    """What a model knows before anything was seen."""
    shape = network.shape
    return Known(
        network.blank(),
        jnp.zeros(shape, jnp.int32),
        jnp.zeros((*shape, network.colours), jnp.float32),
    )


class ModelPlayer:
    """Follows a world with a trained model, fills in, plans, and notices what it cannot explain.

    Args:
      world: Whose table of actions is used, and nothing else.
      network: Of the model.
      params: Its parameters.
      config: Sizes of searches.
    """

    def __init__(self, world: Simulator, network: Network, params: PyTree, config: PlannerConfig):
        self._network, self._params, self._config = network, params, config
        self._world = world
        self._search = Search(learned_simulator(network, params, world), config)
        self._follow = jax.jit(self._followed)
        self._draw = jax.jit(lambda key, frame: random_action(world, key, frame))
        self._plan: Plan | None = None
        self._at = 0
        self.known = unknown(network)

    def begin(self, frame: Any) -> None:
        """Forget all, and see a first picture; masked places are taken as they are."""
        self._plan = None
        begun = unknown(self._network)
        self.known = begun.replace(frame=jnp.asarray(frame, jnp.int32))  # type: ignore[attr-defined]

    def see(self, action: int, frame: Any, visible: Any | None = None) -> float:
        """Take in what is seen after an action; its mean loss in nats over the visible places."""
        shape = np.shape(frame)
        seen = np.ones(shape, bool) if visible is None else np.asarray(visible, bool)
        self.known, loss = self._follow(
            self._params, self.known, np.int32(action), np.asarray(frame, np.int32), seen
        )
        self._at += 1
        return float(loss)

    def random_act(self, key: jax.Array) -> int:
        """An action at random."""
        return int(self._draw(key, self.known.frame))

    def plan_act(self, key: jax.Array, goal: Goal, horizon: int) -> int:
        """The next action of a plan to a goal; at random where the model sees no way."""
        over = self._plan is None or self._at >= min(len(self._plan.actions), COMMITTED)
        if over:
            self._plan = self._search.find(
                key,
                self.known,
                goal,
                iterations=self._config.replanning,
                horizon=max(horizon, 1),
            )
            self._at = 0
        assert self._plan is not None
        if not len(self._plan.actions):
            self._plan = None
            return self.random_act(key)
        return int(self._plan.actions[self._at])

    def option_scores(self, options: Any, mask: Any) -> np.ndarray:
        """Log probability of each option for the masked rectangle, `[options]`.

        Args:
          options: `[options, height, width]`.
          mask: Where the last picture was masked, bool `[rows, columns]`.
        """
        mask = np.asarray(mask, bool)
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        rectangle = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        logs = np.asarray(jax.nn.log_softmax(self.known.logits))[rectangle]
        options = np.asarray(options)
        told = np.take_along_axis(logs[None], options[..., None], -1)[..., 0]
        return (told * mask[rectangle]).sum((1, 2))

    def _followed(
        self, params: PyTree, known: Known, action: Any, frame: Any, visible: Any
    ) -> tuple[Known, jax.Array]:
        hidden, logits = self._network.predict(params, known.hidden, known.frame, action)
        logs = jax.nn.log_softmax(logits)
        losses = -jnp.take_along_axis(logs, frame[..., None], -1)[..., 0]
        shown = jnp.where(visible, frame, logits.argmax(-1)).astype(jnp.int32)
        loss = (losses * visible).sum() / jnp.maximum(visible.sum(), 1)
        return Known(hidden, shown, logits), loss
