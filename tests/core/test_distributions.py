"""Masked categorical distributions and the straight-through Gumbel-softmax sample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core import distributions

LOGITS = (0.3, -1.0, 2.0, 0.5)
MASK = (True, True, False, True)


def arrays(dtype=jnp.float32):
    return jnp.array(LOGITS, dtype), jnp.array(MASK)


def masked_softmax():
    weights = np.where(MASK, np.exp(LOGITS), 0)
    return weights / weights.sum()


def test_masked_categorical_matches_closed_form():
    policy = distributions.masked_categorical(*arrays())
    p = masked_softmax()
    np.testing.assert_allclose(policy.probs, p, rtol=1e-6)
    assert policy.probs[2] == 0
    legal = p[p > 0]
    np.testing.assert_allclose(policy.entropy(), -(legal * np.log(legal)).sum(), rtol=1e-6)
    assert policy.mode() == 3


def test_entropy_gradient_is_finite_and_vanishes_on_illegal_logits():
    logits, mask = arrays()
    gradient = jax.grad(lambda x: distributions.masked_categorical(x, mask).entropy())(logits)
    assert np.all(np.isfinite(gradient))
    assert gradient[2] == 0
    assert np.all(gradient[np.array(MASK)] != 0)


def frequencies(draw, count=20_000):
    samples = jax.vmap(draw)(jax.random.split(jax.random.key(1), count))
    return np.asarray(samples, float).mean(0)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0])
def test_straight_through_samples_the_categorical_at_any_temperature(temperature):
    logits, mask = arrays()
    measured = frequencies(
        lambda key: distributions.straight_through_gumbel_softmax(key, logits, mask, temperature)
    )
    # Four standard deviations of a binomial share of 20,000 draws.
    np.testing.assert_allclose(measured, masked_softmax(), atol=4 * 0.5 / 20_000**0.5)
    assert measured[2] == 0


def test_perturbed_argmax_samples_the_categorical():
    logits, mask = arrays()
    measured = frequencies(
        lambda key: jax.nn.one_hot(distributions.perturbed_argmax(key, logits, mask), 4)
    )
    np.testing.assert_allclose(measured, masked_softmax(), atol=4 * 0.5 / 20_000**0.5)


def test_perturbed_argmax_without_noise_is_the_legal_mode():
    logits, mask = arrays()
    for seed in range(20):
        assert distributions.perturbed_argmax(jax.random.key(seed), logits, mask, 0.0) == 3


def test_noise_is_drawn_for_every_sample():
    logits = jnp.zeros((64, 4), jnp.float32)
    sample = distributions.straight_through_gumbel_softmax(
        jax.random.key(0), logits, jnp.ones((64, 4), bool)
    )
    assert len(np.unique(np.argmax(sample, -1))) == 4


def test_straight_through_gradient_is_that_of_the_tempered_softmax():
    logits, mask = arrays()
    key, temperature = jax.random.key(3), 0.7
    weights = jnp.array([1.0, -2.0, 100.0, 0.5])

    def straight_through(x):
        sample = distributions.straight_through_gumbel_softmax(key, x, mask, temperature)
        return jnp.sum(weights * sample)

    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    y = np.asarray(jax.nn.softmax(jnp.where(mask, (logits + noise) / temperature, -jnp.inf)))
    jacobian = (np.diag(y) - np.outer(y, y)) / temperature
    gradient = jax.grad(straight_through)(logits)
    np.testing.assert_allclose(gradient, jacobian @ np.asarray(weights), rtol=1e-5, atol=1e-6)
    assert gradient[2] == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-50, 50, width=32), min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([0.05, 1.0, 20.0]),
    st.integers(0, 2**31 - 1),
)
def test_samples_are_one_hot_and_legal(logits, legal, temperature, seed):
    mask = np.array(legal)
    key = jax.random.key(seed)

    def sample(x):
        return distributions.straight_through_gumbel_softmax(key, x, jnp.asarray(mask), temperature)

    x = jnp.array(logits, jnp.float32)
    value, pullback = jax.vjp(sample, x)
    assert sorted(np.asarray(value)) == [0, 0, 0, 0, 1]
    assert np.all(np.isfinite(pullback(jnp.arange(5, dtype=jnp.float32))[0]))
    if mask.any():
        assert mask[np.argmax(value)]
        assert mask[distributions.perturbed_argmax(key, x, jnp.asarray(mask))]
    else:
        assert np.argmax(value) == 0


def test_centred_logits_have_mean_zero_over_legal_actions():
    logits, mask = arrays()
    centred = np.asarray(distributions.centre_logits(logits, mask))
    legal = np.array(LOGITS)[np.array(MASK)]
    np.testing.assert_allclose(centred[np.array(MASK)], legal - legal.mean(), rtol=1e-6)
    assert centred[2] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_follows_the_logits(dtype):
    with jax.enable_x64(dtype == "float64"):
        logits, mask = arrays(dtype)
        key = jax.random.key(0)
        sample = distributions.straight_through_gumbel_softmax(key, logits, mask, 0.5)
        assert sample.dtype == dtype
        assert not sample.weak_type
        assert distributions.centre_logits(logits, mask).dtype == dtype
        assert distributions.perturbed_argmax(key, logits, mask).dtype == jnp.int32
        assert distributions.masked_categorical(logits, mask).probs.dtype == dtype
