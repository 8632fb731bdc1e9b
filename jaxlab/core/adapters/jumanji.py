"""To and from Jumanji: `reset(key)`, `step(state, action)`, the key inside the state."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.core.adapters.foreign import (
    as_action,
    default_params,
    info_with_cost,
    require_package,
    typed_key,
)
from jaxlab.core.environment import Env, TimeStep, action_mask, select
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Space, Tree, as_mapping
from jaxlab.core.wrappers import AutoReset, Tasks


@struct.dataclass
class KeyedState:
    """A state with the raw key that Jumanji expects in it, and the task where drawn."""

    key: jax.Array
    env: Any
    params: Any


def to_jumanji(env: Env, params: Any = None) -> Any:
    """Show an environment as a Jumanji `Environment`, without automatic reset.

    Observations that are trees become named tuples. `discount` is zero where terminated
    (`[agents]` with several agents), `extras` is `info` (and the costs under `cost`, if any). The key of a step is folded from
    the one in the state. The specs have the dtypes of the precision that is active when
    they are first asked for.

    Args:
      env: The environment.
      params: The task, by default the one drawn from key 0; with `Tasks` every reset
        draws its own.

    Raises:
      ConfigError: jumanji is not installed, or a space cannot be expressed.
    """
    return _environment_class()(env, default_params(env, params))


@functools.cache
def _observation_type(names: tuple[str, ...]) -> type:
    return collections.namedtuple("Observation", names)  # type: ignore[misc]


def _as_named_tuples(value: Any) -> Any:
    fields = as_mapping(value)
    if fields is None:
        return value
    names = tuple(sorted(fields))
    return _observation_type(names)(*(_as_named_tuples(fields[name]) for name in names))


def _to_spec(specs: Any, space: Space, name: str) -> Any:
    if isinstance(space, Tree):
        parts = {part: _to_spec(specs, sub, part) for part, sub in space.items}
        return specs.Spec(_observation_type(tuple(parts)), name, **parts)
    if isinstance(space, Discrete):
        dtype = jnp.dtype(space.dtype)
        if space.shape == ():
            return specs.DiscreteArray(space.n, dtype, name)
        return specs.MultiDiscreteArray(jnp.full(space.shape, space.n, dtype), dtype, name)
    if isinstance(space, Box):
        dtype = jnp.dtype(space.dtype)
        return specs.BoundedArray(space.shape, dtype, space.low, space.high, name)
    raise ConfigError(f"to_jumanji: {space} has no counterpart among Jumanji's specs")


@functools.cache
def _environment_class() -> type:
    """The class of adapted environments, made when jumanji is first needed."""
    base: Any = require_package("to_jumanji", "jumanji.env", "jumanji").Environment
    types = require_package("to_jumanji", "jumanji.types", "jumanji")
    specs = require_package("to_jumanji", "jumanji.specs", "jumanji")

    class AdaptedEnvironment(base):
        """A jaxlab environment with the interface of Jumanji."""

        def __init__(self, env: Env, params: Any):
            self.env, self.params = env, params
            self._task = AutoReset.task_like(params)
            super().__init__()

        @property
        def _draws(self) -> bool:
            return isinstance(self.params, Tasks)

        def __repr__(self) -> str:
            return f"to_jumanji({self.env!r})"

        def reset(self, key: jax.Array) -> tuple[KeyedState, Any]:
            step_key, reset_key, task_key = jax.random.split(typed_key(key), 3)
            task = self.params.draw(task_key) if self._draws else self.params
            state, timestep = self.env.reset(reset_key, task)
            kept = task if self._draws else None
            first = self._timestep(timestep, types.StepType.FIRST)
            return KeyedState(jax.random.key_data(step_key), state, kept), first

        def step(self, state: KeyedState, action: Any) -> tuple[KeyedState, Any]:
            key, step_key = jax.random.split(typed_key(state.key))
            task = state.params if self._draws else self.params
            action = as_action(action, self.env.action_space(task))
            inner, timestep = self.env.step(step_key, state.env, action, task)
            kind = jnp.where(timestep.last, types.StepType.LAST, types.StepType.MID)
            raw = jax.random.key_data(key)
            return KeyedState(raw, inner, state.params), self._timestep(timestep, kind)

        def _timestep(self, timestep: TimeStep, kind: jax.Array) -> Any:
            return types.TimeStep(
                step_type=kind,
                reward=timestep.reward,
                discount=1 - timestep.terminated.astype(timestep.reward.dtype),
                observation=_as_named_tuples(timestep.obs),
                extras=info_with_cost(timestep),
            )

        @functools.cached_property
        def observation_spec(self) -> Any:
            return _to_spec(specs, self.env.observation_space(self._task), "observation")

        @functools.cached_property
        def action_spec(self) -> Any:
            return _to_spec(specs, self.env.action_space(self._task), "action")

        @functools.cached_property
        def _reward(self) -> Any:
            return jax.eval_shape(self.env.reset, jax.random.key(0), self._task)[1].reward

        @functools.cached_property
        def reward_spec(self) -> Any:
            return specs.Array(self._reward.shape, self._reward.dtype, "reward")

        @functools.cached_property
        def discount_spec(self) -> Any:
            return specs.BoundedArray(self._reward.shape, self._reward.dtype, 0, 1, "discount")

        def render(self, state: KeyedState) -> np.ndarray:
            return self.env.render(state.env, state.params if self._draws else self.params)

    return AdaptedEnvironment


@struct.dataclass
class NoTask:
    """Params of an environment whose task is fixed when it is made."""


@struct.dataclass
class JumanjiState:
    """Jumanji's own state, and the last timestep, in which a finished episode rests."""

    env: Any
    timestep: TimeStep


