"""What one step of the samplers does: contract, adaptation, batches, precision, bad input."""

import dataclasses
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import mcmc
from jaxlab.agents.mcmc import (
    Hyper,
    MCMCConfig,
    ParallelTemperingConfig,
    SMCConfig,
)
from jaxlab.core.errors import ConfigError
from jaxlab.core.testing import check_learner
from jaxlab.core.training import run

START = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
SCALE = np.array([1.0, 4.0], np.float32)


def normal(x):
    return -0.5 * jnp.sum(x**2 / SCALE)


def wide_prior(x):
    return -0.05 * jnp.sum(x**2)


def local_metric(x, beta):
    return jnp.diag(1 + x**2)


LEARNERS = {
    **{
        name: lambda start=START, name=name: mcmc.make(
            normal,
            MCMCConfig(name, warmup=2, leapfrog_steps=3, max_doublings=3),
            initial=start,
            metric=np.eye(2) if name == "preconditioned_mala" else None,
        )
        for name in mcmc.SAMPLERS
    },
    "local_metric": lambda start=START: mcmc.make(
        normal, MCMCConfig("preconditioned_mala"), initial=start, metric=local_metric
    ),
    "parallel_tempering": lambda start=START: mcmc.make_parallel_tempering(
        normal,
        ParallelTemperingConfig(MCMCConfig(warmup=64), betas=(0.1, 0.4, 1.0)),
        initial=start,
        log_prior=wide_prior,
    ),
    "smc": lambda start=START: mcmc.make_smc(
        normal, SMCConfig(MCMCConfig(), moves=2), initial=start, log_prior=wide_prior
    ),
}


def advance(learner, steps, hyper=None, state=None, start=0):
    """State and stacked metrics after some steps."""
    step = jax.jit(learner.step)
    if state is None:
        state = jax.jit(learner.init)(jax.random.key(0), Hyper(0.3) if hyper is None else hyper)
    metrics = []
    for t in range(start, start + steps):
        state, measured = step(state, jnp.int32(t))
        metrics.append(measured)
    assert step._cache_size() == 1
    return state, jax.tree.map(lambda *x: np.stack(x), *metrics)


@functools.cache
def three_steps(name):
    """State after three steps of a learner."""
    return advance(LEARNERS[name](), 3)[0]


def test_contract():
    check_learner(LEARNERS["mala"](), Hyper(0.3))


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_contract_of_all(name):
    # When SMC is done is for the particles to say.
    check_learner(LEARNERS[name](), Hyper(0.3), branches_on_t=name != "smc")


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        *((name, "float32") for name in ("random_walk", "mala", "nuts", "local_metric")),
        *(
            (name, kind)
            for name in ("parallel_tempering", "smc")
            for kind in ("float32", "float64")
        ),
    ],
)
def test_precision_is_that_of_the_positions(name, positions):
    with jax.enable_x64(True):
        learner = LEARNERS[name](START.astype(positions))
        state = jax.eval_shape(learner.init, jax.random.key(0), Hyper(0.3))
        new, metrics = jax.eval_shape(learner.step, state, jax.ShapeDtypeStruct((), jnp.int32))
        assert jax.tree.structure(new) == jax.tree.structure(state)
        for tree in (state, new, {name: metric.value for name, metric in metrics.items()}):
            kinds = {
                leaf.dtype.name
                for leaf in jax.tree.leaves(tree)
                if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            }
            assert kinds <= {positions, "int32", "bool"}
        signature = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(new)]
        assert signature == [(leaf.shape, leaf.dtype, False) for leaf in jax.tree.leaves(state)]


def test_steps_are_adapted_by_chain_and_then_frozen():
    """Chains on either side of a wall see scales that differ by a factor of ten."""
    start = np.array([[-1.0], [1.0]], np.float32).repeat(8, 0)

    def two_scales(x):
        return jnp.sum(jnp.where(x > 0, -0.5 * x**2, -50 * (x + 1) ** 2 - 20.0))

    learner = mcmc.make(two_scales, MCMCConfig("random_walk", warmup=300), initial=start)
    state, metrics = advance(learner, 300)
    frozen = np.asarray(state.step_size)
    np.testing.assert_allclose(frozen, np.exp(state.averaging.log_step_size_avg), rtol=1e-6)
    right = np.asarray(state.positions[:, 0]) > 0
    assert right.any()
    state, metrics = advance(learner, 50, state=state, start=300)
    np.testing.assert_array_equal(state.step_size, frozen)
    np.testing.assert_allclose(metrics["step_size"].value, frozen.mean(), rtol=1e-6)


