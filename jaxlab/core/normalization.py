"""Normalisation of observations and rewards by running statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from jaxlab.core.environment import Params, PyTree, TimeStep, Wrapper
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Space, Tree


@struct.dataclass
class RunningMoments:
    """Mean and variance of all samples seen so far.

    The count is floating: in 32 bits it stops growing at 2^24 increments of one, from
    where on the moments are an exponential average over about that many samples.

    Attributes:
      count: Number of samples, `[]`.
      mean: Mean of the samples, any shape.
      m2: Sum of squared deviations from the mean, same shape.
    """

    count: Float[Array, ""]
    mean: Float[Array, "*shape"]
    m2: Float[Array, "*shape"]

    @classmethod
    def zero(cls, like: Float[Array, "*shape"]) -> RunningMoments:
        """Moments of no sample, in the shape and dtype of `like`."""
        return cls(
            count=jnp.zeros((), like.dtype), mean=jnp.zeros_like(like), m2=jnp.zeros_like(like)
        )

    @property
    def variance(self) -> Float[Array, "*shape"]:
        """Population variance; zero before the second sample."""
        return self.m2 / jnp.maximum(self.count, 1)

    def update(
        self, sample: Float[Array, "*shape"], axis_name: Hashable | None = None
    ) -> RunningMoments:
        """Take in one sample, or one per member of the mapped axis `axis_name`.

        Counts and deviations are merged as in Chan, Golub & LeVeque (1983), eq. 2.1.
        """
        if axis_name is None:
            count, mean, m2 = jnp.ones_like(self.count), sample, jnp.zeros_like(sample)
        else:
            count = jax.lax.psum(jnp.ones_like(self.count), axis_name)
            mean = jax.lax.pmean(sample, axis_name)
            m2 = jax.lax.psum(jnp.square(sample - mean), axis_name)
        both = self.count + count
        delta = mean - self.mean
        return RunningMoments(
            count=both,
            mean=self.mean + delta * (count / both),
            m2=self.m2 + m2 + jnp.square(delta) * (self.count * count / both),
        )

    def standardize(
        self, value: Float[Array, "*shape"], epsilon: float = 1e-8
    ) -> Float[Array, "*shape"]:
        """`(value - mean) / sqrt(variance + epsilon)`."""
        return (value - self.mean) * jax.lax.rsqrt(self.variance + epsilon)


@dataclasses.dataclass(frozen=True)
class _Normalize(Wrapper[Params]):
    """Common fields of wrappers with running statistics.

    Attributes:
      axis_name: Name of the `vmap` axis over which statistics are pooled
        (`jax.vmap(env.step, ..., axis_name="envs")`); without one every copy of the
        environment has its own.
      clip: Bound of the result, in standard deviations.
      update: False freezes the statistics, for evaluation.
    """

    outlives_episodes: ClassVar[bool] = True

    axis_name: Hashable | None = None
    clip: float = 10.0
    update: bool = True

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise ConfigError(f"{type(self).__name__}: clip is {self.clip}, must be positive")


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _float_leaves(tree: PyTree) -> list[Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]


@struct.dataclass
class NormalizeObservationState:
    """`moments` has one entry for each floating leaf of an observation, in tree order."""

    env: PyTree
    moments: list[RunningMoments]


@dataclasses.dataclass(frozen=True)
class NormalizeObservation(_Normalize[Params]):
    """Standardises the floating leaves of observations, and of `info["final_obs"]`.

    Each entry of a leaf (so each agent) has its own mean and variance; masks and
    integers pass unchanged. `normalize` applies given moments to other observations.
    """

    def reset(self, key: jax.Array, params: Params) -> tuple[NormalizeObservationState, TimeStep]:
        inner, timestep = self.env.reset(key, params)
        moments = [RunningMoments.zero(leaf) for leaf in _float_leaves(timestep.obs)]
        return self._observe(inner, timestep, moments)

    def step(
        self, key: jax.Array, state: NormalizeObservationState, action: PyTree, params: Params
    ) -> tuple[NormalizeObservationState, TimeStep]:
        inner, timestep = self.env.step(key, state.env, action, params)
        return self._observe(inner, timestep, state.moments)

    def _observe(
        self, inner: PyTree, timestep: TimeStep, moments: list[RunningMoments]
    ) -> tuple[NormalizeObservationState, TimeStep]:
        if self.update:
            leaves = _float_leaves(timestep.obs)
            moments = [m.update(x, self.axis_name) for m, x in zip(moments, leaves, strict=True)]
        info = dict(timestep.info)
        if "final_obs" in info:
            info["final_obs"] = self.normalize(moments, info["final_obs"])
        obs = self.normalize(moments, timestep.obs)
        state = NormalizeObservationState(env=inner, moments=moments)
        return state, dataclasses.replace(timestep, obs=obs, info=info)

    def normalize(self, moments: list[RunningMoments], obs: PyTree) -> PyTree:
        """Standardise the floating leaves of `obs` by `moments` and clip them."""
        leaves, treedef = jax.tree.flatten(obs)
        remaining = iter(moments)
        normalized = [
            jnp.clip(next(remaining).standardize(leaf), -self.clip, self.clip)
            if _is_float(leaf)
            else leaf
            for leaf in leaves
        ]
        return jax.tree.unflatten(treedef, normalized)

    def observation_space(self, params: Params) -> Space:
        return _clipped(self.env.observation_space(params), self.clip)


def _clipped(space: Space, bound: float) -> Space:
    if isinstance(space, Tree):
        return Tree({name: _clipped(sub, bound) for name, sub in space.items})
    if isinstance(space, Box) and jnp.issubdtype(jnp.dtype(space.dtype), jnp.floating):
        return Box(-bound, bound, space.shape, space.dtype)
    return space


@struct.dataclass
class NormalizeRewardState:
    env: PyTree
    discounted: Float[Array, "*agents"]
    moments: RunningMoments


@dataclasses.dataclass(frozen=True)
class NormalizeReward(_Normalize[Params]):
    """Divides the reward by the standard deviation of the discounted return.

    The return is the running sum `g <- gamma g + reward`, begun anew with each episode
    (Engstrom et al. 2020, section 2); the mean is not subtracted.
    """

    gamma: float = 0.99

    def reset(self, key: jax.Array, params: Params) -> tuple[NormalizeRewardState, TimeStep]:
        inner, timestep = self.env.reset(key, params)
        zero = jnp.zeros_like(timestep.reward)
        return NormalizeRewardState(inner, zero, RunningMoments.zero(zero)), timestep

    def step(
        self, key: jax.Array, state: NormalizeRewardState, action: PyTree, params: Params
    ) -> tuple[NormalizeRewardState, TimeStep]:
        inner, timestep = self.env.step(key, state.env, action, params)
        discounted = self.gamma * state.discounted + timestep.reward
        moments = state.moments
        if self.update:
            moments = moments.update(discounted, self.axis_name)
        # Before the return has varied there is no scale to divide by.
        scale = jnp.where(moments.m2 > 0, jax.lax.rsqrt(moments.variance + 1e-8), 1)
        reward = jnp.clip(timestep.reward * scale, -self.clip, self.clip)
        discounted = jnp.where(timestep.last, 0, discounted)
        return NormalizeRewardState(inner, discounted, moments), dataclasses.replace(
            timestep, reward=reward
        )
