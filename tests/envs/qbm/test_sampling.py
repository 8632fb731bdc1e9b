"""Samples against exact probabilities, and gradients from them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from jaxlab.core.errors import ConfigError
from jaxlab.envs.qbm import datasets, restricted, sampling
from jaxlab.envs.qbm.restricted import RestrictedModel
from tests.envs.qbm import oracles

MODEL = RestrictedModel(4, 2, "XYZ")
THETA = oracles.parameters(MODEL.size)
COUNT = 4096


def counts(spins):
    numbers = (np.asarray(spins) < 0) @ (1 << np.arange(3, -1, -1))
    return np.bincount(numbers, minlength=16)


@functools.cache
def sweeps(block, times):
    def run(key, spins, theta):
        def sweep(n, state):
            return sampling.gibbs_sweep(
                jax.random.fold_in(key, n), state, theta, MODEL, block=block
            )

        return jax.lax.fori_loop(0, times, sweep, spins)

    return jax.jit(run)


@settings(max_examples=8)
@given(st.integers(0, 2**31 - 1), st.floats(0, 3))
def test_exact_draws_have_the_model_s_probabilities(seed, scale):
    theta = scale * THETA
    spins = sampling.sample_spins(jax.random.key(seed), theta, MODEL, COUNT)
    expected = COUNT * np.asarray(restricted.probabilities(theta, MODEL))
    kept = expected > 1
    rest = [counts(spins)[~kept].sum(), expected[~kept].sum()]
    found = (
        np.append(counts(spins)[kept], rest[0] + 1e-9),
        np.append(expected[kept], rest[1] + 1e-9),
    )
    assert chisquare(*found, sum_check=False).pvalue > 1e-5


@pytest.mark.parametrize("block", [1, 3])
def test_sweeps_lead_to_the_model_s_probabilities(block):
    key = jax.random.key(1)
    spins = sampling.random_spins(key, MODEL, COUNT)
    assert chisquare(counts(spins)).pvalue > 1e-4
    spins = sweeps(block, 30)(key, spins, THETA)
    expected = COUNT * np.asarray(restricted.probabilities(THETA, MODEL))
    assert chisquare(counts(spins), expected).pvalue > 1e-4
    # Not by chance: the uniform distribution is far.
    assert chisquare(counts(spins)).pvalue < 1e-10


def test_a_sweep_leaves_the_distribution_alone():
    key = jax.random.key(2)
    spins = sampling.sample_spins(key, THETA, MODEL, COUNT)
    spins = sweeps(2, 1)(jax.random.fold_in(key, 1), spins, THETA)
    expected = COUNT * np.asarray(restricted.probabilities(THETA, MODEL))
    assert chisquare(counts(spins), expected).pvalue > 1e-4


def test_blocks_are_checked():
    spins = jnp.ones((2, 4))
    for block in (0, 5):
        with pytest.raises(ConfigError, match="expected 1 to 4"):
            sampling.gibbs_sweep(jax.random.key(0), spins, THETA, MODEL, block=block)


def test_the_estimated_gradient_is_without_bias():
    target = datasets.random_strings(4, 6, seed=1)
    data = 1.0 - 2 * datasets.bits_of(4)[target > 0], target[target > 0]
    key = jax.random.key(3)
    chains = sampling.sample_spins(key, THETA, MODEL, 20_000)
    moved, gradient = sampling.persistent_contrast(key, chains, THETA, MODEL, *data)
    assert moved.shape == chains.shape
    found = restricted.evaluate(THETA, MODEL, target)
    exact = found.moments - found.target_moments
    # Features are at most 1, so means of 20 000 differ by a few times 1 / sqrt(20 000).
    assert np.abs(gradient - exact).max() < 4.5 / np.sqrt(20_000)
    assert np.abs(exact).max() > 0.3


def test_many_visible_units_are_sampled():
    model = RestrictedModel(40, 3, "XZ")
    theta = np.zeros(model.size)
    theta[:40] = np.linspace(-2, 2, 40)
    # Without couplings spins are independent, with means tanh(a).
    spins = sampling.random_spins(jax.random.key(4), model, 2000)
    spins = sampling.gibbs_sweep(jax.random.key(5), spins, theta, model)
    np.testing.assert_allclose(spins.mean(0), np.tanh(theta[:40]), atol=4.5 / np.sqrt(2000))
