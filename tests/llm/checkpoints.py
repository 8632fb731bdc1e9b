"""Tiny checkpoints of every family, with weights that follow from their names.

Used by the tests and by `tests/golden/record_llm.py`; needs no torch.
"""

from __future__ import annotations

import json
import pathlib
import zlib
from typing import Any

import gguf
import numpy as np
import safetensors.numpy
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from jaxlab.llm import config as configs
from jaxlab.llm.config import ModelConfig
from jaxlab.llm.tensors import file_tensors

VOCAB = 61
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

#: `config.json` of one checkpoint for each kind that the decoder must know.
SETTINGS: dict[str, dict[str, Any]] = {
    "smollm2": _COMMON | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "llama3": _COMMON
    | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "rope_scaling": _LLAMA3,
        "rope_theta": 50.0,
        "head_dim": 8,
        "tie_word_embeddings": False,
    },
    "qwen2": _COMMON
    | {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "rms_norm_eps": 1e-6,
        "use_sliding_window": False,
    },
    "qwen3": _COMMON
    | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 10},
    "smollm3": _COMMON
    | {
        "model_type": "smollm3",
        "architectures": ["SmolLM3ForCausalLM"],
        "no_rope_layer_interval": 4,
        "use_sliding_window": False,
    },
    "phi4": _COMMON
    | {
        "model_type": "phi3",
        "architectures": ["Phi3ForCausalLM"],
        "sliding_window": None,
        "tie_word_embeddings": False,
        "partial_rotary_factor": 1.0,
    },
    "phi4_partial": _COMMON
    | {
        "model_type": "phi3",
        "architectures": ["Phi3ForCausalLM"],
        "sliding_window": None,
        "head_dim": 8,
        "tie_word_embeddings": False,
        "partial_rotary_factor": 0.5,
    },
}

#: Rows of prompts for which logits are recorded, int32 `[2, 12]`.
TOKENS = np.random.RandomState(0).randint(3, VOCAB, size=(2, 12)).astype(np.int32)

#: Temperature, top-k (0 for all) and top-p by name.
OPTIONS = {
    "temperature": (0.7, 0, 1.0),
    "top_k": (1.0, 5, 1.0),
    "top_p": (1.0, 0, 0.6),
    "narrow": (1.0, 0, 0.05),
    "all": (1.5, 12, 0.8),
}


def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Weights from the name alone; norms lie around one. numpy froze this generator."""
    noise = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    centre, scale = (1.0, 0.2) if "norm" in name else (0.0, 0.25)
    return (centre + scale * noise).astype(np.float32)


def tensors(settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint under their Hugging Face names."""
    config = configs.from_huggingface(settings)
    found: dict[str, np.ndarray] = {}
    for kind in file_tensors(config):
        for layer in range(config.num_layers if kind.stacked else 1):
            name = kind.huggingface.format(layer=layer)
            found[name] = tensor(name, kind.shape)
    return found


def write_folder(folder: pathlib.Path, settings: dict[str, Any]) -> pathlib.Path:
    """A Hugging Face folder without a tokeniser."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(tensors(settings), path, metadata={"format": "pt"})
    return folder


def byte_tokenizer() -> Tokenizer:
    """A byte-level tokeniser with one merge and three special tokens at the front."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<s>", "</s>"]
    vocab = {token: i for i, token in enumerate([*special, *alphabet, "he"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("h", "e")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return backend


def gguf_metadata(pre: str = "gpt-2") -> dict[str, Any]:
    """The tokeniser above as GGUF metadata."""
    vocab = byte_tokenizer().get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }


def write_gguf(
    path: pathlib.Path,
    settings: dict[str, Any],
    quantisation: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    factors: np.ndarray | None = None,
) -> pathlib.Path:
    """A GGUF file with the same weights, matrices quantised, in llama.cpp's row order."""
    config = configs.from_huggingface(settings)
    writer = gguf.GGUFWriter(path, config.family)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_dimension_count(config.rotary_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    metadata = gguf_metadata()
    writer.add_tokenizer_pre(metadata["tokenizer.ggml.pre"])
    writer.add_token_list(metadata["tokenizer.ggml.tokens"])
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    writer.add_token_merges(metadata["tokenizer.ggml.merges"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    for kind in file_tensors(config):
        for layer in range(config.num_layers if kind.stacked else 1):
            array = tensor(kind.huggingface.format(layer=layer), kind.shape)
            array = _in_llama_order(config, kind.huggingface, array)
            stored = quantisation if array.ndim == 2 else gguf.GGMLQuantizationType.F32
            data = gguf.quantize(array, stored)
            writer.add_tensor(kind.gguf.format(layer=layer), data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _in_llama_order(config: ModelConfig, name: str, array: np.ndarray) -> np.ndarray:
    """Rows of q and k with the two entries of a rotated pair side by side."""
    heads = config.num_heads if ".q_proj." in name else config.num_kv_heads
    if not (config.traits.interleaved_rope and (".q_proj." in name or ".k_proj." in name)):
        return array
    halves = array.reshape(heads, 2, -1, *array.shape[1:])
    return np.swapaxes(halves, 1, 2).reshape(array.shape)
