"""Tokenisers: bytes of tokens, digits, files of both kinds, and bad input."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from jaxlab.core.errors import TokenizerError
from jaxlab.llm import tokenizer
from tests.llm import checkpoints

TINY = tokenizer.from_gguf(checkpoints.gguf_metadata())


def with_words(pre: str, words: list[str]) -> tokenizer.Tokenizer:
    """The tiny tokeniser with whole words in its vocabulary, each made by merges."""
    metadata = checkpoints.gguf_metadata(pre)
    tokens, merges = list(metadata["tokenizer.ggml.tokens"]), ["h e"]
    for word in words:
        for end in range(2, len(word) + 1):
            merge = f"{word[: end - 1]} {word[end - 1]}"
            if merge not in merges:
                merges.append(merge)
                tokens.append(word[:end])
    kinds = [3] * 3 + [1] * (len(tokens) - 3)
    return tokenizer.from_gguf(
        metadata
        | {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.token_type": kinds,
        }
    )


@given(st.text())
def test_bytes_of_tokens_are_the_text(text):
    table = tokenizer.token_bytes(TINY)
    tokens = TINY.encode(text)
    assert b"".join(table[token] for token in tokens) == text.encode()
    assert TINY.decode(tokens) == text


def test_each_byte_has_a_token_and_special_tokens_have_none():
    table = tokenizer.token_bytes(TINY)
    assert table[:3] == [b""] * 3
    assert sorted(table[3:-1]) == [bytes([byte]) for byte in range(256)]
    assert table[-1] == b"he"
    assert tokenizer.token_bytes(TINY, 300)[260:] == [b""] * 40


def test_tokens_added_by_a_user_stand_for_their_text():
    metadata = checkpoints.gguf_metadata()
    tokens = [*metadata["tokenizer.ggml.tokens"], "naïve tool"]
    kinds = [*metadata["tokenizer.ggml.token_type"], 4]
    extended = metadata | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    built = tokenizer.from_gguf(extended)
    assert tokenizer.token_bytes(built)[-1] == "naïve tool".encode()
    assert built.encode("a naïve tool")[-1] == len(tokens) - 1


def test_special_tokens_in_a_text_are_recognised():
    assert TINY.encode("<s>he</s>") == [1, TINY.token_id("he"), 2]
    assert TINY.decode(TINY.encode("<s>he</s>")) == "he"
    assert TINY.decode([1, TINY.token_id("he")], skip_special_tokens=False) == "<s>he"
    with pytest.raises(TokenizerError, match="'nothing'"):
        TINY.token_id("nothing")


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["1", "2", "3", "4", "5"]),
        ("qwen2", ["1", "2", "3", "4", "5"]),
        ("llama-bpe", ["123", "45"]),
        ("dbrx", ["123", "45"]),
        ("gpt-2", ["12345"]),
    ],
)
def test_digits_are_kept_together_as_the_family_does(pre, pieces):
    built = with_words(pre, ["12345", "45"])
    assert [built.backend.id_to_token(i) for i in built.encode("12345")] == pieces


def test_a_start_token_is_put_in_front_where_the_checkpoint_says_so():
    starting = checkpoints.gguf_metadata() | {"tokenizer.ggml.add_bos_token": True}
    built = tokenizer.from_gguf(starting)
    assert built.encode("he")[0] == 1
    assert built.encode("he", add_special_tokens=False)[0] != 1
    assert TINY.encode("he")[0] != 1


def test_stop_tokens_of_gguf_are_all_kept():
    built = tokenizer.from_gguf(checkpoints.gguf_metadata() | {"tokenizer.ggml.eot_token_id": 1})
    assert (built.eos_id, built.stop_ids) == (2, (2, 1))


def test_saved_and_read_again(tmp_path):
    tokenizer.save(TINY, tmp_path)
    again = tokenizer.from_folder(tmp_path)
    assert tokenizer.token_bytes(again) == tokenizer.token_bytes(TINY)
    for field in ("eos_id", "stop_ids", "bos_id", "pad_id", "chat_template"):
        assert getattr(again, field) == getattr(TINY, field)


def test_files_of_a_folder_say_what_ends_a_text(tmp_path):
    checkpoints.byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="no end token"):
        tokenizer.from_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    assert tokenizer.from_folder(tmp_path).stop_ids == (2,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    assert tokenizer.from_folder(tmp_path).stop_ids == (1, 2)
    settings = {"eos_token": {"content": "</s>"}, "bos_token": "<s>", "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    read = tokenizer.from_folder(tmp_path)
    assert (read.eos_id, read.bos_id, read.pad_id, read.stop_ids) == (2, 1, 2, (2, 1))


def test_chat_templates_are_found_where_they_are_kept(tmp_path):
    checkpoints.byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    path = tmp_path / "tokenizer_config.json"
    for stored, expected in ((None, None), ("plain", "plain"), (named, "d")):
        path.write_text(json.dumps({"eos_token": "</s>", "chat_template": stored}))
        assert tokenizer.from_folder(tmp_path).chat_template == expected
    (tmp_path / "chat_template.jinja").write_text("file")
    assert tokenizer.from_folder(tmp_path).chat_template == "file"


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: not there"):
        tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match="no tokenizer can be read"):
        tokenizer.from_folder(tmp_path)
    checkpoints.byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    with pytest.raises(TokenizerError, match="lacks the token '<end>'"):
        tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("nonsense")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: not valid JSON"):
        tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "model = llama: expected gpt2"),
        ({"tokenizer.ggml.pre": "unheard"}, "pre = unheard: expected one of smollm"),
    ],
)
def test_other_tokenisers_of_gguf_are_named(change, message):
    with pytest.raises(TokenizerError, match=message):
        tokenizer.from_gguf(checkpoints.gguf_metadata() | change)


def test_missing_metadata_are_named():
    for key in ("model", "tokens", "merges", "eos_token_id"):
        metadata = checkpoints.gguf_metadata()
        del metadata[f"tokenizer.ggml.{key}"]
        with pytest.raises(TokenizerError, match=f"tokenizer.ggml.{key}: missing"):
            tokenizer.from_gguf(metadata)


def test_bytes_need_a_byte_level_tokeniser_and_enough_rows():
    with pytest.raises(TokenizerError, match="ids up to 259, the model only 61"):
        tokenizer.token_bytes(TINY, 61)
    pieces = Backend(models.BPE(vocab={"▁a": 0}, merges=[]))
    pieces.decoder = decoders.Metaspace()
    other = tokenizer.Tokenizer(pieces, eos_id=0, stop_ids=(0,), bos_id=None, pad_id=0)
    with pytest.raises(TokenizerError, match="decoder Metaspace: expected a byte-level"):
        tokenizer.token_bytes(other)