@dataclasses.dataclass(frozen=True)
class FromJumanji(Env[JumanjiState, NoTask]):
    """A Jumanji environment as one of ours; made by `from_jumanji`.

    Attributes:
      env: The Jumanji environment, compared by identity.
      observed: Space of observations.
      acted: Space of actions.
      agents: Number of agents, None for one without an agent axis.
      choices: Numbers of choices of which `acted` is the product, empty where it is none.
    """

    precisions: ClassVar[tuple[str, ...]] = ("float32",)

    env: Any
    observed: Space
    acted: Space
    agents: int | None = None
    choices: tuple[int, ...] = ()

    @property
    def name(self) -> str:  # type: ignore[override]
        return type(self.env).__name__

    @property
    def num_agents(self) -> int | None:
        return self.agents

    def sample_params(self, key: jax.Array) -> NoTask:
        return NoTask()

    def reset(self, key: jax.Array, params: NoTask) -> tuple[JumanjiState, TimeStep]:
        state, timestep = self.env.reset(key)
        state = _strong(state)
        timestep = self._timestep(timestep, self._extras_like_step(state))
        return JumanjiState(state, timestep), timestep

    def step(
        self, key: jax.Array, state: JumanjiState, action: Any, params: NoTask
    ) -> tuple[JumanjiState, TimeStep]:
        if self.choices:
            action = jnp.stack(jnp.unravel_index(action, self.choices)).astype(action.dtype)
        inner, stepped = self.env.step(_with_key(state.env, key), action)
        timestep = self._timestep(stepped, stepped.extras)
        zero = jnp.zeros_like(timestep.reward)
        rest = JumanjiState(state.env, dataclasses.replace(state.timestep, reward=zero))
        state = select(state.timestep.last, rest, JumanjiState(_strong(inner), timestep))
        return state, state.timestep

    def _extras_like_step(self, state: Any) -> Any:
        """Zeros for `extras`, which some environments leave out at reset."""
        action = jax.eval_shape(self.env.action_spec.generate_value)
        _, stepped = jax.eval_shape(self.env.step, state, action)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), stepped.extras)

    def _timestep(self, timestep: Any, extras: Any) -> TimeStep:
        last, discount = timestep.last(), timestep.discount
        reward = _strong(timestep.reward)
        obs = jax.tree.map(self._per_agent, timestep.observation)
        if self.choices and action_mask(obs) is not None:
            obs = dict(as_mapping(obs) or {})
            obs["action_mask"] = obs["action_mask"].reshape(-1)
        return TimeStep(
            obs=_strong(obs),
            reward=reward,
            cost=jnp.zeros((0,), reward.dtype),
            terminated=jnp.broadcast_to(last & (discount == 0), reward.shape),
            truncated=last & jnp.any(discount != 0),
            info=_strong(dict(extras or {})),
        )

    def _per_agent(self, leaf: jax.Array) -> jax.Array:
        if self.agents is None or leaf.shape[:1] == (self.agents,):
            return leaf
        return jnp.broadcast_to(leaf, (self.agents, *leaf.shape))

    def observation_space(self, params: NoTask) -> Space:
        return self.observed

    def action_space(self, params: NoTask) -> Space:
        return self.acted

    def render(self, state: JumanjiState, params: NoTask) -> np.ndarray:
        return self.env.render(state.env)


