"""Random graphs of the literature, drawn inside compiled programs."""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxlab.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class RandomGraph:
    """A distribution of weighted graphs.

    Attributes:
      kind: `er` of Erdos and Renyi, each edge with probability `density`; `ba` of Barabasi and
        Albert, each vertex joined to `attach` earlier ones.
      density: Probability of an edge (er).
      attach: Edges of a new vertex (ba); 4 in Barrett et al. 2020.
      signed: Weights are -1 and +1 with equal probability; otherwise 1.
    """

    kind: Literal["er", "ba"] = "er"
    density: float = 0.15
    attach: int = 4
    signed: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("er", "ba"):
            raise ConfigError(f"kind is {self.kind!r}, expected er or ba")
        if not 0 < self.density <= 1:
            raise ConfigError(f"density is {self.density}, expected a number in (0, 1]")
        if self.attach < 1:
            raise ConfigError(f"attach is {self.attach}, expected at least 1")

    def adjacency(self, key: jax.Array, size: int) -> Bool[Array, "n n"]:
        """A symmetric matrix without loops."""
        if self.kind == "er":
            upper = jnp.triu(jax.random.bernoulli(key, self.density, (size, size)), 1)
            return upper | upper.T
        return self._preferential(key, size)

    def _preferential(self, key: jax.Array, size: int) -> Bool[Array, "n n"]:
        vertices = jnp.arange(size)
        count = min(self.attach, size - 1)

        def join(matrix: Array, vertex: Array) -> tuple[Array, None]:
            degrees = matrix.sum(0).astype(np.float32)
            # The first vertices have no edges yet: the star of networkx begins with equal ones.
            earlier = vertices < jnp.maximum(vertex, 1)
            weight = jnp.where(earlier, jnp.where(degrees.sum() > 0, degrees, 1.0), 0.0)
            noise = jax.random.gumbel(jax.random.fold_in(key, vertex), (size,), np.float32)
            score = jnp.where(weight > 0, jnp.log(jnp.maximum(weight, 1e-9)) + noise, -jnp.inf)
            least = jax.lax.top_k(score, count)[0][-1]
            chosen = (score >= least) & (score > -jnp.inf) & (vertices < vertex)
            row = chosen[None] & (vertices == vertex)[:, None]
            return matrix | row | row.T, None

        empty = jnp.zeros((size, size), bool)
        return jax.lax.scan(join, empty, jnp.arange(count, size))[0]

    def weights(self, key: jax.Array, size: int, dtype: np.dtype) -> Float[Array, "n n"]:
        """A symmetric matrix of weights, zero where there is no edge."""
        graph_key, sign_key = jax.random.split(key)
        edges = self.adjacency(graph_key, size)
        if not self.signed:
            return edges.astype(dtype)
        upper = jnp.triu(jax.random.rademacher(sign_key, (size, size), np.int8), 1)
        return jnp.where(edges, upper + upper.T, 0).astype(dtype)
