"""Sequential decision processes of combinatorial problems on the environment contract.

After Karp and Held, "Finite-state processes and dynamic programming" (1967): a problem is a
set of feasible strings of letters (actions) with a cost; a process reads letters, keeps a
state, and adds increments of cost. Its undiscounted optimal value is the optimum of the problem
where the assumptions of `jaxlab.envs.combinatorial.formulation` hold.

A problem subclasses `DecisionProcess` and says what its states are; the environment contract
follows. Costs are minimised, `reward = -cost`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.errors import CapacityError
from jaxlab.core.spaces import Box, Discrete, Space, Tree

PyTree = Any
Params = TypeVar("Params")
Decision = TypeVar("Decision")


@struct.dataclass
class State:
    """An episode of a decision process.

    Attributes:
      decision: What the future depends on, a pytree of the problem's own.
      cost: Spent so far, with the terminal cost at the end.
      terminated: Whether the string is complete, or an illegal letter came.
    """

    decision: PyTree
    cost: Float[Array, ""]
    terminated: Bool[Array, ""]


@struct.dataclass
class GraphView:
    """A decision state as a graph, for learners: vertices with features, edges with features.

    Attributes:
      nodes: Features of vertices, `[n, features]`.
      edges: Features of pairs, `[n, n, features]`.
      present: Vertices that are there, `[n]`, bool.
      context: Features of the state as a whole, `[features]`.
    """

    nodes: Float[Array, "n features"]
    edges: Float[Array, "n n features"]
    present: Bool[Array, " n"]
    context: Float[Array, " features"]


class Coding(NamedTuple):
    """Decision states as integers, for tables of values.

    Attributes:
      count: Codes are `0 .. count - 1`; not all need be states.
      layers: Codes of states in an order such that every step leads to a later layer; a cyclic
        process has one layer, which is swept until nothing changes.
    """

    count: int
    layers: Sequence[np.ndarray]


def float_dtype() -> np.dtype:
    """Dtype of floats that are made anew: 64 bits where they are switched on."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))


def padded(array: Any, size: int, fill: float = 0.0) -> np.ndarray:
    """An array `[n, ...]` whose axes of length n are lengthened to `size`."""
    array = np.asarray(array)
    n = array.shape[0]
    room = [(0, size - n if length == n else 0) for length in array.shape]
    return np.pad(array, room, constant_values=fill)


def require_room(name: str, n: int, size: int, what: str) -> None:
    """Refuse an instance larger than what an environment is compiled for.

    Raises:
      CapacityError: It is; says what to do.
    """
    if n > size:
        raise CapacityError(
            f"{name}: has {n} {what}, the environment has room for {size}; make it with size={n}"
        )


