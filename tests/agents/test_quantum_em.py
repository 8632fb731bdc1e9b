"""The em algorithm: recorded runs, and what must hold from any start."""

import functools
import itertools
import warnings

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.qbm.problems import conditional_problem, restricted_problem
from jaxlab.agents import quantum_em
from jaxlab.agents.quantum_em import EMConfig, Hyper
from jaxlab.core.testing import check_learner
from jaxlab.envs.qbm import datasets, restricted
from jaxlab.envs.qbm.restricted import RestrictedModel
from tests.agents.quantum_em_problems import PAIR, SMALL, XZ, pair, small
from tests.envs.qbm import oracles, reference

starts = hnp.arrays(np.float64, XZ.size, elements=st.floats(-5, 5))
T = jnp.zeros((), jnp.int32)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@functools.cache
def stepper(problem, config):
    learner = quantum_em.make(problem, config)
    return jax.jit(learner.init), jax.jit(learner.step)


def run_from(problem, config, theta, steps, **hyper):
    """States of a run from given parameters, the first one included."""
    init, step = stepper(problem, config)
    states = [init(jax.random.key(0), Hyper(parameters=theta, **hyper))]
    for _ in range(steps):
        states.append(step(states[-1], T)[0])
    return states


@pytest.mark.parametrize("name", oracles.RESTRICTED)
def test_recorded_em_steps(name):
    oracle = oracles.RESTRICTED[name]
    model = RestrictedModel(oracle.visible, oracle.hidden, oracle.operators)
    problem = restricted_problem(model, np.array(oracle.target))
    trace = quantum_em.em_steps(problem, oracles.parameters(model.size), len(oracle.em))
    np.testing.assert_allclose(trace.divergence, oracle.em, atol=1e-11)
    assert np.max(trace.residual) <= 1e-12


def test_em_steps_of_the_xyz_machine_against_scipy():
    model = RestrictedModel(2, 1, "XYZ")
    theta, labels = oracles.parameters(model.size), model.strings.labels
    expected = reference.em(theta, labels, 2, PAIR, 4)
    closed = quantum_em.em_steps(restricted_problem(model, PAIR), theta, 4)
    np.testing.assert_allclose(closed.divergence, expected, atol=1e-10)
    blocks = quantum_em.em_steps(conditional_problem(model.strings, (2,), PAIR), theta, 4)
    np.testing.assert_allclose(blocks.divergence, expected, atol=1e-10)


@settings(max_examples=25)
@given(starts)
def test_em_is_monotone_and_pythagoras_holds(theta):
    trace = _trace()(theta)
    before = restricted.kl_divergence(theta, XZ, PAIR)
    divergences = np.concatenate([[before], trace.divergence])
    assert np.all(np.diff(divergences) <= 1e-12)
    # D(sigma || first) - D(sigma || second) = D(second || first) after an exact m-step.
    points = [theta, *trace.parameters]
    for n, (first, second) in enumerate(itertools.pairwise(points)):
        if trace.residual[n] > 1e-12:
            continue
        one, two = (_evaluate()(x) for x in (first, second))
        goal = one.target_moments
        fall = (one.log_partition - first @ goal) - (two.log_partition - second @ goal)
        between = (second - first) @ two.moments - two.log_partition + one.log_partition
        np.testing.assert_allclose(fall, between, atol=1e-10)
        assert between >= -1e-12


@functools.cache
def _trace():
    problem = pair()
    return lambda theta: quantum_em.em_steps(problem, theta, 3, EMConfig(most_inner=300))


@functools.cache
def _evaluate():
    return jax.jit(lambda theta: restricted.evaluate(theta, XZ, PAIR))


def test_damped_em_is_monotone_from_wide_starts():
    # Four iterations an m-step, from starts that are nearly one bit string.
    config = EMConfig("em", m_steps=4)
    learner = quantum_em.make(small(), config)
    states = jax.vmap(learner.init, (0, None))(jax.random.split(jax.random.key(0), 16), Hyper())

    @jax.jit
    def run(states):
        def step(s, t):
            return (new := jax.vmap(learner.step, (0, None))(s, t)[0]), new.divergence

        return jax.lax.scan(step, states, jnp.arange(200, dtype=jnp.int32))

    _, curve = run(states)
    curve = np.concatenate([np.asarray(states.divergence)[None], curve])
    assert np.all(np.diff(curve[::4], axis=0) <= 1e-12)
    assert np.median(curve[-1]) < 0.5 * np.median(curve[0])


@settings(max_examples=20)
@given(starts)
def test_one_gradient_m_step_is_one_step_of_gradient_descent(theta):
    em = run_from(pair(), EMConfig("em_gradient", m_steps=1, stop=None), theta, 3)
    descent = run_from(pair(), EMConfig("gradient", stop=None), theta, 3)
    for first, second in zip(em, descent, strict=True):
        np.testing.assert_array_equal(first.parameters, second.parameters)
    # And neither is the identity.
    assert np.any(em[1].parameters != em[0].parameters) or np.allclose(descent[0].memory.gap, 0)


def test_gradient_descent_is_written_out():
    theta = oracles.parameters(8)
    states = run_from(pair(), EMConfig("gradient", l2=0.1), theta, 2, learning_rate=0.3)
    for before, after in itertools.pairwise(states):
        slope = jax.grad(lambda x: restricted.kl_divergence(x, XZ, PAIR))(before.parameters)
        step = before.parameters - 0.3 * (slope + 0.1 * before.parameters)
        np.testing.assert_allclose(after.parameters, step, atol=1e-15)


