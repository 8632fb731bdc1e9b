"""Training a Boltzmann machine as an environment: for those who train optimisers.

A task is a target distribution and a Hamiltonian family; an action is an update of the
parameters; the reward is the decrease of the divergence.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.precision import require_x64
from jaxlab.core.spaces import Box, Tree
from jaxlab.envs.qbm import restricted
from jaxlab.envs.qbm.restricted import RestrictedModel


@struct.dataclass
class Params:
    """A task.

    Attributes:
      target: Probabilities of visible bits, big-endian.
      family: Terms of the model's Hamiltonian that the family has; the parameters of others
        stay zero.
      width: Parameters start uniformly in [-width, width].
      step_size: What an action is multiplied by.
      tolerance: Divergence at which an episode ends.
    """

    target: Float[Array, " states"]
    family: Bool[Array, " terms"]
    width: Float[Array, ""]
    step_size: Float[Array, ""]
    tolerance: Float[Array, ""]


@struct.dataclass
class State:
    """A machine that is being trained.

    Attributes:
      parameters: Natural parameters.
      gradient: Of the divergence by them, zero outside the family.
      divergence: `KL(q || p)` of visible bits, nats.
      updates: Actions applied.
      terminated: Whether the tolerance was reached.
    """

    parameters: Float[Array, " terms"]
    gradient: Float[Array, " terms"]
    divergence: Float[Array, ""]
    updates: Int[Array, ""]
    terminated: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class BoltzmannTraining(Env[State, Params]):
    """Fit a semi-quantum restricted Boltzmann machine by updates of its parameters.

    Observations are `parameters`, `gradient` (both `[terms]`), `divergence` and `family`
    (`[terms]`, 1 where a term is there). Actions are `[terms]` in [-1, 1], multiplied by
    `params.step_size`. Wrap it in `TimeLimit`: episodes end by themselves only below
    `params.tolerance`.

    Attributes:
      model: Sizes, and the largest family: all its terms.
    """

    name: ClassVar[str] = "boltzmann_training"
    precisions: ClassVar[tuple[str, ...]] = ("float64",)

    model: RestrictedModel = dataclasses.field(default_factory=lambda: RestrictedModel(4, 2, "XYZ"))

    def sample_params(self, key: jax.Array) -> Params:
        """A random target, and one of the families of hidden Z, XZ and XYZ operators."""
        require_x64("training a Boltzmann machine")
        target_key, family_key = jax.random.split(key)
        logits = 2 * jax.random.normal(target_key, (2**self.model.visible,), np.float64)
        # Letters that are kept on hidden units: the last one, two or three of X, Y, Z.
        kept = jax.random.randint(family_key, (), 1, len(self.model.fields) + 1)
        return Params(
            target=jax.nn.softmax(logits),
            family=jnp.asarray(self._ranks()) < kept,
            width=jnp.ones((), np.float64),
            step_size=jnp.full((), 0.5, np.float64),
            tolerance=jnp.full((), 1e-3, np.float64),
        )

    def _ranks(self) -> np.ndarray:
        """0 for visible terms and those of Z, 1 for those of X, 2 for those of Y."""
        rank = {"Z": 0, "X": 1, "Y": 2}
        hidden = range(self.model.visible, self.model.visible + self.model.hidden)
        words = self.model.strings.restricted(hidden)
        return np.array([max((rank[c] for c in word if c != "I"), default=0) for word in words])

    def reset(self, key: jax.Array, params: Params) -> tuple[State, TimeStep]:
        """Begin at random parameters."""
        uniform = jax.random.uniform(key, (self.model.size,), np.float64, -1.0, 1.0)
        state = self._at(params.width * uniform * params.family, params, jnp.zeros((), np.int32))
        # An episode that begins below the tolerance ends with its first step.
        state = dataclasses.replace(state, terminated=jnp.zeros((), bool))
        return state, self._observe(state, params, jnp.zeros((), np.float64))

    def _at(self, parameters: Array, params: Params, updates: Array) -> State:
        found = restricted.evaluate(parameters, self.model, params.target)
        gradient = jnp.where(params.family, -found.gap, 0.0)
        ended = found.divergence < params.tolerance
        return State(parameters, gradient, found.divergence, updates, ended)

    def step(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[State, TimeStep]:
        """Add the action, times the step size, to the parameters."""
        change = params.step_size * jnp.where(params.family, action, 0.0)
        moved = self._at(state.parameters + change, params, state.updates + 1)
        over = state.terminated
        new = jax.tree.map(lambda a, b: jnp.where(over, a, b), state, moved)
        return new, self._observe(new, params, state.divergence - new.divergence)

    def _observe(self, state: State, params: Params, reward: Array) -> TimeStep:
        obs = {
            "parameters": state.parameters,
            "gradient": state.gradient,
            "divergence": state.divergence,
            "family": params.family.astype(np.float64),
        }
        return TimeStep(
            obs=obs,
            reward=reward,
            cost=jnp.zeros((0,), np.float64),
            terminated=state.terminated,
            truncated=jnp.zeros((), bool),
            info={"updates": state.updates},
        )

    def observation_space(self, params: Params) -> Tree:
        vector = (self.model.size,)
        return Tree(
            {
                "parameters": Box(-np.inf, np.inf, vector, "float64"),
                "gradient": Box(-2.0, 2.0, vector, "float64"),
                # Rounding may leave a divergence just below zero.
                "divergence": Box(-1e-9, np.inf, (), "float64"),
                "family": Box(0.0, 1.0, vector, "float64"),
            }
        )

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (self.model.size,), "float64")
