"""To gymnax: `env.reset(key, params)` and `env.step(key, state, action, params)`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxlab.core.adapters.foreign import (
    as_action,
    as_dictionaries,
    default_params,
    flattened,
    info_with_cost,
    one_agent,
    require_package,
    typed_key,
)
from jaxlab.core.environment import Env, TimeStep, Wrapper
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Space, Tree
from jaxlab.core.wrappers import AutoReset, Tasks

_NO_LIMIT = 2**31 - 1


@struct.dataclass
class GymnaxParams:
    """The task (or `Tasks`), and the time limit that gymnax's learners look up in the params."""

    task: Any
    max_steps_in_episode: jax.Array


@struct.dataclass
class TimedState:
    """`time` counts the steps of the running episode, `[]`, int32."""

    env: Any
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class LimitInParams(Wrapper[GymnaxParams]):
    """Truncates after `params.max_steps_in_episode` steps."""

    def reset(self, key: jax.Array, params: GymnaxParams) -> tuple[TimedState, TimeStep]:
        state, timestep = self.env.reset(key, params.task)
        return TimedState(state, jnp.zeros((), jnp.int32)), timestep

    def step(
        self, key: jax.Array, state: TimedState, action: Any, params: GymnaxParams
    ) -> tuple[TimedState, TimeStep]:
        inner, timestep = self.env.step(key, state.env, action, params.task)
        time = jnp.minimum(state.time + 1, params.max_steps_in_episode)
        truncated = timestep.truncated | (time >= params.max_steps_in_episode)
        return TimedState(inner, time), dataclasses.replace(timestep, truncated=truncated)

    def observation_space(self, params: GymnaxParams) -> Space:
        return self.env.observation_space(params.task)

    def action_space(self, params: GymnaxParams) -> Space:
        return self.env.action_space(params.task)


def to_gymnax(
    env: Env,
    params: Any = None,
    *,
    legacy: bool = False,
    agents: str = "turns",
    flatten: bool = True,
    max_steps: int = _NO_LIMIT,
) -> Any:
    """Show an environment as a gymnax `Environment`.

    `step` resets automatically within the step. It returns the six values of gymnax 1.0
    `(obs, state, reward, terminated, truncated, info)` with the observation before the
    reset in `info["final_observation"]`, or with `legacy` the five of gymnax 0.x
    `(obs, state, reward, done, info)` with `info["discount"]`, zero where terminated.

    Args:
      env: The environment, without automatic reset.
      params: The task of `default_params`, by default the one drawn from key 0; with
        `Tasks` every episode draws its own.
      legacy: Return five values.
      agents: How several agents are shown as one: "turns" gives every agent its turn with
        its own observation and action (see `TakeTurns`); "joint" shows all at once, which
        gymnax's spaces can express for continuous actions only.
      flatten: Show observations as float32 vectors, action masks included, which most
        learners need; otherwise trees of observations are dictionaries.
      max_steps: Time limit in steps of this view, `params.max_steps_in_episode`, for
        environments that have none.

    Raises:
      ConfigError: gymnax is not installed, a space cannot be expressed, `agents` unknown.
    """
    adapted_class = _environment_class()
    view = flattened(one_agent("to_gymnax", env, agents), flatten)
    task = default_params(env, params)
    adapted = adapted_class(AutoReset(LimitInParams(view)), legacy, task, max_steps)
    adapted.action_space(adapted.default_params)
    adapted.observation_space(adapted.default_params)
    return adapted


def _per_task(params: GymnaxParams) -> Any:
    """The form in which `AutoReset` takes params of the task or of `Tasks`."""
    tasks = params.task
    if not isinstance(tasks, Tasks):
        return params
    limits = jnp.full(tasks.weights.shape, params.max_steps_in_episode, jnp.int32)
    return Tasks(GymnaxParams(tasks.params, limits), tasks.weights)


def to_gymnax_space(spaces: Any, space: Space) -> Any:
    """A space in the classes of the module `spaces` of gymnax or JaxMARL."""
    if isinstance(space, Tree):
        return spaces.Dict({name: to_gymnax_space(spaces, part) for name, part in space.items})
    if isinstance(space, Discrete) and space.shape == ():
        return spaces.Discrete(space.n)
    if isinstance(space, Box):
        return spaces.Box(space.low, space.high, space.shape, jnp.dtype(space.dtype))
    raise ConfigError(f"{space} has no counterpart among gymnax's spaces")


@functools.cache
def _environment_class() -> type:
    """The class of adapted environments, made when gymnax is first needed."""
    base: Any = require_package(
        "to_gymnax", "gymnax.environments.environment", "gymnax"
    ).Environment
    spaces = require_package("to_gymnax", "gymnax.environments.spaces", "gymnax")

    class AdaptedEnvironment(base):
        """A jaxlab environment with the interface of gymnax; equal if built from equals."""

        def __init__(self, env: AutoReset, legacy: bool, task: Any, max_steps: int):
            super().__init__()
            self.env, self.legacy = env, legacy
            self._params = GymnaxParams(task, jnp.asarray(max_steps, jnp.int32))
            # Learners pass environments as static arguments. Arrays have no equality to
            # compile by, so the task counts by identity.
            self._identity = (env, legacy, max_steps, id(task))

        def __hash__(self) -> int:
            return hash(self._identity)

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, AdaptedEnvironment) and self._identity == other._identity

        @property
        def name(self) -> str:
            return self.env.name

        @property
        def default_params(self) -> GymnaxParams:
            return self._params

        @property
        def num_actions(self) -> int:
            space = self.env.action_space(_per_task(self._params))
            if isinstance(space, Discrete):
                return space.n
            raise ConfigError(f"num_actions: {space} is not Discrete")

        def reset(self, key: jax.Array, params: GymnaxParams | None = None) -> tuple[Any, Any]:
            params = self._params if params is None else params
            state, timestep = self.env.reset(typed_key(key), _per_task(params))
            return as_dictionaries(timestep.obs), state

        def step(
            self, key: jax.Array, state: Any, action: Any, params: GymnaxParams | None = None
        ) -> tuple[Any, ...]:
            params = _per_task(self._params if params is None else params)
            action = as_action(action, self.env.action_space(params))
            state, timestep = self.env.step(typed_key(key), state, action, params)
            info = info_with_cost(timestep)
            info["final_observation"] = as_dictionaries(info.pop("final_obs"))
            obs, reward = as_dictionaries(timestep.obs), timestep.reward
            if self.legacy:
                info["discount"] = 1 - timestep.terminated.astype(reward.dtype)
                return obs, state, reward, timestep.last, info
            info |= {"terminated": timestep.terminated, "truncated": timestep.truncated}
            return obs, state, reward, timestep.terminated, timestep.truncated, info

        def observation_space(self, params: GymnaxParams) -> Any:
            return to_gymnax_space(spaces, self.env.observation_space(_per_task(params)))

        def action_space(self, params: GymnaxParams | None = None) -> Any:
            params = self._params if params is None else params
            return to_gymnax_space(spaces, self.env.action_space(_per_task(params)))

    return AdaptedEnvironment
