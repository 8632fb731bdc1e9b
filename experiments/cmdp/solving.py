"""Prints the exact answer of one decision process."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.cmdp.options import SolveOptions
from jaxlab.core.errors import ConfigError, ScenarioError
from jaxlab.core.reporting import print_table
from jaxlab.core.runfolder import to_json
from jaxlab.envs.cmdp.files import read_cmdp
from jaxlab.envs.cmdp.model import CMDP
from jaxlab.envs.cmdp.problems import PROBLEMS
from jaxlab.envs.cmdp.solving import Solution, solve

#: Rows of the table of a policy at most.
MOST_ROWS = 40


def main(options: SolveOptions) -> None:
    """Solve the model of the options and print the answer.

    Raises:
      DataError, ConfigError, ScenarioError, ConvergenceError: See the messages.
    """
    problem = read(options.model)
    if options.bound:
        try:
            problem = problem.with_bounds(options.bound)
        except ScenarioError as error:
            raise ConfigError(f"--bound: {error}") from None
    with warnings_on_stderr():
        solution = solve(problem)
    if options.json:
        print(to_json(summary(solution)))
    else:
        _print(options.model, problem, solution)


def read(model: str) -> CMDP:
    """A problem by name, or the one in a file.

    Raises:
      ConfigError: It is neither.
      DataError: See `jaxlab.envs.cmdp.files.read_cmdp`.
    """
    if model in PROBLEMS:
        return PROBLEMS[model]()
    if not pathlib.Path(model).suffix:
        raise ConfigError(f"--model {model}: expected {', '.join(PROBLEMS)} or an npz or JSON file")
    return read_cmdp(model)


@contextlib.contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print warnings as lines on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for warning in caught:
                print(f"warning: {warning.message}", file=sys.stderr)


def summary(solution: Solution) -> dict[str, Any]:
    """The answer as plain data; what is infinite or unknown is null."""
    fields = {f.name: getattr(solution, f.name) for f in dataclasses.fields(solution)}
    keys = ("optimum", "multipliers", "policy", "slater_margin", "mixing_time")
    told = {key: fields[key] for key in (*keys, "gain_unconstrained")}
    for key in ("slater_margin", "mixing_time"):
        told[key] = told[key] if math.isfinite(told[key]) else None
    return {key: np.asarray(v).tolist() if v is not None else None for key, v in told.items()}


def _print(name: str, problem: CMDP, solution: Solution) -> None:
    verb = "least" if problem.minimise else "largest"
    rows = [
        [f"optimum ({verb} average)", f"{solution.optimum:.15g}"],
        ["optimum without bounds", f"{solution.gain_unconstrained:.15g}"],
        ["Slater margin", f"{solution.slater_margin:.15g}"],
        ["mixing time (steps)", f"{solution.mixing_time:g}"],
    ]
    print_table(["", "value"], rows, title=f"{name}: {problem.states} x {problem.actions}")
    signals = [
        [str(n), ">=" if sense > 0 else "<=", f"{bound:g}", f"{average:.12g}", f"{multiplier:.12g}"]
        for n, (sense, bound, average, multiplier) in enumerate(
            zip(
                np.asarray(problem.senses),
                np.asarray(problem.bounds),
                solution.signals,
                solution.multipliers,
                strict=True,
            )
        )
    ]
    print_table(["signal", "sense", "bound", "average", "multiplier"], signals)
    policy = [
        [str(s), f"{mass:.6g}", " ".join(f"{a}:{p:.10g}" for a, p in enumerate(row) if p > 0)]
        for s, (mass, row) in enumerate(zip(solution.measure.sum(1), solution.policy, strict=True))
    ]
    print_table(["state", "time", "actions"], policy[:MOST_ROWS])
    if len(policy) > MOST_ROWS:
        print(f"... and {len(policy) - MOST_ROWS} more states; --json prints all")
