"""Wrappers that compose from outside, each an environment itself.

The usual stack, inside out, mapped over a batch by the caller:

    env = LogEpisode(AutoReset(TimeLimit(env, 500)))
    states, timesteps = jax.vmap(env.reset, (0, None))(keys, params)

Statistics that outlive an episode (`NormalizeObservation`, `NormalizeReward`) belong
outside `AutoReset`; `TimeLimit` belongs inside.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.autoreset import AutoReset, Pool, Tasks, stack_tasks
from jaxlab.core.environment import Params, PyTree, TimeStep, Wrapper, select
from jaxlab.core.errors import ConfigError
from jaxlab.core.normalization import NormalizeObservation, NormalizeReward, RunningMoments

__all__ = [
    "AutoReset",
    "LogEpisode",
    "NormalizeObservation",
    "NormalizeReward",
    "Pool",
    "RunningMoments",
    "Tasks",
    "TimeLimit",
    "Wrapper",
    "stack_tasks",
]


@struct.dataclass
class TimeLimitState:
    env: PyTree
    t: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class TimeLimit(Wrapper[Params]):
    """Truncates an episode after `max_steps` steps; `truncated` stays set from then on.

    Raises:
      ConfigError: `max_steps` is below one.
    """

    max_steps: int

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ConfigError(f"TimeLimit: max_steps is {self.max_steps}, must be at least 1")

    def reset(self, key: jax.Array, params: Params) -> tuple[TimeLimitState, TimeStep]:
        state, timestep = self.env.reset(key, params)
        return TimeLimitState(state, jnp.zeros((), jnp.int32)), timestep

    def step(
        self, key: jax.Array, state: TimeLimitState, action: PyTree, params: Params
    ) -> tuple[TimeLimitState, TimeStep]:
        inner, timestep = self.env.step(key, state.env, action, params)
        t = jnp.minimum(state.t + 1, self.max_steps)
        truncated = timestep.truncated | (t >= self.max_steps)
        return TimeLimitState(inner, t), dataclasses.replace(timestep, truncated=truncated)


@struct.dataclass
class LogEpisodeState:
    env: PyTree
    episode_return: Float[Array, "*agents"]
    episode_cost: Float[Array, "*cost"]
    episode_length: Int[Array, ""]
    ended: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class LogEpisode(Wrapper[Params]):
    """Adds the running sums of an episode to `info`, inside or outside `AutoReset`.

    `episode_return` (shape of the reward), `episode_cost` (shape of the cost) and
    `episode_length` (`[]`, int32) include the present step; `episode_ended` (`[]`, bool)
    is true in the one TimeStep in which they are final.
    """

    def reset(self, key: jax.Array, params: Params) -> tuple[LogEpisodeState, TimeStep]:
        inner, timestep = self.env.reset(key, params)
        state = LogEpisodeState(
            env=inner,
            episode_return=jnp.zeros_like(timestep.reward),
            episode_cost=jnp.zeros_like(timestep.cost),
            episode_length=jnp.zeros((), jnp.int32),
            ended=jnp.zeros((), bool),
        )
        return state, _with_sums(timestep, state, state.ended)

    def step(
        self, key: jax.Array, state: LogEpisodeState, action: PyTree, params: Params
    ) -> tuple[LogEpisodeState, TimeStep]:
        inner, timestep = self.env.step(key, state.env, action, params)
        sums = (state.episode_return, state.episode_cost, state.episode_length)
        added = (timestep.reward, timestep.cost, jnp.ones((), jnp.int32))
        zeros = jax.tree.map(jnp.zeros_like, sums)
        if self.env.absorbing:
            added = select(state.ended, zeros, added)
            ends = timestep.last & ~state.ended
            ended = state.ended | timestep.last
        else:
            sums = select(state.ended, zeros, sums)
            # The TimeStep that begins an episode is no step of it.
            added = select(timestep.info.get("first", jnp.zeros((), bool)), zeros, added)
            ends = ended = timestep.last
        episode_return, episode_cost, episode_length = jax.tree.map(jnp.add, sums, added)
        state = LogEpisodeState(inner, episode_return, episode_cost, episode_length, ended)
        return state, _with_sums(timestep, state, ends)


def _with_sums(timestep: TimeStep, state: LogEpisodeState, ended: Array) -> TimeStep:
    sums = {
        "episode_return": state.episode_return,
        "episode_cost": state.episode_cost,
        "episode_length": state.episode_length,
        "episode_ended": ended,
    }
    return dataclasses.replace(timestep, info={**timestep.info, **sums})
