"""Exact values of decision processes by backward sweeps over the layers of their states.

States with codes (`DecisionProcess.coding`) lie in one table that a compiled loop fills from the
last layer to the first. Others are enumerated from the start, letter by letter, and then valued
backwards.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import CapacityError, ScenarioError
from jaxlab.envs.combinatorial.protocol import Coding, DecisionProcess

#: States beyond which memory would run out.
MOST_STATES = 2**24
#: States valued at once: their successors stay in the processor's cache.
CHUNK = 4096


class Solution(NamedTuple):
    """An optimal string.

    Attributes:
      cost: What it costs, which is minimal.
      actions: Its letters.
      states: States that were valued.
    """

    cost: float
    actions: list[int]
    states: int


class Table(NamedTuple):
    """Values of coded states.

    Attributes:
      values: By position, `[positions + 1]`; infinite where no string can be completed, and at
        the last position, which stands for codes that are no states.
      position: Of each code, `[codes]`, int32.
      sweeps: Sweeps over all layers that were needed.
    """

    values: jax.Array
    position: jax.Array
    sweeps: jax.Array

    def value(self, code: Any) -> jax.Array:
        """Values of codes."""
        return self.values[self.position[code]]


def solve(env: DecisionProcess, params: Any, *, most_states: int = MOST_STATES) -> Solution:
    """An optimal string of an instance by dynamic programming.

    Args:
      env: The problem.
      params: The instance.
      most_states: How many states may be enumerated.

    Raises:
      CapacityError: There are more states than there is room for.
      ScenarioError: No string can be completed.
    """
    if env.coding() is None:
        return enumerate_states(env, params, most_states=most_states).solution()
    table = sweep(env, params)
    actions, cost = jax.jit(_walk, static_argnums=0)(env, params, table)
    if not np.isfinite(cost):
        raise ScenarioError(f"{env.name}: no string can be completed, the instance is infeasible")
    letters = np.asarray(actions)
    return Solution(float(cost), letters[letters >= 0].tolist(), len(table.values) - 1)


@functools.lru_cache(maxsize=8)
def _arranged(env: DecisionProcess) -> tuple[np.ndarray, np.ndarray, int]:
    """Codes by position in whole chunks, the position of each code, and the length of a chunk."""
    coding = env.coding()
    assert isinstance(coding, Coding)
    if coding.count > 2 * MOST_STATES:
        raise CapacityError(
            f"{env.name}: {coding.count:.2e} states are more than the {2 * MOST_STATES:.2e} of a "
            "table; use another method"
        )
    longest = max(len(layer) for layer in coding.layers)
    chunk = min(CHUNK, 1 << (longest - 1).bit_length())
    rows = []
    for layer in coding.layers:
        # A layer that ends in the midst of a chunk is filled up with its own first code.
        room = -len(layer) % chunk
        rows.append(np.concatenate([layer, np.full(room, layer[0])]).astype(np.int32))
    codes = np.concatenate(rows)
    position = np.full(coding.count, len(codes), np.int32)
    # Of equal codes the first position counts: assignments of later ones come first.
    position[codes[::-1]] = np.arange(len(codes))[::-1].astype(np.int32)
    return codes, position, chunk


def sweep(env: DecisionProcess, params: Any) -> Table:
    """Values of all coded states.

    Raises:
      CapacityError: There are too many.
    """
    codes, position, chunk = _arranged(env)
    run = _sweep_cyclic if env.cyclic else _sweep_layers
    values, sweeps = run(env, chunk, params, jnp.asarray(codes), jnp.asarray(position))
    return Table(values, jnp.asarray(position), sweeps)


def _backup(
    env: DecisionProcess, params: Any, codes: jax.Array, values: jax.Array, position: jax.Array
) -> jax.Array:
    """New values of some codes, `[codes]`."""

    def one(code: jax.Array) -> jax.Array:
        decision = env.decode(params, code)
        ended = env.done(params, decision)
        following = jnp.min(_action_values(env, params, decision, values, position))
        return jnp.where(ended, env.final_cost(params, decision), following)

    return jax.vmap(one)(codes)


def _action_values(
    env: DecisionProcess, params: Any, decision: Any, values: jax.Array, position: jax.Array
) -> jax.Array:
    """Cost of each letter and of what follows, infinite for illegal ones, `[actions]`."""

    def one(action: jax.Array) -> jax.Array:
        moved, cost = env.move(params, decision, action)
        code = jnp.clip(env.encode(params, moved), 0, len(position) - 1)
        return cost + values[position[code]]

    costs = jax.vmap(one)(jnp.arange(env.num_actions, dtype=jnp.int32))
    return jnp.where(env.legal(params, decision), costs, jnp.inf)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _sweep_layers(
    env: DecisionProcess, chunk: int, params: Any, codes: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    dtype = env.penalty(params).dtype
    chunks = len(codes) // chunk

    def body(number: jax.Array, values: jax.Array) -> jax.Array:
        begin = (chunks - 1 - number) * chunk
        some = jax.lax.dynamic_slice(codes, (begin,), (chunk,))
        new = _backup(env, params, some, values, position)
        return jax.lax.dynamic_update_slice(values, new.astype(dtype), (begin,))

    start = jnp.full((len(codes) + 1,), jnp.inf, dtype)
    return jax.lax.fori_loop(0, chunks, body, start), jnp.ones((), jnp.int32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _sweep_cyclic(
    env: DecisionProcess, chunk: int, params: Any, codes: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    dtype = env.penalty(params).dtype

    def body(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        values, _, count = carry
        new = _backup(env, params, codes, values, position).astype(dtype)
        new = jnp.concatenate([new, values[-1:]])
        return new, jnp.any(new != values), count + 1

    start = jnp.full((len(codes) + 1,), jnp.inf, dtype)
    carry = (start, jnp.ones((), bool), jnp.zeros((), jnp.int32))
    values, _, count = jax.lax.while_loop(
        lambda carry: carry[1] & (carry[2] <= len(codes)), body, carry
    )
    return values, count


def _walk(env: DecisionProcess, params: Any, table: Table) -> tuple[jax.Array, jax.Array]:
    """Letters of an optimal string `[horizon]`, -1 behind its end, and its value."""
    initial = env.initial(params)

    def step(decision: Any, _: None) -> tuple[Any, jax.Array]:
        ended = env.done(params, decision)
        costs = _action_values(env, params, decision, table.values, table.position)
        action = jnp.argmin(costs).astype(jnp.int32)
        moved, _ = env.move(params, decision, action)
        kept = jax.tree.map(lambda new, old: jnp.where(ended, old, new), moved, decision)
        return kept, jnp.where(ended, -1, action)

    actions = jax.lax.scan(step, initial, None, env.horizon)[1]
    return actions, table.value(env.encode(params, initial))


class Enumeration(NamedTuple):
    """All states that strings lead to, layer by layer of the letters read.

    Attributes:
      states: Of each layer, a pytree of arrays `[states, ...]`.
      following: Index of the state in the next layer after each letter, `[states, actions]`, -1
        where the letter is illegal.
      costs: Of these letters.
      final: Terminal cost of states that are complete, NaN of others, `[states]`.
      cut: Whether strings go on beyond the last layer.
    """

    states: list[Any]
    following: list[np.ndarray]
    costs: list[np.ndarray]
    final: list[np.ndarray]
    cut: bool

    @property
    def count(self) -> int:
        """States in all layers."""
        return sum(map(len, self.final))

    def backup(self, values: list[np.ndarray]) -> list[np.ndarray]:
        """One sweep of Bellman's operator over all layers at once, from any values."""
        beyond = [*values[1:], np.zeros(0)]
        return [self._layer(k, after) for k, after in enumerate(beyond)]

    def _layer(self, layer: int, beyond: np.ndarray) -> np.ndarray:
        """Values of a layer from those of the next."""
        best = self._action_values(layer, beyond).min(1, initial=np.inf)
        return np.where(np.isnan(self.final[layer]), best, self.final[layer])

    def _action_values(self, layer: int, beyond: np.ndarray) -> np.ndarray:
        # The last entry stands for what letters that are illegal lead to.
        return self.costs[layer] + np.append(beyond, np.inf)[self.following[layer]]

    def values(self) -> list[np.ndarray]:
        """Optimal values of each layer; infinite where no string can be completed."""
        values = [np.zeros(0)]
        for layer in reversed(range(len(self.final))):
            values.append(self._layer(layer, values[-1]))
        return values[:0:-1]

    def greedy(self, values: list[np.ndarray]) -> tuple[list[int], float]:
        """The string that is greedy with respect to values of each layer, and its cost."""
        at, actions, total = 0, [], 0.0
        for layer, final in enumerate(self.final):
            if not np.isnan(final[at]):
                return actions, total + float(final[at])
            best = int(np.argmin(self._action_values(layer, values[layer + 1])[at]))
            actions.append(best)
            total += float(self.costs[layer][at, best])
            at = int(self.following[layer][at, best])
        return actions, np.inf

    def solution(self) -> Solution:
        """An optimal string.

        Raises:
          ScenarioError: No string can be completed.
        """
        values = self.values()
        if not np.isfinite(values[0][0]):
            raise ScenarioError("no string can be completed, the instance is infeasible")
        actions, cost = self.greedy(values)
        return Solution(cost, actions, self.count)


