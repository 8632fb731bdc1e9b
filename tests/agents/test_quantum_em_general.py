"""em where visible operators do not commute, without hidden qubits, from samples, on devices."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.qbm import problems
from jaxlab.agents import quantum_em
from jaxlab.agents.quantum_em import EMConfig, Hyper
from jaxlab.core.errors import ConfigError
from jaxlab.core.testing import check_learner
from jaxlab.envs.qbm import datasets, gibbs, registers, restricted
from jaxlab.envs.qbm.pauli import PauliStrings
from jaxlab.envs.qbm.restricted import RestrictedModel
from tests.agents.quantum_em_problems import PAIR, XZ, noncommuting, pair
from tests.envs.qbm import oracles, reference

ROOT = pathlib.Path(__file__).parents[2]
GENERIC = PauliStrings(oracles.GENERIC)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def test_the_recorded_dual_e_step_and_em_step():
    theta = oracles.parameters(9)
    trace = quantum_em.em_steps(noncommuting(), theta, 2)
    np.testing.assert_allclose(trace.divergence[0], oracles.PAIR_DIVERGENCE, atol=1e-9)
    # A rich model: one em step reaches the target.
    np.testing.assert_allclose(trace.divergence[1], 0, atol=1e-12)
    rho = reference.state(trace.parameters[0], oracles.PAIR_TERMS)
    visible = registers.partial_trace(rho, (0,))
    np.testing.assert_allclose(visible, np.diag(oracles.PAIR_TARGET), atol=1e-11)

    learner = quantum_em.make(noncommuting())
    step, state = jax.jit(learner.step), learner.init(jax.random.key(0), Hyper(parameters=theta))
    while state.memory.estimating:
        state, _ = step(state, jnp.zeros((), jnp.int32))
    np.testing.assert_allclose(state.memory.multipliers, oracles.PAIR_MULTIPLIERS, atol=1e-9)
    # The divergence of the e-step's state bounds that of the marginals.
    marginal = oracles.PAIR_VISIBLE
    target = np.diag(oracles.PAIR_TARGET)
    values, vectors = np.linalg.eigh(marginal)
    logarithm = (vectors * np.log(values)) @ vectors.T
    bound = np.sum(oracles.PAIR_TARGET * np.log(oracles.PAIR_TARGET)) - np.trace(target @ logarithm)
    np.testing.assert_allclose(bound, oracles.PAIR_MARGINAL_DIVERGENCE, atol=1e-8)
    assert state.divergence > bound


def test_em_decreases_its_divergence_where_operators_do_not_commute():
    # Too few terms to reach the target.
    strings = PauliStrings(("ZII", "XIX", "IZZ", "YIY", "IXI"))
    target = np.diag([0.4, 0.3, 0.2, 0.1]) + 0.05 * (np.eye(4, k=1) + np.eye(4, k=-1))
    problem = problems.dual_problem(strings, (2,), target)
    trace = quantum_em.em_steps(problem, oracles.parameters(5), 6)
    assert np.all(np.diff(trace.divergence) <= 1e-12)
    assert trace.divergence[-1] > 1e-3
    assert np.max(trace.residual) <= 1e-12
    # One gradient m-step an e-step descends along the gradient of the same divergence.
    config = EMConfig("em_gradient", m_steps=1, stop=None)
    learner = quantum_em.make(problem, config)
    state = learner.init(jax.random.key(0), Hyper(parameters=oracles.parameters(5)))
    step, falls = jax.jit(learner.step), []
    for _ in range(60):
        state, _ = step(state, jnp.zeros((), jnp.int32))
        falls.append(float(state.divergence))
    falls = np.unique([f for f in falls if np.isfinite(f)])
    assert len(falls) > 5
    np.testing.assert_allclose(falls[-1], trace.divergence[0], atol=1e-12)


def test_without_hidden_qubits_one_m_step_is_the_fit():
    ising = gibbs.density_matrix(oracles.ISING, GENERIC)
    problem = problems.visible_problem(GENERIC, ising)
    theta = oracles.parameters(12)
    _, _, _, divergence = problem.evaluate(theta)
    np.testing.assert_allclose(divergence, oracles.GENERIC_DIVERGENCE, atol=1e-12)
    trace = quantum_em.em_steps(problem, theta, 1)
    np.testing.assert_allclose(trace.parameters[0], oracles.ISING, atol=1e-9)
    # Undamped Newton steps diverge from here; damped and shortened ones do not.
    result = quantum_em.fit(
        problem,
        EMConfig("natural_gradient"),
        steps=60,
        hyper=Hyper(parameters=theta, damping=1e-6),
        progress=False,
    )
    np.testing.assert_allclose(quantum_em.best_start(result)[0], oracles.ISING, atol=1e-6)


def test_the_cheapest_exact_e_step_is_chosen():
    hidden = problems.problem_of(XZ.strings, (2,), PAIR)
    assert isinstance(hidden, quantum_em.Closed)
    for a, b in zip(
        hidden.evaluate(oracles.parameters(8)), pair().evaluate(oracles.parameters(8)), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-13)
    general = problems.problem_of(PauliStrings(oracles.PAIR_TERMS), (1,), oracles.PAIR_TARGET)
    assert isinstance(general, quantum_em.Dual)


def test_learners_of_all_problems_keep_the_contract():
    learner = quantum_em.make(noncommuting(), EMConfig("em", m_steps=3))
    # The divergence is infinite until the first e-step is solved.
    state = jax.jit(learner.init)(jax.random.key(0), Hyper(width=1.0))
    step = jax.jit(learner.step)
    for t in range(20):
        state, _ = step(state, jnp.asarray(t, jnp.int32))
    assert np.isfinite(state.divergence)
    seeds = jax.vmap(learner.init, (0, None))(jax.random.split(jax.random.key(0), 3), Hyper())
    seeds, _ = jax.jit(jax.vmap(learner.step, (0, None)))(seeds, jnp.zeros((), jnp.int32))
    assert seeds.parameters.shape == (3, 9)
    spins, weights = datasets.from_bit_strings(["00", "11", "11", "01"])
    sampled = problems.sampled_problem(XZ, spins, weights, chains=16)
    check_learner(quantum_em.make_contrastive(sampled, EMConfig("adam")), Hyper(width=1.0))


def test_persistent_contrastive_divergence_learns():
    model = RestrictedModel(4, 2, "XZ")
    target = datasets.bars_and_stripes(2, 2)
    spins, weights = 1.0 - 2 * datasets.bits_of(4)[target > 0], target[target > 0]
    problem = problems.sampled_problem(model, spins, weights, chains=200, sweeps=2, block=2)
    learner = quantum_em.make_contrastive(problem, EMConfig("adam"))
    init = jax.vmap(learner.init, (0, None))
    states = init(jax.random.split(jax.random.key(0), 4), Hyper(learning_rate=0.01, width=0.5))

    @jax.jit
    def run(states):
        def step(s, t):
            return jax.vmap(learner.step, (0, None))(s, t)[0], None

        return jax.lax.scan(step, states, jnp.arange(500, dtype=jnp.int32))[0]

    divergence = jax.vmap(lambda theta: restricted.kl_divergence(theta, model, target))
    before = divergence(states.parameters)
    after = divergence(run(states).parameters)
    assert np.min(before) > 0.5
    assert np.median(after) < 0.15


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="em, em_gradient, gradient"):
        EMConfig("newton")
    with pytest.raises(ConfigError, match="m_steps is 0"):
        EMConfig(m_steps=0)
    with pytest.raises(ConfigError, match="l2 is -1"):
        EMConfig(l2=-1)
    with pytest.raises(ConfigError, match="learning_rate is 0"):
        Hyper(learning_rate=0)
    with pytest.raises(ConfigError, match="trained by em or em_gradient"):
        quantum_em.make(noncommuting(), EMConfig("adam"))
    with pytest.raises(ConfigError, match="give the problem its metric"):
        quantum_em.make(pair()._replace(metric=None), EMConfig("em"))
    with pytest.raises(ConfigError, match=r"a start is \(3,\), expected \(8,\)"):
        quantum_em.make(pair()).init(jax.random.key(0), Hyper(parameters=np.zeros(3)))
    with pytest.raises(ConfigError, match="those of em"):
        quantum_em.em_steps(pair(), np.zeros(8), 1, EMConfig("em_gradient"))
    with pytest.raises(ConfigError, match="sum to 0"):
        problems.restricted_problem(XZ, [0.4, 0.3, 0.2, 0.0])
    sampled = problems.sampled_problem(XZ, np.ones((1, 2)), np.ones(1))
    with pytest.raises(ConfigError, match="gradient, adam and amsgrad"):
        quantum_em.make_contrastive(sampled, EMConfig("em"))


def test_one_and_eight_devices_agree(tmp_path):
    program = """
import numpy as np, sys
from jaxlab.core import devices
devices.setup(sys.argv[1], x64=True)
from jaxlab.agents import quantum_em
from tests.agents.quantum_em_problems import pair
config = quantum_em.EMConfig("em", m_steps=2)
result = quantum_em.fit(pair(), config, steps=12, seeds=8, progress=False)
np.save(sys.argv[2], result.state.parameters)
"""
    found = []
    for name in ("cpu:1", "cpu:8"):
        file = tmp_path / f"{name[-1]}.npy"
        subprocess.run(
            [sys.executable, "-c", program, name, str(file)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=True,
            timeout=300,
        )
        found.append(np.load(file))
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)
    assert found[0].shape == (8, 8)
