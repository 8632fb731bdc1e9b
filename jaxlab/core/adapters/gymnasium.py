"""To Gymnasium: a single environment, and a vector of them in one compiled program."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from jaxlab.core.adapters.foreign import (
    as_action,
    default_params,
    info_with_cost,
    one_agent,
    require_package,
)
from jaxlab.core.environment import Env
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Space, Tree, as_mapping
from jaxlab.core.wrappers import AutoReset, Tasks


def to_gymnasium(
    env: Env,
    params: Any = None,
    *,
    agents: str = "joint",
    render_mode: str | None = None,
) -> Any:
    """Show an environment as a `gymnasium.Env`, compiled but stepped one by one.

    Observations are numpy arrays, trees are dictionaries, booleans int8 (`MultiBinary`).
    `reset(seed=...)` makes everything that follows reproducible. `info` holds numpy
    arrays, costs of a constrained problem among them as `cost`.

    Args:
      env: The environment, without automatic reset.
      params: The task, by default the one drawn from key 0; with `Tasks` every episode
        draws its own.
      agents: How several agents are shown as one: "joint" shows and decides for all at
        once (`MultiDiscrete` actions, the sum of rewards), "turns" one after the other.
      render_mode: None or "rgb_array".

    Raises:
      ConfigError: gymnasium is not installed, a space cannot be expressed, `agents` or
        `render_mode` is unknown.
    """
    single = _single_class()
    view = one_agent("to_gymnasium", env, agents)
    return single(view, default_params(env, params), render_mode)


def to_gymnasium_vector(
    env: Env,
    num_envs: int,
    params: Any = None,
    *,
    agents: str = "joint",
    mode: str = "next_step",
) -> Any:
    """Show `num_envs` copies of an environment as a `gymnasium.vector.VectorEnv`.

    All copies step in one compiled call. Entries of `infos` are arrays `[num_envs, ...]`;
    with `mode="same_step"` `final_obs` holds the observations before a reset, and
    `_final_obs` says in which copies an episode ended.

    Args:
      env: The environment, without automatic reset.
      num_envs: Number of copies.
      params: As for `to_gymnasium`.
      agents: As for `to_gymnasium`.
      mode: Automatic reset: "next_step" (Gymnasium's own default) or "same_step".

    Raises:
      ConfigError: As `to_gymnasium`, or an unknown mode, or no copies.
    """
    vector = _vector_class()
    if mode not in ("next_step", "same_step"):
        raise ConfigError(
            f"to_gymnasium_vector: mode is {mode!r}, must be 'next_step' or 'same_step'"
        )
    if num_envs < 1:
        raise ConfigError(f"to_gymnasium_vector: num_envs is {num_envs}, must be at least 1")
    view: Env = AutoReset(one_agent("to_gymnasium_vector", env, agents), mode)
    return vector(view, num_envs, default_params(env, params))


def to_gymnasium_space(space: Space) -> Any:
    """A space in Gymnasium's classes."""
    spaces = require_package("to_gymnasium", "gymnasium.spaces", "gymnasium")
    if isinstance(space, Tree):
        return spaces.Dict({name: to_gymnasium_space(part) for name, part in space.items})
    if isinstance(space, Discrete):
        dtype = np.dtype(space.dtype)
        if space.shape == ():
            return spaces.Discrete(space.n, dtype=dtype)
        return spaces.MultiDiscrete(np.full(space.shape, space.n), dtype=dtype)
    if isinstance(space, Box):
        if space.dtype == "bool":
            return spaces.MultiBinary(space.shape)
        return spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype))
    raise ConfigError(f"to_gymnasium: {space} has no counterpart among Gymnasium's spaces")


def to_numpy(value: Any) -> Any:
    """Observations as Gymnasium has them: numpy, dictionaries, int8 for booleans."""
    fields = as_mapping(value)
    if fields is not None:
        return {name: to_numpy(part) for name, part in fields.items()}
    array = np.array(value)
    return array.astype(np.int8) if array.dtype == np.bool_ else array


def host_info(info: Any) -> dict[str, Any]:
    """`info` as numpy, dictionaries all the way down."""
    return {
        name: host_info(fields) if (fields := as_mapping(value)) is not None else np.array(value)
        for name, value in info.items()
    }


class Episodes:
    """An environment compiled for stepping from Python; draws its own keys.

    Each reset draws a task where `params` are `Tasks`.
    """

    def __init__(self, env: Env, params: Any):
        self.env, self.params = env, params
        self.task = AutoReset.task_like(params)
        self.state: Any = None
        self._key = jax.random.key(0)
        self._count = 0
        self._reset = jax.jit(self._reset_from)
        self._step = jax.jit(self._step_from)

    def _reset_from(self, key: jax.Array, count: jax.Array, params: Any) -> Any:
        task_key, reset_key = jax.random.split(jax.random.fold_in(key, count))
        task = params.draw(task_key) if isinstance(params, Tasks) else params
        return task, *self.env.reset(reset_key, task)

    def _step_from(
        self, key: jax.Array, count: jax.Array, state: Any, action: Any, task: Any
    ) -> Any:
        return self.env.step(jax.random.fold_in(key, count), state, action, task)

    def _next(self) -> np.int32:
        self._count += 1
        return np.int32(self._count)

    def seed(self, seed: int) -> None:
        """Begin a new stream of keys."""
        self._key, self._count = jax.random.key(seed), 0

    def reset(self) -> Any:
        """First timestep of a new episode."""
        self.task, self.state, timestep = self._reset(self._key, self._next(), self.params)
        return timestep

    def step(self, action: Any) -> Any:
        """Timestep after `action`."""
        action = as_action(action, self.env.action_space(self.task))
        self.state, timestep = self._step(self._key, self._next(), self.state, action, self.task)
        return timestep

    def render(self) -> np.ndarray:
        """Picture of the present state."""
        return self.env.render(self.state, self.task)


