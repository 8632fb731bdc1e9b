"""Samplers on targets whose moments are known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxlab.agents import mcmc
from jaxlab.agents.mcmc import diagnostics, kernels
from jaxlab.agents.mcmc.config import Hyper, MCMCConfig
from jaxlab.agents.mcmc.target import Problem, flatten
from jaxlab.core.training import run

MEAN = np.array([1.0, -2.0, 0.5], np.float32)
COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 2.0, 0.3], [0.0, 0.3, 0.5]], np.float32)
PRECISION = np.linalg.inv(COVARIANCE).astype(np.float32)


def gaussian(x):
    centred = x - MEAN
    return -0.5 * centred @ PRECISION @ centred


def samples(learner, steps, skip, hyper):
    """Samples `[chains, draws, dim]` after `skip` steps, and the run."""
    result = run(learner, steps=steps, hyper=hyper, chunk=skip, progress=False)
    record = result.records()
    return diagnostics.by_chain(record["chain/position"][record["step"] > skip]), result


def assert_moments(x, mean, covariance, errors=5.0):
    """Mean and covariance within so many standard errors, by the effective sample size."""
    centred = x - mean
    products = centred[..., :, None] * centred[..., None, :]
    dim = x.shape[-1]
    for values, expected in ((x, mean), (products.reshape(*x.shape[:2], -1), covariance.ravel())):
        error = values.std((0, 1)) / np.sqrt(diagnostics.effective_sample_size(values))
        deviation = np.abs(values.mean((0, 1)) - expected) / error
        assert (deviation < errors).all(), (dim, deviation)


@pytest.mark.parametrize(
    ("sampler", "metric", "step_size", "steps", "gradients"),
    [
        ("random_walk", None, 1.0, 8000, 0),
        ("mala", None, 0.1, 4000, 1),
        ("preconditioned_mala", "local", 0.5, 2000, 1),
        ("barker", "constant", 1.0, 4000, 1),
        ("hmc", "diagonal", 0.3, 2000, 3),
        ("nuts", None, 0.3, 1000, None),
    ],
)
def test_gaussian_moments_and_rhat(sampler, metric, step_size, steps, gradients):
    """From far away; half the density is prior, and a beta of 1/2 multiplies the rest."""
    metric = {
        None: None,
        "constant": PRECISION,
        "diagonal": np.diag(PRECISION),
        # Depends on the position although the target asks for none.
        "local": lambda x, beta: PRECISION * (1 + jax.nn.sigmoid(x[0])),
    }[metric]
    learner = mcmc.make(
        gaussian,
        MCMCConfig(sampler, warmup=200, leapfrog_steps=3, max_doublings=4),
        initial=np.random.default_rng(0).normal(size=(16, 3), scale=3.0).astype(np.float32),
        log_prior=lambda x: 0.5 * gaussian(x),
        metric=metric,
    )
    x, result = samples(learner, 200 + steps, 200, Hyper(step_size, 0.5))
    assert_moments(x, MEAN, COVARIANCE)
    assert (diagnostics.split_rhat(x) < 1.01).all()
    metrics, state = {name: m[1:] for name, m in result.metrics.items()}, result.seed_state()
    assert metrics["acceptance"].mean() == pytest.approx(mcmc.SAMPLERS[sampler], abs=0.15)
    # Frozen since the warm-up.
    assert np.ptp(metrics["step_size"]) == 0
    np.testing.assert_allclose(state.step_size, np.exp(state.averaging.log_step_size_avg), 1e-6)
    # What is cached belongs to the positions.
    centred = np.asarray(state.positions) - MEAN
    np.testing.assert_allclose(
        state.log_density, -0.5 * np.sum(centred @ PRECISION * centred, -1), rtol=1e-4, atol=1e-5
    )
    if sampler != "random_walk":
        np.testing.assert_allclose(state.gradient, -centred @ PRECISION, rtol=1e-3, atol=1e-4)
    # Costs.
    total, chunk = np.asarray(state.gradients), 16 * 200
    assert (metrics["evaluations"] == (chunk if sampler == "random_walk" else 0)).all()
    assert metrics["gradients"].sum() + result.metrics["gradients"][0] == total.sum()
    if gradients is None:
        assert (metrics["gradients"] <= 16 * metrics["gradient_batches"]).all()
        assert (total >= 200 + steps).all()
    else:
        assert (metrics["gradients"] == gradients * chunk).all()
        assert (metrics["gradient_batches"] == gradients * 200).all()


BEND, WIDTH = 0.4, 1.5


def banana(x):
    """`x = (a, b + BEND (a^2 - WIDTH^2))` with normal a (deviation WIDTH) and b (1)."""
    b = x[1] - BEND * (x[0] ** 2 - WIDTH**2)
    return -0.5 * (x[0] / WIDTH) ** 2 - 0.5 * b**2


def test_banana_moments():
    start = np.random.default_rng(1).normal(size=(16, 2)).astype(np.float32)
    learner = mcmc.make(banana, MCMCConfig("hmc", 200, 0.85, leapfrog_steps=7), initial=start)
    x, _ = samples(learner, 3200, 200, Hyper(0.2))
    # E a^2 = 4, E x1^2 = 1 + 2 BEND^2 WIDTH^4, and E a x1 = 0: moments of a normal.
    assert_moments(x, np.zeros(2), np.diag([WIDTH**2, 1 + 2 * BEND**2 * WIDTH**4]))
    assert (diagnostics.split_rhat(x) < 1.01).all()
    a, b = x[..., 0], x[..., 1] - BEND * (x[..., 0] ** 2 - WIDTH**2)
    assert_moments(np.stack([a, b], -1), np.zeros(2), np.diag([WIDTH**2, 1.0]))


def funnel(position):
    """Neal 2003: `v ~ N(0, 9)`, `x_i ~ N(0, exp(v))`."""
    v, x = position["v"], position["x"]
    return -(v**2) / 18 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * len(x) * v


def funnel_metric(position, beta):
    """Fisher's information of the funnel."""
    v, x = position["v"], position["x"]
    return jnp.diag(jnp.concatenate([1 / 9 + len(x) / 2 + 0 * v[None], jnp.exp(-v) + 0 * x]))


