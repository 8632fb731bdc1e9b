"""Value-based learning of decision processes, on problems whose values are known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.agents import dqn
from jaxlab.agents.dqn import (
    approximators,
    certificates,
    decoding,
    fitted,
    networks,
    process,
    qlearning,
)
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner_check import check_learner
from jaxlab.core.training import run
from jaxlab.envs.combinatorial.cuts import MaxCutFlip
from jaxlab.envs.combinatorial.distributions import RandomGraph
from jaxlab.envs.combinatorial.dynamic_programming import enumerate_states, solve, sweep
from jaxlab.envs.combinatorial.features import features_of, knapsack_features, spanning_tree
from jaxlab.envs.combinatorial.knapsack import Knapsack, KnapsackScan
from jaxlab.envs.combinatorial.tours import TSP
from jaxlab.envs.combinatorial.vertices import IndependentSet

SMALL = dqn.FittedConfig(
    iterations=3, first_batch=8, first_steps=2, minibatch=4, batch_growth=2.0, steps_growth=1.5
)


def score_of(env, approximator, theta):
    return lambda params, decision: fitted.values_after(env, approximator, theta, params, decision)


def test_schedules_are_as_stated():
    assert SMALL.batch_sizes == [8, 16, 32]
    assert SMALL.gradient_steps == [2, 3, 5]
    assert SMALL.steps == 10
    capped = dqn.FittedConfig(iterations=30, first_batch=10, batch_growth=4.0, most_batch=1000)
    assert capped.batch_sizes[:4] == [10, 40, 160, 640]
    assert set(capped.batch_sizes[4:]) == {1000}
    for bad, message in (({"iterations": 0}, "iterations"), ({"batch_growth": 0.5}, "growth")):
        with pytest.raises(ConfigError, match=message):
            dqn.FittedConfig(**bad)
    with pytest.raises(ConfigError, match="heads"):
        dqn.DQNConfig(width=10, heads=4)
    with pytest.raises(ConfigError, match="buffer_size"):
        dqn.DQNConfig(batch_size=64, buffer_size=32)


def test_the_schedule_of_a_run():
    env = TSP(4)
    features, size = features_of(env)
    learner = dqn.make_fitted(env, approximators.linear(features, size), SMALL)
    result = run(learner, steps=SMALL.steps, chunk=1, progress=False)
    assert result.metrics["iteration"].ravel().tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert result.metrics["batch"].ravel().tolist() == [8, 8, 16, 16, 16, *[32] * 5]


@settings(max_examples=30)
@given(st.integers(0, 2**31 - 1), st.floats(0.1, 10.0))
def test_projection_keeps_the_ball_and_what_is_inside(seed, radius):
    rng = np.random.default_rng(seed)
    theta = {"a": rng.normal(0, 3, 4).astype(np.float32), "b": np.float32(rng.normal())}
    near = fitted.project(theta, radius)
    norm = float(optax.tree.norm(theta))
    assert float(optax.tree.norm(near)) <= radius * (1 + 1e-5)
    if norm <= radius:
        np.testing.assert_array_equal(near["a"], theta["a"])
    else:
        # The nearest point of a ball lies on the line to its centre.
        np.testing.assert_allclose(near["a"] * norm, theta["a"] * radius, rtol=2e-5)


@pytest.mark.parametrize("optimizer", ["pgd", "adam"])
def test_the_fitted_learner_keeps_the_contract(optimizer):
    env = TSP(4)
    features, size = features_of(env)
    config = dqn.FittedConfig(
        iterations=2, first_batch=4, first_steps=2, minibatch=2, optimizer=optimizer
    )
    family = approximators.linear(features, size, base=0)
    metrics = check_learner(dqn.make_fitted(env, family, config), dqn.FittedHyper(0.1, 0.5))
    assert float(metrics["norm"].value) <= 0.5 * (1 + 1e-5)


def test_tables_converge_to_the_values_of_dynamic_programming():
    env = KnapsackScan(5, 12, 6)
    params = env.sample_params(jax.random.key(4))
    table = sweep(env, params)
    alone = process.Fixed(env, params)
    family = approximators.tabular(env.encode, env.coding().count)
    config = dqn.FittedConfig(
        iterations=8, first_batch=512, first_steps=60, minibatch=64, greedy_walks=0.0
    )
    hyper = dqn.FittedHyper(learning_rate=12.0, radius=1e6)
    learner = dqn.make_fitted(alone, family, config)
    theta = run(learner, steps=config.steps, hyper=hyper, progress=False).seed_state().theta
    exact = -solve(env, params).cost
    start = int(env.encode(params, env.initial(params)))
    assert -float(theta[start]) == pytest.approx(exact, abs=0.05)
    assert float(table.value(start)) == pytest.approx(-exact)
    string, cost = decoding.greedy(env, score_of(env, family, theta), params)
    assert -float(cost) == exact
    assert env.string_cost(params, np.asarray(string).tolist()) == float(cost)


def test_a_value_with_lower_bounds_is_learnt_and_guides():
    env = TSP(7)
    features, size = features_of(env)
    family = approximators.linear(features, size, base=0)
    config = dqn.FittedConfig(
        iterations=4, first_batch=256, first_steps=25, minibatch=16, optimizer="adam"
    )
    learner = dqn.make_fitted(env, family, config)
    result = run(learner, steps=config.steps, hyper=dqn.FittedHyper(0.01), progress=False)
    assert result.metrics["loss"][-1] < 0.05
    keys = jax.random.split(jax.random.key(5), 8)
    score = score_of(env, family, result.seed_state().theta)
    lengths = {"greedy": [], "beam": [], "best": []}
    greedy = jax.jit(functools.partial(decoding.greedy, env, score))
    beam = jax.jit(functools.partial(decoding.beam, env, score, width=8))
    for key in keys:
        params = env.sample_params(key)
        lengths["greedy"].append(float(greedy(params)[1]))
        string, cost = beam(params)
        assert env.string_cost(params, np.asarray(string).tolist()) == pytest.approx(
            float(cost), rel=1e-5
        )
        lengths["beam"].append(float(cost))
        lengths["best"].append(enumerate_states(env, params).solution().cost)
    best = np.mean(lengths["best"])
    assert best - 1e-5 <= np.mean(lengths["beam"]) <= 1.01 * best
    assert np.mean(lengths["greedy"]) <= 1.1 * best


def test_certificates():
    assert certificates.greedy_gap(0.5, 5) == 4.0
    assert certificates.exact_for_whole_costs(0.1, 5)
    assert not certificates.exact_for_whole_costs(0.125, 5)
    assert certificates.needed_accuracy(2.0, 10) == 0.01
    env = IndependentSet(5)
    features, size = features_of(env)
    family = approximators.linear(features, size, base=0)
    theta = jnp.zeros(size)
    found = certificates.certify(env, family, theta, jax.random.key(0), states=16, whole=True)
    assert found.eps == pytest.approx(5 * found.residual)
    assert found.gap_bound == pytest.approx(8 * found.eps)
    assert found.exact == (found.gap_bound < 1)


def test_random_walks_reach_states_of_their_depth():
    env = TSP(6)
    params = env.sample_params(jax.random.key(0))
    for depth in (0, 2, 5):
        decision, cost = process.walk(env, params, jax.random.key(1), depth, jnp.inf)
        assert int(decision.visited.sum()) == depth + 1
        assert (float(cost) > 0) == (depth > 0)
    # At a temperature near zero letters are those of the nearest cities.
    cold = process.walk(env, params, jax.random.key(1), 1, 1e-6)[0]
    assert int(cold.current) == 1 + int(np.argmin(params.distances[0, 1:]))


def test_features_are_bounds():
    env = TSP(7)
    params = env.sample_params(jax.random.key(2))
    tree, degrees = spanning_tree(params.distances, jnp.arange(7) < 5)
    assert float(degrees.sum()) == 8
    assert float(degrees[5:].sum()) == 0
    best = enumerate_states(env, params)
    values, tours = best.values(), features_of(env)[0]
    for layer in (1, 3):
        states = jax.tree.map(jnp.asarray, best.states[layer])
        found = np.asarray(jax.vmap(lambda s: tours(params, s))(states))
        assert np.all(found[:, 1] <= values[layer] + 1e-5)
        # What insertion pays is no less than the optimum, and not much more.
        assert np.all(found[:, 0] >= values[layer] - 1e-5)
        assert found[:, 0].mean() <= 1.05 * values[layer].mean()
    assert float(tree) <= values[0][0]
    packing = Knapsack(6, 1.5)
    params = packing.sample_params(jax.random.key(3))
    every = enumerate_states(packing, params)
    for layer in (0, 1, 2):
        states = jax.tree.map(jnp.asarray, every.states[layer])
        found = jax.vmap(lambda s: knapsack_features(params, s))(states)[:, 0]
        assert np.all(np.asarray(found) <= every.values()[layer] + 1e-5)


# Deep Q-learning.

FLIP = MaxCutFlip(5, RandomGraph("er", 0.6, signed=True))
CONFIG = dqn.DQNConfig(
    num_envs=4, batch_size=4, buffer_size=64, warmup=2, target_period=3, width=8, rounds=1, heads=2
)


def test_the_q_learner_keeps_the_contract():
    learner = dqn.make(FLIP, FLIP.graph, CONFIG)
    metrics = check_learner(learner, dqn.Hyper(gamma=0.9), steps=4, seeds=2, tolerance=1e-3)
    assert set(metrics) == {"loss", "return", "epsilon", "env_steps"}


@pytest.mark.parametrize("kind", ["s2v", "attention"])
def test_networks_do_not_care_for_the_order_of_vertices(kind):
    params = FLIP.sample_params(jax.random.key(1))
    state, _ = FLIP.reset(jax.random.key(2), params)
    view = FLIP.graph(params, state)
    order = jnp.array([3, 1, 4, 0, 2])
    turned = view.replace(
        nodes=view.nodes[order], edges=view.edges[order][:, order], present=view.present[order]
    )
    for pooled in (False, True):
        network = networks.make_network(dqn.DQNConfig(network=kind, width=8), pooled=pooled)
        theta = network.init(jax.random.key(0), view)
        values = network.apply(theta, view)
        expected = values if pooled else values[order]
        np.testing.assert_allclose(network.apply(theta, turned), expected, atol=1e-5)
        assert values.shape == (() if pooled else (5,))


def test_n_step_transitions_add_up_rewards_to_the_end():
    env = TSP(4)

    def view(params, state):
        return env.graph(params, state.decision)

    config = dqn.DQNConfig(num_envs=2, n_step=2, width=8, rounds=1, heads=2, buffer_size=64)
    agent = qlearning._DQN(env, view, config)
    state = agent.init(jax.random.key(0), None)
    act = jax.jit(lambda e, k: agent._act(state.theta, e, k, 1.0))
    episode = jax.tree.map(lambda leaf: leaf[0], state.episodes)
    items, totals = [], []
    for number in range(8):
        episode, item, total, ended = act(episode, jax.random.key(number))
        items.append(item)
        totals.append((float(total), bool(ended)))
    # Three letters and a step of rest: an episode has four steps.
    assert [ended for _, ended in totals] == [False] * 3 + [True] + [False] * 3 + [True]
    assert [bool(item["valid"]) for item in items[:4]] == [False, True, True, True]
    first, second, third = items[1:4]
    assert not bool(first["over"])
    assert bool(second["over"])
    assert bool(third["over"])
    assert float(third["rewards"][1]) == 0
    assert totals[3][0] == pytest.approx(float(first["rewards"].sum() + third["rewards"][0]))
    # The instance comes back from its key.
    params = agent._instance(first["instance"])
    paid = [int(i["action"]) for i in items[1:4]]
    assert env.string_cost(params, paid) == pytest.approx(-totals[3][0], rel=1e-5)


def test_goals_are_masked_and_end_with_the_episode():
    env = TSP(4)
    config = dqn.DQNConfig(num_envs=1, width=8, rounds=1, heads=2, batch_size=4, buffer_size=8)
    agent = qlearning._DQN(env, lambda p, s: env.graph(p, s.decision), config)
    state = agent.init(jax.random.key(0), dqn.Hyper(gamma=1.0))
    episode = jax.tree.map(lambda leaf: leaf[0], state.episodes)
    _, item, _, _ = agent._act(state.theta, episode, jax.random.key(1), 1.0)
    params = agent._instance(item["instance"])
    worth = agent.values(state.target, params, item["next"])
    legal = np.flatnonzero(item["mask"])
    goal = float(agent._goal(state, state.theta, item))
    assert goal == pytest.approx(float(item["rewards"][0] + worth[legal].max()), abs=1e-5)
    ended = item | {"over": jnp.array(True)}
    assert float(agent._goal(state, state.theta, ended)) == pytest.approx(float(item["rewards"][0]))


@pytest.mark.slow
def test_flips_are_learnt():
    env = MaxCutFlip(8, RandomGraph("er", 0.5, signed=True))
    config = dqn.DQNConfig(num_envs=16, width=16, rounds=2, heads=2, exploration_steps=300)
    result = run(
        dqn.make(env, env.graph, config), steps=800, hyper=dqn.Hyper(gamma=0.9), progress=False
    )
    returns = result.metrics["return"].ravel()
    assert np.nanmean(returns[-5:]) > np.nanmean(returns[:5])
