"""Optima: of formulas, by several methods, and of files that were published."""

import csv

import jax
import numpy as np
import pytest

from jaxlab.core.errors import CapacityError, ConfigError, ScenarioError
from jaxlab.envs.combinatorial import bounds, cp_sat, heuristics, milp
from jaxlab.envs.combinatorial.colouring import GraphColouring
from jaxlab.envs.combinatorial.cuts import MaxCut
from jaxlab.envs.combinatorial.dynamic_programming import enumerate_states, solve, sweep
from jaxlab.envs.combinatorial.graph_files import load_graph, load_qubo
from jaxlab.envs.combinatorial.held_karp import held_karp
from jaxlab.envs.combinatorial.instances import (
    GraphInstance,
    JobShopInstance,
    KnapsackInstance,
    RoutingInstance,
    TourInstance,
)
from jaxlab.envs.combinatorial.knapsack import KnapsackScan, require_whole
from jaxlab.envs.combinatorial.paths import for_paths, grid_paths
from jaxlab.envs.combinatorial.routing import CVRP
from jaxlab.envs.combinatorial.scheduling import JobShop
from jaxlab.envs.combinatorial.tours import TSP
from jaxlab.envs.combinatorial.tsplib import load_tour_problem
from jaxlab.envs.combinatorial.vertices import IndependentSet, VertexCover
from tests.envs.combinatorial import oracles


@pytest.mark.parametrize("n", [5, 8, 10])
def test_tours_of_halton_points(n):
    instance = oracles.halton_tour(n)
    found = held_karp(instance.distances)
    assert found.cost == pytest.approx(oracles.TOURS[n], abs=1e-11)
    assert instance.length([0, *found.actions]) == pytest.approx(oracles.TOURS[n], abs=1e-11)


def test_all_dynamic_programmes_agree_on_tours():
    instance = oracles.halton_tour(8)
    for size in (8, 9):
        env = TSP(size)
        found = solve(env, env.params(instance))
        assert found.cost == pytest.approx(oracles.TOURS[8], abs=1e-11)
        assert instance.length([0, *found.actions]) == pytest.approx(found.cost)
    env = TSP(8)
    every = enumerate_states(env, env.params(instance))
    assert every.solution().cost == pytest.approx(oracles.TOURS[8], abs=1e-11)
    # The start, and for each set of visited cities each of them as the current one.
    assert every.count == 1 + 7 * 2**6


@pytest.mark.parametrize("n", [10, 20])
def test_knapsacks(n):
    instance = oracles.knapsack(n)
    capacity, best = oracles.KNAPSACKS[n]
    assert instance.capacity == capacity
    env = KnapsackScan(20, 133)
    found = solve(env, env.params(instance))
    assert -found.cost == best
    assert instance.value(env.solution(env.params(instance), found.actions)) == best
    assert milp.knapsack(instance, 10).bound == pytest.approx(best)
    assert bounds.knapsack_bound(instance) >= best
    packed = heuristics.pack_greedily(instance.values, instance.weights, instance.capacity)
    if n in oracles.KNAPSACK_GREEDY:
        assert instance.value(np.flatnonzero(packed)) == oracles.KNAPSACK_GREEDY[n]


@pytest.mark.parametrize("n", [8, 12])
def test_graphs(n):
    graph = oracles.graph(n)
    edges, cut, independent = oracles.GRAPHS[n]
    assert len(graph.edges) == edges
    env = MaxCut(12)
    found = solve(env, env.params(graph))
    assert -found.cost == cut == graph.cut(found.actions)
    assert -solve(IndependentSet(12), IndependentSet(12).params(graph)).cost == independent
    assert solve(VertexCover(12), VertexCover(12).params(graph)).cost == n - independent
    assert milp.cut(graph, 20).bound == pytest.approx(cut)
    assert milp.vertices(graph, 20, cover=False).bound == independent
    assert milp.vertices(graph, 20, cover=True).bound == n - independent
    assert bounds.cut_bound(graph) >= cut
    assert bounds.matching_size(graph) <= n - independent
    assert float(heuristics.tabu_cut(jax.random.key(0), graph.matrix, 200)[1]) == cut