def test_funnel_stays_what_it_is():
    """Chains that start at draws from the funnel are draws from it at every later time."""
    generator = np.random.default_rng(2)
    v = generator.normal(size=4096, scale=3).astype(np.float32)
    x = generator.normal(size=(4096, 2)).astype(np.float32) * np.exp(v / 2)[:, None]
    learner = mcmc.make(
        funnel,
        MCMCConfig("preconditioned_mala", warmup=0),
        initial={"v": v, "x": x},
        metric=funnel_metric,
    )
    result = run(learner, steps=40, thin=40, hyper=Hyper(0.4), chunk=40, progress=False)
    assert result.metrics["acceptance"].mean() > 0.3
    now = {name: result.records()[f"chain/position/{name}"][0, 0] for name in ("v", "x")}
    noise = now["x"] / np.exp(now["v"] / 2)[:, None]
    assert (now["v"] != v).mean() > 0.9
    assert scipy.stats.kstest(now["v"] / 3, "norm").pvalue > 0.01
    assert scipy.stats.kstest(noise.ravel(), "norm").pvalue > 0.01
    # Independent of v: a wrong ratio would favour one end of the funnel.
    assert abs(np.corrcoef(now["v"], (noise**2).sum(1))[0, 1]) < 4 / np.sqrt(4096)


def test_metric_far_from_the_target_does_not_change_it():
    """On a standard normal, with a metric that varies by orders of magnitude."""
    start = np.random.default_rng(3).normal(size=(20000, 1)).astype(np.float32)
    learner = mcmc.make(
        lambda x: -0.5 * jnp.sum(x**2),
        MCMCConfig("preconditioned_mala", warmup=0),
        initial=start,
        metric=lambda x, beta: jnp.exp(1.5 * x)[:, None],
    )
    result = run(learner, steps=30, thin=30, hyper=Hyper(0.5), chunk=30, progress=False)
    now = result.records()["chain/position"][0, 0, :, 0]
    assert 0.2 < result.metrics["acceptance"].mean() < 0.95
    assert scipy.stats.kstest(now, "norm").pvalue > 0.01


