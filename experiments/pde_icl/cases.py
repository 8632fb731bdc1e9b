"""Solutions as integers: what the models read, and what they are asked for."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from jaxlab.core.errors import ConfigError
from jaxlab.envs.pde.initial import draw_nodes
from jaxlab.envs.pde.problems import Coefficients, Problem, problem
from jaxlab.envs.pde.solving import forecast, reference
from jaxlab.llm.series import Scale, dequantise, fit_scale, quantise
from jaxlab.llm.series_baselines import last_token, max_error, persistence, pooled_ar1, rmse


@dataclasses.dataclass(frozen=True)
class Case:
    """Solutions of one problem on one grid.

    Attributes:
      problem: The equation.
      coefficients: Its numbers.
      solution: `[seeds, steps + 1, columns]`, float64.
      scale: Of each series.
      numbers: The solution as integers, int32.
      dt: Time between rows.
      rows: How many of them are the context.
    """

    problem: Problem
    coefficients: Coefficients
    solution: np.ndarray
    scale: Scale
    numbers: np.ndarray
    dt: float
    rows: int

    @property
    def context(self) -> np.ndarray:
        """Integers of the context, `[seeds, rows, columns]`."""
        return self.numbers[:, : self.rows]

    def truth(self, steps: int) -> np.ndarray:
        """Quantised values of the rows behind the context, `[seeds, steps, columns]`."""
        return self.values(self.numbers[:, self.rows : self.rows + steps])

    def values(self, numbers: np.ndarray) -> np.ndarray:
        """Values of integers `[seeds, rows, columns]`."""
        return np.asarray(dequantise(np.asarray(numbers), self.scale))

    def floor(self) -> np.ndarray:
        """RMSE that quantisation alone leaves, `[seeds]`."""
        gap = self.solution - self.values(self.numbers)
        return np.sqrt(np.mean(gap**2, axis=(1, 2)))


def make_case(
    name: str,
    seeds: range,
    columns: int,
    steps: int,
    rows: int,
    *,
    duration: float | None = None,
    coefficient: float | None = None,
    sampling: Literal["uniform", "chebyshev"] = "uniform",
    bounds: tuple[float, float] | None = None,
    context_only: bool = False,
) -> Case:
    """Solve a problem from the initial conditions of some seeds and scale what comes out.

    Args:
      name: The problem.
      seeds: Of the initial conditions.
      columns: Points in space.
      steps: Steps of the time span.
      rows: Rows of the context.
      duration: Time span, by default that of the problem.
      coefficient: Diffusion, or speed of the wave equation.
      sampling: Where the points are.
      bounds: Between which nodes are drawn.
      context_only: Scale by the context alone.
    """
    equation = problem(name)
    changes: dict[str, Any] = {}
    if coefficient is not None:
        changes["speed" if equation.speed else "diffusion"] = coefficient
    coefficients = equation.coefficients(**changes)
    nodes = draw_nodes(equation, seeds, bounds=bounds)
    solution = np.asarray(
        reference(
            equation,
            nodes,
            columns,
            steps,
            duration=duration,
            coefficients=coefficients,
            sampling=sampling,
        )
    )
    scale = fit_scale(solution, context_rows=rows if context_only else None)
    whole = equation.duration if duration is None else duration
    numbers = np.asarray(quantise(solution, scale))
    return Case(equation, coefficients, solution, scale, numbers, whole / steps, rows)


def baselines(case: Case, steps: int, differences: bool = True) -> dict[str, np.ndarray]:
    """Forecasts of everything that is no model, values `[seeds, steps, columns]`.

    A finite-difference scheme that would be unstable with this step is NaN.

    Args:
      case: The problem.
      steps: Rows to forecast.
      differences: Also finite differences, which need equidistant points.
    """
    context = case.context
    found = {
        "persistence": case.values(persistence(context, steps)),
        "last_token": case.values(last_token(context, steps)),
        "ar1": case.values(pooled_ar1(context, steps)),
    }
    for scheme in case.problem.baselines if differences else ():
        try:
            found[str(scheme)] = np.asarray(
                forecast(
                    case.problem,
                    scheme,
                    case.values(context),
                    steps=steps,
                    dt=case.dt,
                    coefficients=case.coefficients,
                )
            )
        except ConfigError:
            found[str(scheme)] = np.full_like(found["persistence"], np.nan)
    return found


def errors(forecasts: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """RMSE and largest error of every row."""
    return rmse(forecasts, truth), max_error(forecasts, truth)
