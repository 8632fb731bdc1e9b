"""Schedules, samplers and weights of the diffusion model against closed forms."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import diffusion
from jaxlab.agents.diffusion import learner as learner_
from jaxlab.agents.diffusion import networks, sampling
from jaxlab.core.errors import ConfigError

#: A Gaussian with correlated coordinates: all that a sampler does to it is affine.
MEAN = np.array([0.7, -0.3])
COVARIANCE = np.array([[0.5, 0.2], [0.2, 0.25]])
SAMPLES = 10_000


def gain(alpha_bar):
    """Matrix K of the posterior mean `MEAN + K (x - sqrt(alpha_bar) MEAN)` of the data."""
    noisy = alpha_bar * COVARIANCE + (1 - alpha_bar) * np.eye(2)
    return np.sqrt(alpha_bar) * COVARIANCE @ np.linalg.inv(noisy)


def exact_denoiser(schedule):
    gains = jnp.asarray(np.array([gain(a) for a in schedule.alpha_bar]), jnp.float32)
    means = jnp.asarray(np.sqrt(schedule.alpha_bar)[:, None] * MEAN, jnp.float32)

    def denoise(x, t):
        return jnp.asarray(MEAN, jnp.float32) + (x - means[t]) @ gains[t].T

    return denoise


@functools.cache
def drawn(name, steps, eta):
    """Samples of the exact score in 300 noise levels."""
    schedule = diffusion.make_schedule(name, 300)
    draw = jax.jit(
        lambda key: diffusion.reverse_process(
            exact_denoiser(schedule), schedule, key, (SAMPLES, 2), steps=steps, eta=eta
        )
    )
    return np.asarray(draw(jax.random.key(3)), np.float64)


def ddpm_moments(alpha_bar):
    """Mean and covariance that DDPM ends with, from Ho et al. (2020), eq. 6 and 7."""
    mean, covariance = np.zeros(2), np.eye(2)
    for t in range(len(alpha_bar) - 1, 0, -1):
        now, before = alpha_bar[t], alpha_bar[t - 1]
        alpha, beta = now / before, 1 - now / before
        of_clean = np.sqrt(before) * beta / (1 - now)
        of_noisy = np.sqrt(alpha) * (1 - before) / (1 - now)
        matrix = of_clean * gain(now) + of_noisy * np.eye(2)
        mean = matrix @ mean + of_clean * (MEAN - gain(now) @ MEAN * np.sqrt(now))
        noise = (1 - before) / (1 - now) * beta
        covariance = matrix @ covariance @ matrix.T + noise * np.eye(2)
    return mean, covariance


def ddim_moments(alpha_bar, times, eta):
    """The same for DDIM, from Song et al. (2021), eq. 12 and 16."""
    mean, covariance = np.zeros(2), np.eye(2)
    for t, s in itertools.pairwise(times):
        now, then = alpha_bar[t], alpha_bar[s]
        sigma = eta * np.sqrt((1 - then) / (1 - now)) * np.sqrt(1 - now / then)
        # The noise that the score predicts is (x - sqrt(now) clean) / sqrt(1 - now).
        turn = np.sqrt(1 - then - sigma**2) / np.sqrt(1 - now)
        of_clean = np.sqrt(then) - turn * np.sqrt(now)
        matrix = of_clean * gain(now) + turn * np.eye(2)
        mean = matrix @ mean + of_clean * (MEAN - gain(now) @ MEAN * np.sqrt(now))
        covariance = matrix @ covariance @ matrix.T + sigma**2 * np.eye(2)
    return mean, covariance


def assert_moments(samples, mean, covariance, bias=0.0):
    """Sample moments within five standard errors (those of a Gaussian) and a bias."""
    variance = np.diag(covariance)
    error = 5 * np.sqrt(variance / len(samples))
    assert np.all(np.abs(samples.mean(0) - mean) < error + bias)
    error = 5 * np.sqrt((np.outer(variance, variance) + covariance**2) / len(samples))
    assert np.all(np.abs(np.cov(samples.T) - covariance) < error + bias)


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_ddpm_with_the_exact_score(name):
    samples = drawn(name, 300, 1.0)
    mean, covariance = ddpm_moments(diffusion.make_schedule(name, 300).alpha_bar)
    assert_moments(samples, mean, covariance)
    # The posterior variance is that of known data, so 300 steps lose some: at most 0.018.
    assert_moments(samples, MEAN, COVARIANCE, bias=0.018)


@pytest.mark.parametrize(("eta", "bias"), [(None, 0.026), (0.5, 0.031), (1.0, 0.05)])
def test_ddim_in_fifty_steps_with_the_exact_score(eta, bias):
    """The bias of 50 steps is that of the closed form; it is zero for no number of them."""
    schedule = diffusion.make_schedule("cosine", 300)
    times = list(range(300, -1, -6))
    mean, covariance = ddim_moments(schedule.alpha_bar, times, eta or 0.0)
    samples = drawn("cosine", 50, eta)
    assert_moments(samples, mean, covariance)
    assert_moments(samples, MEAN, COVARIANCE, bias=bias)


def test_ddim_with_full_noise_is_ddpm():
    schedule = diffusion.make_schedule("cosine", 300)
    ours = ddim_moments(schedule.alpha_bar, range(300, -1, -1), 1.0)
    for a, b in zip(ours, ddpm_moments(schedule.alpha_bar), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_cosine_schedule():
    """Nichol and Dhariwal (2021), eq. 17, evaluated apart from this code."""
    kept = diffusion.make_schedule("cosine", 300).alpha_bar
    assert kept.shape == (301,)
    np.testing.assert_allclose(
        kept[[0, 1, 150, 299]],
        [1.0, 0.9998435037204009, 0.49384359044063775, 2.69860780962569e-05],
        rtol=1e-10,
    )
    # The last step is held to 0.999.
    np.testing.assert_allclose(kept[300] / kept[299], 1e-3, rtol=1e-9)
    assert np.all(np.diff(kept) < 0)


def test_linear_schedule():
    """The last value for a thousand steps is the well-known 4.036e-5."""
    kept = diffusion.make_schedule("linear", 1000).alpha_bar
    np.testing.assert_allclose(kept[[1, 1000]], [0.9999, 4.0358e-5], rtol=1e-4)
    direct = math.prod(1 - (1e-4 + (0.02 - 1e-4) * k / 999) for k in range(500))
    np.testing.assert_allclose(kept[500], direct, rtol=1e-10)
    # Shorter ones end in noise as well.
    assert diffusion.make_schedule("linear", 300).alpha_bar[-1] < 5e-5
    assert np.all(diffusion.make_schedule("linear", 10).alpha_bar > 0)


@pytest.mark.parametrize("prediction", ["noise", "velocity"])
def test_noisy_rows_and_back(prediction):
    schedule = diffusion.make_schedule("cosine", 300)
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 4, 3)).astype(np.float32)
    t = jnp.array([1, 100, 200, 299], jnp.int32)
    noisy, target = learner_.noisy_rows(schedule, prediction, jnp.array(x), jnp.array(noise), t)
    kept = schedule.alpha_bar[np.asarray(t)][:, None]
    np.testing.assert_allclose(noisy, np.sqrt(kept) * x + np.sqrt(1 - kept) * noise, atol=1e-6)
    expected = noise if prediction == "noise" else np.sqrt(kept) * noise - np.sqrt(1 - kept) * x
    np.testing.assert_allclose(target, expected, atol=1e-6)
    clean = sampling.to_clean(prediction, schedule, noisy, t, target)
    # Noise at t = 299 hides the data behind a factor of 192, with 32 bits left.
    np.testing.assert_allclose(clean, x, atol=1e-4 if prediction == "noise" else 1e-6)


def test_reward_weights_by_hand():
    reward = jnp.array([0.0, -1.0, -2.0, -math.inf, math.nan], jnp.float32)
    weights, size = diffusion.reward_weights(reward, 1.0, 1.5)
    raw = np.exp([0.0, -1.0, -2.0])
    expected = np.minimum(raw / raw.mean(), 1.5)
    assert expected[0] == 1.5
    np.testing.assert_allclose(weights, [*expected, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(size, expected.sum() ** 2 / (expected**2).sum(), rtol=1e-6)
    assert weights.dtype == size.dtype == jnp.float32


def test_effective_sample_size():
    for weights, size in (([1, 1, 1, 1], 4), ([5, 0, 0, 0], 1), ([2, 2, 0, 0], 2), ([0, 0], 0)):
        found = diffusion.effective_sample_size(jnp.array(weights, jnp.float32))
        np.testing.assert_allclose(found, size, rtol=1e-6)


def test_uniform_weights_and_no_reward_at_all():
    reward = jnp.array([-3.0, 5.0, 1e4], jnp.float32)
    weights, size = diffusion.reward_weights(reward, math.inf)
    np.testing.assert_array_equal(weights, 1)
    np.testing.assert_allclose(size, 3)
    # Rewards of any size do not overflow.
    np.testing.assert_allclose(diffusion.reward_weights(reward, 1e-3)[0], [0, 0, 3])
    weights, size = jax.jit(diffusion.reward_weights)(jnp.full(3, -jnp.inf), 1.0)
    np.testing.assert_array_equal(weights, 0)
    assert size == 0


def test_reward_weights_sharpen_a_density():
    """Weights of temperature tau turn samples of exp(-beta J) into those of beta + 1 / tau."""
    beta, tau = 1.0, 0.5
    samples = np.random.default_rng(1).normal(scale=1 / np.sqrt(beta), size=100_000)
    reward = jnp.asarray(-(samples**2) / 2, jnp.float32)
    weights = np.asarray(diffusion.reward_weights(reward, tau, math.inf)[0])
    variance = np.average(samples**2, weights=weights)
    # Relative error of a variance from 1e5 samples is sqrt(2 / 1e5), and the weights halve them.
    np.testing.assert_allclose(variance, 1 / (beta + 1 / tau), rtol=5 * np.sqrt(4 / 1e5))


SMALL = diffusion.DiffusionConfig(
    shape=(2,), conditions=1, width=16, depth=1, embedding=8, timesteps=20, batch_size=8
)


@functools.cache
def untrained(config=SMALL):
    """A model whose last layer is not zero, so that conditions matter."""
    params = jax.jit(functools.partial(networks.init_params, config))(jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    zeros, ones = jnp.zeros, jnp.ones
    shapes = (config.shape, (config.conditions,))
    scaling = diffusion.Scaling(
        zeros(shapes[0]), ones(shapes[0]), zeros(shapes[1]), ones(shapes[1])
    )
    return diffusion.Model(jax.tree.unflatten(tree, noisy), scaling)


def test_guidance_scale():
    """0 does not look at the condition, 1 is the plain conditional model, both exactly."""
    model, key = untrained(), jax.random.key(2)
    draw = functools.partial(diffusion.sample, SMALL, model, key, 4)
    one, other = jnp.array([1.0]), jnp.array([-2.0])
    np.testing.assert_array_equal(draw(one, guidance=0.0), draw(other, guidance=0.0))
    assert np.abs(draw(one) - draw(other)).max() > 1e-3
    # Traced, it runs both passes and must arrive at the same numbers.
    np.testing.assert_allclose(draw(one, guidance=jnp.ones(())), draw(one), atol=1e-4)


def test_guidance_is_affine_in_the_scale():
    model = untrained()
    schedule = diffusion.make_schedule(SMALL.schedule, SMALL.timesteps)
    x, cond = jnp.array([[0.3, -0.2]], jnp.float32), jnp.ones((1, 1), jnp.float32)
    t = jnp.full((), 5, jnp.int32)
    values = [
        sampling.denoiser(SMALL, schedule, model, cond, jnp.asarray(scale, jnp.float32))(x, t)
        for scale in (0.0, 1.0, 3.0)
    ]
    assert np.abs(values[1] - values[0]).max() > 1e-3
    np.testing.assert_allclose(values[2], values[0] + 3 * (values[1] - values[0]), atol=1e-5)
    given = networks.predict(SMALL, model.params, x, t[None], cond, jnp.array([True]))
    null = networks.predict(SMALL, model.params, x, t[None], cond, jnp.array([False]))
    for out, value in ((null, values[0]), (given, values[1])):
        clean = sampling.to_clean("velocity", schedule, x, t[None], out)
        np.testing.assert_allclose(value, clean, atol=1e-5)


def test_samples_are_clipped_in_scaled_units_and_returned_in_their_own():
    scaled = diffusion.Scaling(
        jnp.array([10.0, 0.0]), jnp.array([2.0, 1.0]), jnp.zeros(1), jnp.ones(1)
    )
    config = diffusion.DiffusionConfig(**(vars(SMALL) | {"clip": 0.01}))
    model = untrained().replace(scaling=scaled)
    samples = diffusion.sample(config, model, jax.random.key(0), 16, jnp.ones(1), steps=20)
    # The last step returns the predicted data themselves.
    assert np.all(np.abs((samples - scaled.shift) / scaled.scale) <= 0.01 + 1e-6)


def test_same_key_same_samples_and_one_compilation():
    model, cond = untrained(), jnp.ones(1)
    draw = functools.partial(diffusion.sample, SMALL, model)
    first = draw(jax.random.key(0), 4, cond, method="ddpm")
    compiled = sampling._sample._cache_size()
    np.testing.assert_array_equal(draw(jax.random.key(0), 4, cond, method="ddpm"), first)
    assert np.abs(draw(jax.random.key(1), 4, 2 * cond, method="ddpm") - first).min() > 0
    assert sampling._sample._cache_size() == compiled
    assert first.dtype == jnp.float32
    # Each sample has noise of its own.
    assert len(np.unique(first[:, 0])) == 4


def test_sample_can_be_traced():
    def mean(model, key, guidance, eta):
        samples = diffusion.sample(SMALL, model, key, 4, jnp.ones(1), guidance=guidance, eta=eta)
        return jnp.mean(samples)

    model, key = untrained(), jax.random.key(0)
    value = jax.jit(mean)(model, key, 2.0, 0.5)
    np.testing.assert_allclose(value, mean(model, key, 2.0, 0.5), atol=1e-5)
    text = str(jax.make_jaxpr(mean)(model, key, 2.0, 0.5))
    assert text.count("scan[") == 1
    assert "callback" not in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 21}, "steps is 21, expected 1 to 20"),
        ({"steps": 0}, "steps is 0, expected 1 to 20"),
        ({"method": "euler"}, "method is 'euler', expected one of ddpm, ddim"),
        ({"method": "ddpm", "eta": 0.5}, "ddpm fixes the noise"),
        ({"eta": 1.5}, "eta is 1.5, expected a number from 0 to 1"),
        ({"cond": None}, r"cond is missing, expected \[1\] or \[4, 1\]"),
        ({"cond": np.zeros((3, 1))}, r"cond has shape \(3, 1\), expected \[1\] or \[4, 1\]"),
        ({"n": 0}, "n is 0"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"n": 4, "cond": np.zeros(1)} | changes
    with pytest.raises(ConfigError, match=message):
        diffusion.sample(SMALL, untrained(), jax.random.key(0), **arguments)


def test_models_of_another_shape_are_refused():
    other = diffusion.DiffusionConfig(**(vars(SMALL) | {"shape": (3,)}))
    with pytest.raises(ConfigError, match=r"\(2,\) and \(1,\), the configuration says \(3,\)"):
        diffusion.sample(other, untrained(), jax.random.key(0), 4, np.zeros(1))
    without = diffusion.DiffusionConfig(**(vars(SMALL) | {"conditions": 0}))
    with pytest.raises(ConfigError, match="no conditions to be guided by"):
        diffusion.sample(without, untrained(without), jax.random.key(0), 4, guidance=2.0)


def test_bad_schedules_and_weights_are_refused():
    with pytest.raises(ConfigError, match="schedule is 'sigmoid', expected one of cosine, linear"):
        diffusion.make_schedule("sigmoid", 10)
    with pytest.raises(ConfigError, match="timesteps is 1"):
        diffusion.make_schedule("cosine", 1)
    for arguments, message in (((0.0,), "temperature is 0.0"), ((1.0, -1.0), "clip is -1.0")):
        with pytest.raises(ConfigError, match=message):
            diffusion.reward_weights(jnp.zeros(2), *arguments)