@dataclasses.dataclass(frozen=True)
class DecisionProcess(Env[State, Params], Generic[Decision, Params]):
    """Base class of problems as undiscounted decision processes.

    Illegal actions end an episode and cost `penalty`, more than complete strings differ by.
    Observations are the problem's own dict with `action_mask` added.
    """

    #: +1 for problems that minimise, -1 for those that maximise: objective = sense * cost.
    sense: ClassVar[int] = 1
    #: Whether paths may come back to a state; then all costs are positive.
    cyclic: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def horizon(self) -> int:
        """The most letters of a string."""

    @property
    @abc.abstractmethod
    def num_actions(self) -> int:
        """Letters of the alphabet."""

    @abc.abstractmethod
    def initial(self, params: Params) -> Decision:
        """The decision state of the empty string."""

    @abc.abstractmethod
    def legal(self, params: Params, decision: Decision) -> Bool[Array, " actions"]:
        """Letters after which the string can still be completed."""

    @abc.abstractmethod
    def move(
        self, params: Params, decision: Decision, action: Int[Array, ""]
    ) -> tuple[Decision, Float[Array, ""]]:
        """The state after a legal letter, and the increment of cost."""

    @abc.abstractmethod
    def done(self, params: Params, decision: Decision) -> Bool[Array, ""]:
        """Whether the string is complete."""

    def final_cost(self, params: Params, decision: Decision) -> Float[Array, ""]:
        """What is added at the end; zero by default."""
        return jnp.zeros((), self.penalty(params).dtype)

    @abc.abstractmethod
    def penalty(self, params: Params) -> Float[Array, ""]:
        """More than the costs of any two complete strings differ by."""

    @abc.abstractmethod
    def observe(self, params: Params, decision: Decision) -> Mapping[str, Array]:
        """What an agent sees, without the mask."""

    @abc.abstractmethod
    def spaces(self, params: Params) -> Mapping[str, Space]:
        """Spaces of what `observe` returns."""

    @abc.abstractmethod
    def string_cost(self, params: Params, actions: Sequence[int]) -> float | None:
        """Cost of a string straight from the instance, without states; None if infeasible.

        Computed on the host: the reference that `check_formulation` compares with.
        """

    def graph(self, params: Params, decision: Decision) -> GraphView:
        """The state as a graph, for networks whose actions are vertices."""
        raise NotImplementedError(f"{type(self).__name__} has no view as a graph")

    def coding(self) -> Coding | None:
        """Decision states as integers; None leaves them to be enumerated."""
        return None

    def encode(self, params: Params, decision: Decision) -> Int[Array, ""]:
        """The code of a state."""
        raise NotImplementedError(f"{type(self).__name__} has no codes")

    def decode(self, params: Params, code: Int[Array, ""]) -> Decision:
        """The state of a code."""
        raise NotImplementedError(f"{type(self).__name__} has no codes")

    def reset(self, key: jax.Array, params: Params) -> tuple[State, TimeStep]:
        """Begin with the empty string."""
        dtype = self.penalty(params).dtype
        decision = self.initial(params)
        zero = jnp.zeros((), dtype)
        state = State(decision, zero, self.done(params, decision))
        return state, self._timestep(params, state, zero, jnp.zeros((), bool))

    def step(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[State, TimeStep]:
        """Append a letter."""
        over = state.terminated
        # Not by an index: in a batch that would be a gather, which is slower than looking at all.
        here = jnp.arange(self.num_actions) == action
        fine = jnp.any(self.legal(params, state.decision) & here) & ~over
        illegal = ~fine & ~over
        moved, cost = self.move(params, state.decision, action)
        ended = self.done(params, moved)
        cost = cost + jnp.where(ended, self.final_cost(params, moved), 0)
        cost = jnp.where(fine, cost, jnp.where(illegal, self.penalty(params), 0))
        decision = jax.tree.map(lambda new, old: jnp.where(fine, new, old), moved, state.decision)
        new = State(decision, state.cost + cost, over | illegal | (fine & ended))
        return new, self._timestep(params, new, -cost, illegal)

    def _timestep(self, params: Params, state: State, reward: Array, illegal: Array) -> TimeStep:
        mask = self.legal(params, state.decision) & ~state.terminated
        return TimeStep(
            obs={**self.observe(params, state.decision), "action_mask": mask},
            reward=reward,
            cost=jnp.zeros((0,), reward.dtype),
            terminated=state.terminated,
            truncated=jnp.zeros((), bool),
            info={"illegal": illegal},
        )

    def observation_space(self, params: Params) -> Tree:
        mask = flags((self.num_actions,))
        return Tree({**self.spaces(params), "action_mask": mask})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_actions)


def flags(shape: tuple[int, ...]) -> Space:
    """Arrays of bools."""
    return Box(0, 1, shape, "bool")


def run_string(
    env: DecisionProcess, params: Any, actions: Sequence[int]
) -> tuple[Any, float, bool]:
    """Read letters one after the other: the decision state, the cost with what the end adds,
    and whether every letter was legal and the string is complete."""
    decision, total = env.initial(params), 0.0
    for action in actions:
        letter = jnp.asarray(action, jnp.int32)
        if bool(env.done(params, decision)) or not bool(env.legal(params, decision)[letter]):
            return decision, total, False
        decision, cost = env.move(params, decision, letter)
        total += float(cost)
    ended = bool(env.done(params, decision))
    return decision, total + (float(env.final_cost(params, decision)) if ended else 0.0), ended
