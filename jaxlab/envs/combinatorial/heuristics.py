"""Classical heuristics as pure, compiled functions."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxlab.envs.combinatorial.protocol import DecisionProcess

PyTree = Any


@functools.partial(jax.jit, static_argnums=0)
def greedy(env: DecisionProcess, params: PyTree) -> tuple[Int[Array, " horizon"], Float[Array, ""]]:
    """The string of letters that each cost least, -1 behind its end, and its cost."""

    def price(decision: PyTree) -> Array:
        actions = jnp.arange(env.num_actions, dtype=jnp.int32)
        costs = jax.vmap(lambda action: env.move(params, decision, action)[1])(actions)
        return jnp.where(env.legal(params, decision), costs, jnp.inf)

    def step(carry: tuple[PyTree, Array], _: None) -> tuple[tuple[PyTree, Array], Array]:
        decision, total = carry
        ended = env.done(params, decision)
        action = jnp.argmin(price(decision)).astype(jnp.int32)
        moved, cost = env.move(params, decision, action)
        kept = jax.tree.map(lambda new, old: jnp.where(ended, old, new), moved, decision)
        return (kept, total + jnp.where(ended, 0, cost)), jnp.where(ended, -1, action)

    dtype = env.penalty(params).dtype
    start = (env.initial(params), jnp.zeros((), dtype))
    (decision, total), actions = jax.lax.scan(step, start, None, env.horizon)
    complete = env.done(params, decision)
    return actions, jnp.where(complete, total + env.final_cost(params, decision), jnp.inf)


def tour_length(distances: Float[Array, "n n"], tour: Int[Array, " n"]) -> Float[Array, ""]:
    """Length of a closed tour."""
    return distances[tour, jnp.roll(tour, -1)].sum()


@jax.jit
def nearest_neighbour(distances: Any, start: Any = 0) -> Int[Array, " n"]:
    """From each city to the nearest one that is left, `[n]`."""
    n = len(distances)
    cities = jnp.arange(n)

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        left, city = carry
        left = left & (cities != city)
        following = jnp.argmin(jnp.where(left, distances[city], jnp.inf)).astype(jnp.int32)
        return (left, following), city

    begin = (jnp.ones((n,), bool), jnp.asarray(start, jnp.int32))
    return jax.lax.scan(step, begin, None, n)[1]


@functools.partial(jax.jit, static_argnames="rule")
def insertion(distances: Any, rule: str = "farthest") -> Int[Array, " n"]:
    """Cities put one after the other where they lengthen the tour least, `[n]`.

    Args:
      distances: `[n, n]`.
      rule: The next city is the `farthest` from the tour, the `nearest`, or the one that is
        `cheapest` to put in.
    """
    n = len(distances)
    cities = jnp.arange(n)
    distances = jnp.asarray(distances)

    def step(carry: tuple[Array, Array], _: Array) -> tuple[tuple[Array, Array], None]:
        following, inside = carry
        # Cost of putting column b between city a of the tour and the one that follows it.
        extra = distances + distances[:, following].T - distances[cities, following][:, None]
        extra = jnp.where(inside[:, None] & ~inside, extra, jnp.inf)
        near = jnp.where(inside[:, None], distances, jnp.inf).min(0)
        if rule == "farthest":
            score = jnp.where(inside, -jnp.inf, near)
            city = jnp.argmax(score)
        else:
            score = extra.min(0) if rule == "cheapest" else near
            city = jnp.argmin(jnp.where(inside, jnp.inf, score))
        before = jnp.argmin(extra[:, city])
        after = following[before]
        following = following.at[before].set(city).at[city].set(after)
        return (following, inside | (cities == city)), None

    # The loop of city 0 alone.
    begin = (jnp.zeros((n,), cities.dtype), cities == 0)
    following, _ = jax.lax.scan(step, begin, cities[1:])[0]
    return jax.lax.scan(lambda city, _: (following[city], city), cities[0], None, n)[1]


@jax.jit
def two_opt(distances: Any, tour: Any) -> Int[Array, " n"]:
    """Exchange the two edges that shorten a symmetric tour most until none do (Croes 1958)."""
    distances = jnp.asarray(distances)
    n = len(distances)
    place = jnp.arange(n)
    upper = place[:, None] < place

    def best(tour: Array) -> tuple[Array, Array]:
        after = jnp.roll(tour, -1)
        between = distances[tour[:, None], tour] + distances[after[:, None], after]
        edge = distances[tour, after]
        change = jnp.where(upper, between - edge[:, None] - edge, 0)
        at = jnp.argmin(change)
        return change.reshape(-1)[at], at

    def exchange(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        tour, _, at = carry
        i, j = at // n, at % n
        # The cities from i + 1 to j in reverse.
        inside = (place > i) & (place <= j)
        tour = tour[jnp.where(inside, i + 1 + j - place, place)]
        return (tour, *best(tour))

    tour = jnp.asarray(tour, jnp.int32)
    least = -1e-7 * jnp.abs(distances).max()
    return jax.lax.while_loop(lambda carry: carry[1] < least, exchange, (tour, *best(tour)))[0]


@jax.jit
def best_tour(distances: Any) -> tuple[Int[Array, " n"], Float[Array, ""]]:
    """The best of nearest neighbours from every city and of farthest insertion."""
    distances = jnp.asarray(distances)
    tours = jax.vmap(lambda start: nearest_neighbour(distances, start))(jnp.arange(len(distances)))
    tours = jnp.concatenate([tours, insertion(distances).astype(tours.dtype)[None]])
    lengths = jax.vmap(lambda tour: tour_length(distances, tour))(tours)
    at = jnp.argmin(lengths)
    return tours[at], lengths[at]


@jax.jit
def pack_greedily(values: Any, weights: Any, capacity: Any) -> Bool[Array, " n"]:
    """Items in the order of value for weight, each taken if it still fits, `[n]`."""
    values, weights = jnp.asarray(values), jnp.asarray(weights)
    order = jnp.argsort(-values / jnp.maximum(weights, 1e-12))

    def step(left: Array, item: Array) -> tuple[Array, Array]:
        fits = weights[item] <= left
        return left - jnp.where(fits, weights[item], 0), fits

    taken = jax.lax.scan(step, jnp.asarray(capacity, weights.dtype), order)[1]
    return jnp.zeros(len(values), bool).at[order].set(taken)


@jax.jit
def cut_greedily(weights: Any) -> Bool[Array, " n"]:
    """Vertices flipped, the most gainful first, until no flip gains (MCA), `[n]`."""
    weights = jnp.asarray(weights)

    vertices = jnp.arange(len(weights))

    def flip(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        spins, gains = carry
        at = jnp.argmax(gains)
        here = vertices == at
        spins = jnp.where(here, -spins, spins)
        return spins, jnp.where(here, -gains, gains + 2 * weights[at] * spins[at] * spins)

    start = jnp.ones(len(weights), weights.dtype)
    carry = (start, weights.sum(1))
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1] > 1e-9), flip, carry)[0] < 0


@functools.partial(jax.jit, static_argnames="steps")
def tabu_cut(key: jax.Array, weights: Any, steps: int) -> tuple[Bool[Array, " n"], Array]:
    """The best cut of tabu search from a random one, and its weight (Kochenberger et al. 2013).

    Args:
      key: Typed key.
      weights: Symmetric, `[n, n]`.
      steps: Flips; each one flips the most gainful vertex that was not flipped lately, or one
        that leads to a better cut than any so far.
    """
    weights = jnp.asarray(weights)
    n, dtype = len(weights), weights.dtype
    start_key, tenure_key = jax.random.split(key)
    spins = jax.random.rademacher(start_key, (n,), dtype)
    gains = spins * (weights @ spins)
    cut = (weights.sum() - gains.sum()) / 4
    vertices = jnp.arange(n)
    rest = n // 100 + 10

    def step(t: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        spins, gains, cut, best, best_spins, until = carry
        free = (until <= t) | (cut + gains > best + 1e-9)
        at = jnp.argmax(jnp.where(free, gains, -jnp.inf))
        cut = cut + gains[at]
        here = vertices == at
        spins = jnp.where(here, -spins, spins)
        gains = jnp.where(here, -gains, gains + 2 * weights[at] * spins[at] * spins)
        tenure = rest + jax.random.randint(jax.random.fold_in(tenure_key, t), (), 0, 10)
        until = jnp.where(here, t + jnp.minimum(tenure, n // 2 + 1), until).astype(jnp.int32)
        better = cut > best
        best_spins = jnp.where(better, spins, best_spins)
        return spins, gains, cut, jnp.maximum(cut, best), best_spins, until

    carry = (spins, gains, cut, cut, spins, jnp.zeros((n,), jnp.int32))
    out = jax.lax.fori_loop(0, steps, step, carry)
    return out[4] < 0, out[3]


@functools.partial(jax.jit, static_argnames="largest")
def vertices_by_degree(adjacency: Any, largest: bool) -> Bool[Array, " n"]:
    """Vertices chosen by their degree in what is left, `[n]`.

    `largest`: the vertex of most open edges until none is open, a vertex cover; otherwise that of
    fewest, whose neighbours go with it, an independent set.
    """
    adjacency = jnp.asarray(adjacency)
    n = len(adjacency)
    vertices = jnp.arange(n)

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        free, chosen = carry
        degree = (adjacency & free).sum(1)
        if largest:
            at = jnp.argmax(jnp.where(free, degree, -1))
            gone = vertices == at
        else:
            at = jnp.argmin(jnp.where(free, degree, n + 1))
            gone = adjacency[at] | (vertices == at)
        return free & ~gone, chosen | (vertices == at)

    def open_(carry: tuple[Array, Array]) -> Array:
        free = carry[0]
        return jnp.any(adjacency & free & free[:, None]) if largest else jnp.any(free)

    start = (jnp.ones((n,), bool), jnp.zeros((n,), bool))
    return jax.lax.while_loop(open_, step, start)[1]


def saturation_colouring(adjacency: np.ndarray) -> np.ndarray:
    """Colours `[n]`: the vertex with most colours around it comes next (Brelaz 1979)."""
    adjacency = np.asarray(adjacency, bool)
    n = len(adjacency)
    colours = np.full(n, -1)
    around = np.zeros((n, n + 1), bool)
    degrees = adjacency.sum(1)
    for _ in range(n):
        score = np.where(colours < 0, around.sum(1) * (n + 1) + degrees, -1)
        vertex = int(np.argmax(score))
        colours[vertex] = int(np.argmin(around[vertex]))
        around[adjacency[vertex], colours[vertex]] = True
    return colours
