"""The network for vectors: a residual multilayer perceptron."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.diffusion.config import DiffusionConfig
from jaxlab.agents.diffusion.embedding import Embedding, linear_layer


class ResidualMLP(nnx.Module):
    """Residual blocks of one hidden layer each, scaled and shifted by time and condition.

    The last layer and the scales begin at zero: the first prediction is zero, whose loss
    is one for standardised targets.

    Args:
      config: Sizes.
      rngs: Source of the first weights.
    """

    def __init__(self, config: DiffusionConfig, rngs: nnx.Rngs):
        linear = functools.partial(linear_layer, config=config, rngs=rngs)
        (dim,) = config.shape
        self.embedding = Embedding(config, rngs)
        self.first = linear(dim, config.width)
        self.blocks = nnx.List([_Block(config, rngs) for _ in range(config.depth)])
        self.last = linear(config.width, dim, zero=True)

    def __call__(
        self,
        x: Float[Array, "batch dim"],
        t: Int[Array, " batch"],
        cond: Float[Array, "batch conditions"],
        keep: Bool[Array, " batch"],
    ) -> Float[Array, "batch dim"]:
        """Predict noise or velocity of noisy rows.

        Args:
          x: Noisy rows in units of the network.
          t: Noise level of each.
          cond: Conditions, scaled.
          keep: False where the condition is dropped.
        """
        embedded = self.embedding(t, cond, keep)
        h = self.first(x)
        for block in self.blocks:
            h = block(h, embedded)
        return self.last(nnx.silu(_standardised(h)))


class _Block(nnx.Module):
    def __init__(self, config: DiffusionConfig, rngs: nnx.Rngs):
        linear = functools.partial(linear_layer, config=config, rngs=rngs)
        self.modulation = linear(config.embedding, 2 * config.width, zero=True)
        self.dense = linear(config.width, config.width)

    def __call__(
        self, h: Float[Array, "batch width"], embedded: Float[Array, "batch embedding"]
    ) -> Float[Array, "batch width"]:
        scale, shift = jnp.split(self.modulation(embedded), 2, axis=-1)
        return h + self.dense(nnx.silu(_standardised(h) * (1 + scale) + shift))


def _standardised(h: Float[Array, "batch width"]) -> Float[Array, "batch width"]:
    """Layer normalisation without parameters: scale and shift come from the embedding."""
    return jax.nn.standardize(h, axis=-1, epsilon=1e-5)
