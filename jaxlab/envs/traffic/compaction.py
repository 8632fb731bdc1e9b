"""Picking out the few members of a masked array that need attention, in fixed shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


def running_count(mask: Bool[Array, " n"]) -> Int[Array, " n"]:
    """Inclusive count of true entries.

    A plain loop: on a CPU it takes half the time of `jnp.cumsum` or of doubling shifts,
    and nothing is fused into it again and again. Not for use under `jax.vmap`.
    """

    def add(count, entry):
        count = count + entry
        return count, count

    return jax.lax.scan(add, jnp.int32(0), mask.astype(jnp.int32))[1]


def locate(count: Int[Array, " n"], rank: Int[Array, " k"]) -> Int[Array, " k"]:
    """Index of the `rank`-th (from 0) true entry given its running count; n where there is none."""
    n = count.shape[0]
    low = jnp.zeros_like(rank)
    size = 1 << max(n - 1, 1).bit_length()
    while size > 0:
        probe = low + (size - 1)
        inside = count[jnp.minimum(probe, n - 1)] <= rank
        low = jnp.where((probe < n) & inside, low + size, low)
        size //= 2
    return jnp.minimum(low, n)
