"""Shortest paths in directed graphs with positive weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import CapacityError, ConfigError, DataError
from jaxlab.core.spaces import Box, Discrete, Space
from jaxlab.envs.combinatorial.instances import PathInstance
from jaxlab.envs.combinatorial.protocol import (
    Coding,
    DecisionProcess,
    flags,
    float_dtype,
    require_room,
)


@struct.dataclass
class PathParams:
    """A graph by its edges out of each vertex, padded.

    Attributes:
      heads: Where they lead, `[n, degree]`, int32.
      weights: Positive, `[n, degree]`.
      open: Edges that are there and from which the target can be reached.
      source: Where paths begin.
      target: Where they end.
    """

    heads: Int[Array, "n degree"]
    weights: Float[Array, "n degree"]
    open: Bool[Array, "n degree"]
    source: Int[Array, ""]
    target: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class ShortestPath(DecisionProcess[Array, PathParams]):
    """Walk from the source to the target at the least cost; the state is the vertex.

    `sample_params` draws a layered graph: every vertex has edges to vertices behind it.

    Attributes:
      size: Vertices, padding included.
      degree: Edges out of a vertex, padding included: the actions.
    """

    name: ClassVar[str] = "shortest_path"
    cyclic: ClassVar[bool] = True

    size: int = 25
    degree: int = 4

    def __post_init__(self) -> None:
        if self.size < 2 or self.degree < 1:
            raise ConfigError(
                f"size is {self.size} and degree {self.degree}, expected at least 2 and 1"
            )

    @property
    def horizon(self) -> int:
        return self.size - 1

    @property
    def num_actions(self) -> int:
        return self.degree

    def sample_params(self, key: jax.Array) -> PathParams:
        """From every vertex edges to random later ones, of weights uniform in [0.1, 1]."""
        head_key, weight_key = jax.random.split(key)
        dtype, shape = float_dtype(), (self.size, self.degree)
        vertex = jnp.arange(self.size)[:, None]
        share = jax.random.uniform(head_key, shape, np.float32)
        room = jnp.maximum(jnp.minimum(self.size - 1 - vertex, 2 * self.degree), 1)
        heads = jnp.minimum(vertex + 1 + (share * room).astype(jnp.int32), self.size - 1)
        inner = jnp.broadcast_to(vertex < self.size - 1, shape)
        return PathParams(
            heads.astype(jnp.int32),
            jax.random.uniform(weight_key, shape, dtype, 0.1, 1.0),
            inner,
            jnp.zeros((), jnp.int32),
            jnp.full((), self.size - 1, jnp.int32),
        )

    def params(self, instance: PathInstance) -> PathParams:
        """Params of a graph, padded.

        Raises:
          CapacityError: It has more vertices, or edges out of one, than there is room for.
          DataError: A weight is not positive, or no path leads to the target.
        """
        require_room(instance.name, instance.vertices, self.size, "vertices")
        bad = np.flatnonzero(instance.weights <= 0)
        if len(bad):
            a, b = instance.edges[bad[0]] + 1
            raise DataError(
                f"{instance.name}: the edge from {a} to {b} weighs {instance.weights[bad[0]]:g}, "
                "expected a positive weight: the process could go round for ever"
            )
        degrees = np.bincount(instance.edges[:, 0], minlength=instance.vertices)
        if degrees.max() > self.degree:
            raise CapacityError(
                f"{instance.name}: {degrees.max()} edges leave vertex {degrees.argmax() + 1}, the "
                f"environment has room for {self.degree}; make it with degree={degrees.max()}"
            )
        reach = self._reaching(instance)
        if not reach[instance.source]:
            raise DataError(f"{instance.name}: no path leads from the source to the target")
        heads = np.zeros((self.size, self.degree), np.int32)
        weights = np.ones((self.size, self.degree))
        open_ = np.zeros((self.size, self.degree), bool)
        filled = np.zeros(self.size, int)
        for (a, b), weight in zip(instance.edges, instance.weights, strict=True):
            slot = filled[a]
            heads[a, slot], weights[a, slot], open_[a, slot] = b, weight, reach[b]
            filled[a] += 1
        return PathParams(
            jnp.asarray(heads),
            jnp.asarray(weights, float_dtype()),
            jnp.asarray(open_),
            jnp.full((), instance.source, jnp.int32),
            jnp.full((), instance.target, jnp.int32),
        )

    def _reaching(self, instance: PathInstance) -> np.ndarray:
        """Vertices from which the target can be reached, `[vertices]`."""
        reach = np.zeros(instance.vertices, bool)
        reach[instance.target] = True
        tails, heads = instance.edges.T
        while True:
            more = reach.copy()
            more[tails[reach[heads]]] = True
            if (more == reach).all():
                return reach
            reach = more

    def initial(self, params: PathParams) -> Array:
        return params.source

    def legal(self, params: PathParams, decision: Array) -> Bool[Array, " degree"]:
        return params.open[decision] & (decision != params.target)

    def move(
        self, params: PathParams, decision: Array, action: Int[Array, ""]
    ) -> tuple[Array, Float[Array, ""]]:
        return params.heads[decision, action], params.weights[decision, action]

    def done(self, params: PathParams, decision: Array) -> Bool[Array, ""]:
        return decision == params.target

    def penalty(self, params: PathParams) -> Float[Array, ""]:
        # A walk without returns uses an edge of each vertex at most.
        return 1 + jnp.abs(params.weights).max(1).sum()

    def observe(self, params: PathParams, decision: Array) -> Mapping[str, Array]:
        return {
            "heads": params.heads,
            "weights": params.weights,
            "open": params.open,
            "vertex": decision,
            "target": params.target,
        }

    def spaces(self, params: PathParams) -> Mapping[str, Space]:
        shape = (self.size, self.degree)
        return {
            "heads": Discrete(self.size, shape),
            "weights": Box(0.0, np.inf, shape, str(params.weights.dtype)),
            "open": flags(shape),
            "vertex": Discrete(self.size),
            "target": Discrete(self.size),
        }

    def solution(self, params: PathParams, actions: Sequence[int]) -> list[int]:
        """Vertices of the path."""
        heads, path = np.asarray(params.heads), [int(params.source)]
        for action in actions:
            path.append(int(heads[path[-1], action]))
        return path

    def string_cost(self, params: PathParams, actions: Sequence[int]) -> float | None:
        heads, weights = np.asarray(params.heads), np.asarray(params.weights)
        there, vertex, total = np.asarray(params.open), int(params.source), 0.0
        for action in actions:
            if vertex == int(params.target) or not there[vertex, action]:
                return None
            total += float(weights[vertex, action])
            vertex = int(heads[vertex, action])
        return total if vertex == int(params.target) else None

    def coding(self) -> Coding:
        """The vertex."""
        return Coding(self.size, [np.arange(self.size)])

    def encode(self, params: PathParams, decision: Array) -> Int[Array, ""]:
        return decision

    def decode(self, params: PathParams, code: Int[Array, ""]) -> Array:
        return code


def for_paths(instance: PathInstance) -> ShortestPath:
    """The environment that an instance just fits into."""
    degrees: Any = np.bincount(instance.edges[:, 0], minlength=instance.vertices)
    return ShortestPath(max(instance.vertices, 2), max(int(degrees.max(initial=0)), 1))


def grid_paths(costs: Any) -> PathInstance:
    """Paths right and down through a table `[rows, columns]`, every entry on the way paid.

    An additional vertex, the last, is the source, so that the first entry is paid too.
    """
    costs = np.asarray(costs, float)
    rows, columns = costs.shape
    number = np.arange(rows * columns).reshape(rows, columns)
    right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], 1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], 1)
    edges = np.concatenate([right, down, [[rows * columns, 0]]])
    weights = costs.ravel()[edges[:, 1]]
    return PathInstance(
        f"grid {rows}x{columns}", number.size + 1, edges, weights, number.size, number.size - 1
    )
