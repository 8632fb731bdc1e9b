"""Byte-level BPE tokenisers, from a Hugging Face folder or rebuilt from GGUF metadata.

The families of `jaxlab.llm.config` all use GPT-2's byte alphabet: every token stands for
a string of bytes, written with one printable character per byte.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from jaxlab.core.errors import TokenizerError

#: Kinds of token in GGUF metadata (`tokenizer.ggml.token_type`).
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5

#: Pre-tokenisers of GGUF by how many digits they keep together and whether they normalise.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_THREE_DIGITS = ("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe")
_ONE_DIGIT = ("qwen2", "deepseek-r1-qwen")
_GPT2 = ("gpt-2", "default")


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Text to token ids and back.

    Attributes:
      backend: The tokeniser of the library `tokenizers`.
      eos_id: The token that ends an answer.
      stop_ids: Every token at which generation stops, `eos_id` among them.
      bos_id: The token that starts a text, None where there is none.
      pad_id: The token that fills up shorter rows.
      chat_template: Jinja source of the checkpoint's chat template, None where it has none.
    """

    backend: tokenizers.Tokenizer
    eos_id: int
    stop_ids: tuple[int, ...]
    bos_id: int | None
    pad_id: int
    chat_template: str | None = None

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; special tokens written out in it are recognised.

        Args:
          text: The text.
          add_special_tokens: Put the start token in front where the checkpoint does so.
        """
        return self.backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; bytes that form no character come out as U+FFFD."""
        ids = [int(token) for token in tokens]
        return self.backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def token_id(self, token: str) -> int:
        """Id of a token by its spelling in the vocabulary.

        Raises:
          TokenizerError: The vocabulary has no such token.
        """
        found = self.backend.token_to_id(token)
        if found is None:
            raise TokenizerError(f"token {token!r}: not in the vocabulary of this tokenizer")
        return found


def token_bytes(tokenizer: Tokenizer, vocab_size: int | None = None) -> list[bytes]:
    """The bytes that each token id stands for; empty for special and unused ids.

    Args:
      tokenizer: A byte-level tokeniser.
      vocab_size: Length of the list, for models whose embedding has spare rows.

    Raises:
      TokenizerError: The tokeniser is not byte-level, or has ids beyond `vocab_size`.
    """
    size = tokenizer.vocab_size if vocab_size is None else vocab_size
    if tokenizer.vocab_size > size:
        raise TokenizerError(
            f"the tokenizer has ids up to {tokenizer.vocab_size - 1}, the model only {size} "
            "rows; take the tokenizer that belongs to the checkpoint"
        )
    _require_byte_level(tokenizer.backend)
    of_character = _byte_of_character()
    added = tokenizer.backend.get_added_tokens_decoder()
    table = [b""] * size
    for token, index in tokenizer.backend.get_vocab(with_added_tokens=True).items():
        if index in added:
            table[index] = b"" if added[index].special else added[index].content.encode()
        elif all(character in of_character for character in token):
            table[index] = bytes(of_character[character] for character in token)
    return table


def _require_byte_level(backend: tokenizers.Tokenizer) -> None:
    decoder = json.loads(backend.to_str())["decoder"] or {}
    steps = decoder.get("decoders", [decoder])
    if not any(step.get("type") == "ByteLevel" for step in steps):
        raise TokenizerError(
            f"tokenizer with decoder {decoder.get('type')}: expected a byte-level BPE tokenizer "
            "as of the Llama 3, SmolLM, Qwen and Phi-4 families"
        )


