"""Sampling against transformers' filters, and generation against a plain loop."""

from __future__ import annotations

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError, PromptError
from jaxlab.llm import tokenizer
from jaxlab.llm.decoder import Decoder
from jaxlab.llm.generation import compiled_generate, pad_prompts, token_log_probs
from jaxlab.llm.language_model import LanguageModel
from jaxlab.llm.sampling import draw, entropy, filtered, masked, sampling
from tests.llm import checkpoints
from tests.llm.checkpoints import OPTIONS
from tests.llm.grammars import chain
from tests.llm.test_decoder import full_logits, random_decoder

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "llm" / "sampling.npz"
VOCAB = checkpoints.VOCAB
PROMPTS = [[5, 9, 11, 30], [7], [8, 4, 40, 41, 42, 43, 44]]
NEW = 6


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return random_decoder("qwen3")


@pytest.fixture(scope="module")
def model(decoder) -> LanguageModel:
    """Token 0 pads, token 2 stops."""
    return LanguageModel(decoder, tokenizer.from_gguf(checkpoints.gguf_metadata()), "tiny")


def greedy_by_hand(decoder, prompt, new):
    """The most likely continuation by full passes over growing texts, and its logits."""
    text, logits = list(prompt), []
    for _ in range(new):
        padded = np.zeros((1, 16), np.int32)
        padded[0, : len(text)] = text
        valid = np.arange(16)[None] < len(text)
        logits.append(np.asarray(full_logits(decoder, padded, valid)[0, len(text) - 1]))
        text.append(int(logits[-1].argmax()))
    return text[len(prompt) :], np.stack(logits)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_filters_are_those_of_transformers(name):
    with np.load(GOLDEN) as golden:
        before, expected = golden["given"], golden[name]
    temperature, top_k, top_p = OPTIONS[name]
    left = filtered(jnp.asarray(before), sampling(temperature, top_k, top_p))
    np.testing.assert_array_equal(np.isinf(left), np.isinf(expected))
    np.testing.assert_allclose(left, expected, rtol=1e-6)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31 - 1),
    allowed=st.lists(st.booleans(), min_size=12, max_size=12).filter(any),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    top_k=st.sampled_from([0, 1, 4, 50]),
    top_p=st.sampled_from([0.01, 0.5, 1.0]),
)
def test_a_masked_token_is_never_sampled(seed, allowed, temperature, top_k, top_p):
    options = sampling(temperature, top_k, top_p)
    logits = 8 * np.random.RandomState(seed).standard_normal((64, 12)).astype(np.float32)
    keys = jax.random.split(jax.random.key(seed), 64)
    legal = jnp.broadcast_to(jnp.array(allowed), (64, 12))
    kept = filtered(masked(jnp.asarray(logits), legal), options)
    tokens = draw(keys, kept, options)
    assert tokens.dtype == jnp.int32
    assert np.array(allowed)[tokens].all()


def test_draws_follow_the_distribution():
    logits = jnp.log(jnp.array([0.5, 0.25, 0.125, 0.125, 0.0], jnp.float32))
    keys = jax.random.split(jax.random.key(3), 20_000)
    tokens = draw(keys, jnp.broadcast_to(logits, (20_000, 5)), sampling())
    shares = np.bincount(tokens, minlength=5) / 20_000
    # Five standard errors of the largest share.
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.125, 0.125, 0.0], atol=0.018)