def test_a_chain_draws_the_same_alone_and_in_a_batch():
    wide, (narrow, _) = three_steps("mala"), advance(LEARNERS["mala"](START[:2]), 3)
    np.testing.assert_allclose(wide.positions[:2], narrow.positions, rtol=1e-6)


def engine():
    """A log density whose gradient and batching are its own, and the batches it was given."""
    batches = []

    @jax.custom_batching.custom_vmap
    def both(x):
        batches.append(None)
        return normal(x), -x / SCALE

    @both.def_vmap
    def _(size, in_batched, x):
        batches.append(size)
        return (-0.5 * jnp.sum(x**2 / SCALE, -1), -x / SCALE), (True, True)

    @jax.custom_vjp
    def log_density(x):
        return both(x)[0]

    log_density.defvjp(both, lambda gradient, cotangent: (cotangent * gradient,))
    return log_density, batches


@pytest.mark.parametrize(("name", "size"), [("mala", 6), ("hmc", 6), ("tempering", 18), ("smc", 6)])
def test_an_engine_gets_the_whole_batch_at_once(name, size):
    log_density, batches = engine()
    if name == "tempering":
        config = ParallelTemperingConfig(MCMCConfig(warmup=0), betas=(0.1, 0.4, 1.0))
        make = mcmc.make_parallel_tempering
    elif name == "smc":
        config, make = SMCConfig(MCMCConfig(), moves=2), mcmc.make_smc
    else:
        make = mcmc.make
        config = MCMCConfig(name, warmup=2, leapfrog_steps=3, max_doublings=3)
    learner = make(log_density, config, initial=START)
    state = jax.eval_shape(learner.init, jax.random.key(0), Hyper(0.3))
    batches.clear()
    step = jax.jit(learner.step)
    step.lower(state, jax.ShapeDtypeStruct((), jnp.int32))
    # custom_vmap traces the function once for shapes before it asks for the batch.
    assert [batch for batch in batches if batch is not None] == [size] * batches.count(size)
    if name == "mala":
        assert batches.count(size) == 1
        ours, _ = advance(learner, 3)
        np.testing.assert_allclose(ours.positions, three_steps("mala").positions, rtol=1e-5)


def test_fused_evaluation_draws_the_same_chains():
    def fused(x, beta):
        return normal(x), -x / SCALE, local_metric(x, beta)

    learner = mcmc.make(normal, MCMCConfig("preconditioned_mala"), initial=START, fused=fused)
    state, _ = advance(learner, 3)
    np.testing.assert_allclose(state.positions, three_steps("local_metric").positions, rtol=1e-5)
    assert (state.positions != START).any()


class Stopped(Exception):
    pass


