"""Rotary position embedding (Su et al. 2021) with Llama 3's stretch for long contexts.

Pairs are entries `i` and `i + rotary_dim / 2` of a head, as in Hugging Face checkpoints.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.errors import CheckpointError


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Llama 3's stretch of the wavelengths (rope_type `llama3`).

    Attributes:
      factor: By how much the longest wavelengths are stretched.
      low_freq_factor: Wavelengths above `original_context / low_freq_factor` are stretched.
      high_freq_factor: Those below `original_context / high_freq_factor` stay as they are.
      original_context: Context length before the stretch, in tokens.
    """

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


def wavelengths(theta: float, rotary_dim: int) -> np.ndarray:
    """Positions per turn of each rotated pair, float64 `[rotary_dim / 2]`."""
    return 2 * math.pi * theta ** (np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


def stretch(scaling: RopeScaling, theta: float, rotary_dim: int) -> np.ndarray:
    """By what each wavelength is stretched, float64 `[rotary_dim / 2]`.

    Wavelengths short against the original context stay, long ones are stretched by the
    factor, and in between the frequency is interpolated linearly in context / wavelength.
    """
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_context / wavelengths(theta, rotary_dim)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / (kept + (1.0 - kept) / scaling.factor)


def scaling_of(
    factors: np.ndarray | Sequence[float] | None, theta: float, rotary_dim: int
) -> RopeScaling | None:
    """The scaling that the stretch factors of a GGUF file come from, None for none.

    Raises:
      CheckpointError: The factors are not those of Llama 3's scaling.
    """
    if factors is None:
        return None
    given = np.asarray(factors, np.float64)
    scaling = RopeScaling(factor=float(given.max()))
    expected = stretch(scaling, theta, rotary_dim)
    if given.shape != expected.shape or not np.allclose(given, expected, rtol=1e-3):
        raise CheckpointError(
            "rope_freqs.weight: its factors are not those of Llama 3's scaling, the only "
            "one supported"
        )
    return scaling


def rotations(
    positions: Int[Array, "batch time"],
    theta: float,
    rotary_dim: int,
    scaling: RopeScaling | None,
) -> tuple[Float[Array, "batch time pairs"], Float[Array, "batch time pairs"]]:
    """Cosine and sine of the angle of each pair at each position, float32."""
    turn = wavelengths(theta, rotary_dim)
    if scaling is not None:
        turn = turn * stretch(scaling, theta, rotary_dim)
    frequencies = jnp.asarray(2 * math.pi / turn, jnp.float32)
    angles = positions.astype(jnp.float32)[..., None] * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def rotate(
    heads: Float[Array, "batch time heads dim"],
    cosine: Float[Array, "batch time pairs"],
    sine: Float[Array, "batch time pairs"],
) -> Float[Array, "batch time heads dim"]:
    """Turn the leading `2 * pairs` entries of each head, in float32; the rest stay."""
    pairs = cosine.shape[-1]
    cosine, sine = cosine[:, :, None, :], sine[:, :, None, :]
    wide = heads.astype(jnp.float32)
    first, second = wide[..., :pairs], wide[..., pairs : 2 * pairs]
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return jnp.concatenate([*turned, wide[..., 2 * pairs :]], axis=-1).astype(heads.dtype)