def test_entropy_in_closed_form():
    even = jnp.log(jnp.array([0.25, 0.25, 0.25, 0.25, 0.0], jnp.float32))
    np.testing.assert_allclose(entropy(even), np.log(4), rtol=1e-6)
    certain = jnp.array([0.0, -jnp.inf], jnp.float32)
    assert entropy(certain) == 0


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}]
)
def test_options_out_of_range_are_named(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        sampling(**wrong)


def test_greedy_answers_are_those_of_full_passes(model, decoder):
    """Prompts of different lengths in one batch, each as if alone."""
    answer = model.generate(PROMPTS, max_new_tokens=NEW, stop_ids=(999,), keep_logits=True)
    for row, prompt in enumerate(PROMPTS):
        tokens, logits = greedy_by_hand(decoder, prompt, NEW)
        assert answer.tokens[row].tolist() == tokens
        np.testing.assert_allclose(answer.logits[row], logits, atol=1e-4)
        expected = log_softmax(logits)
        np.testing.assert_allclose(answer.log_probs[row], expected.max(-1), atol=1e-4)
        np.testing.assert_allclose(
            answer.entropies[row], -(np.exp(expected) * expected).sum(-1), atol=1e-4
        )
    np.testing.assert_allclose(answer.log_probs, answer.sampled_log_probs)
    assert answer.lengths.tolist() == [NEW] * 3
    assert not answer.stopped.any()


def test_rows_end_at_stop_tokens(model, decoder):
    free = model.generate(PROMPTS, max_new_tokens=NEW, stop_ids=(999,))
    stop = int(free.tokens[0, 2])
    answer = model.generate(PROMPTS, max_new_tokens=NEW, stop_ids=(999, stop))
    for row in range(3):
        tokens = free.tokens[row].tolist()
        length = tokens.index(stop) + 1 if stop in tokens else NEW
        assert answer.lengths[row] == length
        assert answer.stopped[row] == (stop in tokens)
        assert answer.tokens[row].tolist() == tokens[:length] + [0] * (NEW - length)
        assert (answer.log_probs[row, length:] == 0).all()
        assert (answer.entropies[row, length:] == 0).all()


def test_answers_keep_to_a_grammar(model):
    """Sets of legal tokens in turn; after the last set nothing is allowed, so rows end."""
    sets = ([10, 11, 12], [20], [30, 31])
    answer = model.generate(
        PROMPTS,
        max_new_tokens=NEW,
        samples=4,
        key=jax.random.key(0),
        options=sampling(temperature=3.0),
        automaton=chain(*sets, vocab=VOCAB),
    )
    assert answer.tokens.shape == (12, NEW)
    for place, legal in enumerate(sets):
        assert set(answer.tokens[:, place].tolist()) <= set(legal)
    assert len(set(answer.tokens[:, 0].tolist())) > 1
    assert answer.lengths.tolist() == [3] * 12
    assert answer.stopped.all()
    np.testing.assert_array_equal(answer.log_probs[:, 1], 0)
    np.testing.assert_array_equal(answer.entropies[:, 1], 0)
    assert (answer.entropies[:, 0] <= np.log(3) + 1e-6).all()


def test_spare_rows_of_the_embedding_are_not_allowed(model):
    short = chain([3, 4], [5], vocab=8)
    answer = model.generate(PROMPTS, max_new_tokens=3, automaton=short)
    assert set(answer.tokens[:, 0].tolist()) <= {3, 4}
    with pytest.raises(ConfigError, match="99 tokens, the model only 61"):
        model.generate(PROMPTS, max_new_tokens=3, automaton=chain([3], vocab=99))


def test_log_probs_are_those_of_the_sampled_distribution(model):
    options = sampling(0.5, 8, 0.9)
    answer = model.generate(
        PROMPTS, max_new_tokens=NEW, key=jax.random.key(1), options=options, keep_logits=True,
        stop_ids=(999,),
    )  # fmt: skip
    raw = jax.nn.log_softmax(answer.logits, axis=-1)
    np.testing.assert_allclose(jnp.exp(raw).sum(-1), 1, atol=1e-5)
    kept = jax.nn.log_softmax(filtered(answer.logits, options), axis=-1)
    np.testing.assert_allclose(jnp.exp(kept).sum(-1), 1, atol=1e-5)
    assert ((kept > -jnp.inf).sum(-1) <= 8).all()
    at = answer.tokens[..., None]
    picked = jnp.take_along_axis(raw, at, -1)[..., 0]
    np.testing.assert_allclose(answer.log_probs, picked, atol=1e-5)
    picked = jnp.take_along_axis(kept, at, -1)[..., 0]
    np.testing.assert_allclose(answer.sampled_log_probs, picked, atol=1e-5)


def test_a_row_draws_the_same_in_any_batch(model):
    draws = {"max_new_tokens": NEW, "key": jax.random.key(5), "options": sampling(2.0)}
    alone = model.generate(PROMPTS[:1], **draws)
    together = model.generate([PROMPTS[0], [3] * 30], **draws)
    np.testing.assert_array_equal(alone.tokens[0], together.tokens[0])
    other = model.generate(PROMPTS[:1], **(draws | {"key": jax.random.key(6)}))
    assert alone.tokens.tolist() != other.tokens.tolist()


def test_samples_of_a_prompt_are_like_copies_of_it(model):
    draws = {"max_new_tokens": NEW, "key": jax.random.key(5), "options": sampling(2.0)}
    samples = model.generate(PROMPTS[:2], samples=2, **draws)
    copies = model.generate([PROMPTS[i] for i in (0, 0, 1, 1)], **draws)
    np.testing.assert_array_equal(samples.tokens, copies.tokens)
    np.testing.assert_allclose(samples.log_probs, copies.log_probs, atol=1e-5)
    assert samples.tokens[0].tolist() != samples.tokens[1].tolist()


def test_other_temperatures_compile_nothing(model):
    draws = {"max_new_tokens": 2, "key": jax.random.key(5)}
    model.generate(PROMPTS, options=sampling(2.0), **draws)
    compiled = compiled_generate._cache_size()
    model.generate([[4], [5, 6], [9]], options=sampling(1.5), **draws)
    assert compiled_generate._cache_size() == compiled


def test_scores_are_log_probs_of_what_was_said(model, decoder):
    answer = model.generate([PROMPTS[0]], max_new_tokens=NEW, stop_ids=(999,))
    text = jnp.concatenate([jnp.array(PROMPTS[0], jnp.int32), answer.tokens[0]])[None]
    scores, entropies = jax.jit(token_log_probs)(decoder, text)
    assert scores.shape == (1, len(PROMPTS[0]) + NEW - 1)
    np.testing.assert_allclose(scores[:, -NEW:], answer.log_probs, atol=1e-4)
    np.testing.assert_allclose(entropies[:, -NEW:], answer.entropies, atol=1e-4)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "no prompts"),
        ([[4], []], "prompt 1: empty"),
        ([[4] * 59], "prompt 0: 59 tokens, but the context leaves room for 58"),
        ([[4, 61]], "between 0 and 60"),
        ([[-1]], "between 0 and 60"),
    ],
)
def test_prompts_that_do_not_fit_are_named(model, prompts, message):
    with pytest.raises(PromptError, match=message):
        model.generate(prompts, max_new_tokens=NEW)


