"""Series as digits: scaling, text, tokens, grammars, retries, baselines, power laws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jaxlab.core.errors import DataError, PromptError, TokenizerError
from jaxlab.llm.power_laws import fit_power_law, log_mean_interval
from jaxlab.llm.series import (
    dequantise,
    deserialise,
    fit_scale,
    quantise,
    retried,
    row_grammar,
    serialise,
    series_codec,
)
from jaxlab.llm.series_baselines import last_token, max_error, persistence, pooled_ar1, rmse
from tests.llm.test_tokenizer import with_words

DIGITS = with_words("smollm", [])
WHOLE = with_words("llama-bpe", [f"{number:03}" for number in range(1000)])
CODECS = {"digits": series_codec(DIGITS), "whole": series_codec(WHOLE)}
TOKENIZERS = {"digits": DIGITS, "whole": WHOLE}

FIELDS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 5), st.integers(2, 4)),
    elements=st.floats(-3, 3, width=32),
)
NUMBERS = arrays.arrays(
    np.int32,
    st.tuples(st.integers(1, 5), st.integers(1, 4)),
    elements=st.integers(0, 999),
)
#: One shape only, since every shape is a program of its own.
TABLES = arrays.arrays(np.int32, (3, 4), elements=st.integers(0, 999))


def varies(u: np.ndarray) -> bool:
    return np.ptp(u) > 1e-3


@given(FIELDS.filter(varies), st.floats(0.01, 100), st.floats(-10, 10))
def test_affine_maps_give_the_same_text(u, factor, offset):
    low, high = u.min(), u.max()
    share = 700 * (u - low) / (high - low)
    # Rounding decides where a value stands between two integers.
    moved = np.where(np.abs(share % 1 - 0.5) < 1e-6, low, u)
    texts = [serialise(quantise(v, fit_scale(v))) for v in (moved, factor * moved + offset)]
    assert texts[0] == texts[1]
    assert deserialise(texts[0]).min() == 150
    assert deserialise(texts[0]).max() == 850


@given(FIELDS.filter(varies))
def test_quantised_values_are_within_half_a_step(u):
    scale = fit_scale(u)
    seen = dequantise(quantise(u, scale), scale)
    assert np.abs(seen - u).max() <= (u.max() - u.min()) / 1400 * (1 + 1e-9)
    np.testing.assert_array_equal(quantise(seen, scale), quantise(u, scale))


def test_numpy_and_jax_agree_and_each_series_has_its_scale():
    u = np.random.RandomState(0).normal(size=(3, 4, 5)).astype(np.float32)
    scale = fit_scale(u)
    own = quantise(u, scale)
    assert own.dtype == np.int32
    np.testing.assert_array_equal(own, jax.jit(quantise)(jnp.asarray(u), scale))
    for series, numbers in zip(u, own, strict=True):
        np.testing.assert_array_equal(numbers, quantise(series, fit_scale(series)))
    with jax.enable_x64(True):
        assert quantise(jnp.asarray(u, jnp.float64), scale).dtype == jnp.int32


def test_halves_go_to_the_even_neighbour():
    u = np.array([[0.0, 1.0, 0.5 / 700, 1.5 / 700]])
    assert quantise(u, fit_scale(u)).tolist() == [[150, 850, 150, 152]]


def test_a_scale_of_the_context_leaves_room_on_both_sides():
    u = np.array([[0.0, 1.0], [0.5, 0.5], [1.1, -0.2], [9.0, -9.0]])
    scale = fit_scale(u, context_rows=2)
    assert (float(scale.low), float(scale.high)) == (0.0, 1.0)
    assert quantise(u, scale)[2:].tolist() == [[920, 10], [999, 0]]
    whole = fit_scale(u)
    assert (float(whole.low), float(whole.high)) == (-9.0, 9.0)


def test_constant_series():
    u = np.full((3, 2), 0.1)
    with pytest.raises(DataError, match="is constant"):
        fit_scale(u)
    scale = fit_scale(u, constant=True)
    assert (quantise(u, scale) == 500).all()
    np.testing.assert_array_equal(dequantise(quantise(u, scale), scale), u)


@given(NUMBERS)
def test_texts_are_inverse(numbers):
    text = serialise(numbers)
    np.testing.assert_array_equal(deserialise(text), numbers)
    np.testing.assert_array_equal(deserialise(text + ";"), numbers)


@pytest.mark.parametrize("kind", CODECS)
@settings(max_examples=15)
@given(numbers=TABLES)
def test_tokens_are_inverse_and_those_of_the_text(kind, numbers):
    codec = CODECS[kind]
    tokens = codec.encode(jnp.asarray(numbers))
    assert tokens.tolist() == TOKENIZERS[kind].encode(serialise(numbers) + ";")
    for part in (tokens, tokens[:-1]):
        found, valid = codec.decode(part, 4)
        np.testing.assert_array_equal(found, numbers)
        assert valid.all()


def test_lengths_are_those_of_the_paper():
    """28 tokens a row of 14 numbers, 27 of an answer, where a number is one token."""
    whole, digits = CODECS["whole"], CODECS["digits"]
    assert whole.answer_length(14) == 27
    assert digits.answer_length(14) == 55
    assert digits.answer_length(4, 10) == 159
    assert whole.encode(jnp.zeros((1, 14), jnp.int32)).shape == (28,)


@pytest.mark.parametrize("kind", CODECS)
def test_malformed_rows_are_told(kind):
    codec, tokenizer = CODECS[kind], TOKENIZERS[kind]
    good = [["123,456", True], ["123;456", False], ["12,3456", False], ["123,45,", False]]
    for text, expected in good:
        tokens = tokenizer.encode(text)
        if len(tokens) == codec.answer_length(2):
            assert bool(codec.decode(jnp.array(tokens), 2)[1][0]) is expected, text


def run_grammar(grammar, logits, key):
    """Tokens drawn under a grammar from the same logits at every step."""

    def draw(state, step):
        own, row = step
        masked = jnp.where(grammar.allowed(state), row, -jnp.inf)
        token = jax.random.categorical(own, masked).astype(jnp.int32)
        return grammar.advance(state, token), token

    keys = jax.random.split(key, len(logits))
    return jax.lax.scan(draw, grammar.start(), (keys, logits))[1]


@pytest.mark.parametrize("kind", CODECS)
def test_strict_answers_are_always_rows(kind):
    codec = CODECS[kind]
    grammar = row_grammar(codec, 3)
    for seed in range(3):
        key = jax.random.key(seed)
        logits = 20 * jax.random.normal(key, (codec.answer_length(3, 2), codec.vocab_size))
        numbers, valid = codec.decode(run_grammar(grammar, logits, key), 3)
        assert numbers.shape == (2, 3)
        assert valid.all()


def test_free_answers_may_be_malformed():
    codec = CODECS["digits"]
    logits = jnp.zeros((codec.answer_length(3), codec.vocab_size)).at[:, codec.space].set(30.0)
    tokens = run_grammar(row_grammar(codec, 3, "free"), logits, jax.random.key(0))
    assert (tokens == codec.space).all()
    assert not codec.decode(tokens, 3)[1].any()
    with pytest.raises(DataError, match="strict or free"):
        row_grammar(codec, 3, "loose")


def test_malformed_answers_are_drawn_again_ten_times():
    seen = []

    def draw(indices, attempt):
        seen.append(indices.tolist())
        return np.stack([indices, 10 * indices + attempt], 1), indices <= attempt

    numbers, valid, tries = retried(draw, 4)
    assert seen == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]]
    assert numbers.tolist() == [[0, 0], [1, 11], [2, 22], [3, 33]]
    assert (valid.all(), tries.tolist()) == (True, [1, 2, 3, 4])
    numbers, valid, tries = retried(lambda i, attempt: (i[:, None], i < 0), 2)
    assert (valid.any(), tries.tolist()) == (False, [10, 10])


def test_prompts_end_with_a_separator_and_must_fit():
    codec = CODECS["digits"]
    prompt = codec.prompt(np.array([[[1, 2]], [[3, 4]]]), 20, 7)
    assert prompt[1].tolist() == DIGITS.encode("003,004;")
    with pytest.raises(PromptError, match=r"8 tokens and 7 to follow.*holds 14"):
        codec.prompt(np.array([[1, 2]]), 14, 7)


def test_a_start_token_stands_in_front():
    import dataclasses

    from tokenizers import Tokenizer as Backend
    from tokenizers import processors

    backend = Backend.from_str(DIGITS.backend.to_str())
    backend.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], special_tokens=[("<s>", 1)]
    )
    codec = series_codec(dataclasses.replace(DIGITS, backend=backend))
    assert codec.prefix == (1,)
    assert codec.prompt(np.array([[7]]), 20)[0] == 1


def test_baselines():
    context = np.array([[[100, 200], [110, 190], [118, 182]]])
    assert persistence(context, 2).tolist() == [[[118, 182]] * 2]
    assert last_token(context, 2).tolist() == [[[182, 182]] * 2]
    line = np.array([[100.0], [110.0], [118.0], [124.4]])
    exact = pooled_ar1(np.round(10 * line).astype(int)[None] // 10, 3)
    assert exact.shape == (1, 3, 1)
    # 150 + 0.8 (u - 150), so 118 -> 124.4 -> 129 -> ...
    rows = np.array([[100, 200], [110, 190], [118, 182]])
    assert pooled_ar1(rows, 2).tolist() == [[124, 176], [129, 171]]
    assert pooled_ar1(np.full((3, 2), 7), 2).tolist() == [[7, 7], [7, 7]]


def test_pooled_regression_is_least_squares():
    rows = np.random.RandomState(0).randint(150, 850, size=(6, 5))
    x, y = rows[:-1].ravel(), rows[1:].ravel()
    slope, intercept = np.polyfit(x, y, 1)
    np.testing.assert_array_equal(pooled_ar1(rows, 1)[0], np.round(slope * rows[-1] + intercept))


def test_errors_of_rows():
    np.testing.assert_allclose(rmse([[3.0, 4.0]], [[0.0, 0.0]]), [np.sqrt(12.5)])
    np.testing.assert_allclose(max_error([[3.0, -4.0]], [[0.0, 0.0]]), [4.0])


@given(st.floats(-3, 3), st.floats(1e-3, 1e3))
def test_power_laws_are_recovered(exponent, factor):
    n = np.arange(2, 41, 2)
    found = fit_power_law(n, factor * n.astype(float) ** exponent)
    np.testing.assert_allclose(found, (exponent, factor), rtol=1e-9, atol=1e-9)
    bent = factor * np.where(n < 20, 1.0, n / 20.0) ** exponent
    np.testing.assert_allclose(fit_power_law(n, bent, first=20).exponent, exponent, atol=1e-9)


def test_intervals_are_students_by_the_delta_method():
    values = np.array([1.0, 2.0, 4.0, 5.0])
    found = log_mean_interval(values)
    from scipy import stats

    factor = np.exp(stats.t.ppf(0.975, 3) * values.std(ddof=1) / 2 / 3.0)
    np.testing.assert_allclose(found, (3.0, 3.0 / factor, 3.0 * factor))
    np.testing.assert_allclose(log_mean_interval(values[:1]), (1.0, 1.0, 1.0))
    np.testing.assert_allclose(log_mean_interval(0 * values, floor=1e-4), (1e-4,) * 3)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (DataError, "NaN", lambda: fit_scale(np.array([[0.0, np.nan]]))),
        (DataError, "too few", lambda: fit_scale(np.ones((2, 2)), context_rows=3)),
        (DataError, "expected .*rows, columns", lambda: fit_scale(np.ones(3))),
        (DataError, "from 0 to 1000", lambda: serialise(np.array([[0, 1000]]))),
        (DataError, "integers", lambda: serialise(np.array([[0.5]]))),
        (DataError, "row 1", lambda: deserialise("001,002;003")),
        (DataError, "row 0", lambda: deserialise("001,,002")),
        (DataError, "at least 2 rows", lambda: pooled_ar1(np.ones((1, 3)), 1)),
        (DataError, "at least two", lambda: fit_power_law([1.0], [1.0])),
        (DataError, "positive", lambda: fit_power_law([1.0, 2.0], [1.0, 0.0])),
        (DataError, "no samples", lambda: log_mean_interval(np.ones(0))),
        (TokenizerError, "neither", lambda: series_codec(with_words("gpt-2", ["12"]))),
        (TokenizerError, "separator '::'", lambda: series_codec(DIGITS, time="::")),
        (DataError, "tokens", lambda: CODECS["digits"].decode(jnp.zeros(5, jnp.int32), 2)),
    ],
)
def test_mistakes_are_named(error, message, call):
    with pytest.raises(error, match=message):
        call()
