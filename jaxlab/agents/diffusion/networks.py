"""Networks of the diffusion model, and the embedding of time and condition that they share."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.diffusion.config import DiffusionConfig

PyTree = Any

#: Slowest period of the sinusoids over its fastest, for times scaled to a thousand.
MAX_PERIOD = 10_000.0
TIME_SCALE = 1000.0


def sinusoidal_embedding(time: Float[Array, " batch"], width: int) -> Float[Array, "batch width"]:
    """Sines, then cosines, of times at geometric frequencies (Vaswani et al. 2017, section 3.5)."""
    half = width // 2
    frequency = jnp.exp(
        jnp.arange(half, dtype=time.dtype) * jnp.asarray(-math.log(MAX_PERIOD) / half, time.dtype)
    )
    angle = time[:, None] * frequency
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


class Embedding(nnx.Module):
    """Time and condition as one vector; a learned vector stands for a dropped condition.

    Args:
      config: Sizes.
      rngs: Source of the first weights.
    """

    def __init__(self, config: DiffusionConfig, rngs: nnx.Rngs):
        linear = functools.partial(_linear, config=config, rngs=rngs)
        width = config.embedding
        self.width, self.timesteps = width, config.timesteps
        self.time = linear(width, width)
        self.conditioned = config.conditions > 0
        if self.conditioned:
            self.cond_in, self.cond_out = linear(config.conditions, width), linear(width, width)
            self.null = nnx.Param(
                0.1 * jax.random.normal(rngs.params(), (width,), jnp.dtype(config.dtype))
            )
        self.join = linear(width * (1 + self.conditioned), width)

    def __call__(
        self,
        t: Int[Array, " batch"],
        cond: Float[Array, "batch conditions"],
        keep: Bool[Array, " batch"],
    ) -> Float[Array, "batch width"]:
        """Embed times and conditions; where `keep` is false the condition is not looked at."""
        scaled = t.astype(self.time.kernel.dtype) * (TIME_SCALE / self.timesteps)
        parts = [nnx.silu(self.time(sinusoidal_embedding(scaled, self.width)))]
        if self.conditioned:
            embedded = self.cond_out(nnx.silu(self.cond_in(cond)))
            parts.append(jnp.where(keep[:, None], embedded, self.null[...]))
        return nnx.silu(self.join(jnp.concatenate(parts, axis=-1)))


class ResidualMLP(nnx.Module):
    """Residual blocks of one hidden layer each, scaled and shifted by time and condition.

    The last layer and the scales begin at zero: the first prediction is zero, whose loss
    is one for standardised targets.

    Args:
      config: Sizes.
      rngs: Source of the first weights.
    """

    def __init__(self, config: DiffusionConfig, rngs: nnx.Rngs):
        linear = functools.partial(_linear, config=config, rngs=rngs)
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
        linear = functools.partial(_linear, config=config, rngs=rngs)
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


def _linear(
    inputs: int, outputs: int, *, config: DiffusionConfig, rngs: nnx.Rngs, zero: bool = False
) -> nnx.Linear:
    dtype = jnp.dtype(config.dtype)
    initial = {"kernel_init": nnx.initializers.zeros_init()} if zero else {}
    return nnx.Linear(inputs, outputs, rngs=rngs, param_dtype=dtype, dtype=dtype, **initial)


def _network(config: DiffusionConfig, rngs: nnx.Rngs) -> nnx.Module:
    if config.network == "mlp":
        return ResidualMLP(config, rngs)
    from jaxlab.agents.diffusion.unet import UNet

    return UNet(config, rngs)


def init_params(config: DiffusionConfig, key: jax.Array) -> PyTree:
    """First parameters of the network as nested dictionaries of arrays."""
    _, state = nnx.split(_network(config, nnx.Rngs(key)), nnx.Param)
    return nnx.to_pure_dict(state)


@functools.lru_cache(maxsize=32)
def _structure(config: DiffusionConfig) -> nnx.GraphDef:
    """What of the network is not parameters; no array is made."""
    return nnx.split(nnx.eval_shape(lambda: _network(config, nnx.Rngs(0))), nnx.Param)[0]


def predict(
    config: DiffusionConfig,
    params: PyTree,
    x: Float[Array, "batch *shape"],
    t: Int[Array, " batch"],
    cond: Float[Array, "batch conditions"],
    keep: Bool[Array, " batch"],
) -> Float[Array, "batch *shape"]:
    """The network's output (noise or velocity), as a pure function of its parameters.

    Args:
      config: The configuration that made the parameters.
      params: From `init_params`.
      x: Noisy rows in units of the network.
      t: Noise level of each row, 1 to T.
      cond: Conditions, scaled; `[batch, 0]` for none.
      keep: False where the learned null embedding takes the condition's place.
    """
    return nnx.merge(_structure(config), nnx.State(params))(x, t, cond, keep)
