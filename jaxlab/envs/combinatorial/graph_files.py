"""Files of graphs: rudy (G-set, Biq Mac), QUBO, directed graphs with source and target."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from jaxlab.envs.combinatorial.instances import GraphInstance, PathInstance, QuboInstance
from jaxlab.envs.combinatorial.text_files import TextFile, read_text


def _name(file: TextFile) -> str:
    path = pathlib.Path(str(file.path))
    return path.stem if path.suffix == ".txt" else path.name


def _header(file: TextFile, names: tuple[str, ...], spare: bool) -> tuple[int, list[int]]:
    """The first line: counts, and behind them a word that is not heeded where `spare`."""
    at = file.numbered()[0][0]
    counts = (len(names), len(names) + 1) if spare else len(names)
    words = file.words(at, counts, f"the header '{' '.join(names)}'")
    return at, [file.integer(at, w, n, 0) for w, n in zip(words, names, strict=False)]


def _entries(
    file: TextFile, header: int, n: int, count: int, *, loops: bool
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Lines `i j weight` (weight 1 where it is left out): line numbers, pairs from 0, weights."""
    at, pairs, weights = [], [], []
    for number, _ in file.numbered()[1:]:
        words = file.words(number, (2, 3), "'vertex vertex weight'")
        i, j = (file.integer(number, word, "a vertex", 1, n) - 1 for word in words[:2])
        if i == j and not loops:
            file.fail(number, f"an edge leads from vertex {i + 1} to itself")
        at.append(number)
        pairs.append((i, j))
        weights.append(file.number(number, words[2], "a weight") if len(words) == 3 else 1.0)
    if len(pairs) != count:
        line = at[-1] if at else header
        file.fail(line, f"the header announces {count} lines of edges, the file has {len(pairs)}")
    return at, np.array(pairs, int).reshape(-1, 2), np.array(weights)


def _refuse_twins(file: TextFile, at: list[int], pairs: np.ndarray) -> None:
    seen: dict[tuple[int, int], int] = {}
    for number, pair in zip(at, map(tuple, pairs.tolist()), strict=True):
        if pair in seen:
            i, j = pair[0] + 1, pair[1] + 1
            file.fail(number, f"the pair {i} {j} is given again, after line {seen[pair]}")
        seen[pair] = number


def load_graph(path: Any) -> GraphInstance:
    """Read a graph in rudy's format: `n m`, then m lines `i j weight`, vertices from 1.

    Raises:
      DataError: The file is malformed; names the line.
    """
    file = read_text(path)
    header, (n, m) = _header(file, ("vertices", "edges"), spare=True)
    if n < 1:
        file.fail(header, "a graph has one vertex at least")
    at, pairs, weights = _entries(file, header, n, m, loops=False)
    pairs = np.sort(pairs, axis=1)
    _refuse_twins(file, at, pairs)
    return GraphInstance(_name(file), n, pairs, weights)


def load_qubo(path: Any) -> QuboInstance:
    """Read `n m`, then m lines `i j q`: minimise `x^T Q x` with Q symmetric.

    A pair of different indices stands for both entries, so it counts twice.

    Raises:
      DataError: The file is malformed; names the line.
    """
    return parse_qubo(read_text(path))


def parse_qubo(file: TextFile) -> QuboInstance:
    """See `load_qubo`."""
    header, (n, m) = _header(file, ("variables", "entries"), spare=True)
    if n < 1:
        file.fail(header, "a problem has one variable at least")
    at, pairs, values = _entries(file, header, n, m, loops=True)
    pairs = np.sort(pairs, axis=1)
    _refuse_twins(file, at, pairs)
    matrix = np.zeros((n, n))
    matrix[pairs[:, 0], pairs[:, 1]] = values
    matrix[pairs[:, 1], pairs[:, 0]] = values
    return QuboInstance(_name(file), matrix)


def load_paths(path: Any) -> PathInstance:
    """Read `n m source target`, then m lines `from to weight`, vertices from 1.

    Raises:
      DataError: The file is malformed; names the line.
    """
    file = read_text(path)
    header, (n, m, source, target) = _header(
        file, ("vertices", "edges", "source", "target"), spare=False
    )
    for vertex, what in ((source, "the source"), (target, "the target")):
        file.integer(header, str(vertex), what, 1, n)
    _, pairs, weights = _entries(file, header, n, m, loops=False)
    return PathInstance(_name(file), n, pairs, weights, source - 1, target - 1)


def graph_file(graph: GraphInstance) -> str:
    """A rudy file of a graph."""
    lines = [f"{graph.vertices} {len(graph.edges)}"]
    rows = zip(graph.edges.tolist(), graph.weights.tolist(), strict=True)
    lines += [f"{i + 1} {j + 1} {weight:.17g}" for (i, j), weight in rows]
    return "\n".join(lines) + "\n"
