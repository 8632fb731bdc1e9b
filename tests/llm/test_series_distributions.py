"""Distributions over numbers, entropies, and scores of series under teacher forcing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError, PromptError
from jaxlab.llm import config as configs
from jaxlab.llm.decoder import Decoder, decode_steps, random_weights
from jaxlab.llm.sampling import sampling
from jaxlab.llm.value_distributions import (
    entropies,
    hierarchy_pdf,
    score_series,
    value_distribution,
)
from tests.llm import checkpoints
from tests.llm.test_series import CODECS

VOCAB = {kind: codec.vocab_size + 3 for kind, codec in CODECS.items()}


@pytest.fixture(scope="module", params=sorted(CODECS))
def small(request):
    """A random decoder with its codec; the embedding has three spare rows."""
    settings = checkpoints.SETTINGS["smollm2"] | {
        "vocab_size": VOCAB[request.param],
        "max_position_embeddings": 96,
        "num_hidden_layers": 2,
    }
    config = configs.from_huggingface(settings)
    return Decoder(config, random_weights(jax.random.key(0), config, 0.5)), CODECS[request.param]


def test_the_tree_of_digits_is_a_distribution():
    keys = jax.random.split(jax.random.key(0), 3)
    levels = [3 * jax.random.normal(k, (2, *[10] * (d + 1))) for d, k in enumerate(keys)]
    pdf = hierarchy_pdf(levels)
    assert pdf.shape == (2, 1000)
    np.testing.assert_allclose(pdf.sum(-1), 1, rtol=1e-6)
    a, b, c = (jax.nn.softmax(level[1], axis=-1) for level in levels)
    np.testing.assert_allclose(pdf[1, 427], a[4] * b[4, 2] * c[4, 2, 7], rtol=1e-5)
    np.testing.assert_allclose(hierarchy_pdf([jnp.zeros(1000)]), 1e-3, rtol=1e-5)
    with pytest.raises(ConfigError, match="level 1"):
        hierarchy_pdf([jnp.zeros(10), jnp.zeros(10)])


def test_entropy_of_the_tree_is_that_of_its_digits():
    """H(number) is the sum over the tree of the digits' entropies by how likely their node is."""
    levels = [jax.random.normal(jax.random.key(d), [10] * (d + 1)) for d in range(2)]
    pdf = hierarchy_pdf(levels)
    first, second = (jax.nn.softmax(level, axis=-1) for level in levels)
    digits = -(first * jnp.log(first)).sum()
    digits += (first * -(second * jnp.log(second)).sum(-1)).sum()
    np.testing.assert_allclose(-(pdf * jnp.log(pdf)).sum(), digits, rtol=1e-5)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_uniform_logits_have_the_entropy_of_their_number(k):
    logits, allowed = jnp.zeros((2, 40)), jnp.arange(40) < k
    found = entropies(logits, allowed, sampling(temperature=0.6))
    np.testing.assert_allclose(found.raw, np.log(40), rtol=1e-6)
    np.testing.assert_allclose(found.allowed, np.log(k), atol=1e-6)
    np.testing.assert_allclose(found.processed, np.log(k), atol=1e-6)
    if k == 10:
        kept = jnp.asarray(np.where(np.arange(40) < 4, 5.0, 0.0), jnp.float32)
        found = entropies(kept, allowed, sampling(temperature=0.6, top_k=4))
        np.testing.assert_allclose(found.processed, np.log(4), rtol=1e-6)


def test_walking_the_tree_agrees_with_scores_of_whole_series(small):
    """The distribution after a prompt gives the likelihood that teacher forcing finds."""
    decoder, codec = small
    numbers = np.array([[[123, 456], [789, 12]]], np.int32)
    scores = score_series(decoder, codec, jnp.asarray(numbers), sampling(temperature=0.0))
    prompt = codec.encode(jnp.asarray(numbers[0]))
    steps = decode_steps(decoder)
    for row, column in ((0, 1), (1, 0), (1, 1)):
        place = (2 * row + column) * codec.stride
        pdf = value_distribution(decoder, steps, codec.numbers, prompt[:place])
        np.testing.assert_allclose(pdf.sum(), 1, rtol=1e-5)
        expected = np.log(pdf[numbers[0, row, column]])
        np.testing.assert_allclose(scores.log_prob[0, row, column], expected, rtol=1e-3)


def test_scores_of_series(small):
    decoder, codec = small
    numbers = np.random.RandomState(0).randint(0, 999, size=(2, 3, 2)).astype(np.int32)
    options = sampling(temperature=1.0)
    scores = score_series(decoder, codec, jnp.asarray(numbers), options)
    assert scores.log_prob.shape == (2, 3, 2)
    assert np.isnan(scores.log_prob[:, 0, 0]).all()
    seen = np.ones((3, 2), bool)
    seen[0, 0] = False
    for values in (scores.log_prob, scores.entropy.raw, scores.number_mass):
        assert np.isfinite(np.asarray(values)[:, seen]).all()
    np.testing.assert_allclose(
        np.asarray(scores.entropy.allowed)[:, seen], np.asarray(scores.entropy.processed)[:, seen]
    )
    # By hand, from the logits of the decoder.
    tokens = codec.encode(jnp.asarray(numbers[1]))
    logits = decoder(tokens[None])[0]
    place = 3 * codec.stride
    before = logits[place - 1 : place - 1 + codec.numbers.width]
    log_prob, entropy = codec.numbers.score(before, jnp.asarray(numbers[1, 1, 1]))
    np.testing.assert_allclose(scores.log_prob[1, 1, 1], log_prob, rtol=1e-4)
    np.testing.assert_allclose(scores.entropy.allowed[1, 1, 1], entropy, rtol=1e-4)
    separator = jax.nn.softmax(logits[place + codec.numbers.width - 1])[codec.time]
    np.testing.assert_allclose(scores.separator_mass[1, 1, 1], separator, rtol=1e-4)


def test_what_does_not_fit_is_refused(small):
    decoder, codec = small
    with pytest.raises(PromptError, match="holds 96"):
        score_series(decoder, codec, jnp.zeros((1, 30, 4), jnp.int32), sampling())
    with pytest.raises(PromptError, match="holds 96"):
        value_distribution(decoder, decode_steps(decoder), codec.numbers, np.zeros(96, np.int32))
