"""Simulators of finite decision processes: continuing tasks without an end or a reset."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.core.environment import Constant, Env, TimeStep
from jaxlab.core.errors import ScenarioError
from jaxlab.core.spaces import Discrete
from jaxlab.envs.cmdp.model import CMDP


@struct.dataclass
class Params:
    """A task.

    Attributes:
      problem: The decision process.
      cumulative: Sums of the transition probabilities along the next states, infinite from the
        last possible state on, so that rounding reaches no impossible one.
    """

    problem: CMDP
    cumulative: Float[Array, "states actions states"]


@struct.dataclass
class State:
    """Where the process is.

    Attributes:
      position: Index of the state, `[]`; `[copies]` for a fleet.
    """

    position: Int[Array, "..."]


def params_of(problem: CMDP) -> Params:
    """A process as a task, in the active precision; traceable."""
    problem = problem.cast()
    table = problem.transitions
    later = jnp.flip(jnp.cumsum(jnp.flip(table, -1), -1), -1) - table
    last = later <= 0
    return Params(problem, jnp.where(last, jnp.inf, jnp.cumsum(table, -1)))


def slack(timestep: TimeStep, params: Params) -> jax.Array:
    """What a step leaves of the bounds `[m]`: its average is to be at least zero."""
    problem = params.problem
    return problem.senses * (timestep.cost - problem.bounds)


@dataclasses.dataclass(frozen=True)
class Finite(Env[State, Params]):
    """A finite process with states and actions as indices; subclasses say which tasks there are."""

    precisions: ClassVar[tuple[str, ...]] = ("float32", "float64")

    @property
    def shape(self) -> tuple[int, int]:
        """States and actions."""
        raise NotImplementedError

    def reset(self, key: jax.Array, params: Params) -> tuple[State, TimeStep]:
        """Begin in a uniformly random state."""
        position = jax.random.randint(key, (), 0, self.shape[0], jnp.int32)
        zero = jnp.zeros_like(params.problem.reward[0, 0])
        cost = jnp.zeros_like(params.problem.bounds)
        return State(position), _timestep(position, zero, cost)

    def step(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[State, TimeStep]:
        """Draw the next state by inversion of its distribution."""
        at = (state.position, action)
        uniform = jax.random.uniform(key, (), params.cumulative.dtype)
        position = jnp.sum(uniform >= params.cumulative[at], dtype=jnp.int32)
        problem = params.problem
        cost = problem.costs[:, state.position, action]
        return State(position), _timestep(position, problem.reward[at], cost)

    def observation_space(self, params: Params) -> Discrete:
        return Discrete(self.shape[0])

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.shape[1])


@dataclasses.dataclass(frozen=True)
class TabularCMDP(Finite):
    """The simulator of one process.

    Observations are indices of states, actions those of actions; `cost` is the cost signals as
    they are, `slack` measures them against their bounds.

    Attributes:
      model: The process, a `CMDP`.
    """

    name: ClassVar[str] = "cmdp"

    model: Constant

    @property
    def shape(self) -> tuple[int, int]:
        return self.model.value.states, self.model.value.actions

    @property
    def num_costs(self) -> int:
        return self.model.value.signals

    def sample_params(self, key: jax.Array) -> Params:
        """The process; there is nothing to draw."""
        return params_of(self.model.value)


def simulator(problem: CMDP) -> TabularCMDP:
    """The simulator of a process."""
    return TabularCMDP(Constant(jax.tree.map(np.asarray, problem)))


@dataclasses.dataclass(frozen=True)
class Fleet(Env[State, Params]):
    """Copies of one process side by side: a factored process of `states ** copies` states.

    Reward and cost signals are means over the copies, so bounds tie them together. Still the
    optimum is known: it is the single process's own, since any occupation measure of the fleet
    has a mean of occupation measures of one copy, and any policy of one can be run in all.

    Observations are indices `[copies]`, actions indices `[copies]`.

    Attributes:
      model: The process of one copy.
      copies: How many.
    """

    name: ClassVar[str] = "cmdp_fleet"
    precisions: ClassVar[tuple[str, ...]] = ("float32", "float64")

    model: Constant
    copies: int = 6

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise ScenarioError(f"a fleet of {self.copies} copies: expected at least 1")

    @property
    def one(self) -> TabularCMDP:
        """The simulator of one copy."""
        return TabularCMDP(self.model)

    @property
    def num_costs(self) -> int:
        return self.one.num_costs

    def sample_params(self, key: jax.Array) -> Params:
        """The process; there is nothing to draw."""
        return self.one.sample_params(key)

    def reset(self, key: jax.Array, params: Params) -> tuple[State, TimeStep]:
        """Begin in uniformly random states."""
        return self._joined(jax.vmap(self.one.reset, (0, None))(self._keys(key), params))

    def step(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[State, TimeStep]:
        """Move all copies."""
        step = jax.vmap(self.one.step, (0, 0, 0, None))
        return self._joined(step(self._keys(key), state, action, params))

    def _keys(self, key: jax.Array) -> jax.Array:
        return jax.random.split(key, self.copies)

    def _joined(self, moved: tuple[State, TimeStep]) -> tuple[State, TimeStep]:
        state, each = moved
        return state, _timestep(each.obs, jnp.mean(each.reward), jnp.mean(each.cost, 0))

    def observation_space(self, params: Params) -> Discrete:
        return Discrete(self.one.shape[0], (self.copies,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.one.shape[1], (self.copies,))


def _timestep(obs: Any, reward: jax.Array, cost: jax.Array) -> TimeStep:
    never = jnp.zeros((), bool)
    return TimeStep(obs, reward, cost, terminated=never, truncated=never, info={})