def from_jumanji(env: Any) -> Env:
    """Make an environment of ours of a Jumanji environment (without its wrappers).

    An episode that ends with a discount of zero is terminated, with another one
    truncated. A finished episode rests in its last timestep. Several agents are those
    with a reward each; entries of the observation without an agent axis are given once
    to each. Bounds that differ by entry are widened to common ones. Actions of several
    choices become one choice of their product where their numbers differ or their
    legality is joint. The task is fixed in `env`: there are no params to vary.

    Raises:
      ConfigError: jumanji is not installed, `env` is none of its environments, or its
        actions cannot be expressed.
    """
    base: Any = require_package("from_jumanji", "jumanji.env", "jumanji").Environment
    if not isinstance(env, base):
        raise ConfigError(f"from_jumanji: {type(env).__name__} is no jumanji Environment")
    shape = env.reward_spec.shape
    agents = int(shape[0]) if shape else None
    observed = _with_agents(_from_spec(env.observation_spec), agents)
    acted, choices = _actions(env.action_spec, dict(getattr(observed, "items", ())), agents)
    if choices and isinstance(observed, Tree):
        flat = Box(0, 1, (math.prod(choices),), "bool")
        masked = {n: flat if n == "action_mask" else part for n, part in observed.items}
        observed = Tree(masked)
    return FromJumanji(env, observed, acted, agents, choices)


def _with_key(state: Any, key: jax.Array) -> Any:
    """Jumanji draws from the key in its state: put the one of this step there."""
    if not hasattr(state, "key"):
        return state
    replace = state._replace if hasattr(state, "_replace") else state.replace
    return replace(key=key)


def _strong(tree: Any) -> Any:
    """Give weakly typed leaves the dtype they have."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return jax.lax.convert_element_type(leaf, jnp.result_type(leaf))

    return jax.tree.map(convert, tree)


def _with_agents(space: Space, agents: int | None) -> Space:
    if isinstance(space, Tree):
        return Tree({name: _with_agents(part, agents) for name, part in space.items})
    assert isinstance(space, Box | Discrete)
    if agents is None or space.shape[:1] == (agents,):
        return space
    return dataclasses.replace(space, shape=(agents, *space.shape))


def _actions(
    spec: Any, observed: dict[str, Any], agents: int | None
) -> tuple[Space, tuple[int, ...]]:
    """Space of actions, and the choices of which it is the product, if any."""
    specs = require_package("from_jumanji", "jumanji.specs", "jumanji")
    dtype = _dtype(spec)
    if isinstance(spec, specs.MultiDiscreteArray):
        numbers = np.asarray(spec.num_values)
        choices = tuple(numbers.ravel().tolist())
        mask = getattr(observed.get("action_mask"), "shape", None)
        if len(set(choices)) == 1 and mask in (None, (*numbers.shape, choices[0])):
            return Discrete(choices[0], tuple(numbers.shape), dtype), ()
        if agents is None and mask in (None, choices) and numbers.ndim == 1:
            return Discrete(math.prod(choices), (), dtype), choices
        raise ConfigError(
            f"from_jumanji: actions of {numbers.tolist()} choices and a mask of shape {mask} "
            "can be expressed neither one by one nor as their product"
        )
    integral = np.issubdtype(np.dtype(dtype), np.integer)
    if isinstance(spec, specs.BoundedArray) and integral and not np.any(spec.minimum):
        return Discrete(int(np.max(spec.maximum)) + 1, tuple(spec.shape), dtype), ()
    return _from_spec(spec), ()


def _dtype(spec: Any) -> str:
    return str(jax.dtypes.canonicalize_dtype(spec.dtype))


def _from_spec(spec: Any) -> Space:
    specs = require_package("from_jumanji", "jumanji.specs", "jumanji")
    if not isinstance(spec, specs.Array):
        parts = {name: part for name, part in vars(spec).items() if isinstance(part, specs.Spec)}
        return Tree({name: _from_spec(part) for name, part in parts.items()})
    shape, dtype = tuple(spec.shape), _dtype(spec)
    if isinstance(spec, specs.BoundedArray):
        low, high = float(np.min(spec.minimum)), float(np.max(spec.maximum))
        return Box(low, high, shape, dtype)
    if dtype == "bool":
        return Box(0, 1, shape, dtype)
    if np.issubdtype(np.dtype(dtype), np.integer):
        return Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype)
    return Box(-math.inf, math.inf, shape, dtype)
