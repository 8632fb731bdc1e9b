"""A checkpoint as a whole: decoder, the same in its form for decoding, and tokeniser."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from jaxlab.core.errors import CheckpointError, ConfigError
from jaxlab.llm import chat
from jaxlab.llm import tokenizer as tokenizers
from jaxlab.llm.config import ModelConfig
from jaxlab.llm.decoder import Decoder, DecodeSteps, decode_steps
from jaxlab.llm.generation import (
    PROMPT_MULTIPLE,
    Automaton,
    Generation,
    compiled_generate,
    pad_prompts,
)
from jaxlab.llm.sampling import Sampling, sampling
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

    def chat_prompt(
        self, messages: Sequence[chat.Message], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Tokens of a conversation by the checkpoint's template, ChatML where it has none.

        Raises:
          PromptError: A message lacks its role or content, or the template fails.
        """
        special = {
            "bos_token": self.tokenizer.bos_id,
            "eos_token": self.tokenizer.eos_id,
            "pad_token": self.tokenizer.pad_id,
        }
        backend = self.tokenizer.backend
        text = chat.render(
            messages,
            self.tokenizer.chat_template,
            add_generation_prompt=add_generation_prompt,
            **{k: "" if v is None else backend.id_to_token(v) for k, v in special.items()},
        )
        return self.tokenizer.encode(text, add_special_tokens=False)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        *,
        max_new_tokens: int,
        key: jax.Array | None = None,
        options: Sampling | None = None,
        automaton: Automaton | None = None,
        samples: int = 1,
        keep_logits: bool = False,
        stop_ids: tuple[int, ...] | None = None,
        prompt_multiple: int = PROMPT_MULTIPLE,
    ) -> Generation:
        """Answer prompts of any lengths in one batch.

        Args:
          prompts: Texts, or token ids such as those of `chat_prompt`.
          max_new_tokens: Length at which answers are cut.
          key: Needed for anything but greedy choices; one for all, or one for each answer.
          options: Of `sampling`; greedy by default.
          automaton: What answers may look like.
          samples: Answers to each prompt, side by side.
          keep_logits: Return the logits too.
          stop_ids: Tokens that end an answer; those of the tokeniser by default.
          prompt_multiple: Prompts are padded to a multiple of it; the larger, the fewer programs.

        Raises:
          PromptError: A prompt is empty or too long.
          ConfigError: A number is out of range, or sampling lacks its key.
        """
        if max_new_tokens < 1 or samples < 1:
            raise ConfigError(
                f"max_new_tokens = {max_new_tokens}, samples = {samples}: expected at least 1"
            )
        options = sampling(temperature=0.0) if options is None else options
        if key is None and not options.greedy:
            raise ConfigError("sampling draws random numbers: pass key=jax.random.key(...)")
        tokens, lengths = pad_prompts(
            [self.tokenizer.encode(p) if isinstance(p, str) else list(p) for p in prompts],
            vocab_size=self.config.vocab_size,
            room=self.config.context_length - max_new_tokens,
            pad_id=self.tokenizer.pad_id,
            multiple=prompt_multiple,
        )
        return compiled_generate(
            self.decoder,
            self.steps,
            tokens,
            lengths,
            jax.random.key(0) if key is None else key,
            options,
            max_new_tokens=max_new_tokens,
            stop_ids=self.tokenizer.stop_ids if stop_ids is None else stop_ids,
            pad_id=self.tokenizer.pad_id,
            automaton=automaton,
            samples=samples,
            keep_logits=keep_logits,
        )

    def texts(self, generation: Generation) -> list[str]:
        """Answers as text, without special tokens."""
        tokens, lengths = np.asarray(generation.tokens), np.asarray(generation.lengths)
        return [
            self.tokenizer.decode(row[:length].tolist())
            for row, length in zip(tokens, lengths, strict=True)
        ]


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
