"""A decoder spread over a mesh: tensor parallelism by column and row, as in Megatron."""

from __future__ import annotations

from typing import TypeVar

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxlab.llm.decoder import Decoder, DecodeSteps

Model = TypeVar("Model", Decoder, DecodeSteps)

#: Projections whose outputs are split; those after them split their inputs.
_BY_OUTPUT = ("q", "k", "v", "qkv", "gate", "up", "gate_up")
_BY_INPUT = ("o", "down")


def shard(model: Model, mesh: Mesh, axis: str) -> Model:
    """The same model with its weights split over a mesh axis.

    Attention and feed-forward are split by heads and by inner width, the embedding and the
    head by vocabulary; what does not divide evenly, and all norms, are on every device.
    Any pure function of the model then compiles to a parallel program.

    Args:
      model: A decoder, or its form for decoding.
      mesh: With automatic axis types.
      axis: Name of the axis.
    """
    graph, state = nnx.split(model)
    flat = [
        (path, variable.replace(_placed(path, variable[...], mesh, axis, model)))
        for path, variable in nnx.to_flat_state(state)
    ]
    return nnx.merge(graph, nnx.from_flat_state(flat))


def _placed(
    path: tuple[object, ...], array: jax.Array, mesh: Mesh, axis: str, model: Model
) -> jax.Array:
    spec = _partition(path, array.ndim, axis, isinstance(model, DecodeSteps))
    split = [i for i, name in enumerate(spec) if name == axis]
    if any(array.shape[i] % mesh.shape[axis] for i in split):
        spec = PartitionSpec()
    return jax.device_put(array, NamedSharding(mesh, spec))


def _partition(path: tuple[object, ...], rank: int, axis: str, transposed: bool) -> PartitionSpec:
    """Which axis of a weight is split, by its name."""
    owner = path[-2] if len(path) > 1 else None
    if path[-1] in ("embedding", "head"):
        return PartitionSpec(axis)
    if path[-1] == "kernel" and (owner in _BY_OUTPUT or owner in _BY_INPUT):
        last = (owner in _BY_OUTPUT) != transposed
        return PartitionSpec(*[None] * (rank - (1 if last else 2)), axis)
    if path[-1] == "bias" and owner in _BY_OUTPUT:
        return PartitionSpec(*[None] * (rank - 1), axis)
    return PartitionSpec()
