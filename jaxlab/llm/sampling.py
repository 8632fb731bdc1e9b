"""Choosing the next token: masks, temperature, top-k and top-p, in Hugging Face's order."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Key

from jaxlab.core.errors import ConfigError


@struct.dataclass
class Sampling:
    """How a token is drawn from logits; made by `sampling`.

    Attributes:
      temperature: Divides the logits, float32 `[]`.
      top_p: Probability that the kept tokens must reach, float32 `[]`.
      top_k: Most tokens kept, 0 for all.
      greedy: Take the most likely token, whatever the rest says.
      nucleus: Whether `top_p` applies; without it nothing needs sorting.
    """

    temperature: jax.Array
    top_p: jax.Array
    top_k: int = struct.field(pytree_node=False, default=0)
    greedy: bool = struct.field(pytree_node=False, default=False)
    nucleus: bool = struct.field(pytree_node=False, default=False)


def sampling(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Sampling:
    """Options of sampling; temperature 0 is greedy.

    Temperature and top-p are numbers of the compiled program: other values recompile
    nothing, as long as top-p stays below one, or at one.

    Raises:
      ConfigError: A value is out of range.
    """
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ConfigError(f"temperature = {temperature}: expected a finite number >= 0")
    if top_k < 0:
        raise ConfigError(f"top_k = {top_k}: expected 0 (all tokens) or more")
    if not 0 < top_p <= 1:
        raise ConfigError(f"top_p = {top_p}: expected a number in (0, 1]")
    greedy = temperature == 0
    return Sampling(
        temperature=np.float32(1.0 if greedy else temperature),
        top_p=np.float32(top_p),
        top_k=top_k,
        greedy=greedy,
        nucleus=top_p < 1,
    )


def masked(
    logits: Float[Array, "*batch vocab"], allowed: Bool[Array, "*batch vocab"]
) -> Float[Array, "*batch vocab"]:
    """Logits with minus infinity at what is not allowed."""
    return jnp.where(allowed, logits, -jnp.inf)


def filtered(
    logits: Float[Array, "*batch vocab"], options: Sampling
) -> Float[Array, "*batch vocab"]:
    """Logits of the distribution that is sampled: temperature, then top-k, then top-p.

    Top-p keeps the token that crosses the threshold. Tokens that tie with the last one
    kept are kept as well, so the result does not depend on an order among equals.
    """
    if options.greedy:
        return logits
    logits = logits / options.temperature
    if options.top_k and options.top_k < logits.shape[-1]:
        least = jax.lax.top_k(logits, options.top_k)[0][..., -1:]
        logits = jnp.where(logits >= least, logits, -jnp.inf)
    if options.nucleus:
        logits = jnp.where(logits >= _nucleus_floor(logits, options.top_p), logits, -jnp.inf)
    return logits


def _nucleus_floor(
    logits: Float[Array, "*batch vocab"], top_p: Array | np.floating
) -> Float[Array, "*batch 1"]:
    """The smallest logit in the fewest tokens that reach a probability.

    By halving the interval of shares, thirty times, which is exact since positive floats
    are ordered as their bits are; sorting a vocabulary takes ten times as long on a CPU.
    """
    shares = jax.nn.softmax(logits, axis=-1)
    one = np.float32(1).view(np.int32)

    def halve(_: Array | int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + (high - low) // 2
        least = jax.lax.bitcast_convert_type(middle, jnp.float32)
        above = jnp.sum(jnp.where(shares > least, shares, 0), axis=-1, keepdims=True)
        # As long as those above do not reach it, the next smaller ones are needed too.
        needed = above < top_p
        return jnp.where(needed, low, middle), jnp.where(needed, middle, high)

    shape = (*logits.shape[:-1], 1)
    ends = jnp.zeros(shape, jnp.int32), jnp.full(shape, one, jnp.int32)
    least = jax.lax.fori_loop(0, 30, halve, ends)[1]
    kept = shares >= jax.lax.bitcast_convert_type(least, jnp.float32)
    return jnp.min(jnp.where(kept, logits, jnp.inf), axis=-1, keepdims=True)


def draw(
    keys: Key[Array, " batch"], logits: Float[Array, "batch vocab"], options: Sampling
) -> Int[Array, " batch"]:
    """One token for each row, int32; a token at minus infinity is never drawn.

    Args:
      keys: One key for each row, so that a row draws the same in any batch.
      logits: Of `filtered`.
      options: Only `greedy` matters here.
    """
    if not options.greedy:
        noise = jax.vmap(lambda key: jax.random.gumbel(key, logits.shape[-1:], jnp.float32))(keys)
        logits = logits + noise
    return jax.lax.argmax(logits, 1, jnp.int32)


def entropy(log_probs: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """Entropy in nats of normalised log-probabilities."""
    inside = log_probs > -jnp.inf
    terms = jnp.exp(log_probs) * jnp.where(inside, log_probs, 0.0)
    return -jnp.sum(jnp.where(inside, terms, 0.0), axis=-1)
