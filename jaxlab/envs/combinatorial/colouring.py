"""Graph colouring: vertices are coloured in their order with as few colours as possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Space
from jaxlab.envs.combinatorial.distributions import RandomGraph
from jaxlab.envs.combinatorial.instances import GraphInstance
from jaxlab.envs.combinatorial.protocol import DecisionProcess, flags
from jaxlab.envs.combinatorial.vertices import IndependentSet, VertexParams


@struct.dataclass
class ColourDecision:
    """Attributes:
    colours: Of each vertex, -1 for those without, `[n]`, int32.
    vertex: The next vertex.
    used: Colours used so far.
    """

    colours: Int[Array, " n"]
    vertex: Int[Array, ""]
    used: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class GraphColouring(DecisionProcess[ColourDecision, VertexParams]):
    """Give the next vertex a used colour, or the first unused one, for which one pays.

    Attributes:
      size: Vertices, padding included; there are as many colours, so nobody gets stuck.
      graphs: Distribution of instances.
    """

    name: ClassVar[str] = "colouring"

    size: int = 12
    graphs: RandomGraph = dataclasses.field(default_factory=lambda: RandomGraph("er", 0.5))

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
        """As of `IndependentSet`."""
        return IndependentSet(self.size, self.graphs).sample_params(key)

    def params(self, instance: GraphInstance) -> VertexParams:
        """As of `IndependentSet`."""
        return IndependentSet(self.size, self.graphs).params(instance)

    def initial(self, params: VertexParams) -> ColourDecision:
        zero = jnp.zeros((), jnp.int32)
        return ColourDecision(jnp.full((self.size,), -1, jnp.int32), zero, zero)

    def legal(self, params: VertexParams, decision: ColourDecision) -> Bool[Array, " n"]:
        colours = jnp.arange(self.size)
        near = params.adjacency[jnp.minimum(decision.vertex, self.size - 1)]
        taken = jnp.any(near[:, None] & (decision.colours[:, None] == colours), axis=0)
        return ~taken & (colours <= decision.used) & (decision.vertex < params.size)

    def move(
        self, params: VertexParams, decision: ColourDecision, action: Int[Array, ""]
    ) -> tuple[ColourDecision, Float[Array, ""]]:
        action = action.astype(jnp.int32)
        here = jnp.arange(self.size) == decision.vertex
        fresh = action == decision.used
        moved = ColourDecision(
            jnp.where(here, action, decision.colours),
            decision.vertex + 1,
            decision.used + fresh.astype(jnp.int32),
        )
        return moved, jnp.where(fresh, params.unit, 0)

    def done(self, params: VertexParams, decision: ColourDecision) -> Bool[Array, ""]:
        return decision.vertex >= params.size

    def penalty(self, params: VertexParams) -> Float[Array, ""]:
        return params.unit * (self.size + 1)

    def observe(self, params: VertexParams, decision: ColourDecision) -> Mapping[str, Array]:
        return {
            "adjacency": params.adjacency,
            "colours": decision.colours,
            "vertex": decision.vertex,
        }

    def spaces(self, params: VertexParams) -> Mapping[str, Space]:
        return {
            "adjacency": flags((self.size, self.size)),
            "colours": Box(-1, self.size - 1, (self.size,), "int32"),
            "vertex": Discrete(self.size + 1),
        }

    def solution(self, params: VertexParams, actions: Sequence[int]) -> list[int]:
        """The colour of each vertex."""
        return list(map(int, actions))

    def string_cost(self, params: VertexParams, actions: Sequence[int]) -> float | None:
        colours, n = np.asarray(actions, int), int(params.size)
        if len(colours) != n:
            return None
        used = 0
        for colour in colours:
            if colour > used:
                return None
            used = max(used, int(colour) + 1)
        adjacency = np.asarray(params.adjacency)[:n, :n]
        clash = adjacency & (colours[:, None] == colours)
        return None if clash.any() else float(used)
