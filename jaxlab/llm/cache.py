"""The keys and values that a decoder has computed so far, in arrays of a fixed size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int


@struct.dataclass
class Cache:
    """Keys and values by layer; shorter prompts start at later slots, all end at one.

    Attributes:
      keys: For each layer `[batch, groups, slots, dim]`.
      values: The same for values.
      start: First slot of each row that holds a token, int32 `[batch]`.
      end: Slot of the next token, int32 `[]`.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    start: jax.Array
    end: jax.Array

    @property
    def slots(self) -> int:
        """How many tokens there is room for."""
        return self.keys[0].shape[2]

    def positions(self) -> Int[Array, "batch 1"]:
        """Position of the next token in each row."""
        return (self.end - self.start)[:, None]

    def visible(self) -> Bool[Array, "batch 1 slots"]:
        """Slots that the next token sees, its own included."""
        slot = jnp.arange(self.slots, dtype=jnp.int32)
        return ((slot >= self.start[:, None]) & (slot <= self.end))[:, None]

    def repeat(self, copies: int) -> Cache:
        """Each row `copies` times, copies of a row side by side."""
        rows = self.replace(end=jnp.zeros((), jnp.int32))
        repeated = jax.tree.map(lambda x: jnp.repeat(x, copies, axis=0) if x.ndim else x, rows)
        return repeated.replace(end=self.end)


def from_prompt(
    keys: Float[Array, "layers batch groups time dim"],
    values: Float[Array, "layers batch groups time dim"],
    start: Int[Array, " batch"],
    slots: int,
) -> Cache:
    """A cache of `slots` slots that holds what a prompt left behind."""
    time = keys.shape[3]
    room = ((0, 0), (0, 0), (0, slots - time), (0, 0))
    return Cache(
        keys=tuple(jnp.pad(layer, room) for layer in keys),
        values=tuple(jnp.pad(layer, room) for layer in values),
        start=start,
        end=jnp.asarray(time, jnp.int32),
    )


def write(cached: Float[Array, "batch groups slots dim"], new: Array, slot: Array) -> Array:
    """`cached` with `new` `[batch, groups, 1, dim]` at `slot`."""
    zero = jnp.zeros((), jnp.int32)
    return jax.lax.dynamic_update_slice(cached, new, (zero, zero, slot, zero))
