"""Choosing vertices: the maximum independent set and the minimum vertex cover."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import CapacityError, ConfigError
from jaxlab.core.spaces import Space
from jaxlab.envs.combinatorial.distributions import RandomGraph
from jaxlab.envs.combinatorial.instances import GraphInstance
from jaxlab.envs.combinatorial.protocol import (
    Coding,
    DecisionProcess,
    GraphView,
    flags,
    float_dtype,
    padded,
    require_room,
)


@struct.dataclass
class VertexParams:
    """A graph; vertices of the padding have no edges.

    Attributes:
      adjacency: Symmetric, `[n, n]`.
      size: Vertices that are there, `[]`, int32.
      unit: One, in the dtype of costs.
    """

    adjacency: Bool[Array, "n n"]
    size: Int[Array, ""]
    unit: Float[Array, ""]


@struct.dataclass
class VertexDecision:
    """Attributes:
    closed: Vertices chosen, or that cannot be chosen any more, and those of the padding.
    """

    closed: Bool[Array, " n"]


@dataclasses.dataclass(frozen=True)
class VertexProcess(DecisionProcess[VertexDecision, VertexParams]):
    """What both problems share.

    Attributes:
      size: Vertices, padding included.
      graphs: Distribution of instances.
    """

    size: int = 12
    graphs: RandomGraph = dataclasses.field(default_factory=lambda: RandomGraph("er", 0.15))

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size is {self.size}, expected at least 1")

    @property
    def horizon(self) -> int:
        return self.size

    @property
    def num_actions(self) -> int:
        return self.size

    def sample_params(self, key: jax.Array) -> VertexParams:
        """A random graph, with an edge at least (from vertex 0 to 1)."""
        edges = self.graphs.adjacency(key, self.size)
        if self.size > 1:
            edges = edges.at[0, 1].set(True).at[1, 0].set(True)
        return VertexParams(edges, jnp.full((), self.size, jnp.int32), jnp.ones((), float_dtype()))

    def params(self, instance: GraphInstance) -> VertexParams:
        """Params of a graph, padded; weights are not heeded.

        Raises:
          CapacityError: It has more vertices than there is room for.
        """
        require_room(instance.name, instance.vertices, self.size, "vertices")
        return VertexParams(
            jnp.asarray(padded(instance.adjacency, self.size, False)),
            jnp.full((), instance.vertices, jnp.int32),
            jnp.ones((), float_dtype()),
        )

    def initial(self, params: VertexParams) -> VertexDecision:
        return VertexDecision(jnp.arange(self.size) >= params.size)

    def done(self, params: VertexParams, decision: VertexDecision) -> Bool[Array, ""]:
        return ~jnp.any(self.legal(params, decision))

    def penalty(self, params: VertexParams) -> Float[Array, ""]:
        return params.unit * (self.size + 1)

    def observe(self, params: VertexParams, decision: VertexDecision) -> Mapping[str, Array]:
        return {"adjacency": params.adjacency, "closed": decision.closed}

    def spaces(self, params: VertexParams) -> Mapping[str, Space]:
        return {"adjacency": flags((self.size, self.size)), "closed": flags((self.size,))}

    def graph(self, params: VertexParams, decision: VertexDecision) -> GraphView:
        dtype = params.unit.dtype
        free = ~decision.closed
        open_edges = params.adjacency & free & free[:, None]
        degree = open_edges.sum(1).astype(dtype)
        second = (open_edges @ degree) / jnp.maximum(degree, 1)
        columns = [free, degree / 10, second / 10, params.adjacency.sum(1) / 10]
        nodes = jnp.stack([column.astype(dtype) for column in columns], -1)
        present = jnp.arange(self.size) < params.size
        context = free.mean(dtype=dtype)[None]
        return GraphView(nodes, open_edges[..., None].astype(dtype), present, context)

    def solution(self, params: VertexParams, actions: Sequence[int]) -> list[int]:
        """Vertices chosen, ascending."""
        return sorted(map(int, actions))

    def coding(self) -> Coding:
        """A bit for each vertex that is closed."""
        if self.size > 23:
            raise CapacityError(
                f"{self.size} vertices have {2.0**self.size:.1e} sets: dynamic programming has "
                "room for 23 vertices; use another method"
            )
        sets = np.arange(2**self.size)
        ranks = np.bitwise_count(sets)
        return Coding(2**self.size, [sets[ranks == rank] for rank in range(self.size + 1)])

    def encode(self, params: VertexParams, decision: VertexDecision) -> Int[Array, ""]:
        return (decision.closed << jnp.arange(self.size)).sum().astype(jnp.int32)

    def decode(self, params: VertexParams, code: Int[Array, ""]) -> VertexDecision:
        return VertexDecision((code >> jnp.arange(self.size) & 1).astype(bool))


@dataclasses.dataclass(frozen=True)
class IndependentSet(VertexProcess):
    """Choose vertices no two of which are joined, as many as possible, until none is free."""

    name: ClassVar[str] = "mis"
    sense: ClassVar[int] = -1

    def legal(self, params: VertexParams, decision: VertexDecision) -> Bool[Array, " n"]:
        return ~decision.closed

    def move(
        self, params: VertexParams, decision: VertexDecision, action: Int[Array, ""]
    ) -> tuple[VertexDecision, Float[Array, ""]]:
        chosen = jnp.arange(self.size) == action
        return VertexDecision(decision.closed | chosen | params.adjacency[action]), -params.unit

    def string_cost(self, params: VertexParams, actions: Sequence[int]) -> float | None:
        adjacency, n = np.asarray(params.adjacency), int(params.size)
        chosen = list(actions)
        if len(set(chosen)) < len(chosen) or any(v >= n for v in chosen):
            return None
        if adjacency[np.ix_(chosen, chosen)].any():
            return None
        covered = adjacency[chosen].any(0)
        covered[chosen] = True
        return -float(len(chosen)) if covered[:n].all() else None


@dataclasses.dataclass(frozen=True)
class VertexCover(VertexProcess):
    """Choose vertices, as few as possible, until every edge has a chosen end.

    A vertex can be chosen while one of its edges has none.
    """

    name: ClassVar[str] = "mvc"

    def legal(self, params: VertexParams, decision: VertexDecision) -> Bool[Array, " n"]:
        outside = ~decision.closed
        return outside & jnp.any(params.adjacency & outside, axis=1)

    def move(
        self, params: VertexParams, decision: VertexDecision, action: Int[Array, ""]
    ) -> tuple[VertexDecision, Float[Array, ""]]:
        return VertexDecision(decision.closed | (jnp.arange(self.size) == action)), params.unit

    def string_cost(self, params: VertexParams, actions: Sequence[int]) -> float | None:
        left = np.array(params.adjacency)
        for vertex in actions:
            if not left[vertex].any():
                return None
            left[vertex] = left[:, vertex] = False
        return None if left.any() else float(len(actions))
