"""Checkpoints as GGUF files; quantised tensors are dequantised to the decoder's dtype."""

from __future__ import annotations

import pathlib
from typing import Any

import gguf
import numpy as np

from jaxlab.core.errors import CheckpointError
from jaxlab.llm import config as configs
from jaxlab.llm.decoder import Decoder
from jaxlab.llm.tensors import FileTensor, assemble

_FACTORS = "rope_freqs.weight"


def load(path: pathlib.Path, dtype: str = "float32") -> tuple[Decoder, dict[str, Any]]:
    """Read a decoder and the metadata (tokeniser included) from a GGUF file.

    Args:
      path: The file.
      dtype: `float32` or `bfloat16`, of the decoder.

    Raises:
      CheckpointError: The file is damaged, a tensor is missing or of another shape, or the
        architecture or a quantisation is not supported.
    """
    reader = _open(path)
    metadata = _metadata(reader)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    factors = _dequantised(path, tensors[_FACTORS]) if _FACTORS in tensors else None
    config = configs.from_gguf(
        metadata, tied="output.weight" not in tensors, rope_factors=factors, dtype=dtype
    )

    def read(name: str, tensor: FileTensor) -> np.ndarray:
        array = _dequantised(path, tensors[name])
        if config.traits.interleaved_rope and array.shape == tensor.shape:
            piece = tensor.pieces[0][0]
            if piece.startswith("layers.attention.q."):
                return split_pairs(array, config.num_heads)
            if piece.startswith("layers.attention.k."):
                return split_pairs(array, config.num_kv_heads)
        return array

    decoder = assemble(config, str(path), tensors.keys(), lambda t: t.gguf, read)
    return decoder, metadata


def read_metadata(path: pathlib.Path) -> dict[str, Any]:
    """The metadata of a GGUF file by key.

    Raises:
      CheckpointError: The file is missing, damaged or no GGUF file.
    """
    return _metadata(_open(path))


def split_pairs(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k from pairs (0, 1), (2, 3), ... of a head to pairs (i, i + dim / 2)."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.swapaxes(pairs, 1, 2).reshape(rows.shape)


def _open(path: pathlib.Path) -> gguf.GGUFReader:
    if not path.is_file():
        raise CheckpointError(f"{path}: not there; expected a GGUF file")
    try:
        return gguf.GGUFReader(path)
    # What the reader raises depends on where a damaged file ends.
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError) as error:
        raise CheckpointError(
            f"{path}: truncated or no GGUF file ({error}); download it again"
        ) from error


def _metadata(reader: gguf.GGUFReader) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items()}


def _dequantised(path: pathlib.Path, tensor: gguf.ReaderTensor) -> np.ndarray:
    try:
        return gguf.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise CheckpointError(
            f"{path}: {tensor.name} is stored as {tensor.tensor_type.name}, which the gguf "
            "package cannot dequantise; take a file in Q4_0, Q4_1, Q8_0, F16 or F32"
        ) from error
