"""Number codecs: one token a number, one token a digit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.core.errors import TokenizerError
from jaxlab.llm.numbers import number_codec
from tests.llm.test_tokenizer import TINY, with_words

DIGITS = with_words("smollm", [])
WHOLE = with_words("llama-bpe", [f"{number:03}" for number in range(1000)])
CODECS = {"digits": (number_codec(DIGITS, 3), DIGITS), "whole": (number_codec(WHOLE, 3), WHOLE)}


def test_the_tokeniser_decides():
    digits, whole = CODECS["digits"][0], CODECS["whole"][0]
    assert (digits.base, digits.width) == (10, 3)
    assert (whole.base, whole.width) == (1000, 1)


@pytest.mark.parametrize("kind", sorted(CODECS))
@given(numbers=st.lists(st.integers(0, 999), min_size=6, max_size=6))
def test_tokens_are_those_of_the_written_number(kind, numbers):
    codec, tokenizer = CODECS[kind]
    tokens = codec.encode(jnp.array(numbers, jnp.int32))
    assert tokens.dtype == jnp.int32
    for number, row in zip(numbers, tokens, strict=True):
        assert row.tolist() == tokenizer.encode(f"{number:03}")
    decoded, valid = codec.decode(tokens)
    assert decoded.tolist() == numbers
    assert valid.all()


@pytest.mark.parametrize("kind", sorted(CODECS))
def test_other_tokens_are_no_numbers(kind):
    codec, tokenizer = CODECS[kind]
    tokens = codec.encode(jnp.array([7, 8], jnp.int32)).at[1, -1].set(tokenizer.encode(",")[0])
    assert codec.decode(tokens)[1].tolist() == [True, False]


@pytest.mark.parametrize("kind", sorted(CODECS))
def test_scores_in_closed_form(kind):
    """Even logits give 1 / 1000 for every number; a sure token gives certainty."""
    codec, tokenizer = CODECS[kind]
    numbers = jnp.array([0, 123, 999], jnp.int32)
    even = jnp.zeros((3, codec.width, tokenizer.vocab_size), jnp.float32)
    log_probs, entropies = codec.score(even, numbers)
    np.testing.assert_allclose(log_probs, -np.log(1000), rtol=1e-5)
    np.testing.assert_allclose(entropies, np.log(1000), rtol=1e-5)
    sure = 50 * jax.nn.one_hot(codec.encode(numbers), tokenizer.vocab_size, dtype=jnp.float32)
    log_probs, entropies = codec.score(sure, numbers)
    np.testing.assert_allclose(log_probs, 0, atol=1e-5)
    np.testing.assert_allclose(entropies, 0, atol=1e-5)
    assert (codec.score(sure, numbers[::-1])[0][::2] < -40).all()


def test_codecs_map_and_keep_their_dtypes_under_x64():
    codec = CODECS["digits"][0]
    with jax.enable_x64(True):
        tokens = jax.vmap(codec.encode)(jnp.arange(6, dtype=jnp.int32).reshape(2, 3))
        numbers, _ = jax.jit(codec.decode)(tokens)
        log_probs = codec.log_probs(jnp.zeros((2, TINY.vocab_size), jnp.float32))
    assert (tokens.shape, str(tokens.dtype)) == ((2, 3, 3), "int32")
    assert (str(numbers.dtype), str(log_probs.dtype)) == ("int32", "float32")


def test_tokenisers_that_split_otherwise_are_refused():
    pairs = with_words("gpt-2", ["12", "34"])
    with pytest.raises(TokenizerError, match="neither as one token nor"):
        number_codec(pairs, 3)
    with pytest.raises(TokenizerError, match="expected 1 to 9"):
        number_codec(DIGITS, 0)
