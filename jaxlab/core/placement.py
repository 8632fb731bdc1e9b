"""Where the state of a run lives: seeds or a batch axis spread over the mesh."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxlab.core import devices
from jaxlab.core.errors import DeviceError

PyTree = Any


class Placement(NamedTuple):
    """Devices of a run.

    Attributes:
      mesh: The mesh, or None for one device.
      by_seed: Whether each device runs its own seeds, without any communication.
      shard: Maps an abstract state `[seeds, ...]` to the shardings of its leaves.
      note: What a person should know about it, or an empty string.
    """

    mesh: Mesh | None
    by_seed: bool
    shard: Callable[[PyTree], PyTree]
    note: str = ""

    def abstract(self, state: PyTree) -> PyTree:
        """The abstract state with its shardings."""
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            state,
            self.shard(state),
        )

    @property
    def replicated(self) -> Any:
        """The sharding of what every device holds."""
        if self.mesh is None:
            return SingleDeviceSharding(devices.visible()[0])
        return NamedSharding(self.mesh, PartitionSpec())


def place(seeds: int, mesh: Mesh | None = None, sharding: PyTree = None) -> Placement:
    """Decide how a run uses the devices.

    Args:
      seeds: Number of seeds.
      mesh: A mesh with the axis `"env"`; by default as many visible devices as divide
        the seeds, or all of them if `sharding` is given.
      sharding: None spreads seeds where they divide the mesh and replicates otherwise;
        `"seeds"` insists on spreading them; a `PartitionSpec`, or a pytree of them that
        is a prefix of one seed's state, spreads axes of the state (a batch of
        environments, chains).

    Raises:
      DeviceError: The seeds or a named axis do not divide the mesh.
    """
    explicit = sharding is not None and not _is_seeds(sharding)
    if explicit:
        whole = devices.make_mesh() if mesh is None else mesh
        return Placement(whole, False, lambda state: _by_specs(state, sharding, whole))
    everything = len(devices.visible())
    if mesh is None and everything > 1:
        mesh = _largest_mesh(seeds, everything, insist=sharding is not None)
    if mesh is None or mesh.size == 1:
        return _single(seeds, everything)
    if seeds % mesh.size == 0:
        return _uniform(mesh, PartitionSpec(devices.AXIS), by_seed=True)
    text = f"{seeds} seeds do not divide over {mesh.size} devices"
    if sharding is not None:
        raise DeviceError(f"{text}; choose a multiple of {mesh.size} seeds or fewer devices")
    return _uniform(mesh, PartitionSpec(), by_seed=False, note=f"{text}: each device runs all")


def _is_seeds(sharding: PyTree) -> bool:
    return isinstance(sharding, str) and sharding == "seeds"


def _largest_mesh(seeds: int, everything: int, insist: bool) -> Mesh | None:
    if insist or jax.process_count() > 1:
        return devices.make_mesh()
    count = math.gcd(seeds, everything)
    return devices.make_mesh(count) if count > 1 else None


def _single(seeds: int, everything: int) -> Placement:
    device = SingleDeviceSharding(devices.visible()[0])
    note = f"{seeds} seeds on one of {everything} devices" if everything > 1 else ""
    return Placement(None, False, lambda state: jax.tree.map(lambda _: device, state), note)


def _uniform(mesh: Mesh, spec: PartitionSpec, by_seed: bool, note: str = "") -> Placement:
    sharding = NamedSharding(mesh, spec)
    if by_seed and mesh.size < len(devices.visible()):
        note = f"{mesh.size} of {len(devices.visible())} devices share the seeds evenly"
    return Placement(mesh, by_seed, lambda state: jax.tree.map(lambda _: sharding, state), note)


def _by_specs(state: PyTree, prefix: PyTree, mesh: Mesh) -> PyTree:
    def is_spec(node: Any) -> bool:
        return node is None or isinstance(node, PartitionSpec)

    try:
        specs = jax.tree.broadcast(prefix, state, is_leaf=is_spec)
    except ValueError as error:
        raise DeviceError(
            f"sharding is not a prefix of the learner's state: {str(error).splitlines()[0]}"
        ) from error

    def one(path: Any, leaf: Any, spec: PartitionSpec | None) -> NamedSharding:
        parts = () if spec is None else tuple(spec)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if len(parts) > leaf.ndim - 1:
            raise DeviceError(
                f"sharding of state {name!r}: {spec} names more axes than its shape "
                f"{leaf.shape[1:]} has"
            )
        for size, axis in zip(leaf.shape[1:], parts, strict=False):
            if axis is not None and size % mesh.size:
                raise DeviceError(
                    f"sharding of state {name!r}: axis of size {size} does not divide over "
                    f"{mesh.size} devices; choose a multiple of {mesh.size}"
                )
        return NamedSharding(mesh, PartitionSpec(None, *parts))

    return jax.tree_util.tree_map_with_path(one, state, specs)
