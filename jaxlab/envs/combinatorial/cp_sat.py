"""The problems as models of OR-Tools' CP-SAT, which proves more than `milp` does.

OR-Tools is an extra: `pip install jaxlab-suite[exact]`. CP-SAT computes with integers; costs that
are not whole are scaled, and the bound says how far that can matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlab.core.errors import ConfigError, ScenarioError
from jaxlab.envs.combinatorial.instances import (
    GraphInstance,
    JobShopInstance,
    KnapsackInstance,
    RoutingInstance,
    TourInstance,
)
from jaxlab.envs.combinatorial.milp import Proof

#: What costs that are not whole are multiplied by, relative to the largest one.
RESOLUTION = 10**7


def available() -> bool:
    """Whether OR-Tools is installed."""
    import importlib.util

    return importlib.util.find_spec("ortools") is not None


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise ConfigError(
            "CP-SAT needs the package ortools: pip install 'jaxlab-suite[exact]', or choose "
            "--solver milp"
        ) from None
    return cp_model


def _scaled(values: Any) -> tuple[np.ndarray, float]:
    """Whole numbers, and what they were multiplied by."""
    values = np.asarray(values, float)
    if np.all(values == np.floor(values)):
        return values.astype(np.int64), 1.0
    scale = RESOLUTION / max(float(np.abs(values).max()), 1e-300)
    return np.round(values * scale).astype(np.int64), scale


def _solve(model: Any, seconds: float) -> tuple[Any, bool, float]:
    """The solver, whether it proved an optimum, and the bound; None in its place without one."""
    cp_model = _cp_model()
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        raise ScenarioError("the instance is infeasible: no solution keeps all constraints")
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver if found else None, status == cp_model.OPTIMAL, solver.best_objective_bound


def tour(instance: TourInstance, seconds: float) -> Proof:
    """A shortest tour as a circuit."""
    model = _cp_model().CpModel()
    n = instance.size
    costs, scale = _scaled(instance.distances)
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    arcs = [(a, b, model.new_bool_var("")) for a, b in pairs]
    model.add_circuit(arcs)
    model.minimize(sum(int(costs[a, b]) * used for a, b, used in arcs))
    solver, proved, bound = _solve(model, seconds)
    # Each of n distances may have been rounded by half a unit.
    bound = (bound - (n / 2 if scale != 1 else 0)) / scale
    if solver is None:
        return Proof(None, bound, False)
    onward = {a: b for a, b, used in arcs if solver.boolean_value(used)}
    found = [0]
    while len(found) < n:
        found.append(onward[found[-1]])
    return Proof(found, bound, proved)


def cut(graph: GraphInstance, seconds: float) -> Proof:
    """A largest cut."""
    model = _cp_model().CpModel()
    weights, scale = _scaled(graph.weights)
    sides = [model.new_bool_var("") for _ in range(graph.vertices)]
    crossing = [model.new_bool_var("") for _ in graph.edges]
    for (i, j), crosses in zip(graph.edges, crossing, strict=True):
        model.add_bool_xor(sides[int(i)], sides[int(j)], ~crosses)
    model.add(sides[0] == 0)
    pairs = zip(weights, crossing, strict=True)
    model.maximize(sum(int(w) * crosses for w, crosses in pairs))
    solver, proved, bound = _solve(model, seconds)
    bound = (bound + (len(weights) / 2 if scale != 1 else 0)) / scale + graph.offset
    found = None if solver is None else [int(solver.boolean_value(side)) for side in sides]
    return Proof(found, bound, proved)


def vertices(graph: GraphInstance, seconds: float, *, cover: bool) -> Proof:
    """A smallest vertex cover, or a largest independent set."""
    model = _cp_model().CpModel()
    chosen = [model.new_bool_var("") for _ in range(graph.vertices)]
    for i, j in graph.edges:
        pair = chosen[int(i)], chosen[int(j)]
        model.add_bool_or(*(pair if cover else (~pair[0], ~pair[1])))
    if cover:
        model.minimize(sum(chosen))
    else:
        model.maximize(sum(chosen))
    solver, proved, bound = _solve(model, seconds)
    found = None
    if solver is not None:
        found = [v for v, variable in enumerate(chosen) if solver.boolean_value(variable)]
    return Proof(found, bound, proved)


def knapsack(instance: KnapsackInstance, seconds: float) -> Proof:
    """Items of the greatest value; weights that are not whole are rounded up."""
    model = _cp_model().CpModel()
    values, scale = _scaled(instance.values)
    weights, capacity = instance.weights, instance.capacity
    exact = bool(np.all(weights == np.floor(weights)))
    if not exact:
        unit = RESOLUTION / max(float(weights.max()), 1e-300)
        weights, capacity = np.ceil(weights * unit), capacity * unit
    items = [model.new_bool_var("") for _ in values]
    total = sum(int(w) * item for w, item in zip(weights, items, strict=True))
    model.add(total <= int(np.floor(capacity)))
    model.maximize(sum(int(v) * item for v, item in zip(values, items, strict=True)))
    solver, proved, bound = _solve(model, seconds)
    bound = (bound + (len(values) / 2 if scale != 1 else 0)) / scale
    found = None
    if solver is not None:
        found = [i for i, item in enumerate(items) if solver.boolean_value(item)]
    return Proof(found, bound if exact else float(instance.values.sum()), proved and exact)


def colouring(graph: GraphInstance, seconds: float, most: int) -> Proof:
    """A colouring with the fewest of at most `most` colours."""
    model = _cp_model().CpModel()
    colours = [model.new_int_var(0, min(v, most - 1), "") for v in range(graph.vertices)]
    for i, j in graph.edges:
        model.add(colours[int(i)] != colours[int(j)])
    last = model.new_int_var(0, most - 1, "")
    model.add_max_equality(last, colours)
    model.minimize(last)
    solver, proved, bound = _solve(model, seconds)
    found = None if solver is None else [int(solver.value(colour)) for colour in colours]
    return Proof(found, bound + 1, proved)


def routes(instance: RoutingInstance, seconds: float) -> Proof:
    """Shortest routes as circuits through the depot."""
    model = _cp_model().CpModel()
    n = instance.size
    costs, scale = _scaled(instance.distances)
    demands, unit = _scaled(np.append(instance.demands, instance.capacity))
    capacity = int(demands[-1])
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    arcs = [(a, b, model.new_bool_var("")) for a, b in pairs]
    model.add_multiple_circuit(arcs)
    load = [model.new_int_var(int(demand), capacity, "") for demand in demands[:n]]
    for a, b, used in arcs:
        if a and b:
            model.add(load[b] >= load[a] + int(demands[b])).only_enforce_if(used)
    model.minimize(sum(int(costs[a, b]) * used for a, b, used in arcs))
    solver, proved, bound = _solve(model, seconds)
    bound = (bound - (n if scale != 1 else 0)) / scale
    if solver is None:
        return Proof(None, bound, False)
    onward = {a: b for a, b, used in arcs if a and solver.boolean_value(used)}
    walk: list[int] = []
    for a, b, used in arcs:
        if a == 0 and solver.boolean_value(used):
            walk += [0] if walk else []
            while b:
                walk.append(b)
                b = onward[b]
    return Proof(walk, bound, proved and unit == 1)


def shop(instance: JobShopInstance, seconds: float) -> Proof:
    """A schedule of the least makespan, by intervals that do not overlap on a machine."""
    model = _cp_model().CpModel()
    jobs, operations = instance.machines.shape
    durations, scale = _scaled(instance.durations)
    most = int(durations.sum())
    starts = [[model.new_int_var(0, most, "") for _ in range(operations)] for _ in range(jobs)]
    end = model.new_int_var(0, most, "")
    on_machine: dict[int, list[Any]] = {}
    for j in range(jobs):
        for k in range(operations):
            length = int(durations[j, k])
            interval = model.new_fixed_size_interval_var(starts[j][k], length, "")
            on_machine.setdefault(int(instance.machines[j, k]), []).append(interval)
            after = starts[j][k + 1] if k + 1 < operations else end
            model.add(after >= starts[j][k] + length)
    for intervals in on_machine.values():
        model.add_no_overlap(intervals)
    model.minimize(end)
    solver, proved, bound = _solve(model, seconds)
    bound = (bound - (jobs * operations / 2 if scale != 1 else 0)) / scale
    if solver is None:
        return Proof(None, bound, False)
    found = [(solver.value(starts[j][k]), k, j) for j in range(jobs) for k in range(operations)]
    return Proof([job for _, _, job in sorted(found)], bound, proved)
