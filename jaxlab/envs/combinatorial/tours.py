"""The travelling salesman problem, symmetric and asymmetric.

State: cities visited and the current one (Held and Karp 1962). Tours begin in city 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import CapacityError, ConfigError
from jaxlab.core.spaces import Box, Discrete, Space
from jaxlab.envs.combinatorial.instances import TourInstance
from jaxlab.envs.combinatorial.protocol import (
    Coding,
    DecisionProcess,
    GraphView,
    float_dtype,
    padded,
    require_room,
)


@struct.dataclass
class TourParams:
    """An instance, padded.

    Attributes:
      distances: From row to column, zero where padded.
      coordinates: Places, for observations and pictures; zero where there are none.
      size: Cities that are there, `[]`, int32; they come first.
      bound: Penalty of illegal actions.
    """

    distances: Float[Array, "n n"]
    coordinates: Float[Array, "n 2"]
    size: Int[Array, ""]
    bound: Float[Array, ""]


@struct.dataclass
class TourDecision:
    """Attributes:
    visited: Cities visited, and those of the padding, `[n]`.
    current: Where the salesman is.
    """

    visited: Bool[Array, " n"]
    current: Int[Array, ""]


def _params(distances: Array, coordinates: Array, size: Array) -> TourParams:
    # A tour takes one entry of each row, so twice the largest ones exceed any difference.
    bound = 1 + 2 * jnp.abs(distances).max(-1).sum()
    return TourParams(distances, coordinates, size, bound.astype(distances.dtype))


@dataclasses.dataclass(frozen=True)
class TSP(DecisionProcess[TourDecision, TourParams]):
    """Shortest closed tours; `sample_params` draws cities uniformly in the unit square.

    Attributes:
      size: Cities, padding included.
    """

    name: ClassVar[str] = "tsp"
    symmetric: ClassVar[bool] = True

    size: int = 20

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ConfigError(f"size is {self.size}, expected 2 cities at least")

    @property
    def horizon(self) -> int:
        return self.size - 1

    @property
    def num_actions(self) -> int:
        return self.size

    def sample_params(self, key: jax.Array) -> TourParams:
        """Cities drawn uniformly in the unit square."""
        places = jax.random.uniform(key, (self.size, 2), float_dtype())
        return self.from_places(places)

    def from_places(self, places: Float[Array, "n 2"]) -> TourParams:
        """Params of Euclidean distances that are not rounded; `places` fill the size."""
        # Coordinate by coordinate: a last axis of two numbers would be slow to add up.
        x, y = places[:, 0], places[:, 1]
        squares = jnp.square(x[:, None] - x) + jnp.square(y[:, None] - y)
        # The derivative of a root at zero is infinite, and the diagonal is zero.
        apart = squares > 0
        distances = jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1)), 0)
        return _params(distances, places, jnp.full((), self.size, jnp.int32))

    def params(self, instance: TourInstance) -> TourParams:
        """Params of an instance, padded.

        Raises:
          DataError: Distances depend on the direction (TSP).
          CapacityError: It has more cities than there is room for.
        """
        if self.symmetric:
            instance.require_symmetric()
        require_room(instance.name, instance.size, self.size, "cities")
        places = instance.coordinates
        places = np.zeros((instance.size, 2)) if places is None else places
        return _params(
            jnp.asarray(padded(instance.distances, self.size), float_dtype()),
            jnp.asarray(np.pad(places, ((0, self.size - instance.size), (0, 0))), float_dtype()),
            jnp.full((), instance.size, jnp.int32),
        )

    def initial(self, params: TourParams) -> TourDecision:
        cities = jnp.arange(self.size)
        return TourDecision((cities >= params.size) | (cities == 0), jnp.zeros((), jnp.int32))

    def legal(self, params: TourParams, decision: TourDecision) -> Bool[Array, " n"]:
        return ~decision.visited

    def move(
        self, params: TourParams, decision: TourDecision, action: Int[Array, ""]
    ) -> tuple[TourDecision, Float[Array, ""]]:
        action = action.astype(jnp.int32)
        visited = decision.visited | (jnp.arange(self.size) == action)
        return TourDecision(visited, action), params.distances[decision.current, action]

    def done(self, params: TourParams, decision: TourDecision) -> Bool[Array, ""]:
        return jnp.all(decision.visited)

    def final_cost(self, params: TourParams, decision: TourDecision) -> Float[Array, ""]:
        return params.distances[decision.current, 0]

    def penalty(self, params: TourParams) -> Float[Array, ""]:
        return params.bound

    def observe(self, params: TourParams, decision: TourDecision) -> Mapping[str, Array]:
        return {"coordinates": params.coordinates, "current": decision.current}

    def spaces(self, params: TourParams) -> Mapping[str, Space]:
        dtype = str(params.coordinates.dtype)
        return {
            "coordinates": Box(-np.inf, np.inf, (self.size, 2), dtype),
            "current": Discrete(self.size),
        }

    def graph(self, params: TourParams, decision: TourDecision) -> GraphView:
        cities = jnp.arange(self.size)
        present = cities < params.size
        free = ~decision.visited
        dtype = params.distances.dtype
        count = jnp.maximum(free.sum(), 1).astype(dtype)
        columns = [
            free,
            cities == decision.current,
            cities == 0,
            params.distances[decision.current],
            params.distances[:, 0],
            jnp.where(free, params.distances, 0).sum(1) / count,
            params.coordinates[:, 0],
            params.coordinates[:, 1],
        ]
        nodes = jnp.stack([column.astype(dtype) for column in columns], -1)
        context = (count / self.size)[None]
        return GraphView(nodes, params.distances[..., None], present, context)

    def solution(self, params: TourParams, actions: Sequence[int]) -> list[int]:
        """The tour of a complete string, from city 0."""
        return [0, *map(int, actions)]

    def string_cost(self, params: TourParams, actions: Sequence[int]) -> float | None:
        n = int(params.size)
        tour = self.solution(params, actions)
        if sorted(tour) != list(range(n)):
            return None
        return float(np.asarray(params.distances)[tour, np.roll(tour, -1)].sum())

    def coding(self) -> Coding:
        """Bits of the cities but 0 that are visited, and the current city."""
        if self.size > 21:
            raise CapacityError(
                f"{self.size} cities have {2.0 ** (self.size - 1) * (self.size - 1):.1e} states: "
                "dynamic programming has room for 21 cities; use another method"
            )
        n = self.size
        sets = np.arange(2 ** (n - 1))
        ranks = np.bitwise_count(sets)
        layers = []
        for rank in range(n):
            of_rank = sets[ranks == rank]
            codes = of_rank[:, None] * n + np.arange(n)
            inside = (of_rank[:, None] << 1 >> np.arange(n) & 1).astype(bool)
            # City 0 is the current one only at the beginning, or where padding fills the set.
            inside[:, 0] = True
            layers.append(codes[inside])
        return Coding(2 ** (n - 1) * n, layers)

    def encode(self, params: TourParams, decision: TourDecision) -> Int[Array, ""]:
        bits = (decision.visited[1:] << jnp.arange(self.size - 1)).sum()
        return (bits * self.size + decision.current).astype(jnp.int32)

    def decode(self, params: TourParams, code: Int[Array, ""]) -> TourDecision:
        bits, current = code // self.size, code % self.size
        visited = (bits >> jnp.arange(self.size - 1) & 1).astype(bool)
        return TourDecision(
            jnp.concatenate([jnp.ones((1,), bool), visited]), current.astype(jnp.int32)
        )

    def render(self, state: Any, params: TourParams) -> np.ndarray:
        from jaxlab.envs.combinatorial.pictures import draw_places

        n, current = int(params.size), int(state.decision.current)
        visited = np.asarray(state.decision.visited)[:n]
        return draw_places(np.asarray(params.coordinates)[:n], visited, current)


@dataclasses.dataclass(frozen=True)
class ATSP(TSP):
    """Shortest closed tours with distances that depend on the direction.

    `sample_params` draws distances uniformly and closes them under the triangle inequality, as
    Kwon et al. 2021 (MatNet) do.
    """

    name: ClassVar[str] = "atsp"
    symmetric: ClassVar[bool] = False

    def sample_params(self, key: jax.Array) -> TourParams:
        """Uniform distances, no longer than any detour."""
        n, dtype = self.size, float_dtype()
        matrix = jax.random.uniform(key, (n, n), dtype) * (1 - jnp.eye(n, dtype=dtype))

        def shorten(k: Array, d: Array) -> Array:
            return jnp.minimum(d, d[:, k][:, None] + d[k])

        matrix = jax.lax.fori_loop(0, n, shorten, matrix)
        return _params(matrix, jnp.zeros((n, 2), dtype), jnp.full((), n, jnp.int32))

    def observe(self, params: TourParams, decision: TourDecision) -> Mapping[str, Array]:
        return {"distances": params.distances, "current": decision.current}

    def spaces(self, params: TourParams) -> Mapping[str, Space]:
        dtype = str(params.distances.dtype)
        return {
            "distances": Box(-np.inf, np.inf, (self.size, self.size), dtype),
            "current": Discrete(self.size),
        }

    def graph(self, params: TourParams, decision: TourDecision) -> GraphView:
        view = super().graph(params, decision)
        edges = jnp.stack([params.distances, params.distances.T], -1)
        return view.replace(edges=edges, nodes=view.nodes[:, :-2])

    def render(self, state: Any, params: TourParams) -> np.ndarray:
        raise NotImplementedError("an asymmetric problem has no places to draw")
