"""Which tensors a checkpoint holds, under which names and in which shapes.

One table for both file formats. In files a linear map is `[outputs, inputs]`; the decoder
keeps `[layers, inputs, outputs]`. A fused tensor holds several maps one below the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator

import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import CheckpointError
from jaxlab.llm.config import ModelConfig
from jaxlab.llm.decoder import Decoder, named_weights


@dataclasses.dataclass(frozen=True)
class FileTensor:
    """A tensor of a checkpoint file.

    Attributes:
      huggingface: Its name in safetensors files; `{layer}` stands for the layer.
      gguf: Its name in GGUF files.
      columns: Length of its last axis, None for a vector.
      pieces: Names of the decoder's weights in it, each with its number of rows.
    """

    huggingface: str
    gguf: str
    columns: int | None
    pieces: tuple[tuple[str, int], ...]

    @property
    def stacked(self) -> bool:
        """Whether there is one for each layer."""
        return "{layer}" in self.huggingface

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the file."""
        rows = sum(rows for _, rows in self.pieces)
        return (rows,) if self.columns is None else (rows, self.columns)


def file_tensors(config: ModelConfig) -> list[FileTensor]:
    """All tensors of a checkpoint of this configuration."""
    width, inner = config.hidden_size, config.intermediate_size
    q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    rows = {"q": q_rows, "k": kv_rows, "v": kv_rows}
    found = [
        FileTensor(
            "model.embed_tokens.weight",
            "token_embd.weight",
            width,
            (("embedding", config.vocab_size),),
        ),
        FileTensor("model.norm.weight", "output_norm.weight", None, (("norm.scale", width),)),
    ]
    if not config.tied:
        head = (("head", config.vocab_size),)
        found.append(FileTensor("lm_head.weight", "output.weight", width, head))

    def per_layer(huggingface: str, gguf: str, columns: int | None, **pieces: int) -> None:
        named = tuple((f"layers.{name.replace('__', '.')}", n) for name, n in pieces.items())
        suffix = huggingface if huggingface.endswith(".bias") else f"{huggingface}.weight"
        gguf = gguf if gguf.endswith(".bias") else f"{gguf}.weight"
        found.append(
            FileTensor(f"model.layers.{{layer}}.{suffix}", f"blk.{{layer}}.{gguf}", columns, named)
        )

    per_layer("input_layernorm", "attn_norm", None, attention_norm__scale=width)
    per_layer("post_attention_layernorm", "ffn_norm", None, mlp_norm__scale=width)
    per_layer("self_attn.o_proj", "attn_output", q_rows, attention__o__kernel=width)
    per_layer("mlp.down_proj", "ffn_down", inner, mlp__down__kernel=width)
    if config.traits.fused:
        qkv = {f"attention__{name}__kernel": count for name, count in rows.items()}
        per_layer("self_attn.qkv_proj", "attn_qkv", width, **qkv)
        gate_up = {"mlp__gate__kernel": inner, "mlp__up__kernel": inner}
        per_layer("mlp.gate_up_proj", "ffn_up", width, **gate_up)
    else:
        for name, count in rows.items():
            pieces = {f"attention__{name}__kernel": count}
            per_layer(f"self_attn.{name}_proj", f"attn_{name}", width, **pieces)
        per_layer("mlp.gate_proj", "ffn_gate", width, mlp__gate__kernel=inner)
        per_layer("mlp.up_proj", "ffn_up", width, mlp__up__kernel=inner)
    if config.qkv_bias:
        for name, count in rows.items():
            pieces = {f"attention__{name}__bias": count}
            per_layer(f"self_attn.{name}_proj.bias", f"attn_{name}.bias", None, **pieces)
    if config.qk_norm:
        for name in ("q", "k"):
            pieces = {f"attention__{name}_norm__scale": config.head_dim}
            per_layer(f"self_attn.{name}_norm", f"attn_{name}_norm", None, **pieces)
    return found


def assemble(
    config: ModelConfig,
    origin: str,
    available: Collection[str],
    name_of: Callable[[FileTensor], str],
    read: Callable[[str, FileTensor], np.ndarray],
) -> Decoder:
    """A decoder from the tensors of a file.

    Args:
      config: Its configuration.
      origin: The file or folder, for messages.
      available: Names of the tensors that are there.
      name_of: The name of a tensor in this format, with `{layer}` in it.
      read: From a name to an array of the tensor's shape.

    Raises:
      CheckpointError: A tensor is missing, has the wrong shape, or is one too many.
    """
    tensors = file_tensors(config)
    _check_names(config, origin, set(available), [name_of(tensor) for tensor in tensors])
    dtype = jnp.dtype(config.dtype)
    weights: dict[str, np.ndarray] = {}
    for tensor in tensors:
        layers = range(config.num_layers) if tensor.stacked else (None,)
        for layer in layers:
            name = name_of(tensor).format(layer=layer)
            array = read(name, tensor)
            if array.shape != tensor.shape:
                raise CheckpointError(
                    f"{origin}: {name} has shape {list(array.shape)}; expected "
                    f"{list(tensor.shape)} by the configuration"
                )
            first = 0
            for piece, rows in tensor.pieces:
                part = array[first : first + rows]
                part = part.T if piece.endswith(".kernel") else part
                if layer is None:
                    weights[piece] = part.astype(dtype)
                else:
                    if piece not in weights:
                        weights[piece] = np.empty((config.num_layers, *part.shape), dtype)
                    weights[piece][layer] = part
                first += rows

    return Decoder(config, lambda name, shape: jnp.asarray(weights.pop(name)))


def _check_names(config: ModelConfig, origin: str, available: set[str], names: list[str]) -> None:
    expected = {name.format(layer=i) for name in names for i in range(config.num_layers)}
    missing = sorted(expected - available)
    if missing:
        raise CheckpointError(
            f"{origin}: lacks the tensor {missing[0]}{_and_more(missing)}; the download may be "
            "incomplete, or the configuration belongs to another checkpoint"
        )
    spare = sorted(name for name in available - expected if not _ignored(name, config))
    if spare:
        raise CheckpointError(
            f"{origin}: holds the tensor {spare[0]}{_and_more(spare)}, which a {config.family} "
            "decoder does not have; running without it would give wrong results"
        )


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _ignored(name: str, config: ModelConfig) -> bool:
    """Tables that follow from the configuration, and copies of a tied embedding."""
    tables = ("rotary_emb.inv_freq", "rope_freqs.weight")
    return name.endswith(tables) or (config.tied and name in ("lm_head.weight", "output.weight"))


def disassemble(decoder: Decoder) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a decoder under their Hugging Face names, in the layout of files."""
    config = decoder.config
    weights = named_weights(decoder)
    for tensor in file_tensors(config):
        layers = range(config.num_layers) if tensor.stacked else (None,)
        for layer in layers:
            parts = []
            for piece, _ in tensor.pieces:
                part = np.asarray(weights[piece] if layer is None else weights[piece][layer])
                parts.append(part.T if piece.endswith(".kernel") else part)
            yield tensor.huggingface.format(layer=layer), np.concatenate(parts, axis=0)