@functools.cache
def _single_class() -> type:
    """The class of adapted environments, made when gymnasium is first needed."""
    base: Any = require_package("to_gymnasium", "gymnasium", "gymnasium").Env

    class AdaptedEnv(base):
        """A jaxlab environment with the interface of Gymnasium."""

        def __init__(self, env: Env, params: Any, render_mode: str | None):
            self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
            if render_mode not in (None, "rgb_array"):
                raise ConfigError(
                    f"to_gymnasium: render_mode is {render_mode!r}, must be None or 'rgb_array'"
                )
            self.render_mode = render_mode
            self.episodes = Episodes(env, params)
            self.observation_space = to_gymnasium_space(env.observation_space(self.episodes.task))
            self.action_space = to_gymnasium_space(env.action_space(self.episodes.task))
            self.episodes.seed(int(self.np_random.integers(2**31)))

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            if seed is not None:
                self.episodes.seed(seed)
            timestep = self.episodes.reset()
            return to_numpy(timestep.obs), host_info(info_with_cost(timestep))

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            timestep = self.episodes.step(action)
            flags = bool(timestep.terminated), bool(timestep.truncated)
            info = host_info(info_with_cost(timestep))
            return to_numpy(timestep.obs), float(timestep.reward), *flags, info

        def render(self) -> np.ndarray | None:
            return self.episodes.render() if self.render_mode == "rgb_array" else None

    return AdaptedEnv


@functools.cache
def _vector_class() -> type:
    """The class of adapted vectors, made when gymnasium is first needed."""
    vector = require_package("to_gymnasium_vector", "gymnasium.vector", "gymnasium")
    utils = require_package("to_gymnasium_vector", "gymnasium.vector.utils", "gymnasium")
    base: Any = vector.VectorEnv

    class AdaptedVectorEnv(base):
        """Copies of a jaxlab environment with the vector interface of Gymnasium."""

        def __init__(self, env: Any, num_envs: int, params: Any):
            self.env, self.num_envs, self.params = env, num_envs, params
            mode = "NEXT_STEP" if env.mode == "next_step" else "SAME_STEP"
            self.metadata = {"autoreset_mode": vector.AutoresetMode[mode]}
            self.single_observation_space = to_gymnasium_space(env.observation_space(params))
            self.single_action_space = to_gymnasium_space(env.action_space(params))
            self.observation_space = utils.batch_space(self.single_observation_space, num_envs)
            self.action_space = utils.batch_space(self.single_action_space, num_envs)
            self._key = jax.random.key(int(self.np_random.integers(2**31)))
            self._count = 0
            self._state: Any = None
            self._reset = jax.jit(self._reset_all)
            self._step = jax.jit(self._step_all)

        def _keys(self, key: jax.Array, count: jax.Array) -> jax.Array:
            return jax.random.split(jax.random.fold_in(key, count), self.num_envs)

        def _reset_all(self, key: jax.Array, count: jax.Array, params: Any) -> Any:
            return jax.vmap(self.env.reset, (0, None))(self._keys(key, count), params)

        def _step_all(
            self, key: jax.Array, count: jax.Array, state: Any, action: Any, params: Any
        ) -> Any:
            step = jax.vmap(self.env.step, (0, 0, 0, None))
            return step(self._keys(key, count), state, action, params)

        def _next(self) -> np.int32:
            self._count += 1
            return np.int32(self._count)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            if seed is not None:
                self._key, self._count = jax.random.key(seed), 0
            self._state, timestep = self._reset(self._key, self._next(), self.params)
            return to_numpy(timestep.obs), self._infos(timestep)

        def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
            actions = as_action(actions, self.env.action_space(self.params))
            self._state, timestep = self._step(
                self._key, self._next(), self._state, actions, self.params
            )
            told = (timestep.reward, timestep.terminated, timestep.truncated)
            return to_numpy(timestep.obs), *map(np.array, told), self._infos(timestep)

        def _infos(self, timestep: Any) -> dict[str, Any]:
            info = host_info(info_with_cost(timestep))
            final_obs = info.pop("final_obs")
            info.pop("first", None)
            masks = {f"_{name}": np.ones(self.num_envs, bool) for name in info}
            if self.env.mode == "same_step":
                info["final_obs"] = to_numpy(final_obs)
                masks["_final_obs"] = np.array(timestep.last)
            return info | masks

    return AdaptedVectorEnv