def test_a_prompt_may_fill_the_context(model):
    answer = model.generate([[4] * 58], max_new_tokens=NEW, stop_ids=(999,))
    assert answer.lengths.tolist() == [NEW]
    tokens, lengths = pad_prompts([[4] * 40], vocab_size=VOCAB, room=58, pad_id=0)
    assert tokens.shape == (1, 58)
    assert lengths.tolist() == [40]


def test_numbers_out_of_range_are_named(model):
    with pytest.raises(ConfigError, match="max_new_tokens = 0"):
        model.generate(PROMPTS, max_new_tokens=0)
    with pytest.raises(ConfigError, match="key"):
        model.generate(PROMPTS, max_new_tokens=1, options=sampling())


def test_texts_leave_special_tokens_out(model):
    said = model.tokenizer.encode("he o")
    tokens = jnp.array([[*said, 2, 0, 0], [*said[:2], 0, 0, 0, 0]], jnp.int32)
    template = model.generate(PROMPTS[:2], max_new_tokens=2)
    lengths = jnp.array([len(said) + 1, 2], jnp.int32)
    assert model.texts(template.replace(tokens=tokens, lengths=lengths)) == ["he o", "he "]


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_the_nucleus_is_that_of_sorted_tokens(top_p, scale):
    logits = scale * np.random.default_rng(0).normal(size=(4, 500))
    logits[:, ::7] = logits[:, 1:2]  # ties
    logits = logits.astype(np.float32)
    kept = np.isfinite(np.asarray(filtered(jnp.asarray(logits), sampling(1.0, 0, top_p))))
    for row, found in zip(logits.astype(float), kept, strict=True):
        shares = np.exp(row - row.max())
        shares /= shares.sum()
        before = np.array([shares[shares > share].sum() for share in shares])
        np.testing.assert_array_equal(found, before < top_p)
