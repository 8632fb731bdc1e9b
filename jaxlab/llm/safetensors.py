"""Checkpoints as Hugging Face folders: `config.json` and safetensors, sharded or not."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from jaxlab.core.errors import CheckpointError
from jaxlab.llm import config as configs
from jaxlab.llm.decoder import Decoder
from jaxlab.llm.tensors import FileTensor, assemble, disassemble

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def load(folder: pathlib.Path, dtype: str = "float32") -> Decoder:
    """Read a decoder from a Hugging Face folder.

    Args:
      folder: Holds `config.json` and `model.safetensors`, or an index and its shards.
      dtype: `float32` or `bfloat16`, of the decoder; the file may be in any float type.

    Raises:
      CheckpointError: A file or tensor is missing, damaged or of another shape, or the
        architecture is not supported.
    """
    settings = _read_json(folder / "config.json")
    config = configs.from_huggingface(settings, dtype)
    with contextlib.ExitStack() as stack:
        files = {path: stack.enter_context(_open(path)) for path in _shards(folder)}
        home = {name: path for path, file in files.items() for name in file.keys()}  # noqa: SIM118

        def read(name: str, tensor: FileTensor) -> np.ndarray:
            try:
                return files[home[name]].get_tensor(name)
            except (safetensors.SafetensorError, TypeError, ValueError) as error:
                raise CheckpointError(f"{home[name]}: cannot read {name} ({error})") from error

        return assemble(config, str(folder), home.keys(), lambda t: t.huggingface, read)


def _shards(folder: pathlib.Path) -> list[pathlib.Path]:
    """The weight files of a folder."""
    if (folder / _INDEX).is_file():
        index = _read_json(folder / _INDEX)
        listed = index.get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise CheckpointError(f"{folder / _INDEX}: expected an object weight_map with entries")
        return [folder / name for name in sorted(set(listed.values()))]
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    raise CheckpointError(f"{folder}: no weights there; expected {_SINGLE} or {_INDEX}")


def _open(path: pathlib.Path) -> Any:
    if not path.is_file():
        raise CheckpointError(f"{path}: not there, but the index names it; download it again")
    try:
        return safetensors.safe_open(str(path), "numpy")
    except safetensors.SafetensorError as error:
        raise CheckpointError(
            f"{path}: truncated or no safetensors file ({error}); download it again"
        ) from error


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path}: not there; expected the folder of a checkpoint")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return value


def save(decoder: Decoder, folder: pathlib.Path, shard_bytes: int = 5 * 10**9) -> None:
    """Write a decoder as a Hugging Face folder, in its own dtype.

    Args:
      decoder: The decoder.
      folder: Made where it is not there.
      shard_bytes: Most bytes in one file; a tensor is never split.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, np.ndarray]] = [{}]
    for name, array in disassemble(decoder):
        held = sum(part.nbytes for part in shards[-1].values())
        if shards[-1] and held + array.nbytes > shard_bytes:
            shards.append({})
        shards[-1][name] = np.ascontiguousarray(array)
    if len(shards) == 1:
        _write(shards[0], folder / _SINGLE)
    else:
        _write_shards(shards, folder)
    text = json.dumps(configs.to_huggingface(decoder.config), indent=2)
    _replace(folder / "config.json", lambda path: path.write_text(text + "\n", encoding="utf-8"))


def _write_shards(shards: list[dict[str, np.ndarray]], folder: pathlib.Path) -> None:
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        _write(shard, folder / name)
    index = {
        "metadata": {"total_size": sum(a.nbytes for shard in shards for a in shard.values())},
        "weight_map": {
            tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard
        },
    }
    text = json.dumps(index, indent=2) + "\n"
    _replace(folder / _INDEX, lambda path: path.write_text(text, encoding="utf-8"))


def _write(tensors: dict[str, np.ndarray], path: pathlib.Path) -> None:
    _replace(
        path, lambda part: safetensors.numpy.save_file(tensors, part, metadata={"format": "pt"})
    )


def _replace(path: pathlib.Path, write: Any) -> None:
    """Write beside the target and move: what was there stays whole until then."""
    part = path.with_name(path.name + ".part")
    write(part)
    os.replace(part, path)
