"""A 1-D U-Net for sequences, such as the controls of a trajectory's segments."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.diffusion.config import DiffusionConfig
from jaxlab.agents.diffusion.embedding import Embedding


class UNet(nnx.Module):
    """Residual blocks at halving lengths and back, with attention at the shortest one.

    The network of Ho et al. (2020), appendix B, over one axis, with time and condition
    entering as scale and shift. Sequences are padded with zeros, inside the network, to
    the next length that can be halved at every level. The last layer begins at zero.

    Args:
      config: Sizes.
      rngs: Source of the first weights.
    """

    def __init__(self, config: DiffusionConfig, rngs: nnx.Rngs):
        conv = functools.partial(_Conv, config=config, rngs=rngs)
        block = functools.partial(_ResBlock, config=config, rngs=rngs)
        _, channels = config.shape
        widths = [config.width * factor for factor in config.multipliers]
        self.halvings = len(widths) - 1
        self.embedding = Embedding(config, rngs)
        self.first = conv(channels, widths[0])
        entering = [widths[0], *widths[:-1]]
        # A level's own output comes back on the way up as a second half of the channels.
        returning = list(zip(entering, widths, strict=True))[::-1]
        self.down = nnx.List([block(a, b) for a, b in zip(entering, widths, strict=True)])
        self.shorten = nnx.List([conv(width, width, stride=2) for width in widths[:-1]])
        self.middle = nnx.List([block(widths[-1], widths[-1]) for _ in range(2)])
        self.attention = _Attention(widths[-1], config, rngs)
        self.up = nnx.List([block(2 * width, after) for after, width in returning])
        self.lengthen = nnx.List([conv(after, after) for after, _ in returning[:-1]])
        self.norm = _group_norm(widths[0], config, rngs)
        self.last = conv(widths[0], channels, zero=True)

    def __call__(
        self,
        x: Float[Array, "batch length channels"],
        t: Int[Array, " batch"],
        cond: Float[Array, "batch conditions"],
        keep: Bool[Array, " batch"],
    ) -> Float[Array, "batch length channels"]:
        """Predict noise or velocity of noisy sequences; arguments as for `ResidualMLP`."""
        length = x.shape[1]
        missing = -length % 2**self.halvings
        embedded = self.embedding(t, cond, keep)
        h = self.first(jnp.pad(x, ((0, 0), (0, missing), (0, 0))))
        kept = []
        for level, block in enumerate(self.down):
            h = block(h, embedded)
            kept.append(h)
            if level < self.halvings:
                h = self.shorten[level](h)
        h = self.middle[1](self.attention(self.middle[0](h, embedded)), embedded)
        for level, block in enumerate(self.up):
            h = block(jnp.concatenate([h, kept.pop()], axis=-1), embedded)
            if level < self.halvings:
                h = self.lengthen[level](jnp.repeat(h, 2, axis=1))
        return self.last(nnx.silu(self.norm(h)))[:, :length]


class _ResBlock(nnx.Module):
    """Two convolutions; time and condition scale and shift between them."""

    def __init__(self, inputs: int, outputs: int, *, config: DiffusionConfig, rngs: nnx.Rngs):
        dtype = jnp.dtype(config.dtype)
        self.norm_in = _group_norm(inputs, config, rngs)
        self.conv_in = _Conv(inputs, outputs, config=config, rngs=rngs)
        self.modulation = nnx.Linear(
            config.embedding,
            2 * outputs,
            rngs=rngs,
            param_dtype=dtype,
            dtype=dtype,
            kernel_init=nnx.initializers.zeros_init(),
        )
        self.norm_out = _group_norm(outputs, config, rngs)
        self.conv_out = _Conv(outputs, outputs, config=config, rngs=rngs)
        # A convolution over single points where the channels change, nothing otherwise.
        self.skip = (
            None if inputs == outputs else _Conv(inputs, outputs, size=1, config=config, rngs=rngs)
        )

    def __call__(
        self,
        x: Float[Array, "batch length inputs"],
        embedded: Float[Array, "batch embedding"],
    ) -> Float[Array, "batch length outputs"]:
        h = self.conv_in(nnx.silu(self.norm_in(x)))
        scale, shift = jnp.split(self.modulation(embedded)[:, None], 2, axis=-1)
        h = self.conv_out(nnx.silu(self.norm_out(h) * (1 + scale) + shift))
        return h + (x if self.skip is None else self.skip(x))


class _Attention(nnx.Module):
    """Self-attention of all positions, added to its input."""

    def __init__(self, width: int, config: DiffusionConfig, rngs: nnx.Rngs):
        dtype = jnp.dtype(config.dtype)
        linear = functools.partial(nnx.Linear, rngs=rngs, param_dtype=dtype, dtype=dtype)
        self.heads = config.heads
        self.norm = _group_norm(width, config, rngs)
        self.qkv = linear(width, 3 * width, use_bias=False)
        self.out = linear(width, width)

    def __call__(self, x: Float[Array, "batch length width"]) -> Float[Array, "batch length width"]:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        mixed = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
        return x + self.out(mixed.reshape(x.shape))


def _group_norm(width: int, config: DiffusionConfig, rngs: nnx.Rngs) -> nnx.GroupNorm:
    dtype = jnp.dtype(config.dtype)
    return nnx.GroupNorm(width, num_groups=config.groups, rngs=rngs, param_dtype=dtype, dtype=dtype)


class _Conv(nnx.Module):
    """A convolution over positions, of one or three points, as a product of windows.

    XLA's own convolutions and their gradients are slow on a CPU for so few channels: a
    training step of the U-Net took 2.5 times as long with them (8 to 16 channels, batch 64).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        config: DiffusionConfig,
        rngs: nnx.Rngs,
        size: int = 3,
        stride: int = 1,
        zero: bool = False,
    ):
        dtype = jnp.dtype(config.dtype)
        initial: dict[str, Any] = {"kernel_init": nnx.initializers.zeros_init()} if zero else {}
        self.size, self.stride = size, stride
        self.linear = nnx.Linear(
            size * inputs, outputs, rngs=rngs, param_dtype=dtype, dtype=dtype, **initial
        )

    def __call__(
        self, x: Float[Array, "batch length inputs"]
    ) -> Float[Array, "batch positions outputs"]:
        length, margin = x.shape[1], self.size // 2
        padded = jnp.pad(x, ((0, 0), (margin, margin), (0, 0)))
        shifted = [padded[:, k : k + length : self.stride] for k in range(self.size)]
        return self.linear(jnp.concatenate(shifted, axis=-1))
