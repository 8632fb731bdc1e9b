"""The embedding of time and condition that all networks share."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.diffusion.config import DiffusionConfig

#: Slowest period of the sinusoids over its fastest, for times scaled to a thousand.
MAX_PERIOD = 10_000.0
TIME_SCALE = 1000.0


def linear_layer(
    inputs: int, outputs: int, *, config: DiffusionConfig, rngs: nnx.Rngs, zero: bool = False
) -> nnx.Linear:
    """A dense layer in the precision of the configuration; `zero` begins with zeros."""
    dtype = jnp.dtype(config.dtype)
    initial = {"kernel_init": nnx.initializers.zeros_init()} if zero else {}
    return nnx.Linear(inputs, outputs, rngs=rngs, param_dtype=dtype, dtype=dtype, **initial)


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
        linear = functools.partial(linear_layer, config=config, rngs=rngs)
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
