"""Exact answers: recorded numbers, optimality conditions, and two solvers against each other."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.agents.pdnac import Hyper, make_exact
from jaxlab.core.errors import ConfigError, PrecisionError, ScenarioError
from jaxlab.core.training import run
from jaxlab.envs.cmdp import chains, linear_programs
from jaxlab.envs.cmdp.decomposition import Decomposition
from jaxlab.envs.cmdp.evaluation import evaluate, slack_gains
from jaxlab.envs.cmdp.generators import GarnetCMDP, queueing_network
from jaxlab.envs.cmdp.model import cmdp
from jaxlab.envs.cmdp.problems import hashed, inventory, problem, queue, riverswim
from jaxlab.envs.cmdp.solving import (
    evaluate_exactly,
    slater_margin,
    solve,
    unconstrained_optimum,
)

EXACT = 1e-9


def test_the_hashed_problem():
    found = solve(hashed())
    np.testing.assert_allclose(found.optimum, 0.5672007354901523, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [0.2762296605], atol=1e-10)
    np.testing.assert_allclose(found.slater_margin, 0.20745565797527377, atol=1e-12)
    np.testing.assert_allclose(found.gain_unconstrained, 0.5990905210774751, atol=1e-12)
    np.testing.assert_allclose(found.policy[1], [0.2153252237, 0, 0.7846747763], atol=1e-10)
    assert found.policy[[0, 2, 3, 4]].argmax(1).tolist() == [2, 1, 0, 1]
    assert found.mixing_time == 1
    free = evaluate_exactly(hashed(), np.eye(3)[[2, 0, 1, 0, 1]])
    assert free.gains[1] < 0.55 < 0.7574556579752738 == pytest.approx(0.55 + found.slater_margin)
    np.testing.assert_allclose(free.gains, [0.5990905210774751, 0.4345533621234482], atol=1e-12)


def test_a_uniform_policy_on_the_hashed_problem():
    found = evaluate_exactly(hashed(), np.full((5, 3), 1 / 3))
    np.testing.assert_allclose(found.gains, [0.3752751869367105, 0.46361648272580963], atol=1e-14)
    occupied = [0.2207121017, 0.2270557428, 0.2003330513, 0.1803720013, 0.1715271028]
    np.testing.assert_allclose(found.stationary, occupied, atol=1e-10)
    relative = [0, -0.0096059848, -0.048893994, -0.0583483122, -0.4914386787]
    np.testing.assert_allclose(found.bias[0] - found.bias[0, 0], relative, atol=1e-10)
    np.testing.assert_allclose(np.sum(found.advantages / 3, -1), 0, atol=1e-14)


@pytest.mark.parametrize(
    ("effort", "optimum", "multiplier"),
    [
        (0.3, 0.14301418191046536, 0.2862634115),
        (0.5, 0.19825130081724017, 0.2093776003),
        (0.7, 0.23709411041044104, 0.153012683),
    ],
)
def test_the_river(effort, optimum, multiplier):
    found = solve(riverswim(effort=effort))
    np.testing.assert_allclose(found.optimum, optimum, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [multiplier], atol=1e-9)
    np.testing.assert_allclose(found.gain_unconstrained, 0.27785958194543503, atol=1e-12)
    assert 7 <= found.mixing_time <= 10


def test_the_river_without_restarts_mixes_slowly():
    river = riverswim(restart=0.0, effort=0.99)
    np.testing.assert_allclose(unconstrained_optimum(river), 0.42862243379946435, atol=1e-11)
    assert solve(river).mixing_time > 100


def test_the_queue():
    found = solve(queue())
    np.testing.assert_allclose(found.optimum, 0.375, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [0, 1.25], atol=1e-10)
    assert found.gain == -found.optimum
    assert math.copysign(1, found.gain_unconstrained) == 1
    both = solve(queue(service=0.32, admission=0.25))
    assert np.all(both.multipliers > 1e-3)
    np.testing.assert_allclose(both.signals, [0.32, 0.25], atol=1e-12)


def test_the_inventory():
    found = solve(inventory())
    np.testing.assert_allclose(found.optimum, 1.9413380003943974, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [2.334154999], atol=1e-9)
    np.testing.assert_allclose(found.policy[2, [0, 3]], [0.649593, 0.350407], atol=1e-6)
    np.testing.assert_allclose(found.gain_unconstrained, 2.018601462522853, atol=1e-12)
    free = solve(inventory(lost=0.2))
    assert free.policy.argmax(1).tolist() == [4, 3, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(free.signals, [0.14625], atol=1e-5)


def test_a_problem_that_is_none():
    with pytest.raises(ConfigError, match="P1, P2, P3, P4"):
        problem("P5")


def optimality(model, found):
    """The largest violation of feasibility, complementary slackness and the Bellman equation."""
    policy = evaluate_exactly(model, found.policy)
    slack = np.asarray(slack_gains(model, policy.gains))
    weights = np.concatenate([[1.0], found.multipliers * np.asarray(model.senses)])
    advantage = np.tensordot(weights, policy.advantages, 1)
    return max(
        abs(policy.gains[0] - found.gain),
        np.max(-slack, initial=0.0),
        np.max(-found.multipliers, initial=0.0),
        np.max(np.abs(slack * found.multipliers), initial=0.0),
        np.max(np.where(found.measure.sum(1)[:, None] > 1e-9, advantage, 0.0)),
    )


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 2))
def test_answers_of_random_processes_are_optimal(seed, signals):
    family = GarnetCMDP(states=7, actions=3, branching=2, signals=signals, margin=0.02)
    model = jax.tree.map(np.asarray, _draw(family)(jax.random.key(seed)))
    found = solve(model)
    assert optimality(model, found) < 1e-10
    assert found.slater_margin > 0.02 - 1e-12


_DRAWS = {}


def _draw(family):
    return _DRAWS.setdefault(family, jax.jit(family.draw))


@pytest.mark.parametrize("model", [queueing_network(), hashed(), inventory(), queue()])
def test_decomposition_agrees_with_the_full_program(model):
    flows = linear_programs.flow_matrix(model)
    reward = np.asarray(model.reward)
    whole = linear_programs.maximise(model, reward, flows)
    parts = Decomposition(model).maximise(reward)
    np.testing.assert_allclose(parts.value, whole.value, atol=EXACT)
    np.testing.assert_allclose(parts.multipliers, whole.multipliers, atol=1e-7)
    assert np.max(np.abs(flows @ parts.measure.reshape(-1) - np.eye(flows.shape[0])[-1])) < 1e-12
    margin = linear_programs.widest_margin(model, flows)
    np.testing.assert_allclose(Decomposition(model).widest_margin().value, margin.value, atol=EXACT)


def test_large_dense_programs_are_decomposed(monkeypatch):
    monkeypatch.setattr(linear_programs, "MOST_ENTRIES", 0)
    found = solve(hashed())
    np.testing.assert_allclose(found.optimum, 0.5672007354901523, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [0.2762296605], atol=1e-9)
    with pytest.raises(ScenarioError, match="outside the attainable range"):
        solve(hashed().with_bounds([0.8]))


def test_bounds_that_no_policy_satisfies():
    with pytest.raises(ScenarioError, match=r"signal 0 >= 0\.76.*between 0\.2464.* and 0\.7574"):
        solve(hashed().with_bounds([0.76]))
    with pytest.raises(ScenarioError, match=r"at most -0\.15000.* loosen"):
        solve(queue(service=0.2, admission=0.5))


def test_the_certificate_of_bounds_that_no_policy_satisfies():
    model = queue(service=0.2, admission=0.5)
    found = linear_programs.widest_margin(model, linear_programs.flow_matrix(model))
    np.testing.assert_allclose(np.sum(found.multipliers), 1)
    weighted = np.tensordot(found.multipliers, model.slacks, 1)
    flows = linear_programs.flow_matrix(model)
    best = linear_programs.maximise(model, weighted, flows, bounded=False)
    np.testing.assert_allclose(best.value, found.value, atol=1e-9)
    assert best.value < -0.1


def test_without_a_slater_point():
    first, second = (np.array([[0.0, 1.0]]) for _ in range(2))
    model = cmdp(np.ones((1, 2, 1)), first, [first, second], [">=", "<="], [0.5, 0.5])
    with pytest.raises(ScenarioError, match="no Slater point"):
        solve(model)
    with pytest.warns(RuntimeWarning, match="no Slater point"):
        found = solve(model, require_slater=False)
    assert found.slater_margin == 0
    np.testing.assert_allclose(found.policy, [[0.5, 0.5]])


def test_without_signals():
    river = riverswim()
    model = cmdp(river.transitions, river.reward)
    found = solve(model)
    np.testing.assert_allclose(found.optimum, 0.27785958194543503, atol=1e-12)
    assert found.multipliers.shape == (0,)
    assert slater_margin(model) == math.inf


def test_chains_that_are_not_ergodic_are_named():
    table = np.zeros((4, 1, 4))
    table[0, 0, 0] = table[1, 0, 2] = table[2, 0, 1] = 1.0
    table[3, 0, :2] = 0.5
    model = cmdp(table, np.array([[0.0], [1.0], [0.0], [0.0]]))
    named = r"closed class \{0\}, closed class \{1, 2\} of period 2, transient states \{3\}"
    with pytest.warns(RuntimeWarning, match=named):
        found = solve(model)
    assert found.optimum == pytest.approx(0.5)
    assert found.mixing_time == math.inf
    with pytest.raises(ScenarioError, match="depend on the start"):
        evaluate_exactly(model, found.policy)


def test_the_mixing_time_of_a_chain_of_two_states():
    # The distance from stationary after t steps is (1 - p - q)^t times the larger share.
    p, q = 0.02, 0.03
    matrix = np.array([[1 - p, p], [q, 1 - q]])
    stationary = np.array([q, p]) / (p + q)
    expected = math.ceil(math.log(0.25 / stationary.max()) / math.log(1 - p - q))
    assert chains.mixing_time(matrix, stationary) == expected


def test_32_bits_are_refused():
    with jax.enable_x64(False), pytest.raises(PrecisionError):
        solve(hashed())


#: By number of steps: average reward, average signal, multiplier before the step.
TRAJECTORY = {
    0: (0.3752751869, 0.4636164827, 0.0),
    1: (0.4183208438, 0.4645777773, 0.0043191759),
    2: (0.4573513159, 0.4611538257, 0.0085902870),
    9: (0.5696309859, 0.4149909556, 0.0471295153),
    99: (0.5706851545, 0.5373306602, 0.5293101644),
}


def test_the_exact_natural_gradient():
    model = hashed()
    shape = (model.states, model.actions)

    def advantages(policy):
        found = evaluate(model.cast(), policy)
        gains = jnp.append(found.gains[0], slack_gains(model, found.gains))
        return gains, found.advantages

    hyper = Hyper(alpha=1.0, beta=0.05, slater_margin=0.20745565797527377)
    result = run(
        make_exact(advantages, shape, hyper), steps=10_000, chunk=1000, thin=1, progress=False
    )
    kept = result.records()
    for step, (reward, signal, multiplier) in TRAJECTORY.items():
        gains = kept["trajectory/gains"][step, 0]
        np.testing.assert_allclose(gains, [reward, signal - 0.55], atol=1e-10)
        found = kept["trajectory/multipliers"][step, 0]
        np.testing.assert_allclose(found, [multiplier], atol=1e-10)
    optimum = 0.5672007354901523
    reward, slack = result.metrics["average_gains"][-1, 0]
    np.testing.assert_allclose([optimum - reward, -slack], [-4.7e-5, 6.3e-4], atol=5e-6)
    reward, slack = kept["trajectory/gains"][-1, 0]
    np.testing.assert_allclose([optimum - reward, -slack], [-0.027, 0.096], atol=1e-3)


@pytest.mark.parametrize("dual", ["optimistic", "regularised", "pid"])
def test_remedies_end_the_cycling(dual):
    model = hashed()

    def advantages(policy):
        found = evaluate(model.cast(), policy)
        gains = jnp.append(found.gains[0], slack_gains(model, found.gains))
        return gains, found.advantages

    hyper = Hyper(alpha=1.0, beta=0.05, slater_margin=0.207, pull=0.05)
    learner = make_exact(advantages, (5, 3), hyper, dual=dual)
    result = run(learner, steps=3000, chunk=1000, progress=False)
    reward, slack = result.metrics["gains"][-1, 0]
    limit = {"optimistic": 0.09, "regularised": 0.05, "pid": 0.01}[dual]
    assert max(abs(0.5672007354901523 - reward), -slack) < limit
