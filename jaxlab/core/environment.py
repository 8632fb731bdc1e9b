"""The environment contract: pure functions with the key and the task as arguments.

An `Env` holds only static, hashable structure (sizes, maxima, flags). Everything
that may differ between two episodes without changing a shape lives in `Params`, a
pytree of arrays, so tasks can be stacked, edited, vmapped over and saved. No reset
hides in `step`; automatic reset, time limits and logging are wrappers.

With several agents every per-agent quantity has a leading agent axis
(`obs [agents, ...]`, `reward [agents]`, `terminated [agents]`); `truncated` is a
scalar always. An episode ends when all agents are terminated or it is truncated.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.core.spaces import Space, as_mapping

Params = TypeVar("Params")
State = TypeVar("State")
PyTree = Any


@struct.dataclass
class TimeStep:
    """What an environment tells an agent after a reset or a step.

    Attributes:
      obs: Observation, any pytree of arrays; where actions can be illegal, its
        field (or key) `action_mask` is true for the legal ones.
      reward: Reward to be maximised, `[]` or `[agents]`, floating.
      cost: Cost signals of a constrained problem, `[m]` (or `[m, agents]`); `m = 0` by default.
      terminated: True where no further reward can come: `[]` or `[agents]`, bool.
      truncated: True when the episode was cut by a limit, `[]`, bool.
      info: Dict with fixed keys, shapes and dtypes.
    """

    obs: PyTree
    reward: jax.Array
    cost: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: Mapping[str, PyTree]

    @property
    def last(self) -> jax.Array:
        """Whether the episode is over, in the shape of `truncated`: stacks of steps work too."""
        agent_axes = tuple(range(self.truncated.ndim, self.terminated.ndim))
        return jnp.all(self.terminated, axis=agent_axes) | self.truncated


def action_mask(obs: PyTree) -> Any:
    """The field (or key) `action_mask` of an observation, None where there is none.

    Any array or abstract shape may stand there.
    """
    fields = as_mapping(obs)
    return None if fields is None else fields.get("action_mask")


class Constant:
    """A pytree of numpy arrays that an `Env` holds as static structure.

    Large tables (road geometry, a compiled program) are hashed by content, so two
    environments built from the same file are equal and share one compilation, and
    they are not copied per environment as a leaf of `Params` would be.
    """

    __slots__ = ("_digest", "value")

    def __init__(self, value: PyTree):
        self.value = jax.tree.map(_frozen_array, value)
        leaves, treedef = jax.tree.flatten(self.value)
        digest = hashlib.sha256(str(treedef).encode())
        for leaf in leaves:
            digest.update(f"{leaf.dtype.str}{leaf.shape}".encode())
            digest.update(np.ascontiguousarray(leaf).tobytes())
        self._digest = digest.hexdigest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._digest == other._digest

    def __repr__(self) -> str:
        return f"Constant({self._digest[:12]})"


def _frozen_array(leaf: Any) -> np.ndarray:
    array = np.array(leaf)
    array.setflags(write=False)
    return array


@dataclasses.dataclass(frozen=True)
class Env(abc.ABC, Generic[State, Params]):
    """Base class of environments; subclasses are frozen dataclasses of static fields."""

    name: ClassVar[str] = "environment"
    version: ClassVar[str] = "1"
    #: Precisions in which the environment meets its contract: "float32", "float64".
    precisions: ClassVar[tuple[str, ...]] = ("float32", "float64")

    @property
    def num_agents(self) -> int | None:
        """Number of agents, or None for a single agent without an agent axis."""
        return None

    @property
    def num_costs(self) -> int:
        """Number `m` of cost signals."""
        return 0

    @property
    def absorbing(self) -> bool:
        """Whether a finished episode stays finished; false where a wrapper resets by itself."""
        return True

    @property
    def unwrapped(self) -> Env:
        """The environment inside all wrappers."""
        return self

    @abc.abstractmethod
    def sample_params(self, key: jax.Array) -> Params:
        """Draw a task."""

    @abc.abstractmethod
    def reset(self, key: jax.Array, params: Params) -> tuple[State, TimeStep]:
        """Start an episode of the task `params`."""

    @abc.abstractmethod
    def step(
        self, key: jax.Array, state: State, action: PyTree, params: Params
    ) -> tuple[State, TimeStep]:
        """Advance one step. Terminal states absorb: a finished episode stays finished."""

    @abc.abstractmethod
    def observation_space(self, params: Params) -> Space:
        """Space of `TimeStep.obs`, agent axis included."""

    @abc.abstractmethod
    def action_space(self, params: Params) -> Space:
        """Space of actions, agent axis included."""

    def render(self, state: State, params: Params) -> np.ndarray:
        """Picture of a state on the host, uint8 `[H, W, 3]`."""
        raise NotImplementedError(f"{type(self).__name__} has no picture")


def select(flag: jax.Array, on_true: PyTree, on_false: PyTree) -> PyTree:
    """Leaf by leaf `where` on one flag `[]`."""
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), on_true, on_false)


@dataclasses.dataclass(frozen=True)
class Wrapper(Env[Any, Params]):
    """An environment around another one; its State holds the inner one as `env`."""

    #: Whether the State keeps statistics that must outlive an episode.
    outlives_episodes: ClassVar[bool] = False

    env: Env

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.env.name

    @property
    def version(self) -> str:  # type: ignore[override]
        return self.env.version

    @property
    def precisions(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.env.precisions

    @property
    def num_agents(self) -> int | None:
        return self.env.num_agents

    @property
    def num_costs(self) -> int:
        return self.env.num_costs

    @property
    def absorbing(self) -> bool:
        return self.env.absorbing

    @property
    def unwrapped(self) -> Env:
        return self.env.unwrapped

    def sample_params(self, key: jax.Array) -> Params:
        return self.env.sample_params(key)

    def observation_space(self, params: Params) -> Space:
        return self.env.observation_space(params)

    def action_space(self, params: Params) -> Space:
        return self.env.action_space(params)

    def render(self, state: Any, params: Params) -> np.ndarray:
        return self.env.render(state.env, params)
