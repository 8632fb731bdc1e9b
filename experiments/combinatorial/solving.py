"""Solves one instance and prints the solution with a bound."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from experiments.combinatorial.options import SolveOptions
from experiments.combinatorial.problems import (
    PROBLEMS,
    Problem,
    dynamic_programme,
    read_instance,
)
from jaxlab.core.errors import ConfigError
from jaxlab.core.reporting import print_table
from jaxlab.core.runfolder import replacing, to_json
from jaxlab.envs.combinatorial import cp_sat
from jaxlab.envs.combinatorial.instances import RoutingInstance, TourInstance
from jaxlab.envs.combinatorial.milp import CLOSED, Proof

#: Printed for each solution; JSON has these keys.
KEYS = ("solution", "cost", "optimum", "bound", "gap")


class Answer(NamedTuple):
    """What is printed.

    Attributes:
      solution: Counted from 0.
      cost: Its objective in the problem's own sense.
      optimum: The optimal objective where it is proved, None otherwise.
      bound: On the optimum: below it for problems that minimise, above it for others.
      gap: Difference of cost and bound relative to the bound; None if the bound says nothing.
    """

    solution: list[int]
    cost: float
    optimum: float | None
    bound: float
    gap: float | None


def main(options: SolveOptions) -> None:
    """Solve the instance of the options and print the answer.

    Raises:
      DataError, CapacityError, ConfigError, ScenarioError: See the messages.
    """
    assert options.instance is not None
    problem = PROBLEMS[options.problem]
    instance = read_instance(options.problem, options.instance)
    answer = solve(problem, instance, options)
    if options.picture is not None:
        save_picture(instance, answer.solution, options)
    if options.json:
        print(to_json(answer._asdict()))
        return
    rows = [[key, "-" if value is None else value] for key, value in answer._asdict().items()]
    print_table(["", "value"], rows[1:], title=f"{options.problem}: {instance.name}")
    print("solution:", " ".join(map(str, answer.solution)))


#: Relative distance within which a solver's bound and the cost of what it found are the same.
SOLVED = 1e-6


def solve(problem: Problem, instance: Any, options: SolveOptions) -> Answer:
    """Solve by the method of the options."""
    proof, candidates = Proof(None, -problem.sense * np.inf, False), []
    if options.method == "dp":
        candidates.append(dynamic_programme(problem, instance))
        proof = Proof(candidates[0], problem.objective(instance, candidates[0]), True)
    elif options.method == "learned":
        from experiments.combinatorial.guiding import learned_solution

        candidates.append(learned_solution(instance, options))
    elif options.method == "heuristic" or not _quick(problem, instance):
        candidates.append(problem.heuristic(instance, options))
    if options.method == "exact":
        # A heuristic's solution that meets a cheap bound needs no solver.
        if candidates and options.solver == "auto":
            answer = _answer(problem, instance, candidates[0], problem.bound(instance), False)
            if answer.optimum is not None:
                return answer
        proof = _prove(problem, instance, options)
        candidates += [] if proof.solution is None else [proof.solution]
    best = min(candidates, key=lambda found: problem.sense * problem.objective(instance, found))
    bound = proof.bound if proof.proved else _tighter(problem, problem.bound(instance), proof.bound)
    return _answer(problem, instance, best, bound, proof.proved)


def _quick(problem: Problem, instance: Any) -> bool:
    """Whether dynamic programming takes a moment, or is the only way."""
    return problem.milp is None or problem.quick(instance)


def _tighter(problem: Problem, one: float, other: float) -> float:
    return max(one, other) if problem.sense > 0 else min(one, other)


def _prove(problem: Problem, instance: Any, options: SolveOptions) -> Proof:
    solver = options.solver
    if solver == "auto":
        solver = "cp_sat" if cp_sat.available() and problem.cp_sat else "milp"
        # For symmetric tours rows for subtours are quicker than circuits.
        if options.problem == "tsp":
            solver = "milp"
        if _quick(problem, instance):
            solver = "dp"
    if solver == "dp":
        found = dynamic_programme(problem, instance)
        return Proof(found, problem.objective(instance, found), True)
    run = problem.cp_sat if solver == "cp_sat" else problem.milp
    if run is None:
        raise ConfigError(f"--solver {solver}: {options.problem} is solved by dp")
    return run(instance, options.time_limit)


def _answer(
    problem: Problem, instance: Any, solution: list[int], bound: float, proved: bool
) -> Answer:
    cost = problem.objective(instance, solution)
    apart = problem.sense * (cost - bound)
    # A bound that is met proves what was found; one that is not proves nothing, whatever a
    # solver says whose tolerances may be wider than the instance's numbers.
    if abs(apart) <= (SOLVED if proved else CLOSED) * abs(cost):
        return Answer(solution, cost, cost, cost, 0.0)
    if apart < 0:
        bound = -problem.sense * np.inf
    if not np.isfinite(bound):
        return Answer(solution, cost, None, bound, None)
    gap = apart / abs(bound) if bound else None
    return Answer(solution, cost, None, bound, gap)


def save_picture(instance: Any, solution: list[int], options: SolveOptions) -> None:
    """Draw a solution into the PNG file of the options.

    Raises:
      ConfigError: There is nothing to draw, or the file cannot be written.
    """
    from jaxlab.core.figures import new_figure
    from jaxlab.envs.combinatorial import pictures

    figure, axes = new_figure(5, 5)
    placed = isinstance(instance, TourInstance | RoutingInstance)
    if options.problem in ("tsp", "cvrp") and placed and instance.coordinates is not None:
        draw = pictures.draw_tour if options.problem == "tsp" else pictures.draw_routes
        draw(axes, instance.coordinates, solution, instance.name)
    elif options.problem == "maxcut":
        pictures.draw_cut(axes, instance.matrix, solution, instance.name)
    elif options.problem == "jobshop":
        pictures.draw_schedule(axes, instance, solution, instance.name)
    else:
        raise ConfigError(
            f"--picture: {options.problem} has none, or the file gives no places of cities"
        )
    assert options.picture is not None
    try:
        with replacing(options.picture) as temporary:
            figure.savefig(temporary, format="png", dpi=120)
    except OSError as error:
        raise ConfigError(f"--picture {options.picture}: cannot be written ({error})") from None
