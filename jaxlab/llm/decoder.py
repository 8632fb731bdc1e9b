"""The decoder: one program for the Llama, SmolLM, Qwen, SmolLM3 and Phi-4 families.

`Decoder` holds all layers along a leading axis and scans over them: small programs, for
training and for prompts. `DecodeSteps` holds each layer by itself, transposed and fused:
the faster form where one token at a time streams all weights from memory.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.llm import cache as caches
from jaxlab.llm import rope
from jaxlab.llm.cache import Cache
from jaxlab.llm.config import ModelConfig
from jaxlab.llm.layers import Context, Layer, RMSNorm, Weights, product


class Decoder(nnx.Module):
    """A causal language model with its layers stacked.

    Modules are pytrees: `jax.jit`, `jax.grad` and `jax.tree.map` take a decoder as it is.

    Args:
      config: Sizes and switches.
      weights: Source of the weights by name, such as `random_weights(key, config)`.
    """

    def __init__(self, config: ModelConfig, weights: Weights):
        width = config.hidden_size
        self.config = config
        self.embedding = nnx.Param(weights("embedding", (config.vocab_size, width)))
        self.layers = Layer(
            config,
            lambda name, shape: weights(f"layers.{name}", shape),
            stack=(config.num_layers,),
        )
        self.norm = RMSNorm("norm", width, config.norm_eps, weights)
        self.head = None if config.tied else nnx.Param(weights("head", (config.vocab_size, width)))

    def __call__(
        self,
        tokens: Int[Array, "batch time"],
        *,
        valid: Bool[Array, "batch time"] | None = None,
        remat: bool = False,
    ) -> Float[Array, "batch time vocab"]:
        """Logits of the next token after each one, float32.

        Args:
          tokens: Token ids.
          valid: False at padding, which may stand on either side; all true by default.
          remat: Recompute activations in the backward pass instead of keeping them.
        """
        x, _ = self.run(tokens, valid=valid, remat=remat)
        return self.logits(x)

    def run(
        self,
        tokens: Int[Array, "batch time"],
        *,
        valid: Bool[Array, "batch time"] | None = None,
        remat: bool = False,
    ) -> tuple[Float[Array, "batch time width"], tuple[Array, Array]]:
        """The normed stream, and keys `[layers, batch, groups, dim, time]` and values, dim last."""
        context = _prompt_context(self.config, tokens, valid)
        flags = jnp.asarray(np.array(self.config.rope_layers))

        def layer_step(x: Array, scanned: tuple[Layer, Array]):
            layer, rotates = scanned
            return layer(x, _with_rotation(self.config, context, rotates))

        step = jax.checkpoint(layer_step) if remat else layer_step
        x, stored = jax.lax.scan(step, self.embedding[...][tokens], (self.layers, flags))
        return self.norm(x), stored

    def logits(self, x: Float[Array, "*rows width"]) -> Float[Array, "*rows vocab"]:
        """Logits of a normed stream, float32."""
        head = self.embedding if self.head is None else self.head
        return product(x, head[...], transposed=True, out=jnp.float32)

    def prefill(
        self, tokens: Int[Array, "batch time"], lengths: Int[Array, " batch"], slots: int
    ) -> tuple[Float[Array, "batch vocab"], Cache]:
        """Read prompts that end together (padding on the left).

        Args:
          tokens: Token ids.
          lengths: How many of each row, from its end, are the prompt.
          slots: Room of the cache, prompt included.

        Returns:
          Logits of the first token after each prompt, and the cache.
        """
        start = tokens.shape[1] - lengths
        valid = jnp.arange(tokens.shape[1], dtype=jnp.int32) >= start[:, None]
        x, (keys, values) = self.run(tokens, valid=valid)
        return self.logits(x[:, -1]), caches.from_prompt(keys, values, start, slots)


class DecodeSteps(nnx.Module):
    """The same model for one token at a time: layers apart, kernels transposed and fused."""

    def __init__(self, config: ModelConfig, weights: Weights):
        width = config.hidden_size
        self.config = config
        self.embedding = nnx.Param(weights("embedding", (config.vocab_size, width)))
        self.layers = nnx.List(
            [
                Layer(config, lambda name, shape, i=i: weights(f"{i}.{name}", shape), fused=True)
                for i in range(config.num_layers)
            ]
        )
        self.norm = RMSNorm("norm", width, config.norm_eps, weights)
        self.head = None if config.tied else nnx.Param(weights("head", (config.vocab_size, width)))

    def __call__(
        self, tokens: Int[Array, " batch"], cache: Cache
    ) -> tuple[Float[Array, "batch vocab"], Cache]:
        """Logits after one more token in each row, float32, and the cache with it."""
        config, positions = self.config, cache.positions()
        angles = rope.rotations(
            positions, config.rope_theta, config.rotary_dim, config.rope_scaling
        )
        context = Context(*angles, mask=cache.visible())
        x = self.embedding[...][tokens][:, None]
        keys, values = [], []
        for i, layer in enumerate(self.layers):

            def store(new_keys: Array, new_values: Array, i: int = i) -> tuple[Array, Array]:
                return (
                    caches.write_key(cache.keys[i], new_keys, cache.end),
                    caches.write_value(cache.values[i], new_values, cache.end),
                )

            rotates = np.bool_(config.rope_layers[i])
            x, stored = layer(x, _with_rotation(config, context, rotates), store)
            keys.append(stored[0])
            values.append(stored[1])
        head = self.embedding if self.head is None else self.head
        logits = product(self.norm(x[:, 0]), head[...], transposed=True, out=jnp.float32)
        end = cache.end + jnp.ones((), jnp.int32)
        return logits, cache.replace(keys=tuple(keys), values=tuple(values), end=end)


def _prompt_context(config: ModelConfig, tokens: Array, valid: Array | None) -> Context:
    """Rotations by the number of valid tokens before each one; the mask is causal."""
    if valid is None:
        valid = jnp.ones(tokens.shape, bool)
    positions = jnp.maximum(jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1, 0)
    slot = jnp.arange(tokens.shape[1], dtype=jnp.int32)
    mask = (slot[None, :] <= slot[:, None]) & valid[:, None, :]
    angles = rope.rotations(positions, config.rope_theta, config.rotary_dim, config.rope_scaling)
    return Context(*angles, mask=mask)


def _with_rotation(config: ModelConfig, context: Context, rotates: Array | np.bool_) -> Context:
    """The context of a layer: where it does not rotate, the angles are zero."""
    if all(config.rope_layers):
        return context
    return context.replace(
        cosine=jnp.where(rotates, context.cosine, jnp.float32(1.0)),
        sine=jnp.where(rotates, context.sine, jnp.float32(0.0)),
    )


def random_weights(key: Array, config: ModelConfig, scale: float = 0.02) -> Weights:
    """A source of fresh weights: normal kernels, norms of one, biases of zero."""
    dtype = jnp.dtype(config.dtype)

    def draw(name: str, shape: tuple[int, ...]) -> Array:
        if name.endswith(".scale"):
            return jnp.ones(shape, dtype)
        if name.endswith(".bias"):
            return jnp.zeros(shape, dtype)
        own = jax.random.fold_in(key, np.uint32(zlib.crc32(name.encode())))
        return (scale * jax.random.normal(own, shape, jnp.float32)).astype(dtype)

    return draw


def decode_steps(decoder: Decoder) -> DecodeSteps:
    """The form for one token at a time, with copies of the decoder's weights.

    A pure function: it may be part of a compiled training step.
    """
    weights = named_weights(decoder)

    def slice_of(name: str, shape: tuple[int, ...]) -> Array:
        if not name[0].isdigit():
            return weights[name]
        layer, _, part = name.partition(".")
        stacked = [weights[f"layers.{source}"] for source in _sources(part)]
        return _layer_of(stacked, np.int32(layer), transpose=part.endswith(".kernel"))

    return DecodeSteps(decoder.config, slice_of)


@functools.partial(jax.jit, static_argnames="transpose")
def _layer_of(stacked: list[Array], layer: Array | np.int32, *, transpose: bool) -> Array:
    """One layer's weights, joined; compiled by itself, once for all layers of a shape."""
    parts = [jax.lax.dynamic_index_in_dim(part, layer, keepdims=False) for part in stacked]
    joined = jnp.concatenate(parts, axis=-1)
    return joined.T if transpose else joined


def _sources(part: str) -> list[str]:
    """Names of the stacked weights that a fused one joins."""
    for fused, parts in (("qkv", ("q", "k", "v")), ("gate_up", ("gate", "up"))):
        if f".{fused}." in part:
            return [part.replace(fused, single) for single in parts]
    return [part]


def named_weights(decoder: Decoder) -> Mapping[str, Array]:
    """The decoder's arrays by the names under which it asked for them."""
    flat = nnx.to_flat_state(nnx.state(decoder, nnx.Param))
    return {".".join(str(part) for part in path): variable[...] for path, variable in flat}
