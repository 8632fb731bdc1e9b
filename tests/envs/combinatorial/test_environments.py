"""The environments keep the contract, and cost what strings cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import CapacityError, DataError
from jaxlab.core.testing import check_env
from jaxlab.envs.combinatorial.colouring import GraphColouring
from jaxlab.envs.combinatorial.cuts import MaxCut, MaxCutFlip
from jaxlab.envs.combinatorial.distributions import RandomGraph
from jaxlab.envs.combinatorial.instances import (
    GraphInstance,
    KnapsackInstance,
    PathInstance,
    RoutingInstance,
    TourInstance,
)
from jaxlab.envs.combinatorial.knapsack import Knapsack, KnapsackScan
from jaxlab.envs.combinatorial.paths import ShortestPath, for_paths
from jaxlab.envs.combinatorial.protocol import run_string
from jaxlab.envs.combinatorial.routing import CVRP
from jaxlab.envs.combinatorial.scheduling import JobShop
from jaxlab.envs.combinatorial.tours import ATSP, TSP
from jaxlab.envs.combinatorial.vertices import IndependentSet, VertexCover
from tests.envs.combinatorial import oracles

PROCESSES = (
    *(TSP(5), ATSP(4), Knapsack(5), KnapsackScan(4, 20), MaxCut(5), IndependentSet(5)),
    *(VertexCover(5), GraphColouring(4), ShortestPath(7, 2), CVRP(3), JobShop(2, 2)),
)


@pytest.mark.parametrize("env", [*PROCESSES, MaxCutFlip(4)], ids=lambda env: env.name)
def test_they_keep_the_contract(env):
    precision = "float64" if env.name in ("tsp", "maxcut_flip") else "float32"
    report = check_env(
        env, steps=18, batch=2, batch_steps=1, eager_steps=1, precisions=(precision,)
    )
    assert report.episodes[precision] >= 1


def test_rewards_are_the_cost_of_the_string():
    env = TSP(6)
    params = env.sample_params(jax.random.key(3))
    state, timestep = env.reset(jax.random.key(0), params)
    step, string, rewards = jax.jit(env.step), [2, 1, 5, 3, 4], []
    for action in string:
        state, timestep = step(jax.random.key(1), state, jnp.int32(action), params)
        rewards.append(float(timestep.reward))
    assert bool(timestep.terminated)
    cost = env.string_cost(params, string)
    assert -sum(rewards) == pytest.approx(cost)
    assert float(state.cost) == pytest.approx(cost)
    assert run_string(env, params, string)[1] == pytest.approx(cost)


def test_illegal_letters_end_the_episode_and_cost_more_than_any_string():
    env = TSP(5)
    params = env.sample_params(jax.random.key(0))
    state, _ = env.reset(jax.random.key(0), params)
    state, timestep = env.step(jax.random.key(0), state, jnp.int32(0), params)
    assert bool(timestep.terminated)
    assert bool(timestep.info["illegal"])
    worst = max(env.string_cost(params, p) for p in ([1, 2, 3, 4], [4, 2, 1, 3], [2, 4, 1, 3]))
    assert -float(timestep.reward) > worst
    assert not run_string(env, params, [1, 1])[2]


def test_padding_changes_no_cost():
    instance = oracles.halton_tour(5)
    small, large = TSP(5), TSP(8)
    string = [2, 4, 1, 3]
    for env in (small, large):
        _, cost, complete = run_string(env, env.params(instance), string)
        assert complete
        assert cost == pytest.approx(oracles.TOURS[5])


def test_flips_keep_count_of_the_cut():
    env = MaxCutFlip(7, RandomGraph("er", 0.6, signed=True))
    params = env.sample_params(jax.random.key(1))
    state, _ = env.reset(jax.random.key(2), params)
    step = jax.jit(env.step)
    best, paid = float(state.cut), 0.0
    weights = np.asarray(params.weights)
    rows, columns = np.nonzero(np.triu(weights))
    graph = GraphInstance("g", 7, np.stack([rows, columns], 1), weights[rows, columns])
    first = best
    for action in np.random.default_rng(0).integers(0, 7, env.length):
        state, timestep = step(jax.random.key(0), state, jnp.int32(action), params)
        cut = graph.cut(np.asarray(state.spins) < 0)
        assert float(state.cut) == pytest.approx(cut)
        best, paid = max(best, cut), paid + float(timestep.reward) * 7
    assert bool(timestep.truncated)
    assert float(state.best) == pytest.approx(best)
    assert paid == pytest.approx(best - first)
    assert graph.cut(np.asarray(state.best_spins) < 0) == pytest.approx(best)


def test_random_graphs_have_the_edges_they_should():
    keys = jax.random.split(jax.random.key(0), 50)
    er = jax.vmap(lambda k: RandomGraph("er", 0.3).adjacency(k, 20))(keys)
    assert float(er.sum()) / 2 / 50 / 190 == pytest.approx(0.3, abs=0.02)
    ba = jax.vmap(lambda k: RandomGraph("ba", attach=4).adjacency(k, 20))(keys)
    # Each vertex from the fifth on brings four edges, as in networkx.
    np.testing.assert_array_equal(np.asarray(ba.sum((1, 2)) / 2), 64)
    assert not np.asarray(ba)[:, np.arange(20), np.arange(20)].any()
    signed = RandomGraph("er", 0.9, signed=True).weights(keys[0], 20, np.dtype("float64"))
    assert set(np.unique(signed)) == {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(signed, signed.T)


def test_bad_instances_are_refused_before_anything_is_compiled():
    odd = TourInstance("odd", np.array([[0.0, 1, 2], [3, 0, 1], [2, 1, 0]]))
    with pytest.raises(DataError, match="from city 1 to 2"):
        TSP(3).params(odd)
    assert ATSP(3).params(odd).distances.shape == (3, 3)
    with pytest.raises(CapacityError, match=r"has 5 cities.*room for 4; make it with size=5"):
        TSP(4).params(oracles.halton_tour(5))
    with pytest.raises(DataError, match="customer 3 demands 9"):
        RoutingInstance("r", np.zeros((3, 3)), np.array([0.0, 1, 9]), 5.0)
    with pytest.raises(DataError, match="negative"):
        KnapsackInstance("k", np.ones(2), np.array([1.0, -1]), 3.0)
    loop = PathInstance("p", 3, np.array([[0, 1], [1, 0]]), np.array([1.0, 1.0]), 0, 2)
    with pytest.raises(DataError, match="no path leads"):
        for_paths(loop).params(loop)
    free = PathInstance("p", 2, np.array([[0, 1]]), np.array([0.0]), 0, 1)
    with pytest.raises(DataError, match="positive weight"):
        for_paths(free).params(free)


def test_pictures():
    env = TSP(4)
    params = env.sample_params(jax.random.key(0))
    state, _ = env.reset(jax.random.key(0), params)
    flip = MaxCutFlip(4)
    graph = flip.sample_params(jax.random.key(1))
    for picture in (
        env.render(state, params),
        flip.render(flip.reset(jax.random.key(0), graph)[0], graph),
    ):
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3
        assert picture.std() > 1
