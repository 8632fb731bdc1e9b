"""Hand-made features of decision states, with bounds on what is left to pay.

Each function gives `[size]` numbers of an instance and a decision state; feature 0 is a guess at
the value of the state, from which learning may begin: what a heuristic pays from there, or a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.combinatorial.knapsack import Knapsack, KnapsackParams, PackingDecision
from jaxlab.envs.combinatorial.tours import TSP, TourDecision, TourParams
from jaxlab.envs.combinatorial.vertices import (
    IndependentSet,
    VertexCover,
    VertexDecision,
    VertexParams,
)

#: Rounds of ascent of 1-trees: bounds by prices of cities.
ASCENTS = 2


def spanning_tree(
    distances: Float[Array, "n n"], inside: Bool[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """Weight of a minimal spanning tree of some vertices (Prim 1957), and their degrees."""
    n = len(distances)
    vertices = jnp.arange(n)
    root = jnp.argmax(inside)
    far = jnp.asarray(jnp.inf, distances.dtype)

    def grow(_: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        left, near, parent, total, degrees = carry
        reach = jnp.where(left, near, far)
        at = jnp.argmin(reach)
        there = left[at]
        new = (vertices == at) & there
        total = total + jnp.where(there, near[at], 0)
        degrees = degrees + new + ((vertices == parent[at]) & there)
        left = left & ~new
        row = distances[at]
        closer = there & (row < near)
        return left, jnp.where(closer, row, near), jnp.where(closer, at, parent), total, degrees

    zero = jnp.zeros((n,), distances.dtype)
    start = (
        inside & (vertices != root),
        distances[root],
        jnp.full((n,), root),
        jnp.zeros((), distances.dtype),
        zero,
    )
    _, _, _, total, degrees = jax.lax.fori_loop(0, n - 1, grow, start)
    return total, degrees


def insertion_path(
    distances: Float[Array, "n n"], free: Bool[Array, " n"], start: Any, end: Any
) -> Float[Array, ""]:
    """Length of a path from `start` through all free cities to `end` by farthest insertion."""
    n = len(distances)
    cities = jnp.arange(n)

    def insert(_: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        left, near, following, inside, total = carry
        city = jnp.argmax(jnp.where(left, near, -1)).astype(following.dtype)
        there = left[city]
        extra = distances[:, city] + distances[city, following] - distances[cities, following]
        extra = jnp.where(inside, extra, jnp.inf)
        before = jnp.argmin(extra)
        new = (cities == city) & there
        after = following[before]
        following = jnp.where((cities == before) & there, city, following)
        following = jnp.where(new, after, following)
        total = total + jnp.where(there, extra[before], 0)
        near = jnp.minimum(near, distances[:, city])
        return left & ~new, near, following, inside | new, total

    # Cities of the path that have a successor: all but its end.
    carry = (
        free,
        jnp.minimum(distances[:, start], distances[:, end]),
        jnp.full((n,), end),
        cities == start,
        distances[start, end],
    )
    return jax.lax.fori_loop(0, n, insert, carry)[4]


def tour_features(params: TourParams, decision: TourDecision) -> Float[Array, " 15"]:
    """A path by insertion, spanning trees, nearest cities, mean distances, numbers of cities.

    What is left is a path from the current city through those not visited to city 0: no shorter
    than a minimal spanning tree of them, under any prices of cities.
    """
    d, n = params.distances, len(params.distances)
    dtype = d.dtype
    free = ~decision.visited
    cities = jnp.arange(n)
    ends = (cities == decision.current).astype(dtype) + (cities == 0)
    active = free | (ends > 0)
    share = free.sum().astype(dtype) / n
    count = jnp.maximum(free.sum(), 1).astype(dtype)

    # Inner cities of a path have degree 2, its ends 1.
    wanted = jnp.where(free, 2.0, jnp.where(active, ends, 0)).astype(dtype)
    wanted = jnp.where((decision.current == 0) & (cities == 0), 2, wanted)
    prices = jnp.zeros((n,), dtype)
    bounds = []
    plain, step = jnp.zeros((), dtype), jnp.zeros((), dtype)
    for number in range(ASCENTS + 1):
        weight, degrees = spanning_tree(d + prices[:, None] + prices, active)
        bound = weight - (prices * wanted).sum()
        bounds.append(bound)
        if number == 0:
            plain = weight
            step = 0.4 * weight / jnp.maximum(active.sum(), 1)
        prices = prices + jnp.where(active, step * 0.5**number * (degrees - wanted), 0)

    far = jnp.asarray(jnp.inf, dtype)
    apart = jnp.where(active & active[:, None] & (cities != cities[:, None]), d, far)
    near = -jax.lax.top_k(-apart, 2)[0]
    near = jnp.where(free[:, None] & jnp.isfinite(near), near, 0)

    def least(row: Array) -> Array:
        return jnp.where(free.any(), jnp.where(free, row, far).min(), 0)

    def mean(row: Array) -> Array:
        return jnp.where(free, row, 0).sum() / count

    from_here, home = d[decision.current], d[:, 0]
    between = jnp.where(free & free[:, None], d, 0).sum() / count**2
    return jnp.stack(
        [
            insertion_path(d, free, decision.current, jnp.zeros_like(decision.current)),
            plain,
            bounds[-1],
            near[:, 0].sum(),
            near.sum() / 2,
            *(least(from_here), least(home), mean(from_here), mean(home)),
            home[decision.current],
            between,
            jnp.sqrt(share * (1 - share) + 1e-6),
            jnp.sqrt(share + 1e-6),
            share,
            jnp.ones((), dtype),
        ]
    ).astype(dtype)


def knapsack_features(params: KnapsackParams, decision: PackingDecision) -> Float[Array, " 9"]:
    """The bound of Dantzig on what can still be packed, what greedy packing does, what is left."""
    dtype = params.values.dtype
    free = ~decision.taken & (params.weights <= decision.remaining)
    ratio = params.values / jnp.maximum(params.weights, 1e-9)
    order = jnp.argsort(jnp.where(free, -ratio, jnp.inf))
    weights = jnp.where(free, params.weights, 0)[order]
    values = jnp.where(free, params.values, 0)[order]
    before = jnp.cumsum(weights) - weights
    share = jnp.clip((decision.remaining - before) / jnp.maximum(weights, 1e-9), 0, 1)
    bound = (share * values).sum()
    whole = jnp.where(share >= 1, values, 0).sum()
    cut = (share > 0) & (share < 1)
    rest = decision.remaining - jnp.where(share >= 1, weights, 0).sum()
    later = jnp.where((share == 0) & (weights <= rest), values, 0).max()
    count = free.mean(dtype=dtype)
    price = jnp.where(cut, values / jnp.maximum(weights, 1e-9), 0).max()
    return jnp.stack(
        [
            -bound,
            -(whole + later),
            rest * price,
            decision.remaining / jnp.maximum(params.capacity, 1e-9),
            count,
            jnp.where(cut, values, 0).sum(),
            jnp.where(cut, weights, 0).sum(),
            jnp.minimum(price, 10),
            jnp.ones((), dtype),
        ]
    ).astype(dtype)


def _vertex_features(params: VertexParams, decision: VertexDecision, cover: bool) -> Array:
    dtype = params.unit.dtype
    free = ~decision.closed
    open_edges = params.adjacency & free & free[:, None]
    degree = open_edges.sum(1).astype(dtype)
    count, edges = free.sum().astype(dtype), degree.sum() / 2
    # Caro and Wei: a random order finds that many independent vertices on average.
    turan = jnp.where(free, 1 / (1 + degree), 0).sum()
    base = count - turan if cover else -turan
    low = jnp.where(free & (degree <= 1), 1.0, 0).sum()
    return jnp.stack(
        [
            base,
            count / 10,
            edges / 10,
            edges / jnp.maximum(degree.max(), 1),
            degree.max() / 10,
            low / 10,
            jnp.where(free & (degree == 0), 1.0, 0).sum() / 10,
            jnp.sqrt(jnp.square(degree).sum()) / 10,
            jnp.ones((), dtype),
        ]
    ).astype(dtype)


def features_of(env: Any) -> tuple[Callable[[Any, Any], Array], int]:
    """The features of a problem and their number.

    Raises:
      ConfigError: The problem has none.
    """
    if isinstance(env, TSP):
        return tour_features, 15
    if isinstance(env, Knapsack):
        return knapsack_features, 9
    if isinstance(env, IndependentSet | VertexCover):
        cover = isinstance(env, VertexCover)
        return lambda params, decision: _vertex_features(params, decision, cover), 9
    raise ConfigError(f"{env.name} has no features; choose tsp, atsp, knapsack, mis or mvc")