def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes are themselves, the others follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Rebuild the tokeniser that the metadata of a GGUF file describe.

    Args:
      metadata: Values by key, as `jaxlab.llm.gguf.read_metadata` returns them.

    Raises:
      TokenizerError: A key is missing, or the kind of tokeniser is not supported.
    """
    kind = _required(metadata, "model")
    if kind != "gpt2":
        raise TokenizerError(
            f"tokenizer.ggml.model = {kind}: expected gpt2 (byte-level BPE); convert the "
            "checkpoint to a Hugging Face folder with a byte-level tokenizer.json"
        )
    tokens, merges = _required(metadata, "tokens"), _required(metadata, "merges")
    kinds = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    pre = metadata.get("tokenizer.ggml.pre", "default")
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ", 1)) for merge in merges],
            ignore_merges=pre in _THREE_DIGITS[:3],
        )
    )
    backend.pre_tokenizer, normalizer = _pre_tokenizer(pre)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    special = [i for i, kind in enumerate(kinds) if kind in (_CONTROL, _UNUSED)]
    defined = [i for i, kind in enumerate(kinds) if kind == _USER_DEFINED]
    backend.add_special_tokens([_literal(tokens[i], special=True) for i in special])
    backend.add_tokens([_literal(tokens[i], special=False) for i in defined])
    eos = int(_required(metadata, "eos_token_id"))
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if metadata.get("tokenizer.ggml.add_bos_token", False) and bos is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], int(bos))]
        )
    others = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom")]
    stops = dict.fromkeys([eos, *(int(token) for token in others if token is not None)])
    return Tokenizer(
        backend=backend,
        eos_id=eos,
        stop_ids=tuple(stops),
        bos_id=None if bos is None else int(bos),
        pad_id=int(metadata.get("tokenizer.ggml.padding_token_id", eos)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def _required(metadata: Mapping[str, Any], name: str) -> Any:
    key = f"tokenizer.ggml.{name}"
    if key not in metadata:
        raise TokenizerError(f"{key}: missing in the GGUF file, so it holds no usable tokenizer")
    return metadata[key]


def _literal(token: str, *, special: bool) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(token, special=special, normalized=False)


def _pre_tokenizer(name: str) -> tuple[Any, Any]:
    """Pre-tokeniser and normaliser (or None) by the name that GGUF gives them."""
    whole_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _GPT2:
        return whole_words, None
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, whole_words]), None
    if name in _THREE_DIGITS:
        pattern, normalizer = _WORDS.format(digits="{1,3}"), None
    elif name in _ONE_DIGIT:
        pattern, normalizer = _WORDS.format(digits=""), normalizers.NFC()
    else:
        known = ", ".join(("smollm", *_GPT2, *_THREE_DIGITS, *_ONE_DIGIT))
        raise TokenizerError(
            f"tokenizer.ggml.pre = {name}: expected one of {known}; put the tokenizer.json "
            "of the checkpoint beside the GGUF file"
        )
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, letters]), normalizer


def from_folder(folder: pathlib.Path) -> Tokenizer:
    """Read the tokeniser of a Hugging Face folder.

    `tokenizer.json` is required; `tokenizer_config.json`, `generation_config.json`,
    `config.json` and `chat_template.jinja` say which tokens start and end a text.

    Raises:
      TokenizerError: A file is missing or malformed, or no end token is named.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(f"{path}: not there; expected the tokenizer.json of the checkpoint")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"{path}: no tokenizer can be read from it ({error})") from error
    settings = _json(folder / "tokenizer_config.json")
    named = {
        kind: _token_of(backend, settings.get(f"{kind}_token"), path)
        for kind in ("bos", "eos", "pad")
    }
    stops = [] if named["eos"] is None else [named["eos"]]
    for name in ("generation_config.json", "config.json"):
        listed = _json(folder / name).get("eos_token_id")
        stops += listed if isinstance(listed, list) else [] if listed is None else [listed]
    if not stops:
        raise TokenizerError(
            f"{folder}: no end token; expected eos_token in tokenizer_config.json or "
            "eos_token_id in generation_config.json or config.json"
        )
    pad = named["pad"]
    return Tokenizer(
        backend=backend,
        eos_id=stops[0],
        stop_ids=tuple(dict.fromkeys(stops)),
        bos_id=named["bos"],
        pad_id=stops[0] if pad is None else pad,
        chat_template=_chat_template(folder, settings),
    )


def _json(path: pathlib.Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object")
    return value


def _token_of(backend: tokenizers.Tokenizer, token: Any, path: pathlib.Path) -> int | None:
    """Id of a token that is spelled out, or an object with its spelling as `content`."""
    spelling = token.get("content") if isinstance(token, dict) else token
    if spelling is None:
        return None
    found = backend.token_to_id(spelling)
    if found is None:
        raise TokenizerError(f"{path}: lacks the token {spelling!r} of tokenizer_config.json")
    return found


def _chat_template(folder: pathlib.Path, settings: Mapping[str, Any]) -> str | None:
    """The default chat template: a file of its own, a string, or one of a named list."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found}
        return named.get("default")
    return found


def save(tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    """Write the tokeniser's files of a Hugging Face folder."""
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    spelled = {
        "bos_token": tokenizer.bos_id,
        "eos_token": tokenizer.eos_id,
        "pad_token": tokenizer.pad_id,
    }
    settings: dict[str, Any] = {
        kind: tokenizer.backend.id_to_token(index)
        for kind, index in spelled.items()
        if index is not None
    }
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings["clean_up_tokenization_spaces"] = False
    if tokenizer.chat_template is not None:
        settings["chat_template"] = tokenizer.chat_template
    _write_json(folder / "tokenizer_config.json", settings)
    stops = {"eos_token_id": list(tokenizer.stop_ids), "pad_token_id": tokenizer.pad_id}
    _write_json(folder / "generation_config.json", stops)


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