def enumerate_states(
    env: DecisionProcess, params: Any, *, most_states: int = MOST_STATES
) -> Enumeration:
    """Follow every legal string, with strings that lead to one state as one.

    Raises:
      CapacityError: There are more than `most_states` states.
    """
    layer = jax.tree.map(lambda leaf: np.asarray(leaf)[None], env.initial(params))
    found = Enumeration([], [], [], [], False)
    total = 0
    for depth in range(env.horizon + 1):
        m = len(jax.tree.leaves(layer)[0])
        total += m
        if total > most_states:
            raise CapacityError(
                f"{env.name}: more than {most_states:.2e} states after {depth} letters, too many "
                "to enumerate; use another method"
            )
        final, mask, costs, moved = _expand_all(env, params, layer)
        open_ = mask & np.isnan(final)[:, None]
        rows = jax.tree.map(lambda leaf, where=open_: leaf[where], moved)
        following = np.full(mask.shape, -1)
        found.states.append(layer)
        found.costs.append(costs)
        found.final.append(final)
        found.following.append(following)
        if not open_.any():
            return found
        if depth == env.horizon:
            return found._replace(cut=True)
        layer, inverse = _distinct(rows)
        following[open_] = inverse
    raise AssertionError("the last layer returns")


def _expand_all(env: DecisionProcess, params: Any, layer: Any) -> tuple[Any, ...]:
    """What `_expand` says of every state of a layer, in chunks of few different lengths."""
    m = len(jax.tree.leaves(layer)[0])
    chunk = 64 if m <= 64 else CHUNK
    parts = []
    for begin in range(0, m, chunk):
        some = jax.tree.map(lambda leaf, b=begin: leaf[b : b + chunk], layer)
        room = chunk - len(jax.tree.leaves(some)[0])
        some = jax.tree.map(
            lambda leaf, r=room: np.concatenate([leaf, np.repeat(leaf[:1], r, axis=0)]), some
        )
        out = jax.tree.map(np.asarray, _expand(env, params, some))
        parts.append(jax.tree.map(lambda leaf, r=room: leaf[: len(leaf) - r], out))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@functools.partial(jax.jit, static_argnums=0)