@pytest.mark.parametrize("n", [5, 10])
def test_grids(n):
    instance = grid_paths(oracles.grid(n))
    env = for_paths(instance)
    params = env.params(instance)
    found = solve(env, params)
    best, greedy = oracles.GRIDS[n]
    assert found.cost == best == instance.length(env.solution(params, found.actions))
    assert float(heuristics.greedy(env, params)[1]) == greedy
    # The longest path has 2n edges with the one to the first entry; one sweep more sees no change.
    assert int(sweep(env, params).sweeps) <= 2 * n + 1


def test_heuristics_for_tours():
    instance = oracles.halton_tour(10)
    d = instance.distances
    nearest = instance.length(heuristics.nearest_neighbour(d))
    assert nearest == pytest.approx(oracles.NEAREST_NEIGHBOUR[10], abs=1e-11)
    for rule in ("farthest", "nearest", "cheapest"):
        inserted = heuristics.insertion(d, rule)
        assert oracles.TOURS[10] - 1e-9 <= instance.length(inserted) < 1.25 * oracles.TOURS[10]
    worst = np.array([0, 5, 1, 6, 2, 7, 3, 8, 4, 9])
    improved = instance.length(heuristics.two_opt(d, worst))
    assert oracles.TOURS[10] - 1e-9 <= improved < 1.1 * oracles.TOURS[10]
    tour, length = heuristics.best_tour(d)
    assert instance.length(tour) == pytest.approx(float(length))
    assert float(length) <= nearest + 1e-12
    assert bounds.tour_bound(instance) <= oracles.TOURS[10] + 1e-9
    assert bounds.tour_bound(instance) > 0.95 * oracles.TOURS[10]


def test_programmes_of_tours():
    instance = oracles.halton_tour(10)
    found = milp.tour(instance, 30)
    assert found.proved
    assert instance.length(found.solution) == pytest.approx(oracles.TOURS[10], abs=1e-9)
    rng = np.random.default_rng(0)
    matrix = rng.uniform(0.1, 1, (7, 7))
    np.fill_diagonal(matrix, 0)
    uneven = TourInstance("uneven", matrix)
    found = milp.tour(uneven, 30)
    assert found.proved
    assert uneven.length(found.solution) == pytest.approx(held_karp(matrix).cost)
    assert bounds.tour_bound(uneven) <= found.bound + 1e-9


def test_routes_schedules_and_colourings():
    rng = np.random.default_rng(1)
    tour = oracles.halton_tour(5)
    routing = RoutingInstance("r", tour.distances, np.array([0.0, 3, 4, 2, 5]), 8.0)
    env = CVRP(4)
    exact = solve(env, env.params(routing))
    assert routing.length(exact.actions) == pytest.approx(exact.cost)
    found = milp.routes(routing, 30)
    assert found.proved
    assert routing.length(found.solution) == pytest.approx(exact.cost)

    machines = np.array([rng.permutation(3) for _ in range(3)])
    shop = JobShopInstance("s", machines, rng.integers(1, 9, (3, 3)).astype(float))
    process = JobShop(3, 3)
    exact = solve(process, process.params(shop))
    assert shop.makespan(exact.actions) == exact.cost
    found = milp.shop(shop, 30)
    assert found.proved
    assert shop.makespan(found.solution) == pytest.approx(exact.cost)
    assert bounds.makespan_bound(shop) <= exact.cost

    graph = oracles.graph(8)
    colouring = GraphColouring(8)
    exact = solve(colouring, colouring.params(graph))
    colours = heuristics.saturation_colouring(graph.adjacency)
    assert not (graph.adjacency & (colours[:, None] == colours)).any()
    assert bounds.clique_size(graph) <= exact.cost <= colours.max() + 1
    found = milp.colouring(graph, 30, int(colours.max()) + 1)
    assert max(found.solution) + 1 == exact.cost


