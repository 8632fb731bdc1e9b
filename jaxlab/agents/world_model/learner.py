"""A world model trained on interaction without reward, as a learner for `run`.

Each step goes on with a batch of worlds for a few actions at random and takes one gradient step on what
they showed; gradients go back through these actions, the recurrent state through the whole episode.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.agents.simulator_planner.simulator import Simulator
from jaxlab.agents.world_model.config import Hyper, WorldModelConfig
from jaxlab.agents.world_model.networks import Network
from jaxlab.core.learner import Learner, Metrics, mean, total

PyTree = Any

jax.tree_util.register_dataclass(
    Hyper, ["learning_rate", "max_gradient_norm", "changed_weight"], []
)

#: Share of actions that are those without a place, such as arrows and waiting.
SIMPLE_SHARE = 0.6


@struct.dataclass
class WorldModelState:
    """State of training.

    Attributes:
      key: Key of the run.
      params: Parameters of the network.
      optimiser: State of Adam.
      hyper: Numbers.
      worlds: States of the worlds, `[batch, ...]`.
      hidden: What the network knows of them.
    """

    key: jax.Array
    params: PyTree
    optimiser: PyTree
    hyper: Hyper
    worlds: PyTree
    hidden: Float[Array, "batch rows columns channels"]


@struct.dataclass
class Steps:
    """What a batch of worlds did, `[length, batch, ...]`.

    Attributes:
      frame: What was seen before the action.
      action: Its index.
      after: What was seen after it.
      began: Whether the world had begun anew before the action.
    """

    frame: Int[Array, "length batch rows columns"]
    action: Int[Array, "length batch"]
    after: Int[Array, "length batch rows columns"]
    began: Array


def network_of(simulator: Simulator, config: WorldModelConfig) -> Network:
    """The network for a world: its grid, colours and actions."""
    return Network(
        config, simulator.shape, simulator.colours, simulator.actions[:, 0], simulator.places
    )


def random_action(simulator: Simulator, key: jax.Array, frame: jax.Array) -> jax.Array:
    """An action at random: of those with a place, each colour in sight is as likely."""
    places = jnp.asarray(simulator.places)
    flat = frame.reshape(-1)
    counts = jax.nn.one_hot(flat, simulator.colours, dtype=jnp.float32).sum(0)
    placed = places >= 0
    weights = jnp.where(placed, 1 / counts[flat[jnp.maximum(places, 0)]], 0)
    share = weights.sum()
    simple = (~placed).astype(jnp.float32)
    simple_share = jnp.where(share > 0, SIMPLE_SHARE, 1.0)
    weights = weights * (1 - SIMPLE_SHARE) / jnp.maximum(share, 1e-6)
    weights = weights + simple_share * simple / jnp.maximum(simple.sum(), 1)
    return jax.random.categorical(key, jnp.log(weights)).astype(jnp.int32)


def make(simulator: Simulator, config: WorldModelConfig | None = None) -> Learner:
    """Build the learner.

    Args:
      simulator: The world that is interacted with, from fresh samples of its start; the first
        number of each of its actions is the action's kind.
      config: Sizes.

    Returns:
      A learner; `init` takes a `Hyper` or None. Metrics are the `loss`, the accuracy on all places
      (`accuracy`) and on those that change (`changed_accuracy`), and `env_steps`.
    """
    return _WorldModelLearner(simulator, config or WorldModelConfig()).learner()


class _WorldModelLearner:
    """The functions of a learner for one world."""

    def __init__(self, simulator: Simulator, config: WorldModelConfig):
        self.simulator, self.config = simulator, config
        self.network = network_of(simulator, config)

    def learner(self) -> Learner:
        return Learner(self.init, self.step)

    def init(self, key: jax.Array, hyper: Hyper | None) -> WorldModelState:
        key, first, start = jax.random.split(key, 3)
        params = self.network.init(first)
        numbers = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), hyper or Hyper())
        hidden = jnp.broadcast_to(
            self.network.blank(), (self.config.batch, *self.network.blank().shape)
        )
        keys = jax.random.split(start, self.config.batch)
        worlds = jax.vmap(self._fresh)(keys)
        return WorldModelState(
            key, params, optax.scale_by_adam().init(params), numbers, worlds, hidden
        )

    def _fresh(self, key: jax.Array) -> PyTree:
        """A world at its start, any sample of it."""
        number, start = jax.random.split(key)
        index = jax.random.randint(number, (), 0, jnp.iinfo(jnp.int32).max, jnp.int32)
        return jax.tree.map(jnp.asarray, self.simulator.init(start, index))

    def step(self, state: WorldModelState, t: jax.Array) -> tuple[WorldModelState, Metrics]:
        """Interact, and one gradient step."""
        key = jax.random.fold_in(state.key, t)
        worlds, steps = self._interact(key, state.worlds)
        (loss, (hidden, told)), gradient = jax.value_and_grad(self._loss, has_aux=True)(
            state.params, state.hidden, steps, state.hyper.changed_weight
        )
        clip = optax.clip_by_global_norm(state.hyper.max_gradient_norm)
        gradient, _ = clip.update(gradient, clip.init(state.params))
        change, optimiser = optax.scale_by_adam().update(gradient, state.optimiser)
        rate = state.hyper.learning_rate
        params = jax.tree.map(lambda p, c: p - rate * c, state.params, change)
        state = state.replace(  # type: ignore[attr-defined]
            params=params, optimiser=optimiser, worlds=worlds, hidden=hidden
        )
        count = jnp.asarray(self.config.batch * self.config.length, jnp.int32)
        return state, {"loss": mean(loss), **told, "env_steps": total(count)}

    def _interact(self, key: jax.Array, worlds: PyTree) -> tuple[PyTree, Steps]:
        simulator, batch = self.simulator, self.config.batch

        def one(world: PyTree, key: jax.Array) -> tuple[PyTree, tuple[jax.Array, ...]]:
            begin_key, start_key, act_key, step_key = jax.random.split(key, 4)
            begins = jax.random.bernoulli(begin_key, 1 / self.config.episode)
            begins = begins | simulator.failed(world)
            fresh = self._fresh(start_key)
            world = jax.tree.map(lambda new, old: jnp.where(begins, new, old), fresh, world)
            frame = simulator.frame(world)
            action = random_action(simulator, act_key, frame)
            after = simulator.step(step_key, world, jnp.asarray(simulator.actions)[action])
            return after, (frame, action, simulator.frame(after), begins)

        def all_of(worlds: PyTree, key: jax.Array) -> tuple[PyTree, tuple[jax.Array, ...]]:
            return jax.vmap(one)(worlds, jax.random.split(key, batch))

        worlds, seen = jax.lax.scan(all_of, worlds, jax.random.split(key, self.config.length))
        return worlds, Steps(*seen)

    def _loss(
        self, params: PyTree, hidden: jax.Array, steps: Steps, changed_weight: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, Metrics]]:
        predict = jax.vmap(functools.partial(self.network.predict, params))

        def one(hidden: jax.Array, step: Steps) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            hidden = jnp.where(step.began[:, None, None, None], 0, hidden)
            hidden, logits = predict(hidden, step.frame, step.action)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, step.after)
            return hidden, (losses, logits.argmax(-1) == step.after)

        hidden, (losses, right) = jax.lax.scan(one, hidden, steps)
        changed = (steps.frame != steps.after).astype(jnp.float32)
        weights = 1 + (changed_weight - 1) * changed
        right = right.astype(jnp.float32)
        told = {
            "accuracy": mean(right.mean()),
            "changed_accuracy": mean(
                (right * changed).sum() / jnp.maximum(changed.sum(), 1), changed.sum()
            ),
        }
        return (weights * losses).sum() / weights.sum(), (jax.lax.stop_gradient(hidden), told)
