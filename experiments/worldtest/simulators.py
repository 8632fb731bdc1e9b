"""Autumn worlds as the simulator that the planner asks for."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.agents.simulator_planner.simulator import Simulator
from jaxlab.envs.autumn.compiler import CompiledProgram, ProgramState
from jaxlab.envs.autumn.machine import IDENTITIES
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.formats import table_indices

#: Odd multipliers of the hashes (Knuth's, and that of FNV).
_MULTIPLIER, _PRIME = np.uint32(2654435761), np.uint32(16777619)


def action_table(grid_size: int) -> np.ndarray:
    """All actions, rows `[kind, x, y]`: the simple ones, then a click on each place by rows."""
    click = ACTIONS.index("click")
    simple = [[kind, 0, 0] for kind in range(click)]
    clicks = [[click, x, y] for y in range(grid_size) for x in range(grid_size)]
    return np.array(simple + clicks, np.int32)


def places_of(actions: np.ndarray, grid_size: int) -> np.ndarray:
    """The place that each action concerns, row times columns plus column, or -1."""
    click = ACTIONS.index("click")
    where = actions[:, 2] * grid_size + actions[:, 1]
    return np.where(actions[:, 0] == click, where, -1).astype(np.int32)


@functools.lru_cache(maxsize=64)
def simulator_of(compiled: CompiledProgram) -> Simulator:
    """The simulator of a program; pictures are indices of the table of colours."""
    table = np.maximum(table_indices(compiled), 0)
    actions = action_table(compiled.grid_size)
    reference = compiled.random == "reference"

    def init(key: jax.Array, index: jax.Array) -> ProgramState:
        state = compiled.init(index.astype(jnp.uint32) if reference else key)
        return jax.tree.map(jnp.asarray, state)

    def refresh(key: jax.Array, state: ProgramState) -> ProgramState:
        if not reference:
            return state
        return state.replace(random=jax.random.bits(key, (), jnp.uint32))  # type: ignore[attr-defined]

    def frame(state: ProgramState) -> jax.Array:
        return jnp.asarray(table)[state.frame]

    return Simulator(
        init=init,
        step=compiled.step,
        refresh=refresh,
        frame=frame,
        failed=lambda state: state.error > 0,
        fingerprint=_fingerprint,
        features=_features,
        actions=actions,
        places=places_of(actions, compiled.grid_size),
        colours=len(COLOURS),
    )


def _fingerprint(state: ProgramState) -> jax.Array:
    """A hash of the picture and of all variables."""
    total = _hash(state.frame, 0)
    for number, leaf in enumerate(_leaves(state)):
        total = total * _PRIME ^ _hash(leaf, number + 1)
    return total


def _features(state: ProgramState) -> jax.Array:
    """A hash for each variable that holds a number, uint32 `[features]`."""
    numbers = [leaf for leaf in _leaves(state) if leaf.ndim == 0]
    hashes = [_hash(leaf, number) for number, leaf in enumerate(numbers)]
    return jnp.stack(hashes) if hashes else jnp.zeros(1, jnp.uint32)


def _leaves(state: ProgramState) -> list[jax.Array]:
    return jax.tree.leaves((dict(state.values), dict(state.present)))


def _hash(leaf: Any, number: int) -> jax.Array:
    """A hash of a leaf. Numbers of instances, which never come again, count as 0."""
    words = leaf.reshape(-1).astype(jnp.int32)
    if leaf.dtype == jnp.int32:
        words = jnp.where(words >= np.int32(IDENTITIES), 0, words)
    words = jax.lax.bitcast_convert_type(words, jnp.uint32)
    salt = np.arange(1, words.size + 1, dtype=np.uint32) * _MULTIPLIER + np.uint32(number)
    mixed = (words ^ jnp.asarray(salt)) * _MULTIPLIER
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(2246822519)
    return (mixed ^ (mixed >> np.uint32(13))).sum(dtype=jnp.uint32)
