"""Mixed-integer programmes of the problems, solved by HiGHS through scipy.

Every function returns what was found within a time limit, a bound, and whether it is proved.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from jaxlab.core.errors import ScenarioError
from jaxlab.envs.combinatorial.instances import (
    GraphInstance,
    JobShopInstance,
    KnapsackInstance,
    RoutingInstance,
    TourInstance,
)

#: Relative difference of bound and value that counts as none.
CLOSED = 1e-9


class Proof(NamedTuple):
    """What an exact solver found.

    Attributes:
      solution: In the terms of the instance's own functions; None if nothing was found in time.
      bound: On the optimum, in the problem's own sense.
      proved: Whether the solution is an optimum.
    """

    solution: list[int] | None
    bound: float
    proved: bool


class _Programme:
    """Minimise `cost @ x` over integers and reals in boxes, with rows added one by one."""

    def __init__(self, cost: np.ndarray, integer: bool | np.ndarray = True, high: object = 1.0):
        self.cost = np.asarray(cost, float)
        self.integrality = np.broadcast_to(np.asarray(integer, int), self.cost.shape)
        self.high = np.broadcast_to(np.asarray(high, float), self.cost.shape)
        self._entries: list[tuple[np.ndarray, np.ndarray]] = []
        self._bounds: list[tuple[float, float]] = []

    def row(
        self, columns: object, factors: object, low: float = -np.inf, high: float = np.inf
    ) -> None:
        """Add `low <= sum of factors times columns <= high`."""
        columns = np.asarray(columns, int)
        self._entries.append((columns, np.broadcast_to(np.asarray(factors, float), columns.shape)))
        self._bounds.append((low, high))

    def solve(self, seconds: float) -> optimize.OptimizeResult:
        lengths = [len(columns) for columns, _ in self._entries]
        shape = (len(lengths), len(self.cost))
        data = np.concatenate([factors for _, factors in self._entries])
        columns = np.concatenate([columns for columns, _ in self._entries])
        matrix = sparse.csr_matrix(
            (data, columns, np.concatenate([[0], np.cumsum(lengths)])), shape
        )
        low, high = np.array(self._bounds).T
        with _silenced():
            result = optimize.milp(
                self.cost,
                integrality=self.integrality,
                bounds=optimize.Bounds(0.0, self.high),
                constraints=optimize.LinearConstraint(matrix, low, high),
                options={"time_limit": max(seconds, 0.01), "mip_rel_gap": 0.0},
            )
        if result.status == 2:
            raise ScenarioError("the instance is infeasible: no solution keeps all constraints")
        return result


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Without what HiGHS prints now and then, whatever its options say, into the answer."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _proof(result: optimize.OptimizeResult, solution: list[int] | None, sense: int) -> Proof:
    bound = -np.inf if result.mip_dual_bound is None else result.mip_dual_bound
    return Proof(solution, sense * float(bound), result.status == 0)


def tour(instance: TourInstance, seconds: float) -> Proof:
    """A shortest tour: edges of degree two, and a row for each subtour that turns up (Dantzig,
    Fulkerson and Johnson 1954)."""
    d, n = instance.distances, instance.size
    if instance.symmetric:
        tails, heads = np.triu_indices(n, 1)
    else:
        tails, heads = np.nonzero(~np.eye(n, dtype=bool))
    programme = _Programme(d[tails, heads])
    for city in range(n):
        if instance.symmetric:
            degree = 2 if n > 2 else 1
            programme.row(np.flatnonzero((tails == city) | (heads == city)), 1.0, degree, degree)
        else:
            programme.row(np.flatnonzero(tails == city), 1.0, 1, 1)
            programme.row(np.flatnonzero(heads == city), 1.0, 1, 1)
    end, bound = time.monotonic() + seconds, -np.inf
    while True:
        result = programme.solve(end - time.monotonic())
        if result.mip_dual_bound is not None:
            bound = max(bound, float(result.mip_dual_bound))
        if result.x is None or result.status != 0:
            return Proof(None, bound, False)
        used = result.x > 0.5
        graph = sparse.coo_matrix((used[used], (tails[used], heads[used])), (n, n))
        count, label = sparse.csgraph.connected_components(graph, directed=False)
        if count == 1:
            # HiGHS closes gaps up to its tolerance, so the bound is what was found.
            found = _follow(tails[used], heads[used], instance.symmetric)
            return Proof(found, instance.length(found), True)
        for part in range(count):
            inside = label == part
            within = np.flatnonzero(inside[tails] & inside[heads])
            programme.row(within, 1.0, high=inside.sum() - 1)


def _follow(tails: np.ndarray, heads: np.ndarray, symmetric: bool) -> list[int]:
    """Cities in the order of the edges, from 0."""
    following: dict[int, list[int]] = {}
    for a, b in zip(tails.tolist(), heads.tolist(), strict=True):
        following.setdefault(a, []).append(b)
        if symmetric:
            following.setdefault(b, []).append(a)
    path, seen = [0], {0}
    while True:
        onward = [city for city in following[path[-1]] if city not in seen]
        if not onward:
            return path
        path.append(onward[0])
        seen.add(onward[0])


def cut(graph: GraphInstance, seconds: float) -> Proof:
    """A largest cut, by a variable for each vertex and each edge."""
    n, m = graph.vertices, len(graph.edges)
    programme = _Programme(np.concatenate([np.zeros(n), -graph.weights]))
    for e, ((i, j), weight) in enumerate(zip(graph.edges, graph.weights, strict=True)):
        if weight > 0:
            programme.row([n + e, i, j], [1, -1, -1], high=0)
            programme.row([n + e, i, j], [1, 1, 1], high=2)
        else:
            programme.row([n + e, i, j], [-1, 1, -1], high=0)
            programme.row([n + e, i, j], [-1, -1, 1], high=0)
    programme.row([0], [1.0], 0, 0)
    result = programme.solve(seconds) if m else None
    if result is None:
        return Proof([0] * n, graph.offset, True)
    sides = None if result.x is None else (result.x[:n] > 0.5).astype(int).tolist()
    proof = _proof(result, sides, -1)
    return proof._replace(bound=proof.bound + graph.offset)


def _vertex_programme(graph: GraphInstance, sense: int) -> _Programme:
    programme = _Programme(np.full(graph.vertices, float(sense)))
    for edge in graph.edges:
        if sense > 0:
            programme.row(edge, 1.0, low=1)
        else:
            programme.row(edge, 1.0, high=1)
    programme.row([0], [1.0], 0, 1)
    return programme


def vertices(graph: GraphInstance, seconds: float, *, cover: bool) -> Proof:
    """A smallest vertex cover, or a largest independent set."""
    result = _vertex_programme(graph, 1 if cover else -1).solve(seconds)
    chosen = None if result.x is None else np.flatnonzero(result.x > 0.5).tolist()
    proof = _proof(result, chosen, 1 if cover else -1)
    whole = np.ceil(proof.bound - 1e-6) if cover else np.floor(proof.bound + 1e-6)
    return proof._replace(bound=float(whole))


def knapsack(instance: KnapsackInstance, seconds: float) -> Proof:
    """Items of the greatest value."""
    programme = _Programme(-instance.values)
    programme.row(np.arange(len(instance.values)), instance.weights, high=instance.capacity)
    result = programme.solve(seconds)
    items = None if result.x is None else np.flatnonzero(result.x > 0.5).tolist()
    return _proof(result, items, -1)


def colouring(graph: GraphInstance, seconds: float, most: int) -> Proof:
    """A colouring with the fewest of at most `most` colours."""
    n = graph.vertices
    programme = _Programme(np.concatenate([np.zeros(n * most), np.ones(most)]))
    for vertex in range(n):
        programme.row(vertex * most + np.arange(most), 1.0, 1, 1)
        # Vertex v has one of the first v + 1 colours.
        for colour in range(vertex + 1, most):
            programme.row([vertex * most + colour], [1.0], 0, 0)
        for colour in range(most):
            programme.row([vertex * most + colour, n * most + colour], [1, -1], high=0)
    for i, j in graph.edges:
        for colour in range(most):
            programme.row([i * most + colour, j * most + colour], 1.0, high=1)
    for colour in range(most - 1):
        programme.row([n * most + colour, n * most + colour + 1], [1, -1], low=0)
    result = programme.solve(seconds)
    if result.x is None:
        return _proof(result, None, 1)
    colours = result.x[: n * most].reshape(n, most).argmax(1)
    proof = _proof(result, colours.tolist(), 1)
    return proof._replace(bound=float(np.ceil(proof.bound - 1e-6)))


def routes(instance: RoutingInstance, seconds: float) -> Proof:
    """Shortest routes, by arcs and loads (Miller, Tucker and Zemlin 1960)."""
    d, n = instance.distances, instance.size
    tails, heads = np.nonzero(~np.eye(n, dtype=bool))
    arcs = len(tails)
    cost = np.concatenate([d[tails, heads], np.zeros(n)])
    integer = np.concatenate([np.ones(arcs), np.zeros(n)])
    high = np.concatenate([np.ones(arcs), np.full(n, instance.capacity)])
    programme = _Programme(cost, integer, high)
    for city in range(1, n):
        programme.row(np.flatnonzero(tails == city), 1.0, 1, 1)
        programme.row(np.flatnonzero(heads == city), 1.0, 1, 1)
        programme.row([arcs + city], [1.0], instance.demands[city], instance.capacity)
    depot = np.concatenate([np.flatnonzero(tails == 0), np.flatnonzero(heads == 0)])
    programme.row(depot, np.where(tails[depot] == 0, 1.0, -1.0), 0, 0)
    for arc, (a, b) in enumerate(zip(tails, heads, strict=True)):
        if a and b:
            programme.row(
                [arcs + b, arcs + a, arc],
                [1, -1, -instance.capacity],
                low=instance.demands[b] - instance.capacity,
            )
    result = programme.solve(seconds)
    if result.x is None:
        return _proof(result, None, 1)
    used = result.x[:arcs] > 0.5
    onward = dict(zip(tails[used & (tails > 0)], heads[used & (tails > 0)], strict=True))
    walk: list[int] = []
    for first in heads[used & (tails == 0)]:
        walk += [0] if walk else []
        city = int(first)
        while city:
            walk.append(city)
            city = int(onward[city])
    return _proof(result, walk, 1)


def shop(instance: JobShopInstance, seconds: float) -> Proof:
    """A schedule of the least makespan, by the order of each pair on a machine (Manne 1960)."""
    jobs, operations = instance.machines.shape
    count = jobs * operations
    machine, duration = instance.machines.ravel(), instance.durations.ravel()
    pairs = [
        (a, b)
        for a in range(count)
        for b in range(a + 1, count)
        if machine[a] == machine[b] and a // operations != b // operations
    ]
    end = count
    most = float(duration.sum())
    cost = np.zeros(count + 1 + len(pairs))
    cost[end] = 1.0
    integer = np.concatenate([np.zeros(count + 1), np.ones(len(pairs))])
    high = np.concatenate([np.full(count + 1, most), np.ones(len(pairs))])
    programme = _Programme(cost, integer, high)
    for at in range(count):
        if at % operations < operations - 1:
            programme.row([at + 1, at], [1, -1], low=duration[at])
        else:
            programme.row([end, at], [1, -1], low=duration[at])
    for k, (a, b) in enumerate(pairs):
        first = count + 1 + k
        programme.row([b, a, first], [1, -1, -most], low=duration[a] - most)
        programme.row([a, b, first], [1, -1, most], low=duration[b])
    result = programme.solve(seconds)
    if result.x is None:
        return _proof(result, None, 1)
    order = np.lexsort((np.arange(count) % operations, np.round(result.x[:count], 6)))
    return _proof(result, (order // operations).tolist(), 1)
