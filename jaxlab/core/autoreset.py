"""Automatic reset: the next episode starts when one ends, with the task it draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from jaxlab.core.environment import Params, PyTree, TimeStep, Wrapper, select
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Space

AUTO_RESET_MODES = ("same_step", "next_step", "pool")

# Folded into a step's key for the reset that follows it, so that the inner step sees
# the very key it would see unwrapped. `split(key)` is `fold_in(key, 0 .. n - 1)`, so the
# number is one that no split of a sensible length reaches.
_RESET_STREAM = 0x52455345


@custom_vmap
def any_in_batch(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """`flag`, and under `vmap` whether it holds anywhere in the batch, unbatched."""
    return flag


@any_in_batch.def_vmap
def _(axis_size: int, in_batched: list[bool], flag: Bool[Array, " batch"]):
    # Applied to itself, so that maps around this one reduce over their axis too.
    return any_in_batch(jnp.any(flag)), False


def replace_where(flag: Bool[Array, ""], replacement: Callable[[], PyTree], tree: PyTree) -> PyTree:
    """`replacement()` where `flag` holds, else `tree`.

    Under any number of `vmap`s the replacement is computed only if some flag of the
    batch holds: a select under a `lax.cond` on their disjunction.
    """
    return jax.lax.cond(
        any_in_batch(flag),
        lambda: select(flag, replacement(), tree),
        # A select of equals costs nothing once compiled. Inside `shard_map` it makes the
        # types of both branches vary over the same mesh axes, as `cond` demands.
        lambda: select(flag, tree, tree),
    )


@struct.dataclass
class Tasks:
    """A weighted set of tasks from which each new episode draws one.

    Attributes:
      params: Params stacked along a leading axis, every leaf `[tasks, ...]`.
      weights: Non-negative, not all zero, `[tasks]`; they need not sum to one.
    """

    params: PyTree
    weights: Float[Array, " tasks"]

    def draw(self, key: jax.Array) -> PyTree:
        """Params of one task, drawn in proportion to the weights."""
        return _at(self.params, jax.random.categorical(key, jnp.log(self.weights)))


@struct.dataclass
class Pool:
    """Ready-made beginnings of episodes, so that a reset is one gather.

    Attributes:
      tasks: The task of each start.
      states: First states, every leaf `[starts, ...]`.
      timesteps: First timesteps, every leaf `[starts, ...]`.
    """

    tasks: Tasks
    states: PyTree
    timesteps: TimeStep


def _at(tree: PyTree, index: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def stack_tasks(params: Sequence[Params], weights: Sequence[float] | None = None) -> Tasks:
    """Make `Tasks` of a list of params; equal weights by default.

    Raises:
      ConfigError: No params, weights of another number, a negative weight, or all zero.
    """
    if not params:
        raise ConfigError("stack_tasks: no params given, at least one task is needed")
    values = np.ones(len(params)) if weights is None else np.asarray(weights, np.float64)
    if values.shape != (len(params),):
        raise ConfigError(f"stack_tasks: {len(params)} params but weights of shape {values.shape}")
    if not (np.all(np.isfinite(values)) and np.all(values >= 0) and values.sum() > 0):
        raise ConfigError("stack_tasks: weights must be finite, non-negative and not all zero")
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    return Tasks(params=stacked, weights=jnp.asarray(values, jnp.float32))


@struct.dataclass
class AutoResetState:
    """`params` is the task of the running episode where drawn from `Tasks` or a `Pool`."""

    env: PyTree
    last: Bool[Array, ""]
    params: PyTree = None


@dataclasses.dataclass(frozen=True)
class AutoReset(Wrapper[Params]):
    """Starts a new episode when one ends.

    `same_step`: the TimeStep that ends an episode carries the first observation of the
    next one in `obs`; reward, cost, flags and info are those of the finished step.
    `next_step`: the TimeStep that ends an episode is returned as it is, and the next
    step ignores its action and returns the first TimeStep of the new episode.
    `pool`: as `same_step`, but beginnings are gathered from a `Pool` made beforehand
    (`fill_pool`), so no reset is computed in a step. Episodes then repeat the starts of
    the pool until it is filled anew.

    `info["final_obs"]` is always the observation that followed the action, before any
    reset: the one to bootstrap from. With `next_step`, `info["first"]` is true for a
    TimeStep that begins an episode; no transition leads to it.

    In place of params, `reset` and `step` of the first two modes take `Tasks` as well:
    every episode then draws its own task, which stays in the state until it ends, so
    that editing the tasks does not touch running episodes.

    Cost: a reset is computed only in steps where an episode ends. Under any number of
    `vmap`s it runs (for the whole batch) under one `lax.cond` on "some episode ends",
    not as a select; where all episodes end together, as in traffic, it costs next to
    nothing. If in nearly every step some episode of a wide batch ends and a reset is
    dear, use `pool`. With a batch sharded by the compiler the condition is one boolean
    all-reduce a step; inside `shard_map` it is local.

    Raises:
      ConfigError: An unknown mode, a `pool_size` below one, or a wrapped environment
        that resets by itself or keeps statistics across episodes.
    """

    mode: str = "same_step"
    pool_size: int = 64

    def __post_init__(self) -> None:
        if self.mode not in AUTO_RESET_MODES:
            expected = ", ".join(AUTO_RESET_MODES)
            raise ConfigError(f"AutoReset: mode is {self.mode!r}, must be one of {expected}")
        if self.pool_size < 1:
            raise ConfigError(f"AutoReset: pool_size is {self.pool_size}, must be at least 1")
        if not self.env.absorbing:
            raise ConfigError("AutoReset: the wrapped environment already resets by itself")
        inner = self.env
        while isinstance(inner, Wrapper):
            if inner.outlives_episodes:
                raise ConfigError(
                    f"AutoReset: {type(inner).__name__} keeps statistics across episodes; "
                    "wrap it around AutoReset, not inside"
                )
            inner = inner.env

    @property
    def absorbing(self) -> bool:
        return False

    def sample_params(self, key: jax.Array) -> Any:
        if self.mode != "pool":
            return self.env.sample_params(key)
        task_key, start_key = jax.random.split(key)
        params = jax.vmap(self.env.sample_params)(jax.random.split(task_key, self.pool_size))
        return self.fill_pool(start_key, Tasks(params, jnp.ones((self.pool_size,), jnp.float32)))

    def fill_pool(self, key: jax.Array, tasks: Tasks) -> Pool:
        """Reset every task once; the result takes the place of params in mode `pool`."""
        keys = jax.random.split(key, tasks.weights.shape[0])
        states, timesteps = jax.vmap(self.env.reset)(keys, tasks.params)
        return Pool(tasks=tasks, states=states, timesteps=timesteps)

    def _start(self, key: jax.Array, params: Any) -> tuple[PyTree, TimeStep, PyTree]:
        """State, timestep and (where drawn) task of a new episode."""
        if self.mode == "pool":
            if not isinstance(params, Pool):
                raise ConfigError(
                    "AutoReset: mode 'pool' takes a Pool for params; make one with "
                    "sample_params or fill_pool"
                )
            index = jax.random.categorical(key, jnp.log(params.tasks.weights))
            return _at((params.states, params.timesteps, params.tasks.params), index)
        if isinstance(params, Tasks):
            task = params.draw(jax.random.fold_in(key, _RESET_STREAM))
            return *self.env.reset(key, task), task
        return *self.env.reset(key, params), None

    def reset(self, key: jax.Array, params: Any) -> tuple[AutoResetState, TimeStep]:
        state, timestep, task = self._start(key, params)
        timestep = self._with_info(timestep, timestep.obs, jnp.ones((), bool))
        return AutoResetState(state, timestep.last, task), timestep

    def step(
        self, key: jax.Array, state: AutoResetState, action: PyTree, params: Any
    ) -> tuple[AutoResetState, TimeStep]:
        task = params if state.params is None else state.params
        inner, timestep = self.env.step(key, state.env, action, task)
        deferred = self.mode == "next_step"
        restart = state.last if deferred else timestep.last
        stepped = (inner, timestep if deferred else timestep.obs, state.params)

        def started() -> PyTree:
            new, first, drawn = self._start(jax.random.fold_in(key, _RESET_STREAM), params)
            return new, first if deferred else first.obs, drawn

        inner, begun, task = replace_where(restart, started, stepped)
        final_obs = begun.obs if deferred else timestep.obs
        timestep = begun if deferred else dataclasses.replace(timestep, obs=begun)
        timestep = self._with_info(timestep, final_obs, restart)
        return AutoResetState(inner, timestep.last, task), timestep

    def _with_info(self, timestep: TimeStep, final_obs: PyTree, first: Array) -> TimeStep:
        extra = {"final_obs": final_obs}
        if self.mode == "next_step":
            extra["first"] = first
        return dataclasses.replace(timestep, info={**timestep.info, **extra})

    @staticmethod
    def task_like(params: Any) -> Any:
        """Params of one task of `params`, whichever form they have; spaces are those of all."""
        if isinstance(params, Pool):
            params = params.tasks
        return _at(params.params, 0) if isinstance(params, Tasks) else params

    def observation_space(self, params: Any) -> Space:
        return self.env.observation_space(self.task_like(params))

    def action_space(self, params: Any) -> Space:
        return self.env.action_space(self.task_like(params))

    def render(self, state: AutoResetState, params: Any) -> np.ndarray:
        return self.env.render(state.env, params if state.params is None else state.params)
