"""Parallel tempering and SMC on targets with several basins of known weight."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxlab.agents import mcmc
from jaxlab.agents.mcmc import diagnostics
from jaxlab.agents.mcmc.adaptation import equalise_ladder, ladder_rounds
from jaxlab.agents.mcmc.config import Hyper, MCMCConfig, ParallelTemperingConfig, SMCConfig
from jaxlab.agents.mcmc.parallel_tempering import exchange, swap_log_ratio
from jaxlab.core.training import run

WEIGHTS = np.array([0.7, 0.3])
CENTRES = np.array([[-5.0, 0.0], [5.0, 2.0]], np.float32)
SCALES = np.array([1.0, 0.7], np.float32)


def mixture(x):
    """Log density of two round normals far apart, normalised."""
    squares = jnp.sum((x - CENTRES) ** 2, -1) / SCALES**2
    logs = np.log(WEIGHTS / (2 * np.pi * SCALES**2)).astype(np.float32)
    return jax.nn.logsumexp(logs - 0.5 * squares)


PRIOR = 5.0
#: Of the posterior of a normal prior: evidence, and weight, centre and scale by component.
VARIANCES = PRIOR**2 + SCALES**2
LOGS = np.log(WEIGHTS / (2 * np.pi * VARIANCES)) - (CENTRES**2).sum(1) / 2 / VARIANCES
EVIDENCE = np.logaddexp(*LOGS)
POSTERIOR = np.exp(LOGS - EVIDENCE)
SHRINK = PRIOR**2 / VARIANCES


def wide_prior(x):
    return -0.5 * (x[0] ** 2 + x[1] ** 2) / PRIOR**2


def start_right(chains):
    """Positions in the lighter basin alone."""
    noise = np.random.default_rng(0).normal(size=(chains, 2))
    return (CENTRES[1] + SCALES[1] * noise).astype(np.float32)


def left(x):
    return (x[..., 0] < 0).astype(int)


def test_mala_stays_in_its_basin():
    learner = mcmc.make(mixture, MCMCConfig("mala", warmup=500), initial=start_right(24))
    result = run(learner, steps=3000, chunk=500, thin=5, hyper=Hyper(0.3), progress=False)
    x = diagnostics.by_chain(result.records()["chain/position"][100:])
    assert left(x).sum() == 0
    # R-hat sees nothing wrong.
    assert (diagnostics.split_rhat(x) < 1.02).all()


def assert_components(x, tolerance):
    """Centres and scales of both basins of the posterior."""
    for basin, component in ((1, 0), (0, 1)):
        inside = x[left(x) == basin]
        scale = SCALES[component] * np.sqrt(SHRINK[component])
        np.testing.assert_allclose(
            inside.mean(0), CENTRES[component] * SHRINK[component], atol=tolerance
        )
        np.testing.assert_allclose(inside.std(0), scale, atol=tolerance)


@functools.cache
def tempered():
    """A run of parallel tempering on the mixture, from the lighter basin alone."""
    config = ParallelTemperingConfig(
        MCMCConfig("mala", warmup=512), betas=(0.02, 0.03, 0.05, 0.1, 0.3, 1.0)
    )
    learner = mcmc.make_parallel_tempering(
        mixture, config, initial=start_right(24), log_prior=wide_prior
    )
    return run(learner, steps=512 * 8, chunk=512, thin=4, hyper=Hyper(0.3), progress=False)


def test_parallel_tempering_recovers_the_weights():
    result = tempered()
    x = diagnostics.by_chain(result.records()["chain/position"][128:])
    found = diagnostics.basins(x, left(x))
    assert found.changes > 24
    error = 0.5 / np.sqrt(diagnostics.effective_sample_size(left(x)[..., None])[0])
    assert error < 0.02
    assert abs(found.share[1] - POSTERIOR[0]) < 4 * error
    assert_components(x.reshape(-1, 2), 0.08)


def test_the_ladder_is_evened_out_in_the_warmup():
    metrics = tempered().metrics
    ladder, swaps = metrics["betas"][:, 0], metrics["swap_acceptance"][:, 0]
    assert (np.diff(ladder) > 0).all()
    np.testing.assert_array_equal(ladder[:, [0, -1]], np.float32([[0.02, 1.0]] * len(ladder)))
    # Frozen after the warm-up, and then all pairs exchange about equally often.
    np.testing.assert_array_equal(ladder[1:], ladder[1:2].repeat(len(ladder) - 1, 0))
    assert np.ptp(swaps[1:].mean(0)) < 0.15
    trips = metrics["round_trips"][1:].sum() / (24 * 512 * 7)
    bound = diagnostics.round_trip_rate(swaps[1:].mean(0))
    assert 0.3 * bound < trips < 1.1 * bound


def test_every_rung_has_its_own_temperature():
    """On a normal target each rung is a normal of variance `1 / (prior + beta)`."""
    betas = (0.1, 0.3, 1.0)
    config = ParallelTemperingConfig(
        MCMCConfig("random_walk", warmup=0), betas, adapt_ladder=False, record_all=True
    )
    learner = mcmc.make_parallel_tempering(
        lambda x: -0.5 * jnp.sum(x**2) * 2,
        config,
        initial=np.random.default_rng(1).normal(size=(3000, 1)).astype(np.float32),
        log_prior=lambda x: -0.5 * jnp.sum(x**2) * 0.1,
    )
    result = run(learner, steps=60, thin=60, chunk=60, hyper=Hyper(1.5, 0.5), progress=False)
    x = result.records()["chain/replicas"][0, 0, ..., 0]
    for rung, beta in zip(x, betas, strict=True):
        # Beta scales 2 by 0.5 and by the rung.
        assert scipy.stats.kstest(rung * np.sqrt(0.1 + beta), "norm").pvalue > 0.01
    np.testing.assert_array_equal(x[-1], result.records()["chain/position"][0, 0, :, 0])


def test_swaps_alone_keep_the_joint_distribution():
    """With moves too small to matter; a wrong sign or ratio would sort the replicas."""
    betas = np.array([0.25, 0.5, 1.0], np.float32)
    generator = np.random.default_rng(2)
    replicas = generator.normal(size=(3, 20000)).astype(np.float32) / np.sqrt(betas)[:, None]
    before = replicas.copy()
    for t in range(6):
        ratio = swap_log_ratio(jnp.asarray(betas), jnp.asarray(-0.5 * replicas**2))
        offered = (np.arange(2) - t) % 2 == 0
        accepted = offered[:, None] & (generator.uniform(size=ratio.shape) < np.exp(ratio))
        replicas = np.take_along_axis(replicas, np.asarray(exchange(jnp.asarray(accepted))), 0)
    assert (replicas != before).mean() > 0.3
    np.testing.assert_array_equal(np.sort(replicas, axis=None), np.sort(before, axis=None))
    for rung, beta in zip(replicas, betas, strict=True):
        assert scipy.stats.kstest(rung * np.sqrt(beta), "norm").pvalue > 0.01


def test_replicas_that_are_never_refused_go_round_in_order():
    """A flat likelihood: every exchange is accepted, so a trip takes two steps per rung."""
    rungs = 4
    betas = tuple(np.linspace(0.1, 1, rungs))
    learner = mcmc.make_parallel_tempering(
        lambda x: jnp.zeros((), x.dtype),
        ParallelTemperingConfig(MCMCConfig("random_walk", warmup=0, record=False), betas),
        initial=np.zeros((3, 1), np.float32),
        log_prior=lambda x: -0.5 * jnp.sum(x**2),
    )
    state = jax.jit(learner.init)(jax.random.key(0), Hyper(0.5))
    step, seen = jax.jit(learner.step), []
    for t in range(2 * rungs * 3):
        state, metrics = step(state, jnp.int32(t))
        seen.append(np.asarray(state.replica[:, 0]))
        np.testing.assert_array_equal(metrics["swap_acceptance"].value, 1)
    # Even pairs first: the first exchange swaps 0 with 1 and 2 with 3, the next 1 with 2.
    np.testing.assert_array_equal(seen[0], [1, 0, 3, 2])
    np.testing.assert_array_equal(seen[1], [1, 3, 0, 2])
    np.testing.assert_array_equal(seen[2 * rungs - 1], np.arange(rungs))
    # Three turns of each replica; some are still on the way back to the hottest rung.
    trips = int(state.round_trips[0])
    assert 2 * rungs <= trips <= 3 * rungs
    assert diagnostics.round_trip_rate(np.ones(rungs - 1)) == 0.5


def test_parts_stay_those_of_the_positions():
    state = tempered().seed_state()
    x = state.positions.reshape(-1, 2)
    np.testing.assert_array_equal(state.parts.position, x)
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(mixture)))(x)
    # Parts that beta multiplied; what rounding left of them matters as much as beta.
    beta = np.repeat(np.asarray(state.betas), 24)
    error = beta * np.asarray(state.parts.log_likelihood - value)
    np.testing.assert_allclose(error, 0, atol=1e-5)
    error = beta[:, None] * np.asarray(state.parts.likelihood_gradient - gradient)
    np.testing.assert_allclose(error, 0, atol=1e-4)
    np.testing.assert_allclose(state.parts.log_prior, wide_prior(x.T), rtol=1e-5)


def test_equal_refusals_are_a_fixed_point_of_the_ladder():
    betas = jnp.array([0.1, 0.2, 0.5, 1.0])
    np.testing.assert_allclose(equalise_ladder(betas, jnp.full(3, 0.4)), betas, rtol=1e-6)
    # All refusals between the first two: the other rungs move there, evenly in log beta.
    moved = equalise_ladder(betas, jnp.array([0.9, 0.0, 0.0]))
    np.testing.assert_allclose(moved[:3], 0.1 * 2 ** (np.arange(3) / 3), rtol=2e-3)
    assert ladder_rounds(512) == (16, 32, 64, 128, 256)
    assert ladder_rounds(0) == ladder_rounds(20) == ()


@pytest.mark.parametrize("sampler", ["mala", pytest.param("random_walk", marks=pytest.mark.slow)])
def test_smc_finds_weights_and_evidence(sampler):
    """A normal prior times the mixture: weights and evidence are normal densities."""
    start = np.random.default_rng(3).normal(size=(4000, 2), scale=PRIOR).astype(np.float32)
    learner = mcmc.make_smc(
        mixture,
        SMCConfig(MCMCConfig(sampler), moves=6, target_ess=0.8),
        initial=start,
        log_prior=wide_prior,
    )
    result = run(learner, steps=12, chunk=1, thin=1, hyper=Hyper(1.0), progress=False)
    beta, done = (result.metrics[name][:, 0] for name in ("beta", "done"))
    assert done[-1]
    assert beta[-1] == 1
    assert (np.diff(beta) >= 0).all()
    reached = int(np.argmax(done))
    np.testing.assert_allclose(result.metrics["ess"][:reached], 0.8, atol=0.01)
    assert result.metrics["log_evidence"][-1, 0] == pytest.approx(EVIDENCE, abs=0.1)
    # Once done, particles are chains: none is lost, the step is frozen, the evidence too.
    metrics = result.metrics
    assert (metrics["survivors"][reached + 1 :] == 1).all()
    assert np.ptp(metrics["step_size"][reached:]) == np.ptp(metrics["log_evidence"][reached:]) == 0
    assert metrics["acceptance"][-1, 0] == pytest.approx(mcmc.SAMPLERS[sampler], abs=0.1)
    x = result.records()["chain/position"][-1, 0]
    # The moves have told resampled particles apart again.
    assert len(np.unique(x[:, 0])) > 0.99 * len(x)
    share = left(x).mean()
    assert share == pytest.approx(POSTERIOR[0], abs=0.05)
    assert_components(x, 0.12)
