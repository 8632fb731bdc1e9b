"""The parts of a decoder layer: projections, RMS norm, grouped-query attention, SwiGLU.

Every part takes its weights from a source, a function from a name and a shape to an
array: random numbers, a checkpoint, or slices of another decoder. With `stack=(layers,)`
a part holds the weights of all layers along a leading axis, as `lax.scan` wants them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, struct
from jaxtyping import Array, Bool, Float

from jaxlab.llm import rope
from jaxlab.llm.config import ModelConfig

#: Rows of a product up to which a transposed kernel is better on the left.
FEW_ROWS = 64

#: `(name, shape) -> array`.
Weights = Callable[[str, tuple[int, ...]], Any]


@struct.dataclass
class Context:
    """What all layers share in one pass.

    Attributes:
      cosine: Cosine of the rotary angles, float32 `[batch, time, pairs]`.
      sine: Sine of the same.
      mask: Which slots each query sees, bool `[batch, time, slots]`.
    """

    cosine: jax.Array
    sine: jax.Array
    mask: jax.Array


def product(x: Array, kernel: Array, *, transposed: bool, out: Any = None) -> Array:
    """`x @ kernel`, or `x @ kernel.T`, over the last axis of `x`.

    In float32 the product is a true float32 one on accelerators too; bfloat16 is for speed.
    For a few rows a transposed kernel stands on the left, which takes two thirds of the time on
    a CPU; for many the turning of what comes out would cost more.
    """
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    options = {"precision": precision, "preferred_element_type": out or x.dtype}
    if not transposed or x.size > FEW_ROWS * x.shape[-1]:
        axes = (((x.ndim - 1,), (1 if transposed else 0,)), ((), ()))
        return jax.lax.dot_general(x, kernel, axes, **options)
    y = jax.lax.dot_general(kernel, x, (((1,), (x.ndim - 1,)), ((), ())), **options)
    return jnp.moveaxis(y, 0, -1)


class Projection(nnx.Module):
    """A linear map; its kernel is `[inputs, outputs]`, or the other way round."""

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        weights: Weights,
        *,
        bias: bool = False,
        stack: tuple[int, ...] = (),
        transposed: bool = False,
    ):
        shape = (outputs, inputs) if transposed else (inputs, outputs)
        self.kernel = nnx.Param(weights(f"{name}.kernel", (*stack, *shape)))
        self.bias = nnx.Param(weights(f"{name}.bias", (*stack, outputs))) if bias else None
        self.transposed = transposed

    def __call__(self, x: Float[Array, "*rows inputs"]) -> Float[Array, "*rows outputs"]:
        y = product(x, self.kernel[...], transposed=self.transposed)
        return y if self.bias is None else y + self.bias[...]


class RMSNorm(nnx.Module):
    """Division by the root mean square, in float32, and a learned scale."""

    def __init__(self, name: str, size: int, eps: float, weights: Weights, *, stack=()):
        self.scale = nnx.Param(weights(f"{name}.scale", (*stack, size)))
        self.eps = eps

    def __call__(self, x: Float[Array, "*rows size"]) -> Float[Array, "*rows size"]:
        wide = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        normed = wide * jax.lax.rsqrt(mean_square + jnp.float32(self.eps))
        return self.scale[...] * normed.astype(x.dtype)


def attend(
    queries: Float[Array, "batch time heads dim"],
    keys: Float[Array, "batch groups dim slots"],
    values: Float[Array, "batch groups slots dim"],
    mask: Bool[Array, "batch time slots"],
) -> Float[Array, "batch time heads dim"]:
    """Grouped-query attention; scores and softmax are float32.

    Keys have their slots last: both products then run along the last axis of what they read,
    which takes less than half the time of the other order for many rows of one query.

    A query that sees no slot (padding) gets some finite average, which nobody reads.
    """
    batch, time, heads, dim = queries.shape
    groups = keys.shape[1]
    # The heads of a group ask side by side, each at all times: scores then come out of the
    # product in the order in which the next one takes them, and nothing large is transposed.
    asked = queries.reshape(batch, time, groups, heads // groups, dim)
    asked = asked.transpose(0, 2, 3, 1, 4).reshape(batch, groups, -1, dim)
    precision = jax.lax.Precision.HIGHEST if queries.dtype == jnp.float32 else None
    both = ((0, 1), (0, 1))
    scores = jax.lax.dot_general(
        asked,
        keys,
        (((3,), (2,)), both),
        precision=precision,
        preferred_element_type=jnp.float32,
    )
    scores = scores.reshape(batch, groups, -1, time, keys.shape[3]) * jnp.float32(dim**-0.5)
    scores = jnp.where(mask[:, None, None], scores, jnp.finfo(jnp.float32).min)
    shares = jax.nn.softmax(scores, axis=-1).astype(queries.dtype)
    mixed = jax.lax.dot_general(
        shares.reshape(batch, groups, -1, keys.shape[3]),
        values,
        (((3,), (2,)), both),
        precision=precision,
    )
    mixed = mixed.reshape(batch, groups, -1, time, dim).transpose(0, 3, 1, 2, 4)
    return mixed.reshape(batch, time, heads, dim)


class Attention(nnx.Module):
    """Grouped-query attention with rotary positions.

    `fused` keeps q, k and v in one projection: one product instead of three a step.
    """

    def __init__(self, config: ModelConfig, weights: Weights, *, stack=(), fused: bool = False):
        self.heads, self.kv_heads = config.num_heads, config.num_kv_heads
        self.dim, self.fused = config.head_dim, fused
        width = config.hidden_size

        def projection(name: str, inputs: int, outputs: int, bias: bool) -> Projection:
            return Projection(
                f"attention.{name}",
                inputs,
                outputs,
                weights,
                bias=bias,
                stack=stack,
                transposed=fused,
            )

        query_size, kv_size = self.heads * self.dim, self.kv_heads * self.dim
        if fused:
            self.qkv = projection("qkv", width, query_size + 2 * kv_size, config.qkv_bias)
        else:
            self.q = projection("q", width, query_size, config.qkv_bias)
            self.k = projection("k", width, kv_size, config.qkv_bias)
            self.v = projection("v", width, kv_size, config.qkv_bias)
        self.o = projection("o", query_size, width, False)
        sizes = (self.dim, config.norm_eps, weights)
        normed = config.qk_norm
        self.q_norm = RMSNorm("attention.q_norm", *sizes, stack=stack) if normed else None
        self.k_norm = RMSNorm("attention.k_norm", *sizes, stack=stack) if normed else None

    def project(
        self, x: Float[Array, "batch time width"], context: Context
    ) -> tuple[
        Float[Array, "batch time heads dim"],
        Float[Array, "batch time groups dim"],
        Float[Array, "batch time groups dim"],
    ]:
        """Rotated queries, rotated keys, and values."""
        if self.fused:
            parts = self.qkv(x)
            ends = (self.heads * self.dim, (self.heads + self.kv_heads) * self.dim)
            q, k, v = jnp.split(parts, ends, axis=-1)
        else:
            q, k, v = self.q(x), self.k(x), self.v(x)
        q, k, v = (part.reshape(*part.shape[:-1], -1, self.dim) for part in (q, k, v))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q = rope.rotate(q, context.cosine, context.sine)
        return q, rope.rotate(k, context.cosine, context.sine), v


class FeedForward(nnx.Module):
    """SwiGLU; `fused` keeps gate and up in one projection."""

    def __init__(self, config: ModelConfig, weights: Weights, *, stack=(), fused: bool = False):
        width, inner = config.hidden_size, config.intermediate_size
        self.fused = fused
        kwargs = {"stack": stack, "transposed": fused}
        if fused:
            self.gate_up = Projection("mlp.gate_up", width, 2 * inner, weights, **kwargs)
        else:
            self.gate = Projection("mlp.gate", width, inner, weights, **kwargs)
            self.up = Projection("mlp.up", width, inner, weights, **kwargs)
        self.down = Projection("mlp.down", inner, width, weights, **kwargs)

    def __call__(self, x: Float[Array, "*rows width"]) -> Float[Array, "*rows width"]:
        gate, up = (
            jnp.split(self.gate_up(x), 2, axis=-1) if self.fused else (self.gate(x), self.up(x))
        )
        return self.down(jax.nn.silu(gate) * up)


class Layer(nnx.Module):
    """One pre-norm layer: attention, then the feed-forward part."""

    def __init__(self, config: ModelConfig, weights: Weights, *, stack=(), fused: bool = False):
        width, eps = config.hidden_size, config.norm_eps
        self.attention_norm = RMSNorm("attention_norm", width, eps, weights, stack=stack)
        self.attention = Attention(config, weights, stack=stack, fused=fused)
        self.mlp_norm = RMSNorm("mlp_norm", width, eps, weights, stack=stack)
        self.mlp = FeedForward(config, weights, stack=stack, fused=fused)

    def __call__(
        self,
        x: Float[Array, "batch time width"],
        context: Context,
        store: Callable[[Array, Array], tuple[Array, Array]] = lambda keys, values: (keys, values),
    ) -> tuple[Float[Array, "batch time width"], tuple[Array, Array]]:
        """The stream after this layer, and the keys and values it attended to.

        Args:
          x: The stream.
          context: Rotations and mask.
          store: From the new keys `[batch, groups, dim, time]` and values `[batch, groups, time,
            dim]` to all that are attended to, with slots for times and without the first axis
            for a batch of one: a write into a cache.
        """
        q, k, v = self.attention.project(self.attention_norm(x), context)
        keys, values = store(jnp.transpose(k, (0, 2, 3, 1)), jnp.swapaxes(v, 1, 2))
        rows = (k.shape[0], k.shape[2])
        seen = (stored.reshape(*rows, *stored.shape[-2:]) for stored in (keys, values))
        mixed = attend(q, *seen, context.mask)
        x = x + self.attention.o(mixed.reshape(*mixed.shape[:2], -1))
        return x + self.mlp(self.mlp_norm(x)), (keys, values)
