"""Every problem with its files, environment, solvers, heuristics and bounds, by name."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.combinatorial.options import SolveOptions
from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.combinatorial import (
    bounds,
    cp_sat,
    dynamic_programming,
    graph_files,
    heuristics,
    list_files,
    milp,
    tsplib,
)
from jaxlab.envs.combinatorial.colouring import GraphColouring
from jaxlab.envs.combinatorial.cuts import MaxCut
from jaxlab.envs.combinatorial.distributions import RandomGraph
from jaxlab.envs.combinatorial.held_karp import held_karp
from jaxlab.envs.combinatorial.instances import GraphInstance, QuboInstance, TourInstance
from jaxlab.envs.combinatorial.knapsack import Knapsack, KnapsackScan, require_whole
from jaxlab.envs.combinatorial.paths import ShortestPath, for_paths
from jaxlab.envs.combinatorial.protocol import DecisionProcess
from jaxlab.envs.combinatorial.routing import CVRP
from jaxlab.envs.combinatorial.scheduling import JobShop
from jaxlab.envs.combinatorial.tours import ATSP, TSP
from jaxlab.envs.combinatorial.vertices import IndependentSet, VertexCover

#: States of a table that takes a second or so.
QUICK_STATES = 2**21


class Problem(NamedTuple):
    """What the commands know of a problem.

    Attributes:
      sense: +1 if the objective is minimised, -1 if maximised.
      load: From a file to an instance.
      process: The decision process that an instance fits into.
      objective: Of a solution, checked: `(instance, solution)`.
      heuristic: A solution without any proof: `(instance, options)`.
      bound: On the optimum, at little cost.
      milp: `(instance, seconds)`; None where dynamic programming always does.
      cp_sat: The same.
      quick: Whether dynamic programming takes a moment only.
    """

    sense: int
    load: Callable[[Any], Any]
    process: Callable[[Any], DecisionProcess]
    objective: Callable[[Any, Any], float]
    heuristic: Callable[[Any, SolveOptions], list[int]]
    bound: Callable[[Any], float]
    milp: Callable[[Any, float], milp.Proof] | None
    cp_sat: Callable[[Any, float], milp.Proof] | None
    quick: Callable[[Any], bool]


def dynamic_programme(problem: Problem, instance: Any) -> list[int]:
    """An optimal solution by dynamic programming.

    Raises:
      CapacityError: There are too many states.
      ConfigError: Weights are not whole (knapsack).
    """
    if isinstance(instance, TourInstance):
        return [0, *held_karp(instance.distances).actions]
    env = problem.process(instance)
    if isinstance(env, Knapsack):
        require_whole(instance)
        env = KnapsackScan(env.size, int(instance.capacity))
    params = env.params(instance)  # type: ignore[attr-defined]
    found = dynamic_programming.solve(env, params)
    return env.solution(params, found.actions)  # type: ignore[attr-defined]


def _load_tsp(path: Any) -> TourInstance:
    instance = tsplib.load_tour_problem(path)
    instance.require_symmetric()
    return instance


def _tour(instance: TourInstance, options: SolveOptions) -> list[int]:
    tour, _ = heuristics.best_tour(instance.distances)
    if instance.symmetric:
        tour = heuristics.two_opt(instance.distances, tour)
    found = [int(city) for city in np.asarray(tour)]
    return found[found.index(0) :] + found[: found.index(0)]


def _cut(graph: GraphInstance, options: SolveOptions) -> list[int]:
    balanced = _balanced_cut(graph)
    # Nothing exceeds the sum of positive weights.
    if graph.cut(balanced) - graph.offset >= graph.weights[graph.weights > 0].sum():
        return balanced.astype(int).tolist()
    matrix = graph.matrix
    starts = 1 if graph.vertices > 500 else 4
    candidates = [balanced, np.asarray(heuristics.cut_greedily(matrix))]
    for number in range(starts):
        key = jax.random.key(options.seed + number)
        candidates.append(np.asarray(heuristics.tabu_cut(key, matrix, options.effort)[0]))
    best = max(candidates, key=graph.cut)
    return (best ^ best[0]).astype(int).tolist()


def _balanced_cut(graph: GraphInstance) -> np.ndarray:
    """Sides along the trees of a search: the best cut where the graph is balanced."""
    neighbours: list[list[tuple[int, float]]] = [[] for _ in range(graph.vertices)]
    for (i, j), weight in zip(graph.edges.tolist(), graph.weights.tolist(), strict=True):
        neighbours[i].append((j, weight))
        neighbours[j].append((i, weight))
    sides = np.full(graph.vertices, -1)
    for root in range(graph.vertices):
        if sides[root] >= 0:
            continue
        sides[root], stack = 0, [root]
        while stack:
            vertex = stack.pop()
            for other, weight in neighbours[vertex]:
                if sides[other] < 0:
                    sides[other] = sides[vertex] ^ (weight > 0)
                    stack.append(other)
    return sides.astype(bool)


def _qubo(instance: QuboInstance, options: SolveOptions) -> list[int]:
    return _bits(_cut(instance.as_cut(), options))


def _bits(sides: list[int]) -> list[int]:
    """Bits of variables from sides of the graph, vertex 0 being the additional one."""
    return [side ^ sides[0] for side in sides[1:]]


def _on_cut(solve: Callable[[GraphInstance, float], milp.Proof]) -> Any:
    """A solver of cuts as one of QUBOs."""

    def solve_qubo(instance: QuboInstance, seconds: float) -> milp.Proof:
        proof = solve(instance.as_cut(), seconds)
        bits = None if proof.solution is None else _bits(proof.solution)
        return milp.Proof(bits, -proof.bound, proof.proved)

    return solve_qubo


def _greedy(process: Callable[[Any], DecisionProcess]) -> Callable[[Any, SolveOptions], list[int]]:
    """The string of letters that each cost least."""

    def solve(instance: Any, options: SolveOptions) -> list[int]:
        env: Any = process(instance)
        params = env.params(instance)
        actions = np.asarray(heuristics.greedy(env, params)[0])
        return env.solution(params, actions[actions >= 0].tolist())

    return solve


def _vertices(largest: bool) -> Callable[[GraphInstance, SolveOptions], list[int]]:
    def solve(graph: GraphInstance, options: SolveOptions) -> list[int]:
        chosen = heuristics.vertices_by_degree(graph.adjacency, largest)
        return np.flatnonzero(chosen).tolist()

    return solve


def _independent(graph: GraphInstance, chosen: Any) -> float:
    _require_vertices(graph, chosen)
    if graph.adjacency[np.ix_(chosen, chosen)].any():
        raise DataError(f"{graph.name}: two of the vertices are joined")
    return float(len(chosen))


def _cover(graph: GraphInstance, chosen: Any) -> float:
    _require_vertices(graph, chosen)
    inside = np.isin(graph.edges, np.asarray(chosen, int)).any(1)
    if not inside.all():
        raise DataError(f"{graph.name}: an edge has no end among the vertices")
    return float(len(chosen))


def _require_vertices(graph: GraphInstance, chosen: Any) -> None:
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(graph.vertices)):
        raise DataError(f"{graph.name}: expected different vertices below {graph.vertices}")


def _colours(graph: GraphInstance, colours: Any) -> float:
    colours = np.asarray(colours)
    if (colours[graph.edges[:, 0]] == colours[graph.edges[:, 1]]).any():
        raise DataError(f"{graph.name}: two neighbours have one colour")
    return float(len(np.unique(colours)))


def _saturated(graph: GraphInstance, options: SolveOptions) -> list[int]:
    return heuristics.saturation_colouring(graph.adjacency).tolist()


def _most_colours(graph: GraphInstance) -> int:
    return int(heuristics.saturation_colouring(graph.adjacency).max()) + 1


def _packed(instance: Any, options: SolveOptions) -> list[int]:
    chosen = heuristics.pack_greedily(instance.values, instance.weights, instance.capacity)
    return np.flatnonzero(np.asarray(chosen) & (instance.values > 0)).tolist()


def _shop(instance: Any) -> JobShop:
    jobs, operations = instance.machines.shape
    return JobShop(jobs, operations)


def _tours(process: type[TSP], load: Callable[[Any], TourInstance]) -> Problem:
    return Problem(
        1,
        load,
        lambda instance: process(instance.size),
        lambda instance, tour: instance.length(tour),
        _tour,
        bounds.tour_bound,
        milp.tour,
        cp_sat.tour,
        lambda instance: instance.size <= 12,
    )


def _graphs(cover: bool) -> Problem:
    process = VertexCover if cover else IndependentSet
    return Problem(
        1 if cover else -1,
        graph_files.load_graph,
        lambda graph: process(graph.vertices),
        _cover if cover else _independent,
        _vertices(cover),
        lambda graph: float(
            bounds.matching_size(graph) if cover else graph.vertices - bounds.matching_size(graph)
        ),
        lambda graph, seconds: milp.vertices(graph, seconds, cover=cover),
        lambda graph, seconds: cp_sat.vertices(graph, seconds, cover=cover),
        lambda graph: graph.vertices <= 16,
    )


PROBLEMS: dict[str, Problem] = {
    "tsp": _tours(TSP, _load_tsp),
    "atsp": _tours(ATSP, tsplib.load_tour_problem),
    "maxcut": Problem(
        -1,
        graph_files.load_graph,
        lambda graph: MaxCut(graph.vertices),
        lambda graph, sides: graph.cut(sides),
        _cut,
        bounds.cut_bound,
        milp.cut,
        cp_sat.cut,
        lambda graph: graph.vertices <= 20,
    ),
    "qubo": Problem(
        1,
        graph_files.load_qubo,
        lambda qubo: MaxCut(len(qubo.matrix) + 1),
        lambda qubo, bits: qubo.value(bits),
        _qubo,
        lambda qubo: -bounds.cut_bound(qubo.as_cut()),
        _on_cut(milp.cut),
        _on_cut(cp_sat.cut),
        lambda qubo: False,
    ),
    "mis": _graphs(cover=False),
    "mvc": _graphs(cover=True),
    "knapsack": Problem(
        -1,
        list_files.load_knapsack,
        lambda instance: Knapsack(len(instance.values)),
        lambda instance, items: instance.value(items),
        _packed,
        bounds.knapsack_bound,
        milp.knapsack,
        cp_sat.knapsack,
        lambda instance: (
            bool(np.all(instance.weights == np.floor(instance.weights)))
            and instance.capacity == np.floor(instance.capacity)
            and len(instance.values) * instance.capacity <= QUICK_STATES
        ),
    ),
    "cvrp": Problem(
        1,
        tsplib.load_routing_problem,
        lambda instance: CVRP(instance.size - 1),
        lambda instance, walk: instance.length(walk),
        _greedy(lambda instance: CVRP(instance.size - 1)),
        bounds.routes_bound,
        milp.routes,
        cp_sat.routes,
        lambda instance: instance.size <= 7,
    ),
    "jobshop": Problem(
        1,
        list_files.load_job_shop,
        _shop,
        lambda instance, order: instance.makespan(order),
        _greedy(_shop),
        bounds.makespan_bound,
        milp.shop,
        cp_sat.shop,
        lambda instance: instance.machines.size <= 9,
    ),
    "colouring": Problem(
        1,
        graph_files.load_graph,
        lambda graph: GraphColouring(graph.vertices),
        _colours,
        _saturated,
        lambda graph: float(bounds.clique_size(graph)),
        lambda graph, seconds: milp.colouring(graph, seconds, _most_colours(graph)),
        lambda graph, seconds: cp_sat.colouring(graph, seconds, _most_colours(graph)),
        lambda graph: graph.vertices <= 8,
    ),
    "shortest_path": Problem(
        1,
        graph_files.load_paths,
        for_paths,
        lambda instance, path: instance.length(path),
        _greedy(for_paths),
        lambda instance: float(instance.weights.min(initial=np.inf)),
        None,
        None,
        lambda instance: True,
    ),
}


def process_of_size(name: str, size: int) -> DecisionProcess:
    """The decision process of a problem for random instances of a size.

    Raises:
      ConfigError: The problem has none.
    """
    made: dict[str, Callable[[], DecisionProcess]] = {
        "tsp": lambda: TSP(size),
        "atsp": lambda: ATSP(size),
        "maxcut": lambda: MaxCut(size),
        "mis": lambda: IndependentSet(size),
        "mvc": lambda: VertexCover(size),
        "knapsack": lambda: Knapsack(size),
        "cvrp": lambda: CVRP(size),
        "jobshop": lambda: JobShop(size, 2),
        "colouring": lambda: GraphColouring(size, RandomGraph("er", 0.5)),
        "shortest_path": lambda: ShortestPath(size, 2),
    }
    if name not in made:
        raise ConfigError(f"--problem {name}: has no process of its own; choose {', '.join(made)}")
    return made[name]()


def read_instance(name: str, path: pathlib.Path) -> Any:
    """The instance of a file.

    Raises:
      DataError: The file is malformed.
    """
    return PROBLEMS[name].load(path)