def _expand(env: DecisionProcess, params: Any, states: Any) -> tuple[Any, ...]:
    """Terminal costs (NaN of states that are not complete), masks, costs and next states."""

    def one(decision: Any) -> tuple[Any, ...]:
        actions = jnp.arange(env.num_actions, dtype=jnp.int32)
        moved, costs = jax.vmap(lambda a: env.move(params, decision, a))(actions)
        ended = env.done(params, decision)
        final = jnp.where(ended, env.final_cost(params, decision), jnp.nan)
        return final, env.legal(params, decision), costs, moved

    return jax.vmap(one)(states)


def _distinct(rows: Any) -> tuple[Any, np.ndarray]:
    """Distinct states among stacked ones, and the index of each one's in them."""
    packed = packed_states(rows)
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return jax.tree.map(lambda leaf: leaf[first], rows), inverse.ravel()


def packed_states(states: Any) -> np.ndarray:
    """Each of some stacked states as one comparable item, `[states]`; equal only if they are."""
    columns = []
    for leaf in jax.tree.leaves(states):
        leaf = np.asarray(leaf)
        flat = leaf.reshape(len(leaf), -1)
        if flat.dtype == bool:
            flat = np.packbits(flat, axis=1)
        elif np.issubdtype(flat.dtype, np.floating):
            # Zero has two signs.
            flat = flat + 0.0
        columns.append(np.ascontiguousarray(flat).view(np.uint8).reshape(len(leaf), -1))
    table = np.concatenate(columns, axis=1)
    if table.shape[1] <= 8:
        table = np.pad(table, ((0, 0), (0, 8 - table.shape[1])))
        return np.ascontiguousarray(table).view(np.uint64).ravel()
    return np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1]))).ravel()
