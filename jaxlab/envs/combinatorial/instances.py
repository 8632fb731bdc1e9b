"""Problem instances as files give them: numpy arrays on the host, checked."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from jaxlab.core.errors import DataError


@dataclasses.dataclass(frozen=True)
class TourInstance:
    """A travelling salesman problem.

    Attributes:
      name: Name in its file.
      distances: From row to column, `[n, n]`, float64, zero on the diagonal.
      coordinates: Places of the cities `[n, 2]`, or None.
    """

    name: str
    distances: np.ndarray
    coordinates: np.ndarray | None = None

    def __post_init__(self) -> None:
        n = len(self.distances)
        if self.distances.shape != (n, n) or n < 2:
            raise DataError(f"{self.name}: distances are {self.distances.shape}, expected n x n")
        if not np.isfinite(self.distances).all():
            raise DataError(f"{self.name}: a distance is not finite")

    @property
    def size(self) -> int:
        return len(self.distances)

    @property
    def symmetric(self) -> bool:
        return bool(np.array_equal(self.distances, self.distances.T))

    def require_symmetric(self) -> None:
        """Refuse distances that depend on the direction.

        Raises:
          DataError: Names the first pair of cities that differ.
        """
        odd = np.argwhere(self.distances != self.distances.T)
        if len(odd):
            i, j = map(int, odd[0])
            there, back = self.distances[i, j], self.distances[j, i]
            raise DataError(
                f"{self.name}: the distance from city {i + 1} to {j + 1} is {there:g} but back "
                f"{back:g}; a symmetric problem was asked for, use atsp"
            )

    def length(self, tour: Any) -> float:
        """Length of a closed tour of all cities, counted from 0.

        Raises:
          DataError: The tour is no permutation of the cities.
        """
        tour = np.asarray(tour)
        if not np.array_equal(np.sort(tour), np.arange(self.size)):
            raise DataError(f"{self.name}: the tour visits not each of {self.size} cities once")
        return float(self.distances[tour, np.roll(tour, -1)].sum())


@dataclasses.dataclass(frozen=True)
class RoutingInstance:
    """Vehicle routing with one capacity; city 0 is the depot.

    Attributes:
      name: Name in its file.
      distances: `[n, n]`, depot included.
      demands: `[n]`, zero at the depot.
      capacity: Of each vehicle.
      coordinates: `[n, 2]`, or None.
    """

    name: str
    distances: np.ndarray
    demands: np.ndarray
    capacity: float
    coordinates: np.ndarray | None = None

    def __post_init__(self) -> None:
        over = np.flatnonzero(self.demands > self.capacity)
        if len(over):
            raise DataError(
                f"{self.name}: customer {over[0] + 1} demands {self.demands[over[0]]:g}, more than "
                f"the capacity {self.capacity:g} of a vehicle: no route serves it"
            )
        if np.any(self.demands < 0):
            raise DataError(f"{self.name}: a demand is negative")

    @property
    def size(self) -> int:
        return len(self.distances)

    def length(self, route: Any) -> float:
        """Length of a walk from the depot through customers and depot back to the depot.

        Raises:
          DataError: A customer is missed or visited twice, or a vehicle is overloaded.
        """
        route = np.asarray(route, int)
        visits = np.sort(route[route > 0])
        if not np.array_equal(visits, np.arange(1, self.size)):
            raise DataError(f"{self.name}: the routes visit not each customer once")
        load = 0.0
        for city in route:
            load = 0.0 if city == 0 else load + self.demands[city]
            if load > self.capacity * (1 + 1e-9):
                raise DataError(f"{self.name}: a vehicle carries {load:g} of {self.capacity:g}")
        walk = np.concatenate([[0], route, [0]])
        return float(self.distances[walk[:-1], walk[1:]].sum())


@dataclasses.dataclass(frozen=True)
class GraphInstance:
    """A graph with weighted edges, each pair of vertices at most once.

    Attributes:
      name: Name of its file.
      vertices: Their number.
      edges: Pairs of vertices counted from 0, smaller first, `[m, 2]`.
      weights: `[m]`.
      offset: What is added to a cut's weight (graphs made from other problems).
    """

    name: str
    vertices: int
    edges: np.ndarray
    weights: np.ndarray
    offset: float = 0.0

    @property
    def matrix(self) -> np.ndarray:
        """Symmetric matrix of weights, `[n, n]`."""
        matrix = np.zeros((self.vertices, self.vertices))
        matrix[self.edges[:, 0], self.edges[:, 1]] = self.weights
        return matrix + matrix.T

    @property
    def adjacency(self) -> np.ndarray:
        """Symmetric bool matrix, `[n, n]`, true for edges of weight zero too."""
        matrix = np.zeros((self.vertices, self.vertices), bool)
        matrix[self.edges[:, 0], self.edges[:, 1]] = True
        return matrix | matrix.T

    def cut(self, sides: Any) -> float:
        """Weight of the edges between the vertices of side 0 and of side 1, `sides [n]`."""
        sides = np.asarray(sides)
        crossing = sides[self.edges[:, 0]] != sides[self.edges[:, 1]]
        return float(self.weights[crossing].sum() + self.offset)


@dataclasses.dataclass(frozen=True)
class QuboInstance:
    """Minimise `x^T Q x` over bits.

    Attributes:
      name: Name of its file.
      matrix: Symmetric `Q`, `[n, n]`.
    """

    name: str
    matrix: np.ndarray

    def value(self, bits: Any) -> float:
        """`x^T Q x` of bits `[n]`."""
        bits = np.asarray(bits, float)
        return float(bits @ self.matrix @ bits)

    def as_cut(self) -> GraphInstance:
        """The graph of n + 1 vertices whose cuts, negated, are the values of bits.

        Vertex 0 is an additional one; bit i is 1 where vertex i + 1 lies on its other side. With
        `x = (1 - s_i s_0) / 2`, the sum becomes one of products of spins.
        """
        q, n = self.matrix, len(self.matrix)
        # x_i x_j = (x_i + x_j - [x_i != x_j]) / 2, and x_i is itself the cut with vertex 0.
        off = q - np.diag(np.diag(q))
        weights = np.zeros((n + 1, n + 1))
        weights[1:, 1:] = off
        weights[0, 1:] = -(np.diag(q) + off.sum(1))
        rows, columns = np.nonzero(np.triu(weights, 1))
        return GraphInstance(self.name, n + 1, np.stack([rows, columns], 1), weights[rows, columns])


@dataclasses.dataclass(frozen=True)
class KnapsackInstance:
    """Choose items of greatest value within a capacity.

    Attributes:
      name: Name of its file.
      values: `[n]`.
      weights: `[n]`, not negative.
      capacity: Largest sum of weights.
    """

    name: str
    values: np.ndarray
    weights: np.ndarray
    capacity: float

    def __post_init__(self) -> None:
        if np.any(self.weights < 0) or self.capacity < 0:
            raise DataError(f"{self.name}: a weight or the capacity is negative")

    def value(self, items: Any) -> float:
        """Value of items counted from 0.

        Raises:
          DataError: They weigh more than the capacity, or one is taken twice.
        """
        items = np.asarray(items, int)
        if len(np.unique(items)) != len(items):
            raise DataError(f"{self.name}: an item is taken twice")
        weight = self.weights[items].sum()
        if weight > self.capacity * (1 + 1e-9):
            raise DataError(f"{self.name}: items weigh {weight:g}, more than {self.capacity:g}")
        return float(self.values[items].sum())


@dataclasses.dataclass(frozen=True)
class JobShopInstance:
    """Jobs, each a sequence of operations on machines.

    Attributes:
      name: Name of its file.
      machines: Of each operation, counted from 0, `[jobs, operations]`.
      durations: `[jobs, operations]`.
    """

    name: str
    machines: np.ndarray
    durations: np.ndarray

    def starts(self, order: Any) -> np.ndarray:
        """Earliest starts `[jobs, operations]` when jobs get on as in `order`.

        `order` names a job for each operation, `[jobs * operations]`.

        Raises:
          DataError: A job is named too often or too seldom.
        """
        jobs, operations = self.machines.shape
        order = np.asarray(order, int)
        if not np.array_equal(np.sort(order), np.repeat(np.arange(jobs), operations)):
            raise DataError(f"{self.name}: the order names not each of {jobs} jobs {operations} x")
        ready, free = np.zeros(jobs), np.zeros(int(self.machines.max()) + 1)
        done, starts = np.zeros(jobs, int), np.zeros(self.machines.shape)
        for job in order:
            operation = done[job]
            machine = self.machines[job, operation]
            start = max(ready[job], free[machine])
            starts[job, operation] = start
            ready[job] = free[machine] = start + self.durations[job, operation]
            done[job] += 1
        return starts

    def makespan(self, order: Any) -> float:
        """When the last operation of such a schedule ends."""
        return float((self.starts(order) + self.durations).max())


@dataclasses.dataclass(frozen=True)
class PathInstance:
    """A directed graph with weights of edges, a source and a target.

    Attributes:
      name: Name of its file.
      vertices: Their number.
      edges: From, to, counted from 0, `[m, 2]`.
      weights: `[m]`.
      source: Where paths begin.
      target: Where they end.
    """

    name: str
    vertices: int
    edges: np.ndarray
    weights: np.ndarray
    source: int
    target: int

    def length(self, path: Any) -> float:
        """Weight of a path of vertices from the source to the target.

        Raises:
          DataError: It begins or ends elsewhere, or uses an edge that is not there.
        """
        path = [int(v) for v in path]
        if not path or path[0] != self.source or path[-1] != self.target:
            raise DataError(f"{self.name}: the path leads not from source to target")
        known: dict[tuple[int, int], float] = {}
        for (a, b), w in zip(self.edges.tolist(), self.weights.tolist(), strict=True):
            known[a, b] = min(w, known.get((a, b), np.inf))
        try:
            return float(sum(known[pair] for pair in itertools.pairwise(path)))
        except KeyError as pair:
            raise DataError(f"{self.name}: there is no edge {pair}") from None
