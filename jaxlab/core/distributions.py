"""Categorical distributions under masks and their straight-through Gumbel-softmax sample.

`mask` is true for legal categories. Where a row has no legal category the functions
return finite values and category 0; whoever masks whole rows must ignore them.
"""

from __future__ import annotations

import distrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def mask_logits(
    logits: Float[Array, "*batch actions"], mask: Bool[Array, "... actions"]
) -> Float[Array, "*batch actions"]:
    """Set illegal logits to the lowest finite number; gradients to them vanish."""
    return jnp.where(mask, logits, jnp.finfo(logits.dtype).min)


def masked_categorical(
    logits: Float[Array, "*batch actions"], mask: Bool[Array, "... actions"]
) -> distrax.Categorical:
    """Categorical distribution over the legal categories."""
    return distrax.Categorical(logits=mask_logits(logits, mask), dtype=jnp.int32)


def perturbed_argmax(
    key: jax.Array,
    logits: Float[Array, "*batch actions"],
    mask: Bool[Array, "*batch actions"],
    noise_scale: jax.Array | float = 1.0,
) -> Int[Array, "*batch"]:
    """Legal category with the largest noisy logit, one Gumbel variate per category.

    With `noise_scale` 1 this samples the categorical distribution exactly (the
    Gumbel-max trick), with 0 it is the mode. `noise_scale` broadcasts against logits.
    """
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    noisy = logits + jnp.asarray(noise_scale, logits.dtype) * noise
    return jnp.argmax(mask_logits(noisy, mask), axis=-1).astype(jnp.int32)


def straight_through_gumbel_softmax(
    key: jax.Array,
    logits: Float[Array, "*batch actions"],
    mask: Bool[Array, "*batch actions"],
    temperature: jax.Array | float = 1.0,
) -> Float[Array, "*batch actions"]:
    """One-hot sample forward, gradient of the tempered softmax backward.

    The one-hot vector is an exact sample of the masked categorical distribution at any
    temperature; the temperature trades bias against variance of the gradient alone
    (Jang et al. 2017; Maddison et al. 2017). Noise is drawn for every element.
    """
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    # Masked after the division: the lowest finite number over a small temperature is infinite.
    noisy = mask_logits((logits + noise) / jnp.asarray(temperature, logits.dtype), mask)
    soft = jax.nn.softmax(noisy, axis=-1)
    hard = jax.nn.one_hot(jnp.argmax(noisy, axis=-1), logits.shape[-1], dtype=logits.dtype)
    # This order makes the forward value exactly one-hot: soft cancels against itself.
    return hard + (soft - jax.lax.stop_gradient(soft))


def centre_logits(
    logits: Float[Array, "*batch actions"], mask: Bool[Array, "... actions"]
) -> Float[Array, "*batch actions"]:
    """Subtract the mean over legal categories; illegal entries become zero."""
    count = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1).astype(logits.dtype)
    legal = jnp.where(mask, logits, 0)
    return jnp.where(mask, logits - jnp.sum(legal, axis=-1, keepdims=True) / count, 0)
