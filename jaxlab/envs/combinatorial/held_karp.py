"""The dynamic programme of Held and Karp (1962) for tours, as compiled sweeps over set sizes.

The same values as `dynamic_programming.sweep` of `TSP`. That a step's next state does not depend
on the city one comes from makes a layer a min-plus product, which the processor does many
numbers at a time.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import CapacityError
from jaxlab.envs.combinatorial.dynamic_programming import Solution

#: Cities for whose sets there is room.
MOST_CITIES = 21


@functools.lru_cache(maxsize=4)
def _successors(n: int) -> tuple[np.ndarray, ...]:
    """For each size k < n - 1 of a set of the cities 1 .. n - 1, where the set with one more city
    lies among those of size k + 1, `[cities - 1, sets]`, int32; the number of these if the city
    is in the set already."""
    m = n - 1
    sets = np.arange(2**m, dtype=np.int32)
    sizes = np.bitwise_count(sets)
    of_size = [sets[sizes == k] for k in range(m + 1)]
    rank = np.zeros(2**m, np.int32)
    for members in of_size:
        rank[members] = np.arange(len(members))
    bits = (1 << np.arange(m, dtype=np.int32))[:, None]
    return tuple(
        np.where(some & bits, len(larger), rank[some | bits]).astype(np.int32)
        for some, larger in itertools.pairwise(of_size)
    )


def held_karp(distances: Any) -> Solution:
    """A shortest tour; the string of cities after city 0.

    Args:
      distances: From row to column, `[n, n]`.

    Raises:
      CapacityError: There are too many cities.
    """
    n = len(distances)
    if n > MOST_CITIES:
        raise CapacityError(
            f"{n} cities have {2.0 ** (n - 1) * (n - 1):.1e} states: dynamic programming has room "
            f"for {MOST_CITIES} cities; use --solver milp or cp_sat"
        )
    if n <= 2:
        return Solution(float(np.asarray(distances)[0, -1] + np.asarray(distances)[-1, 0]), [1], n)
    length, tour = sweep_tours(jnp.asarray(distances), tuple(map(jnp.asarray, _successors(n))))
    return Solution(float(length), np.asarray(tour).tolist(), 2 ** (n - 1) * (n - 1))


@jax.jit
def sweep_tours(
    distances: jax.Array, successors: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array]:
    """The length of a shortest tour, and its cities after city 0, `[n - 1]`."""
    inner = distances[1:, 1:]
    # Values [city, set] of the largest set; a set has values for cities outside it too, which
    # nothing leads to.
    values = [distances[1:, :1]]
    weights = []
    for following in reversed(successors):
        after = jnp.pad(values[-1], ((0, 0), (0, 1)), constant_values=jnp.inf)
        onward = jnp.take_along_axis(after, following, axis=1)
        weights.append(onward)
        values.append(_min_plus(inner, onward))
    first = distances[0, 1:] + weights[-1][:, 0]
    return jnp.min(first), _tour(inner, first, weights, successors)


def _min_plus(inner: jax.Array, onward: jax.Array) -> jax.Array:
    """`out[j, s] = min_a inner[j, a] + onward[a, s]`."""

    def add(best: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        column, values = row
        return jnp.minimum(best, column[:, None] + values), None

    start = jnp.full((inner.shape[0], onward.shape[1]), jnp.inf, inner.dtype)
    return jax.lax.scan(add, start, (inner.T, onward))[0]


def _tour(
    inner: jax.Array,
    first: jax.Array,
    weights: list[jax.Array],
    successors: tuple[jax.Array, ...],
) -> jax.Array:
    city = jnp.argmin(first)
    place = successors[0][city, 0]
    tour = [city]
    for onward, following in zip(reversed(weights[:-1]), successors[1:], strict=True):
        city = jnp.argmin(inner[city] + onward[:, place])
        place = following[city, place]
        tour.append(city)
    return jnp.stack(tour) + 1
