"""A checkpoint as a whole: decoder, the same in its form for decoding, and tokeniser."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

from jaxlab.core.errors import CheckpointError
from jaxlab.llm import tokenizer as tokenizers
from jaxlab.llm.config import ModelConfig
from jaxlab.llm.decoder import Decoder, DecodeSteps, decode_steps
from jaxlab.llm.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A decoder with its tokeniser.

    Attributes:
      decoder: The weights, stacked.
      tokenizer: Text to tokens and back.
      name: Where it came from, for logs.
    """

    decoder: Decoder
    tokenizer: Tokenizer
    name: str

    @property
    def config(self) -> ModelConfig:
        """Sizes and switches of the decoder."""
        return self.decoder.config

    @functools.cached_property
    def steps(self) -> DecodeSteps:
        """The form for one token at a time; made at first use, it doubles the memory."""
        return decode_steps(self.decoder)


def load(path: str | pathlib.Path, dtype: str = "float32") -> LanguageModel:
    """Read a checkpoint: a Hugging Face folder, or a GGUF file.

    A `tokenizer.json` beside a GGUF file is taken before the one in its metadata.

    Args:
      path: The folder or the file.
      dtype: `float32` or `bfloat16`, of weights and activations.

    Raises:
      CheckpointError: Weights are missing or damaged, or the architecture is not supported.
      TokenizerError: The tokeniser is missing or not supported.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_dir():
        from jaxlab.llm import safetensors

        decoder, tokenizer = safetensors.load(path, dtype), tokenizers.from_folder(path)
    elif path.suffix == ".gguf":
        from jaxlab.llm import gguf

        decoder, metadata = gguf.load(path, dtype)
        beside = (path.parent / "tokenizer.json").is_file()
        tokenizer = (
            tokenizers.from_folder(path.parent) if beside else tokenizers.from_gguf(metadata)
        )
    else:
        raise CheckpointError(
            f"{path}: expected a folder with config.json and safetensors, or a .gguf file"
        )
    if tokenizer.vocab_size > decoder.config.vocab_size:
        raise CheckpointError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, the embedding only "
            f"{decoder.config.vocab_size} rows; they belong to different checkpoints"
        )
    return LanguageModel(decoder, tokenizer, path.name)


def save(
    model: LanguageModel, folder: str | pathlib.Path, shard_bytes: int = 5 * 10**9
) -> pathlib.Path:
    """Write a checkpoint as a Hugging Face folder; returns the folder."""
    from jaxlab.llm import safetensors

    folder = pathlib.Path(folder).expanduser()
    safetensors.save(model.decoder, folder, shard_bytes)
    tokenizers.save(model.tokenizer, folder)
    return folder