def test_what_is_too_large_or_infeasible_is_said():
    with pytest.raises(CapacityError, match="room for 24"):
        solve(MaxCut(30), None)
    with pytest.raises(CapacityError, match="cities"):
        held_karp(np.zeros((30, 30)))
    env = JobShop(3, 3)
    with pytest.raises(CapacityError, match="more than"):
        enumerate_states(env, env.sample_params(jax.random.key(0)), most_states=10)
    with pytest.raises(ConfigError, match="item 1 weighs"):
        require_whole(KnapsackInstance("k", np.ones(1), np.array([0.5]), 1.0))
    # Weight below what constraints ask for.
    programme = milp._Programme(np.ones(2))
    programme.row([0, 1], 1.0, low=3)
    with pytest.raises(ScenarioError, match="infeasible"):
        programme.solve(5)


@pytest.mark.skipif(cp_sat.available(), reason="OR-Tools is installed")
def test_without_ortools_it_says_how_to_get_it():
    with pytest.raises(ConfigError, match=r"jaxlab-suite\[exact\]"):
        cp_sat.tour(oracles.halton_tour(5), 1)


@pytest.mark.skipif(not cp_sat.available(), reason="needs OR-Tools, the extra exact")
def test_cp_sat_agrees_skipped_without_ortools():
    tour, graph = oracles.halton_tour(8), oracles.graph(8)
    found = cp_sat.tour(tour, 20)
    assert tour.length(found.solution) == pytest.approx(oracles.TOURS[8], abs=1e-6)
    assert cp_sat.cut(graph, 20).bound == oracles.GRAPHS[8][1]
    assert cp_sat.vertices(graph, 20, cover=False).bound == oracles.GRAPHS[8][2]
    assert cp_sat.vertices(graph, 20, cover=True).bound == 8 - oracles.GRAPHS[8][2]
    assert cp_sat.knapsack(oracles.knapsack(10), 20).bound == oracles.KNAPSACKS[10][1]


def read_table(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def test_small_cuts_of_the_shared_data_skipped_where_absent(shared_data):
    folder = shared_data("combinatorial/maxcut_small")
    env = MaxCut(20)
    for row in read_table(folder / "optima.csv")[::5]:
        graph = load_graph(folder / row["instance"])
        assert -solve(env, env.params(graph)).cost == int(row["maxcut"])


def test_a_small_cut_made_here():
    rng = np.random.default_rng(5)
    i, j = np.triu_indices(10, 1)
    graph = GraphInstance("g", 10, np.stack([i, j], 1), rng.choice([-1.0, 1.0], len(i)))
    sides = (np.arange(2**9)[:, None] >> np.arange(10)) & 1
    best = max(graph.cut(row) for row in sides)
    env = MaxCut(10)
    assert -solve(env, env.params(graph)).cost == best


def test_published_optima_of_the_shared_data_skipped_where_absent(shared_data):
    folder = shared_data("combinatorial")
    gr17 = load_tour_problem(folder / "tsplib/gr17.tsp")
    assert milp.tour(gr17, 60).bound == 2085
    burma = load_tour_problem(folder / "tsplib/burma14.tsp")
    assert held_karp(burma.distances).cost == 3323
    qubo = load_qubo(folder / "qubo_gka/gka2b.sparse").as_cut()
    best = max(
        float(heuristics.tabu_cut(jax.random.key(s), qubo.matrix, 3000)[1]) for s in range(2)
    )
    assert best == 121
    graph = load_graph(folder / "biqmac_rudy/pm1s_80.0")
    best = max(
        float(heuristics.tabu_cut(jax.random.key(s), graph.matrix, 20_000)[1]) for s in range(3)
    )
    assert best == 79