def test_a_resumed_run_continues_to_the_same_bits(tmp_path):
    learner = LEARNERS["parallel_tempering"]()
    arguments = {"steps": 24, "chunk": 8, "thin": 4, "hyper": Hyper(0.3), "progress": False}
    whole = run(learner, **arguments)

    def stop(state, metrics, host):
        if host == 1:
            raise Stopped
        return state, host + 1

    with pytest.raises(Stopped):
        run(learner, run_dir=tmp_path, between=stop, host=0, **arguments)
    resumed = run(learner, run_dir=tmp_path, resume=True, host=0, **arguments)
    plain = [
        jax.tree.map(
            lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
            result.state,
        )
        for result in (whole, resumed)
    ]
    jax.tree.map(np.testing.assert_array_equal, *plain)
    for name, values in whole.records().items():
        np.testing.assert_array_equal(values, resumed.records()[name])


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (MCMCConfig, {"sampler": "gibbs"}, "'gibbs', expected one of random_walk, mala, .*nuts"),
        (MCMCConfig, {"warmup": -1}, "warmup is -1, expected at least 0"),
        (MCMCConfig, {"leapfrog_steps": 0}, "leapfrog_steps is 0"),
        (MCMCConfig, {"target_acceptance": 1.0}, "target_acceptance is 1.0"),
        (ParallelTemperingConfig, {"betas": (1.0,)}, "at least two"),
        (ParallelTemperingConfig, {"betas": (0.5, 0.1, 1.0)}, "ascending"),
        (ParallelTemperingConfig, {"betas": (0.5, 0.5, 1.0)}, "ascending"),
        (ParallelTemperingConfig, {"betas": (0.0, 1.0)}, r"in \(0, 1\]"),
        (ParallelTemperingConfig, {"betas": (0.5, 1.5)}, r"in \(0, 1\]"),
        (ParallelTemperingConfig, {"betas": (0.5, 0.9)}, "1 at the end"),
        (SMCConfig, {"target_ess": 1.0}, "target_ess is 1.0"),
        (SMCConfig, {"moves": 0}, "moves is 0"),
        (Hyper, {"step_size": 0.0}, "step_size is 0.0, expected a positive"),
        (Hyper, {"step_size": np.array([0.1, -0.1])}, "step_size is"),
        (Hyper, {"beta": float("nan")}, "beta is nan"),
    ],
)
def test_bad_options_are_refused(config, options, message):
    with pytest.raises(ConfigError, match=message):
        config(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": START[:, :1].repeat(3, 1)}, r"log_density fails on one position .*3"),
        ({"initial": START.astype(int)}, "floating-point"),
        ({"initial": {"a": START, "b": START[:3]}}, "same number of chains"),
        ({"initial": np.full((2, 2), np.inf, np.float32)}, "not finite at 2 of 2 chains"),
        ({"log_density": lambda x: x}, r"log_density .* has shape \(2,\), expected \(\)"),
        ({"log_prior": lambda x: x}, "log_prior .* expected"),
        ({"metric": np.eye(3)}, "metric is for dimension 3, .* dimension 2"),
        ({"metric": -np.ones(2)}, "positive definite"),
        ({"metric": np.ones((2, 3))}, r"shape \(2, 3\)"),
        ({"metric": local_metric}, "takes a constant metric only"),
        ({"sampler": "preconditioned_mala"}, "needs a metric"),
        (
            {"sampler": "preconditioned_mala", "metric": lambda x, beta: x},
            r"metric .* has shape \(2,\), expected \(2, 2\)",
        ),
        (
            {"sampler": "preconditioned_mala", "metric": lambda x, beta: -jnp.eye(2)},
            "Cholesky factor. is not finite",
        ),
    ],
)
def test_bad_problems_are_refused(options, message):
    options = {"log_density": normal, "initial": START, "sampler": "mala"} | options
    config = MCMCConfig(options.pop("sampler"))
    with pytest.raises(ConfigError, match=message):
        mcmc.make(options.pop("log_density"), config, **options)


def test_bad_starts_are_refused():
    with pytest.raises(ConfigError, match="no initial positions"):
        mcmc.make(normal).init(jax.random.key(0), Hyper())
    with pytest.raises(ConfigError, match="log_density fails"):
        mcmc.make(normal).init(jax.random.key(0), Hyper(positions=np.ones((2, 3), np.float32)))

    def half(x):
        return jnp.where(x[0] > 0, 0.0, -jnp.inf)

    start = Hyper(positions=np.array([[1.0], [-1.0]], np.float32))
    for make in (mcmc.make, mcmc.make_smc):
        state = make(half).init(jax.random.key(0), start)
        with pytest.raises(ConfigError, match=r"not finite at 1 of 2 chains \(first: chain \[1\]"):
            mcmc.check_state(state)
    mcmc.check_state(LEARNERS["mala"]().init(jax.random.key(0), Hyper()))


def test_chains_stay_inside_the_support_and_steps_stay_finite():
    """NaN with its gradient on one side (BlackJAX's Barker then accepts with probability NaN),
    infinite on the other, where a chain would be held for ever."""
    learner = mcmc.make(
        lambda x: jnp.sum(jnp.where(x > 1, jnp.inf, 2 * jnp.sqrt(x))),
        MCMCConfig("barker", warmup=20),
        initial=np.full((8, 1), 0.5, np.float32),
    )
    state, metrics = advance(learner, 30, Hyper(1.0))
    assert ((state.positions > 0) & (state.positions < 1)).all()
    assert np.isfinite(state.step_size).all()
    assert np.isfinite(metrics["acceptance"].value).all()
    assert (state.positions != 0.5).all()


def test_options_are_read_without_jax():
    code = (
        "import sys; from jaxlab.agents.mcmc import Hyper, MCMCConfig, SMCConfig; "
        "assert MCMCConfig().warmup and Hyper().beta and SMCConfig().moves; "
        "assert not {'jax', 'flax', 'blackjax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_configurations_are_hashable_and_replaceable():
    config = ParallelTemperingConfig()
    assert hash(config) == hash(dataclasses.replace(config, adapt_ladder=True))