def test_simulation_based_calibration():
    """Ranks of the parameter that made the data are uniform among the posterior's draws.

    Talts et al. 2018. Two parameters with a correlated normal prior; five data of each
    through a nonlinear mean.
    """
    replicates, draws, thin, warmup = 512, 63, 6, 100

    def prior(theta):
        return -0.5 * jnp.sum(theta**2) - 0.3 * theta[0] * theta[1]

    def replicate(key):
        prior_key, data_key, chain_key = jax.random.split(key, 3)
        factor = np.linalg.cholesky(np.linalg.inv(np.array([[1.0, 0.3], [0.3, 1.0]])))
        theta = jnp.asarray(factor, jnp.float32) @ jax.random.normal(prior_key, (2,))

        def predict(theta):
            return jnp.array([theta[0] + theta[1], jnp.sinh(theta[0])])

        data = predict(theta) + jax.random.normal(data_key, (5, 2))
        learner = mcmc.make(
            lambda theta: -0.5 * jnp.sum((data - predict(theta)) ** 2),
            MCMCConfig("mala", warmup=warmup),
            initial=lambda key: jax.random.normal(key, (1, 2)),
            log_prior=prior,
        )

        def step(state, t):
            state, _ = learner.step(state, t)
            return state, state.positions[0]

        state = learner.init(chain_key, Hyper(0.1))
        _, chain = jax.lax.scan(step, state, jnp.arange(warmup + draws * thin))
        kept = chain[warmup + thin - 1 :: thin]
        return jnp.sum(kept < theta, axis=0)

    ranks = jax.jit(jax.vmap(replicate))(jax.random.split(jax.random.key(4), replicates))
    for parameter in np.asarray(ranks).T:
        counts = np.bincount(parameter // 4, minlength=16)
        assert scipy.stats.chisquare(counts).pvalue > 0.01, counts


def move(config, metric, step_size, positions, key):
    """One transition of each chain on the Gaussian target, from closed forms."""
    problem = Problem(gaussian, metric=metric)
    kernel = kernels.build(config, problem, flatten(problem, positions))
    centred = positions - MEAN
    factor = np.zeros((len(positions), 0, 0), np.float32)
    if callable(metric):
        factor = np.broadcast_to(np.linalg.cholesky(metric(None, 1.0)), (len(positions), 3, 3))
    chains = kernels.Chain(
        positions, -0.5 * np.sum(centred @ PRECISION * centred, -1), -centred @ PRECISION, factor
    )
    step = np.full(len(positions), step_size, np.float32)
    advance = jax.jit(lambda *args: kernels.advance(kernel, *args))
    chains = jax.tree.map(jnp.asarray, chains)
    return advance(key, chains, jnp.asarray(step), jnp.ones_like(step))


def assert_same_moves(one, other, tolerance):
    for a, b in zip(jax.tree.leaves(one.chain[:3]), jax.tree.leaves(other.chain[:3]), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)
    np.testing.assert_allclose(one.acceptance, other.acceptance, atol=tolerance)
    np.testing.assert_array_equal(one.moved, other.moved)
    # Both outcomes occurred.
    assert 0.05 < one.moved.mean() < 0.95


POSITIONS = np.random.default_rng(5).normal(size=(400, 3)).astype(np.float32)


def test_mala_is_hmc_of_one_leapfrog_step():
    """Same noise, same proposal, same acceptance: Neal 2011, section 5.2, eps = sqrt(2 h)."""
    config = MCMCConfig("hmc", leapfrog_steps=1)
    one = move(MCMCConfig("mala"), None, 0.5, POSITIONS, jax.random.key(6))
    other = move(config, None, 1.0, POSITIONS, jax.random.key(6))
    assert_same_moves(one, other, 2e-5)


def test_constant_metric_is_a_change_of_coordinates_or_a_local_metric():
    """MALA in the coordinates of a metric, and our own kernel, draw the same chains."""
    config = MCMCConfig("preconditioned_mala")
    one = move(config, PRECISION, 1.2, POSITIONS, jax.random.key(8))
    other = move(config, lambda x, beta: PRECISION, 1.2, POSITIONS, jax.random.key(8))
    assert_same_moves(one, other, 1e-4)
    # A chain that stays keeps its bits, on the way to other coordinates and back too.
    stayed = ~np.asarray(one.moved)
    np.testing.assert_array_equal(one.chain.position[stayed], POSITIONS[stayed])
