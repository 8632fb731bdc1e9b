"""What strings under learnt values cost beside optima, on a test set and on files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.combinatorial.learnt import Learnt, view_of
from experiments.combinatorial.problems import PROBLEMS
from experiments.combinatorial.train_options import TrainOptions
from jaxlab.agents.dqn import decoding, qlearning
from jaxlab.core.intervals import bootstrap
from jaxlab.envs.combinatorial import heuristics
from jaxlab.envs.combinatorial.instances import (
    GraphInstance,
    KnapsackInstance,
    RoutingInstance,
    TourInstance,
)

#: Test instances have keys of their own.
TEST_SEED = 2**31 - 1
#: Instances that are decoded at once.
TOGETHER = 8


def test_set(learnt: Learnt, count: int) -> Any:
    """Stacked params of the test set."""
    keys = jax.random.split(jax.random.key(TEST_SEED), count)
    return jax.jit(jax.vmap(learnt.env.sample_params))(keys)


def instance_of(name: str, params: Any) -> Any:
    """The instance of params, in 64 bits."""
    if name in ("tsp", "atsp"):
        d = np.asarray(params.distances, np.float64)
        return TourInstance(name, (d + d.T) / 2 if name == "tsp" else d)
    if name == "knapsack":
        values, weights = (np.asarray(x, np.float64) for x in (params.values, params.weights))
        return KnapsackInstance(name, values, weights, float(params.capacity))
    if name == "cvrp":
        d, demands = (np.asarray(x, np.float64) for x in (params.distances, params.demands))
        return RoutingInstance(name, (d + d.T) / 2, demands, float(params.capacity))
    matrix = np.asarray(params.weights if name == "maxcut" else params.adjacency, np.float64)
    rows, columns = np.nonzero(np.triu(matrix, 1))
    edges = np.stack([rows, columns], 1)
    return GraphInstance(name, len(matrix), edges, matrix[rows, columns])


def references(options: TrainOptions, params: Any) -> tuple[np.ndarray, int]:
    """The best known objective of each test instance, and how many of them are proved."""
    problem, best, proved = PROBLEMS[options.problem], [], 0
    for number in range(options.test):
        instance = instance_of(options.problem, jax.tree.map(lambda x, n=number: x[n], params))
        if options.problem == "maxcut":
            cuts = [
                float(heuristics.tabu_cut(jax.random.key(seed), instance.matrix, 4000)[1])
                for seed in range(3)
            ]
            best.append(max(cuts))
            continue
        assert problem.milp is not None
        proof = problem.milp(instance, options.time_limit)
        proved += proof.proved
        found = -problem.sense * np.inf
        if proof.solution is not None:
            found = problem.objective(instance, proof.solution)
        best.append(found)
    return np.array(best), proved


def decoders(learnt: Learnt, options: TrainOptions) -> dict[str, Callable[..., Any]]:
    """From parameters and an instance to a string and its cost, by name."""
    env, score = learnt.env, learnt.score
    found: dict[str, Callable[..., Any]] = {
        "greedy": lambda theta, params: decoding.greedy(env, score(theta), params),
        f"beam{options.beam}": lambda theta, params: decoding.beam(
            env, score(theta), params, options.beam
        ),
    }
    if options.problem == "tsp":
        found["x8"] = lambda theta, params: _from_eight_homes(learnt, theta, params)
    return found


def _from_eight_homes(learnt: Learnt, theta: Any, params: Any) -> Any:
    """The best greedy tour with each of eight cities as the first one; cities count from there."""
    n = learnt.env.size
    shifts = (jnp.arange(8) * n) // 8

    def turned(shift: Any) -> Any:
        order = (jnp.arange(n) + shift) % n
        view = params.replace(
            distances=params.distances[order][:, order], coordinates=params.coordinates[order]
        )
        tour, cost = decoding.greedy(learnt.env, learnt.score(theta), view)
        return (tour + shift) % n, cost

    tours, costs = jax.vmap(turned)(shifts)
    best = jnp.argmin(costs)
    return tours[best], costs[best]


def best_cuts(learnt: Learnt, options: TrainOptions, theta: Any, params: Any) -> np.ndarray:
    """The best cut of greedy episodes from random starts, for each instance, `[test]`."""
    env: Any = learnt.env
    values = qlearning.action_values(env, view_of(env), options.dqn)

    def episode(key: Any, of: Any) -> Any:
        def step(state: Any, _: None) -> tuple[Any, None]:
            scores = jnp.where(jnp.arange(env.size) < of.size, values(theta, of, state), -jnp.inf)
            return env.step(key, state, jnp.argmax(scores).astype(jnp.int32), of)[0], None

        return jax.lax.scan(step, env.reset(key, of)[0], None, env.length)[0].best

    keys = jax.random.split(jax.random.key(1), options.episodes)
    best = jax.jit(
        lambda p: jax.lax.map(lambda of: jax.vmap(episode, (0, None))(keys, of).max(), p)
    )
    return np.asarray(best(params), float)


def evaluate(learnt: Learnt, options: TrainOptions, theta: Any) -> dict[str, Any]:
    """Gaps on the test set, with intervals, beside those of heuristics."""
    params = test_set(learnt, options.test)
    best, proved = references(options, params)
    sense = PROBLEMS[options.problem].sense
    result: dict[str, Any] = {
        "test_instances": options.test,
        "proved": proved,
        "reference": float(best.mean()),
    }
    objectives = {"heuristic": heuristic(options, params)}
    if options.problem == "maxcut":
        objectives["learned"] = best_cuts(learnt, options, theta, params)
        best = np.maximum(best, objectives["learned"])
    else:
        for name, decode in decoders(learnt, options).items():
            run = jax.jit(
                lambda p, d=decode: jax.lax.map(
                    lambda of: d(theta, of)[1], p, batch_size=min(TOGETHER, options.test)
                )
            )
            objectives[name] = sense * np.asarray(run(params), float)
    for name, values in objectives.items():
        result[name] = _summary(values, best, sense)
    return result


def _summary(values: np.ndarray, best: np.ndarray, sense: int) -> dict[str, Any]:
    """Mean objective, the gap of the means with its interval, and the share of optima."""
    # Graphs may be drawn that have no cut above zero.
    scale = max(abs(float(best.mean())), 1e-3)
    gap = bootstrap(sense * (values - best) / scale)
    return {
        "mean": float(values.mean()),
        "gap": float(gap.estimate),
        "gap_low": float(gap.low),
        "gap_high": float(gap.high),
        "optimal": float(np.mean(np.abs(values - best) <= 1e-5 * np.maximum(1, np.abs(best)))),
    }


def heuristic(options: TrainOptions, params: Any) -> np.ndarray:
    """Objectives of the classical heuristic of the problem, `[test]`: nearest neighbours for
    tours, density for knapsacks, degrees for vertices, the best flips for cuts."""
    problem, values = PROBLEMS[options.problem], []
    for number in range(options.test):
        instance = instance_of(options.problem, jax.tree.map(lambda x, n=number: x[n], params))
        if isinstance(instance, TourInstance):
            found = np.asarray(heuristics.nearest_neighbour(instance.distances)).tolist()
        elif options.problem == "maxcut":
            found = np.asarray(heuristics.cut_greedily(instance.matrix)).astype(int).tolist()
        else:
            found = problem.heuristic(instance, None)  # type: ignore[arg-type]
        values.append(problem.objective(instance, found))
    return np.array(values)


def evaluate_files(learnt: Learnt, options: TrainOptions, theta: Any) -> list[dict[str, Any]]:
    """Objectives on the instance files of the options, by beam search."""
    rows = []
    for path in options.instance:
        problem = PROBLEMS[options.problem]
        instance = problem.load(path)
        found = solve_with(learnt, options, theta, instance)
        rows.append({"instance": instance.name, "cost": problem.objective(instance, found)})
    return rows


def solve_with(learnt: Learnt, options: TrainOptions, theta: Any, instance: Any) -> list[int]:
    """A solution of an instance under learnt values."""
    env: Any = learnt.env
    if options.problem == "maxcut":
        return _best_sides(learnt, options, theta, instance)
    params = env.params(scaled(instance))
    string, _ = decoding.beam(env, learnt.score(theta), params, options.beam)
    letters = np.asarray(string)
    return env.solution(params, letters[letters >= 0].tolist())


def _best_sides(learnt: Learnt, options: TrainOptions, theta: Any, instance: Any) -> list[int]:
    env: Any = learnt.env
    params = env.params(instance)
    values = qlearning.action_values(env, view_of(env), options.dqn)

    def episode(key: Any) -> Any:
        def step(state: Any, _: None) -> tuple[Any, None]:
            scores = values(theta, params, state)
            scores = jnp.where(jnp.arange(env.size) < params.size, scores, -jnp.inf)
            return env.step(key, state, jnp.argmax(scores).astype(jnp.int32), params)[0], None

        return jax.lax.scan(step, env.reset(key, params)[0], None, env.length)[0]

    keys = jax.random.split(jax.random.key(options.seed), options.episodes)
    ends = jax.jit(jax.vmap(episode))(keys)
    spins = np.asarray(ends.best_spins)[int(np.argmax(ends.best))]
    sides = (spins[: instance.vertices] < 0).astype(int)
    return (sides ^ sides[0]).tolist()


def scaled(instance: Any) -> Any:
    """The instance in the units that values are learnt in: tours as in the unit square, the
    largest weight of a knapsack as one."""
    if isinstance(instance, TourInstance | RoutingInstance):
        size = max(float(instance.distances.max()) / 2**0.5, 1e-12)
        places = instance.coordinates
        return dataclasses.replace(
            instance,
            distances=instance.distances / size,
            coordinates=None if places is None else (places - places.min(0)) / np.ptp(places),
        )
    if isinstance(instance, KnapsackInstance):
        unit, worth = (
            max(float(np.abs(x).max()), 1e-12) for x in (instance.weights, instance.values)
        )
        return dataclasses.replace(
            instance,
            values=instance.values / worth,
            weights=instance.weights / unit,
            capacity=instance.capacity / unit,
        )
    return instance
