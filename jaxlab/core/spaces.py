"""Spaces of observations and actions: shapes, dtypes, bounds, sampling, membership.

A space describes the array exactly as the environment returns or takes it, agent
axis included. Spaces are frozen, hashable and hold no JAX array.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Space(abc.ABC):
    """A set of arrays (or pytrees of arrays) of one shape and dtype."""

    @abc.abstractmethod
    def sample(self, key: jax.Array) -> Any:
        """Draw a member."""

    @abc.abstractmethod
    def contains(self, value: Any) -> jax.Array:
        """Whether `value` is a member, `[]`, bool; shapes and dtypes must match."""


@dataclasses.dataclass(frozen=True)
class Discrete(Space):
    """Integers `0 .. n - 1` in an array of `shape`."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: str = "int32"

    def sample(self, key: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """Draw a member; with a mask `[*shape, n]`, bool, uniformly among the legal ones."""
        dtype = jnp.dtype(self.dtype)
        if mask is None:
            return jax.random.randint(key, self.shape, 0, self.n, dtype)
        logits = jnp.where(mask, 0.0, -jnp.inf).astype(jnp.float32)
        return jax.random.categorical(key, logits).astype(dtype)

    def contains(self, value: Any) -> jax.Array:
        value = jnp.asarray(value)
        if value.shape != self.shape or not jnp.issubdtype(value.dtype, jnp.integer):
            return jnp.array(False)
        return jnp.all((value >= 0) & (value < self.n))


@dataclasses.dataclass(frozen=True)
class Box(Space):
    """Arrays of `shape` between two scalar bounds (which may be infinite)."""

    low: float
    high: float
    shape: tuple[int, ...] = ()
    dtype: str = "float32"

    def sample(self, key: jax.Array) -> jax.Array:
        dtype = jnp.dtype(self.dtype)
        if jnp.issubdtype(dtype, jnp.bool_):
            return jax.random.bernoulli(key, 0.5, self.shape)
        if jnp.issubdtype(dtype, jnp.integer):
            return self._sample_integers(key)
        if math.isfinite(self.low) and math.isfinite(self.high):
            return jax.random.uniform(key, self.shape, dtype, self.low, self.high)
        tail = jax.random.exponential(key, self.shape, dtype)
        if math.isfinite(self.low):
            return self.low + tail
        if math.isfinite(self.high):
            return self.high - tail
        return jax.random.normal(key, self.shape, dtype)

    def _integer_bounds(self) -> tuple[int, int]:
        """The bounds, as far as the dtype reaches."""
        limits = jnp.iinfo(jnp.dtype(self.dtype))
        return int(max(self.low, limits.min)), int(min(self.high, limits.max))

    def _sample_integers(self, key: jax.Array) -> jax.Array:
        dtype = jnp.dtype(self.dtype)
        limits, (low, high) = jnp.iinfo(dtype), self._integer_bounds()
        # randint excludes its upper end, bounds of a Box are inclusive; neither end may
        # leave the range of the dtype.
        if high < limits.max:
            ends = np.array([low, high + 1], dtype)
            return jax.random.randint(key, self.shape, ends[0], ends[1], dtype)
        if low > limits.min:
            ends = np.array([low - 1, high], dtype)
            return jax.random.randint(key, self.shape, ends[0], ends[1], dtype) + np.array(1, dtype)
        words = jax.random.bits(key, self.shape, jnp.dtype(f"uint{limits.bits}"))
        return jax.lax.bitcast_convert_type(words, dtype)

    def contains(self, value: Any) -> jax.Array:
        value = jnp.asarray(value)
        dtype = jnp.dtype(self.dtype)
        if value.shape != self.shape or value.dtype != dtype:
            return jnp.array(False)
        low, high = self.low, self.high
        if jnp.issubdtype(dtype, jnp.integer):
            low, high = np.array(self._integer_bounds(), dtype)
        return jnp.all((value >= low) & (value <= high))


@dataclasses.dataclass(frozen=True, init=False)
class Tree(Space):
    """Named spaces; members are mappings, or dataclasses with the same field names."""

    items: tuple[tuple[str, Space], ...]

    def __init__(self, spaces: Mapping[str, Space]):
        object.__setattr__(self, "items", tuple(sorted(spaces.items())))

    def __getitem__(self, name: str) -> Space:
        return dict(self.items)[name]

    def sample(self, key: jax.Array) -> dict[str, Any]:
        keys = jax.random.split(key, max(len(self.items), 1))
        return {name: space.sample(k) for (name, space), k in zip(self.items, keys, strict=False)}

    def contains(self, value: Any) -> jax.Array:
        fields = as_mapping(value)
        if fields is None or sorted(fields) != [name for name, _ in self.items]:
            return jnp.array(False)
        members = [space.contains(fields[name]) for name, space in self.items]
        return jnp.all(jnp.array(members, bool)) if members else jnp.array(True)


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """View a mapping, a dataclass or a NamedTuple as a mapping; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    return None


def zeros(space: Space) -> Any:
    """A member-shaped pytree of zeros (numpy), for templates and buffers."""
    if isinstance(space, Tree):
        return {name: zeros(sub) for name, sub in space.items}
    return np.zeros(space.shape, space.dtype)  # type: ignore[attr-defined]
