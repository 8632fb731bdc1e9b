"""The keys and values that a decoder has computed so far, in arrays of a fixed size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int


@struct.dataclass
class Cache:
    """Keys and values by layer; shorter prompts start at later slots, all end at one.

    A batch of one has no batch axis: with an axis of length one XLA drops it in the
    product but not in the loop, and copies every array at every step.

    Attributes:
      keys: For each layer `[batch, groups, dim, slots]`, or `[groups, dim, slots]`.
      values: For each layer `[batch, groups, slots, dim]`, or `[groups, slots, dim]`.
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
        return self.values[0].shape[-2]

    def positions(self) -> Int[Array, "batch 1"]:
        """Position of the next token in each row."""
        return (self.end - self.start)[:, None]

    def visible(self) -> Bool[Array, "batch 1 slots"]:
        """Slots that the next token sees, its own included."""
        slot = jnp.arange(self.slots, dtype=jnp.int32)
        return ((slot >= self.start[:, None]) & (slot <= self.end))[:, None]

    def repeat(self, copies: int) -> Cache:
        """Each row `copies` times, copies of a row side by side."""
        batch = self.start.shape[0]

        def repeated(layer: Array) -> Array:
            rows = layer.reshape(batch, *layer.shape[-3:])
            return _stored(jnp.repeat(rows, copies, axis=0))

        return Cache(
            keys=tuple(repeated(layer) for layer in self.keys),
            values=tuple(repeated(layer) for layer in self.values),
            start=jnp.repeat(self.start, copies),
            end=self.end,
        )


def _stored(layer: Float[Array, "batch groups _ _"]) -> Array:
    return layer[0] if layer.shape[0] == 1 else layer


def from_prompt(
    keys: Float[Array, "layers batch groups dim time"],
    values: Float[Array, "layers batch groups time dim"],
    start: Int[Array, " batch"],
    slots: int,
) -> Cache:
    """A cache of `slots` slots that holds what a prompt left behind."""
    time = values.shape[3]
    room = (0, slots - time)
    return Cache(
        keys=tuple(_stored(jnp.pad(layer, (*[(0, 0)] * 3, room))) for layer in keys),
        values=tuple(_stored(jnp.pad(layer, (*[(0, 0)] * 2, room, (0, 0)))) for layer in values),
        start=start,
        end=jnp.asarray(time, jnp.int32),
    )


def write_key(
    cached: Float[Array, "*rows dim slots"], new: Float[Array, "batch groups dim 1"], slot: Array
) -> Float[Array, "*rows dim slots"]:
    """`cached` with the keys of one token at `slot`."""
    return _written(cached, new, slot, -1)


def write_value(
    cached: Float[Array, "*rows slots dim"], new: Float[Array, "batch groups 1 dim"], slot: Array
) -> Float[Array, "*rows slots dim"]:
    """`cached` with the values of one token at `slot`."""
    return _written(cached, new, slot, -2)


def _written(cached: Array, new: Array, slot: Array, axis: int) -> Array:
    rows = cached.shape[:-2]
    return jax.lax.dynamic_update_slice_in_dim(
        cached, new.reshape(*rows, *new.shape[-2:]), slot, axis
    )
