"""Picking out the few members of a masked array that need attention, in fixed shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Int

#: Entries of the mask in a word.
_BITS = 32


@struct.dataclass
class Members:
    """The true entries of a mask, packed into words so that they are quickly counted and found.

    Attributes:
      words: Bits of the mask, the first entry lowest, uint32 `[n / 32]`.
      count: Members up to the end of each word, int32 `[n / 32]`.
      length: Entries of the mask.
    """

    words: jax.Array
    count: jax.Array
    length: int = struct.field(pytree_node=False)

    @property
    def total(self) -> Int[Array, ""]:
        """Number of members."""
        return self.count[-1]

    def before(self, index: Int[Array, "*k"]) -> Int[Array, "*k"]:
        """Number of members that stand before each index, which may be the length."""
        word = jnp.minimum(index // _BITS, self.words.shape[0] - 1)
        inside = (index - word * _BITS).astype(jnp.uint32)
        # A shift by all bits is undefined, so it is done in two.
        behind = (np.uint32(0xFFFFFFFF) << (inside // 2)) << (inside - inside // 2)
        bits = self.words[word]
        return self.count[word] - _ones(bits) + _ones(bits & ~behind)

    def locate(self, rank: Int[Array, "*k"]) -> Int[Array, "*k"]:
        """Index of the `rank`-th member, from 0; the length where there is none."""
        words = self.words.shape[0]
        low, size = jnp.zeros_like(rank), 1 << max(words - 1, 1).bit_length()
        while size > 0:
            probe = low + (size - 1)
            passed = self.count[jnp.minimum(probe, words - 1)] <= rank
            low = jnp.where((probe < words) & passed, low + size, low)
            size //= 2
        word = jnp.minimum(low, words - 1)
        bits = self.words[word]
        left = rank - (self.count[word] - _ones(bits))
        place = jnp.zeros_like(rank)
        for size in (16, 8, 4, 2, 1):
            lower = _ones(bits & np.uint32((1 << size) - 1))
            passed = lower <= left
            left = jnp.where(passed, left - lower, left)
            bits = jnp.where(passed, bits >> np.uint32(size), bits)
            place = jnp.where(passed, place + size, place)
        return jnp.where(rank < self.total, word * _BITS + place, self.length)


def members(mask: Bool[Array, " n"]) -> Members:
    """The true entries of a mask. Not for use under `jax.vmap`, where it is slow."""
    length = mask.shape[0]
    padded = jnp.pad(mask, (0, -length % _BITS)).reshape(-1, _BITS)
    weights = np.uint32(1) << np.arange(_BITS, dtype=np.uint32)
    words = jnp.sum(jnp.where(padded, weights, np.uint32(0)), axis=1, dtype=jnp.uint32)

    # A plain loop: on a CPU it takes half the time of `jnp.cumsum`, and nothing is fused into it
    # again and again.
    def add(count, ones):
        count = count + ones
        return count, count

    return Members(words, jax.lax.scan(add, jnp.int32(0), _ones(words))[1], length)


def _ones(words: jax.Array) -> jax.Array:
    return jax.lax.population_count(words).astype(jnp.int32)
