"""Instances given by formulas, with their optima; they were computed by other programs."""

import numpy as np

from jaxlab.envs.combinatorial.distances import exact_euclidean
from jaxlab.envs.combinatorial.instances import GraphInstance, KnapsackInstance, TourInstance

TOURS = {5: 2.049968361915, 8: 2.751489533331, 10: 2.940371604189}
NEAREST_NEIGHBOUR = {10: 2.949323854210}
KNAPSACKS = {10: (62, 109), 20: (133, 224)}
KNAPSACK_GREEDY = {20: 214}
#: Edges, largest cut, largest independent set.
GRAPHS = {8: (12, 9, 4), 12: (28, 21, 6)}
#: Least cost, and that of going to the cheaper neighbour.
GRIDS = {5: (33, 34), 10: (60, 61)}


def van_der_corput(index, base):
    value, share = 0.0, 1.0 / base
    while index:
        index, digit = divmod(index, base)
        value += digit * share
        share /= base
    return value


def halton_tour(n):
    points = np.array([[van_der_corput(i, 2), van_der_corput(i, 3)] for i in range(1, n + 1)])
    return TourInstance(f"halton{n}", exact_euclidean(points), points)


def knapsack(n):
    i = np.arange(1, n + 1)
    values, weights = (7 * i + 3) % 23 + 5, (11 * i + 5) % 19 + 4
    return KnapsackInstance(
        f"formula{n}", values.astype(float), weights.astype(float), float(weights.sum() // 2)
    )


def graph(n):
    i, j = np.triu_indices(n, 1)
    there = np.isin((i * i + j * j + 3 * i * j + i + j) % 7, (0, 1, 3))
    edges = np.stack([i[there], j[there]], 1)
    return GraphInstance(f"formula{n}", n, edges, np.ones(len(edges)))


def grid(n):
    i, j = np.indices((n, n))
    return (3 * i + 5 * j + 2 * i * j) % 9 + 1
