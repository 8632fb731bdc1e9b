"""Runs of a program on a list of actions, as plain data: frames, cells, and the error.

The layout is that of recorded traces: `palette[0]` is the background, `frames` are grids of
palette indices row by row, `cells` are lists of `[variable, x, y, palette index]` in the
order of painting, cells off the grid among them; the first of both is the state at the start.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxlab.core.errors import DataError, ProgramError
from jaxlab.envs.autumn.compiler import CompiledProgram, PaintedCells, ProgramState
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.syntax import Program, parse

#: Steps that one compiled call takes.
CHUNK = 128


def load_program(path: str | pathlib.Path) -> Program:
    """The program of a file.

    Raises:
      DataError: the file cannot be read.
      ProgramError: it holds no program.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the program cannot be read: {error}") from None
    try:
        return parse(text)
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from None


def load_actions(path: str | pathlib.Path) -> tuple[list[Any], dict[str, Any]]:
    """The actions of a JSON file, and what else stands in it.

    The file holds a list of actions, or an object with such a list under `actions`, as a
    recorded trace does.

    Raises:
      DataError: the file cannot be read, or holds no list of actions.
    """
    try:
        data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: the actions cannot be read: {error}") from None
    rest = data if isinstance(data, dict) else {}
    actions = rest.get("actions") if rest else data
    if not isinstance(actions, list):
        raise DataError(f'{path}: expected a list of actions such as ["left"] or ["click", 3, 4]')
    return actions, rest


def encoded(actions: Sequence[Any], grid_size: int) -> np.ndarray:
    """Actions as `[actions, 3]`, int32: kind, x and y.

    An action is `[kind]`, `["click", x, y]`, the name of a kind, or an object with `type`.

    Raises:
      DataError: an action is none of the language's, or a click lies outside the grid.
    """
    rows = [_encoded(action, n, grid_size) for n, action in enumerate(actions)]
    return np.array(rows, np.int32).reshape(len(rows), 3)


def _encoded(action: Any, index: int, grid_size: int) -> tuple[int, int, int]:
    if isinstance(action, dict):
        parts: list[Any] = [action.get("type"), *(action[n] for n in ("x", "y") if n in action)]
    else:
        parts = list(action) if isinstance(action, list | tuple) else [action]
    kind = parts[0] if parts else None
    if kind not in ACTIONS or len(parts) != (3 if kind == "click" else 1):
        raise DataError(
            f"action {index}: expected [KIND] with KIND among {', '.join(ACTIONS[:-1])}, or "
            f'["click", X, Y], got {json.dumps(action, default=str)}'
        )
    if kind != "click":
        return ACTIONS.index(kind), 0, 0
    x, y = parts[1:]
    for value in (x, y):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < grid_size:
            raise DataError(
                f"action {index}: the click at {x}, {y} is outside the grid; x (column) and y "
                f"(row) are integers from 0 to {grid_size - 1}"
            )
    return ACTIONS.index(kind), x, y


@functools.lru_cache(maxsize=32)
def _jitted(compiled: CompiledProgram) -> tuple[Any, Any, Any]:
    """The first state, its cells, and a chunk of steps, compiled once for each program."""

    @jax.jit
    def chunk(state: ProgramState, seed: jax.Array, start: jax.Array, rows: jax.Array) -> Any:
        def one(state: ProgramState, row: tuple[jax.Array, jax.Array]) -> Any:
            number, action = row
            key = jax.random.fold_in(jax.random.key(seed), number)
            after = compiled.step(key, state, action)
            return after, (after, compiled.cells(after))

        numbers = start + np.arange(1, CHUNK + 1, dtype=np.uint32)
        return jax.lax.scan(one, state, (numbers, rows))

    # The cells have a program of their own: in one with `init`, what is constant at the
    # start would be left out of them.
    return jax.jit(compiled.init), jax.jit(compiled.cells), chunk


def run(
    compiled: CompiledProgram, actions: np.ndarray, seed: int
) -> tuple[ProgramState, PaintedCells]:
    """The states of a run, the first one included, and their cells, stacked on the host."""
    steps = len(actions)
    padded = np.zeros((-(-max(steps, 1) // CHUNK) * CHUNK, 3), np.int32)
    padded[:steps] = actions

    word = np.uint32(seed)
    start_key = word if compiled.random == "reference" else jax.random.key(word)
    init, cells_of, chunk = _jitted(compiled)
    state = init(start_key)
    cells = cells_of(state)
    parts = [jax.tree.map(lambda leaf: np.asarray(leaf)[None], (state, cells))]
    for start in range(0, steps, CHUNK):
        state, stacked = chunk(state, word, np.uint32(start), padded[start : start + CHUNK])
        parts.append(jax.tree.map(np.asarray, stacked))
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: steps + 1], *parts)
    return joined


def replay(compiled: CompiledProgram, actions: Sequence[Any], seed: int) -> dict[str, Any]:
    """A run as plain data in the layout of recorded traces.

    Where the program fails the run ends before that step, and `error` says why.

    Raises:
      DataError: see `encoded`.
    """
    states, cells = run(compiled, encoded(actions, compiled.grid_size), seed)
    failed = np.flatnonzero(states.error)
    count = int(failed[0]) if len(failed) else len(states.error)
    background = compiled.background
    palette = {background: 0}
    variables: dict[str, int] = {}
    painted = []
    for n in range(count):
        there = np.asarray(cells.exists[n])
        rows = []
        for variable, x, y, colour in zip(
            *(
                np.asarray(getattr(cells, name)[n])[there].tolist()
                for name in ("variable", "x", "y", "colour")
            ),
            strict=True,
        ):
            name, shade = compiled.variables[variable], compiled.palette[colour]
            rows.append(
                [
                    variables.setdefault(name, len(variables)),
                    x,
                    y,
                    palette.setdefault(shade, len(palette)),
                ]
            )
        painted.append(rows)
    frames = np.asarray(states.frame[:count])
    for colour in np.unique(frames).tolist():
        palette.setdefault(compiled.palette[colour], len(palette))
    table = np.array([palette.get(name, 0) for name in compiled.palette], np.int32)
    return {
        "seed": seed,
        "random": compiled.random,
        "grid_size": compiled.grid_size,
        "background": background,
        "palette": list(palette),
        "variables": list(variables),
        "next_order": list(compiled.next_order),
        "error": compiled.messages[int(states.error[failed[0]])] if len(failed) else None,
        "actions": list(actions),
        "frames": table[frames].tolist(),
        "cells": painted,
    }
