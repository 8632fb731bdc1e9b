"""Networks on graphs: structure2vec and attention.

They take vertices with features `nodes [n, features]`, pairs with features `edges [n, n,
features]`, `present [n]` and a context `[features]`, as attributes of one object, and give a
number for each vertex, or one for all.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.agents.dqn.config import DQNConfig


def _mean(x: Array, present: Array) -> Array:
    count = jnp.maximum(present.sum(), 1)
    return jnp.where(present[:, None], x, 0).sum(0) / count


class _Head(nn.Module):
    """From embeddings of vertices to their values `[n]`, or to one value `[]` if `pooled`."""

    width: int
    pooled: bool

    @nn.compact
    def __call__(self, x: Array, present: Array, context: Array) -> Array:
        whole = jnp.concatenate([_mean(x, present), context.astype(x.dtype)])
        whole = nn.Dense(self.width, name="whole")(whole)
        if self.pooled:
            return nn.Dense(1, name="value")(nn.relu(whole))[0]
        each = nn.Dense(self.width, name="each")(x)
        return nn.Dense(1, name="values")(nn.relu(each + whole))[:, 0]


class StructureToVector(nn.Module):
    """Rounds of messages between joined vertices (Dai, Dai and Song 2016; S2V-DQN 2017).

    Messages are means over the pairs, weighted by the edges' first feature where it is not
    zero, and sums of a learnt function of their features.
    """

    width: int = 64
    rounds: int = 3
    pooled: bool = False

    @nn.compact
    def __call__(self, view: Any) -> Float[Array, "..."]:
        present = view.present
        nodes, edges = (x.astype(np.float32) for x in (view.nodes, view.edges))
        pairs = present[:, None] & present & jnp.any(edges != 0, -1)
        count = jnp.maximum(pairs.sum(1, keepdims=True), 1)
        own = nn.Dense(self.width, name="nodes")(nodes)
        of_edges = nn.relu(nn.Dense(self.width // 2, name="edges")(edges))
        of_edges = jnp.where(pairs[..., None], of_edges, 0).sum(1) / count
        own = own + nn.Dense(self.width, name="from_edges")(of_edges)
        weights = jnp.where(pairs, edges[..., 0], 0) / count
        x = nn.relu(own)
        for number in range(self.rounds):
            weighted = nn.Dense(self.width, use_bias=False, name=f"weighted{number}")(weights @ x)
            plain = jnp.where(pairs, 1.0, 0.0) / count @ x
            plain = nn.Dense(self.width, use_bias=False, name=f"plain{number}")(plain)
            x = nn.relu(own + weighted + plain + nn.Dense(self.width, name=f"self{number}")(x))
        return _Head(self.width, self.pooled)(x, present, view.context)


class GraphAttention(nn.Module):
    """Layers of attention among all vertices, with a bias for each head from the pair's
    features."""

    width: int = 64
    rounds: int = 3
    heads: int = 4
    pooled: bool = False

    @nn.compact
    def __call__(self, view: Any) -> Float[Array, "..."]:
        present = view.present
        nodes, edges = (x.astype(np.float32) for x in (view.nodes, view.edges))
        n, each = len(nodes), self.width // self.heads
        x = nn.Dense(self.width, name="nodes")(nodes)
        for number in range(self.rounds):
            y = nn.LayerNorm(name=f"norm{number}")(x)
            mixed = nn.Dense(3 * self.width, use_bias=False, name=f"qkv{number}")(y)
            q, k, v = jnp.moveaxis(mixed.reshape(n, 3, self.heads, each), 1, 0)
            bias = nn.Dense(self.heads, name=f"bias{number}")(edges)
            score = jnp.einsum("ihd,jhd->hij", q, k) / each**0.5 + jnp.moveaxis(bias, -1, 0)
            score = jnp.where(present, score, -1e9)
            heard = jnp.einsum("hij,jhd->ihd", nn.softmax(score), v).reshape(n, self.width)
            x = x + nn.Dense(self.width, name=f"out{number}")(heard)
            y = nn.LayerNorm(name=f"norm_mlp{number}")(x)
            y = nn.gelu(nn.Dense(2 * self.width, name=f"up{number}")(y))
            x = x + nn.Dense(self.width, name=f"down{number}")(y)
        return _Head(self.width, self.pooled)(nn.LayerNorm(name="norm")(x), present, view.context)


def make_network(config: DQNConfig, *, pooled: bool = False) -> nn.Module:
    """The network that the options name."""
    if config.network == "s2v":
        return StructureToVector(config.width, config.rounds, pooled)
    return GraphAttention(config.width, config.rounds, config.heads, pooled)
