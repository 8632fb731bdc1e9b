"""Strings under the guidance of learnt values: greedy, beam search, from several first letters.

`score(params, decision)` gives, for every letter, its cost and the value of what follows,
infinite for illegal ones. All functions return letters `[horizon]`, -1 behind the end, and the
cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxlab.agents.dqn.process import keep_if

PyTree = Any
Score = Callable[[PyTree, PyTree], jax.Array]


def _finish(process: Any, params: PyTree, decision: PyTree, cost: jax.Array) -> jax.Array:
    complete = process.done(params, decision)
    return jnp.where(complete, cost + process.final_cost(params, decision), jnp.inf)


def greedy(
    process: Any, score: Score, params: PyTree, first: Any = -1
) -> tuple[jax.Array, jax.Array]:
    """The letter of least score at each place; the first one may be given."""

    def step(carry: tuple[PyTree, jax.Array], place: jax.Array) -> tuple[Any, jax.Array]:
        decision, total = carry
        action = jnp.argmin(score(params, decision)).astype(jnp.int32)
        action = jnp.where((place == 0) & (first >= 0), first, action).astype(jnp.int32)
        ended = process.done(params, decision)
        moved, cost = process.move(params, decision, action)
        total = total + jnp.where(ended, 0, cost).astype(total.dtype)
        return (keep_if(ended, decision, moved), total), jnp.where(ended, -1, action)

    zero = jnp.zeros((), process.penalty(params).dtype)
    places = jnp.arange(process.horizon)
    (decision, total), actions = jax.lax.scan(step, (process.initial(params), zero), places)
    return actions, _finish(process, params, decision, total)


def multistart(process: Any, score: Score, params: PyTree) -> tuple[jax.Array, jax.Array]:
    """The best greedy string over all first letters."""
    firsts = jnp.arange(process.num_actions, dtype=jnp.int32)
    strings, costs = jax.vmap(lambda first: greedy(process, score, params, first))(firsts)
    legal = process.legal(params, process.initial(params))
    best = jnp.argmin(jnp.where(legal, costs, jnp.inf))
    return strings[best], costs[best]


def beam(process: Any, score: Score, params: PyTree, width: int) -> tuple[jax.Array, jax.Array]:
    """Beam search: `width` strings of least cost and value are kept at each letter."""
    initial = process.initial(params)
    dtype = process.penalty(params).dtype
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * width), initial)
    # One string to begin with: the others are worth nothing.
    costs = jnp.where(jnp.arange(width) == 0, jnp.zeros((), dtype), jnp.inf)
    strings = jnp.full((width, process.horizon), -1, jnp.int32)

    def step(place: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        states, costs, strings = carry
        ended = jax.vmap(lambda s: process.done(params, s))(states)
        guesses = jax.vmap(lambda s: score(params, s))(states).astype(dtype)
        final = jax.vmap(lambda s: process.final_cost(params, s))(states)
        # Complete strings go on as their own first letter.
        own = jnp.where(jnp.arange(process.num_actions) == 0, final[:, None], jnp.inf)
        total = costs[:, None] + jnp.where(ended[:, None], own, guesses)
        _, chosen = jax.lax.top_k(-total.reshape(-1), width)
        parent, action = chosen // process.num_actions, chosen % process.num_actions
        action = action.astype(jnp.int32)
        before = jax.tree.map(lambda leaf: leaf[parent], states)
        moved, paid = jax.vmap(lambda s, a: process.move(params, s, a))(before, action)
        stay = ended[parent]
        kept = jax.vmap(keep_if)(stay, before, moved)
        alive = jnp.isfinite(total.reshape(-1)[chosen])
        new_costs = jnp.where(alive, costs[parent] + jnp.where(stay, 0, paid), jnp.inf)
        new_strings = strings[parent].at[:, place].set(jnp.where(stay, -1, action))
        return kept, new_costs.astype(dtype), new_strings

    out = jax.lax.fori_loop(0, process.horizon, step, (states, costs, strings))
    ends = jax.vmap(lambda s, c: _finish(process, params, s, c))(out[0], out[1])
    best = jnp.argmin(ends)
    return out[2][best], ends[best]
