"""Bounds on optima that cost little; every one holds for any instance."""

from __future__ import annotations

import numpy as np

from jaxlab.envs.combinatorial.instances import (
    GraphInstance,
    JobShopInstance,
    KnapsackInstance,
    RoutingInstance,
    TourInstance,
)


def _one_tree(distances: np.ndarray) -> tuple[float, np.ndarray]:
    """Weight of a minimal spanning tree of all cities but 0 and the two least edges at 0, and the
    degrees."""
    n = len(distances)
    degrees = np.zeros(n, int)
    reached, near = np.full(n, np.inf), np.full(n, 1)
    inside = np.zeros(n, bool)
    inside[:2] = True
    reached[2:] = distances[1, 2:]
    total = 0.0
    for _ in range(n - 2):
        city = int(np.argmin(np.where(inside, np.inf, reached)))
        total += reached[city]
        degrees[[city, near[city]]] += 1
        inside[city] = True
        closer = ~inside & (distances[city] < reached)
        reached[closer], near[closer] = distances[city, closer], city
    ends = np.argsort(distances[0, 1:])[:2] + 1
    degrees[ends] += 1
    degrees[0] = 2
    return total + float(distances[0, ends].sum()), degrees


def tour_bound(instance: TourInstance, rounds: int = 200) -> float:
    """Below any tour: 1-trees under ascent by prices of cities (Held and Karp 1970, 1971).

    Asymmetric problems get the greater of the sums of least distances out of and into cities.
    """
    d = np.asarray(instance.distances, float)
    n = len(d)
    if not instance.symmetric or n < 4:
        apart = d + np.diag(np.full(n, np.inf))
        return float(max(apart.min(1).sum(), apart.min(0).sum()))
    prices, best = np.zeros(n), -np.inf
    step = 0.01 * d.sum() / n**2 + 1e-12
    for number in range(rounds):
        weight, degrees = _one_tree(d + prices[:, None] + prices)
        best = max(best, weight - 2 * prices.sum())
        prices = prices + step * (1 - number / rounds) * (degrees - 2)
    whole = bool(np.all(d == np.floor(d)))
    return float(np.ceil(best - 1e-6 * abs(best)) if whole else best)


def routes_bound(instance: RoutingInstance) -> float:
    """Below any routes: one walk through all places, no shorter than a tour by least ways.

    The tour's bound by the distances themselves would not do: routes pass the depot often, which
    is shorter where distances break the triangle inequality.
    """
    ways = np.array(instance.distances, float)
    for place in range(len(ways)):
        ways = np.minimum(ways, ways[:, place, None] + ways[place])
    np.fill_diagonal(ways, 0.0)
    return tour_bound(TourInstance(instance.name, ways))


def knapsack_bound(instance: KnapsackInstance) -> float:
    """Above any packing: the last item that does not fit is cut (Dantzig 1957)."""
    gainful = (instance.values > 0) & (instance.weights <= instance.capacity)
    values, weights = instance.values[gainful], instance.weights[gainful]
    order = np.argsort(-values / np.maximum(weights, 1e-12))
    left, total = instance.capacity, 0.0
    for item in order:
        share = 1.0 if weights[item] <= left else left / weights[item]
        total += share * values[item]
        left -= share * weights[item]
        if share < 1:
            break
    return float(total)


def cut_bound(graph: GraphInstance) -> float:
    """Above any cut: the sum of positive weights, or n / 4 of the Laplacian's largest eigenvalue
    (Mohar and Poljak 1990), whichever is less."""
    total = graph.weights[graph.weights > 0].sum()
    if graph.vertices <= 1000:
        matrix = graph.matrix
        laplacian = np.diag(matrix.sum(1)) - matrix
        spectral = graph.vertices / 4 * np.linalg.eigvalsh(laplacian)[-1]
        total = min(total, spectral * (1 + 1e-9) + 1e-9)
    whole = bool(np.all(graph.weights == np.floor(graph.weights)))
    return float((np.floor(total) if whole else total) + graph.offset)


def matching_size(graph: GraphInstance) -> int:
    """Edges without common ends: a cover has at least, an independent set leaves as many out."""
    free, count = np.ones(graph.vertices, bool), 0
    for i, j in graph.edges:
        if free[i] and free[j]:
            free[i] = free[j] = False
            count += 1
    return count


def clique_size(graph: GraphInstance) -> int:
    """Vertices joined to each other, found greedily: colours that are needed."""
    adjacency = graph.adjacency
    degrees, best = adjacency.sum(1), 0
    for first in np.argsort(-degrees)[:20]:
        members, common = 1, adjacency[first].copy()
        while common.any():
            vertex = int(np.argmax(np.where(common, degrees, -1)))
            members, common = members + 1, common & adjacency[vertex]
        best = max(best, members)
    return best


def makespan_bound(instance: JobShopInstance) -> float:
    """Below any makespan: the longest job, or the most loaded machine."""
    loads = np.bincount(instance.machines.ravel(), instance.durations.ravel())
    return float(max(instance.durations.sum(1).max(), loads.max()))
