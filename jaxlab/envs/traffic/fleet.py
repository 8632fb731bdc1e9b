"""The vehicles of one or many copies of a network, side by side in flat arrays.

`jax.vmap` would run every loop of a step as long as the slowest copy needs, and select
old or new values for all others in each round. Copies of a network do not interact, so
they are laid end to end instead: a slot or drivable of copy `c` sits at an offset, loops
end when all work is done, and the few vehicles at crossings are packed across copies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.envs.traffic.vehicles import Drivers


@struct.dataclass
class Fleet:
    """Vehicles and signals as a step needs them; leading axis copies, then as noted.

    Fields are those of `TrafficState` (`[slots]`, `last [D + 1]`), and

    Attributes:
      green: Links with right of way, `[links]`.
      speed_factor: Of lanes, and 1 for everything else, `[lanes + 1]`.
      drivers: Driver types, `[types]` each.
      step: Steps simulated, `[]`.
    """

    vehicle: jax.Array
    path: jax.Array
    hop: jax.Array
    drivable: jax.Array
    previous: jax.Array
    ahead: jax.Array
    leader: jax.Array
    gap: jax.Array
    blocker: jax.Array
    entered: jax.Array
    kind: jax.Array
    priority: jax.Array
    position: jax.Array
    fine: jax.Array
    speed: jax.Array
    last: jax.Array
    green: jax.Array
    speed_factor: jax.Array | None
    drivers: Drivers
    step: jax.Array


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sizes of flat arrays and the tables of the network.

    Attributes:
      copies: Networks laid end to end.
      slots: Vehicle slots per copy; the last one is nobody.
      network, paths: Tables from `tables.py`.
      dt: Seconds per step.
      short_entries: Whether vehicles enter on lanes so short that leaders beyond matter.
    """

    copies: int
    slots: int
    network: Mapping[str, np.ndarray]
    paths: np.ndarray
    dt: float
    short_entries: bool

    @property
    def nobody(self) -> int:
        return self.slots - 1

    @property
    def lanes(self) -> int:
        return self.network["lane_links"].shape[0] - 1

    @property
    def links(self) -> int:
        return len(self.network["link_end"])

    @property
    def nowhere(self) -> int:
        return self.lanes + self.links

    def offsets(self, per_copy: int, of: int) -> np.ndarray:
        """Start of a copy in an array of `of` per copy, for every entry of one of `per_copy`."""
        return np.repeat(np.arange(self.copies, dtype=np.int32) * of, per_copy)

    def table(self, name: str, like: jax.Array | None = None) -> jax.Array:
        """A static table, in the dtype of `like`."""
        return jnp.asarray(self.network[name], None if like is None else like.dtype)

    def remainder(self, name: str) -> jax.Array:
        """What a static table of reals loses in 32 bits."""
        exact = np.asarray(self.network[name], np.float64)
        return jnp.asarray(exact - exact.astype(np.float32), jnp.float32)

    def every_copy(self, values: np.ndarray) -> np.ndarray:
        """A static table repeated for every copy."""
        return np.tile(values, self.copies)

    def drivers(self, drivers: Drivers, copy: jax.Array | np.ndarray, kind: jax.Array) -> Drivers:
        """Parameters of vehicles of type `kind` in copy `copy`; `drivers` `[copies * types]` each.

        The selection is a fence: XLA would turn a division by a common scalar into a
        multiplication with its reciprocal, which rounds differently.
        """
        types = drivers.length.size // self.copies
        some = kind >= 0
        if types == 1:
            return jax.tree.map(lambda x: jnp.where(some, x.reshape(-1)[copy], 1), drivers)
        return jax.tree.map(lambda x: x.reshape(-1)[copy * types + kind], drivers)


def side_by_side(run: Callable[[int, Any], Any]) -> Callable[[Any], Any]:
    """Make `run(copies, inputs)`, over leading axes of size `copies`, a function of one copy.

    `jax.vmap` of the result, nested or not, adds to the number of copies.
    """

    @jax.custom_batching.custom_vmap
    def many(inputs):
        return run(jax.tree.leaves(inputs)[0].shape[0], inputs)

    @many.def_vmap
    def _(axis_size, in_batched, inputs):
        def fold(x, batched):
            x = x if batched else jnp.broadcast_to(x[None], (axis_size, *x.shape))
            return x.reshape(-1, *x.shape[2:])

        outputs = many(jax.tree.map(fold, inputs, in_batched[0]))
        unfolded = jax.tree.map(lambda x: x.reshape(axis_size, -1, *x.shape[1:]), outputs)
        return unfolded, jax.tree.map(lambda _: True, outputs)

    def one(inputs):
        outputs = many(jax.tree.map(lambda x: x[None], inputs))
        return jax.tree.map(lambda x: x[0], outputs)

    return one


@jax.custom_batching.custom_vmap
def most_of_copies(number: jax.Array) -> jax.Array:
    """`number`, and under `vmap` the largest of the batch, unbatched."""
    return number


@most_of_copies.def_vmap
def _(axis_size: int, in_batched: list[bool], number: jax.Array) -> tuple[jax.Array, bool]:
    # Applied to itself, so that maps around this one take the largest over their axis too.
    return most_of_copies(jnp.max(number)), False