def test_the_stopping_rules_of_the_paper():
    config = EMConfig("em_gradient", stop=1e-4)
    states = run_from(pair(), config, oracles.parameters(8), 300)

    def objective(state, goal):
        return float(restricted.log_partition(state.parameters, XZ) - state.parameters @ goal)

    ended = 0
    for before, after in itertools.pairwise(states):
        goal = before.memory.goal
        if after.em_steps > before.em_steps:
            # The last step is taken back, and the goal is that of the parameters reached.
            np.testing.assert_array_equal(after.parameters, before.parameters)
            there = restricted.evaluate(after.parameters, XZ, PAIR)
            np.testing.assert_allclose(after.memory.goal, there.target_moments, atol=1e-14)
            ended += 1
        elif not before.finished:
            assert abs(objective(after, goal) - objective(before, goal)) > 1e-4
    assert ended > 3
    last = states[-1]
    # The run ends when the first step of an m-step changes too little.
    assert last.finished
    assert last.memory.inner == 0
    descent = run_from(pair(), EMConfig("gradient", stop=1e-4), oracles.parameters(8), 300)[-1]
    assert descent.finished
    assert 0.2 * np.sum(descent.memory.gap**2) < 2e-4


@pytest.mark.parametrize("method", quantum_em.METHODS)
def test_learners_keep_the_contract(method):
    learner = quantum_em.make(small(), EMConfig(method, restarts=1), keep=True)
    metrics = check_learner(learner, Hyper(width=1.0), tolerance=1e-9)
    assert metrics["curve"].reduce == "record"


@pytest.mark.parametrize(
    ("method", "steps", "hyper"),
    [
        ("em", 200, {}),
        ("em_gradient", 3000, {"learning_rate": 0.5}),
        ("gradient", 3000, {"learning_rate": 0.5}),
        ("adam", 600, {"learning_rate": 0.1}),
        ("amsgrad", 600, {"learning_rate": 0.1}),
        ("natural_gradient", 200, {"damping": 1e-3}),
    ],
)
def test_every_method_fits_a_machine_that_can(method, steps, hyper):
    config = EMConfig(method, m_steps=4 if method == "em" else None, stop=1e-10)
    result = quantum_em.fit(
        pair(), config, steps=steps, seeds=4, hyper=Hyper(width=1.0, **hyper), progress=False
    )
    assert result.state.parameters.shape == (4, 8)
    assert np.all(result.metrics["divergence"][-1] < 1e-4)
    assert np.all(result.state.best_divergence <= result.metrics["divergence"][-1])


def test_the_natural_gradient_obeys_armijo():
    config = EMConfig("natural_gradient")
    states = run_from(pair(), config, 4 * oracles.parameters(8), 60, damping=1e-3)
    divergences = [float(state.divergence) for state in states]
    assert np.all(np.diff(divergences) <= 0)
    assert divergences[-1] < 1e-8 < divergences[0]


def test_em_of_the_second_order_is_far_ahead():
    problem = restricted_problem(RestrictedModel(5, 5, "transverse"), datasets.cardinality(5))
    result = quantum_em.fit(
        problem, EMConfig("em", m_steps=4), steps=400, seeds=6, hyper=Hyper(), progress=False
    )
    assert np.all(result.metrics["divergence"][-1] < 5e-5)


@pytest.mark.slow
def test_em_of_the_second_order_fits_from_all_of_fifty_starts():
    problem = restricted_problem(RestrictedModel(5, 5, "transverse"), datasets.cardinality(5))
    result = quantum_em.fit(
        problem, EMConfig("em", m_steps=4), steps=4000, seeds=50, hyper=Hyper(), progress=False
    )
    assert np.all(result.metrics["divergence"][-1] < 1e-5)


def test_restarts_keep_the_best():
    # Most starts of the classical machine end above: parity needs three hidden units.
    problem = restricted_problem(RestrictedModel(4, 3, "Z"), datasets.parity(4))
    once = EMConfig("em", m_steps=4, tolerance=1e-6)
    again = EMConfig("em", m_steps=4, tolerance=1e-6, restarts=50)
    options = {"steps": 1500, "seeds": 6, "progress": False, "hyper": Hyper()}
    single = quantum_em.fit(problem, once, **options).state
    many = quantum_em.fit(problem, again, **options).state
    assert np.max(many.restarts) >= 2
    assert np.all(many.best_divergence <= single.best_divergence + 1e-9)
    assert np.sum(many.best_divergence < 1e-3) > np.sum(single.best_divergence < 1e-3)
    found = restricted.kl_divergence(
        many.best_parameters[0], RestrictedModel(4, 3, "Z"), datasets.parity(4)
    )
    np.testing.assert_allclose(found, many.best_divergence[0], atol=1e-12)


def test_an_m_step_without_a_minimiser_is_told():
    target = np.zeros(8)
    target[:3] = 1 / 3
    problem = restricted_problem(SMALL, target)
    with pytest.warns(RuntimeWarning, match="no finite minimiser.*ZIIII is constant"):
        quantum_em.make(problem, EMConfig())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bounded = EMConfig(l2=1e-2, most_inner=200)
        trace = quantum_em.em_steps(problem, oracles.parameters(SMALL.size), 5, bounded)
    # The minimum is in the parameters' reach, and the m-step was solved.
    assert np.max(trace.residual) <= 1e-12
    assert np.max(np.abs(trace.parameters)) < 10
