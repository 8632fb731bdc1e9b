"""Roll-outs: errors, entropy, bias, spread and integral by the step."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.pde_icl import published
from experiments.pde_icl.cases import Case, baselines, errors, make_case
from experiments.pde_icl.options import ChebyshevOptions, LongOptions, RolloutOptions
from experiments.pde_icl.reading import forecast_rows, readers
from experiments.pde_icl.storing import Arrays, finish, speed, stored
from jaxlab.core import figures
from jaxlab.core.errors import DataError
from jaxlab.envs.pde.conservation import initial_integral, integral
from jaxlab.envs.pde.initial import draw_nodes
from jaxlab.llm.power_laws import fit_power_law, log_mean_interval


def rollout(options: RolloutOptions) -> None:
    """Continue every solution step by step, with models and with baselines."""
    assert options.run_dir is not None
    case = make_case(
        options.problem,
        range(options.seed, options.seed + options.seeds),
        options.columns,
        options.total,
        options.rows,
        duration=options.duration,
        coefficient=options.coefficient,
        sampling=options.sampling,
        bounds=options.bounds,
        context_only=options.context_only,
    )
    uniform = options.sampling == "uniform"
    told: dict[str, dict[str, Any]] = {}
    for name, values in baselines(case, options.steps, uniform).items():
        told[name] = measured(options, case, values[:, None])
    for reader in readers(options):

        def answer() -> Arrays:
            return forecast_rows(reader, case.context, options, options.steps, options.samples)  # noqa: B023

        part = stored(options.run_dir, reader.name, answer)
        values = case.values(part["numbers"].reshape(options.seeds, -1, options.columns))
        values = values.reshape(part["numbers"].shape)
        told[reader.name] = measured(options, case, values) | {
            "entropy": part["entropy"].mean((1, 3)),
            "valid": part["valid"].mean((1,)),
            "speed": speed([part["cost"]]),
        }
    _report(options, case, told)


def measured(options: RolloutOptions, case: Case, values: np.ndarray) -> dict[str, Any]:
    """What is told of forecasts `[seeds, samples, steps, columns]`, each `[seeds, steps]`."""
    truth = case.truth(options.steps)[:, None]
    error, largest = errors(values, truth)
    found: dict[str, Any] = {
        "rmse": error.mean(1),
        "max_error": largest.mean(1),
        "bias": (values - truth).mean((1, 3)),
        "spread": values.std(1, ddof=min(1, values.shape[1] - 1)).mean(-1),
    }
    if conserves(options):
        found["integral_change"] = integral_change(options, case, values).mean(1)
    return found


def conserves(options: RolloutOptions) -> bool:
    """Whether the integral of the exact solution stays the same."""
    return options.problem == "heat_neumann" and options.sampling == "uniform"


def integral_change(options: RolloutOptions, case: Case, values: np.ndarray) -> np.ndarray:
    """Change of the integral since the start, in percent of it, `[...]` of `[..., columns]`.

    The first axis is that of the seeds.
    """
    seeds = range(options.seed, options.seed + options.seeds)
    nodes = draw_nodes(case.problem, seeds, bounds=options.bounds)
    start = np.asarray(initial_integral(case.problem, nodes))
    start = start.reshape(-1, *[1] * (values.ndim - 2))
    return 100 * np.abs((np.asarray(integral(case.problem, values)) - start) / start)


def _exponent(options: RolloutOptions, error: np.ndarray) -> float | None:
    """The fitted power of the step, None where there is nothing to fit."""
    try:
        steps = np.arange(1, options.steps + 1)
        return fit_power_law(steps, error.mean(0), first=options.first_fitted).exponent
    except DataError:
        return None


def _report(options: RolloutOptions, case: Case, told: dict[str, dict[str, Any]]) -> None:
    assert options.run_dir is not None
    arrays: dict[str, np.ndarray] = {"truth": case.truth(options.steps)}
    results: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for name, of in told.items():
        arrays |= {f"{name}/{key}": v for key, v in of.items() if isinstance(v, np.ndarray)}
        means = {key: v.mean(0) for key, v in of.items() if isinstance(v, np.ndarray)}
        exponents = {key: _exponent(options, of[key]) for key in ("rmse", "max_error")}
        results[name] = means | {"exponent": exponents, "speed": of.get("speed")}
        for step in range(options.steps):
            interval = log_mean_interval(of["rmse"][:, step])
            rows.append(
                [
                    name,
                    step + 1,
                    *(float(end) for end in interval),
                    float(means["max_error"][step]),
                    float(means["bias"][step]),
                    float(means["spread"][step]),
                    float(means["entropy"][step]) if "entropy" in means else "",
                    float(means["integral_change"][step]) if "integral_change" in means else "",
                ]
            )
    if conserves(options):
        exact = case.solution[:, case.rows : case.rows + options.steps]
        arrays["exact/integral_change"] = integral_change(options, case, exact)
        results["exact"] = {"integral_change": arrays["exact/integral_change"].mean(0)}
    results["published_exponents"] = published.ROLLOUT_EXPONENT.get(options.problem)
    _draw(options, told)
    header = ["forecast", "step", "RMSE", "low", "high", "largest", "bias", "spread"]
    title = f"{options.problem}: roll-outs over {options.seeds} initial conditions"
    finish(options, [*header, "entropy", "integral %"], rows, arrays, results, title)


def _overlay(options: RolloutOptions) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The paper's numbers for this kind of roll-out."""
    if options.problem != "allen_cahn":
        return published.ROLLOUT_STEPS, {}
    if isinstance(options, ChebyshevOptions):
        return published.ROLLOUT_STEPS, published.CHEBYSHEV_RMSE
    if isinstance(options, LongOptions):
        return published.LONG_STEPS, published.LONG_RMSE
    return published.ROLLOUT_STEPS, published.ROLLOUT_RMSE


def _draw(options: RolloutOptions, told: dict[str, dict[str, Any]]) -> None:
    assert options.run_dir is not None
    panels = ["rmse", "entropy", "bias", "spread"]
    panels += ["integral_change"] if conserves(options) else []
    figure, axes = figures.new_figure(4.2 * len(panels), 3.8, ncols=len(panels))
    steps = np.arange(1, options.steps + 1)
    labels = {
        "rmse": "RMSE",
        "entropy": "entropy of a number (nats)",
        "bias": "mean signed error",
        "spread": "standard deviation over samples",
        "integral_change": "change of the integral (%)",
    }
    for panel, place in zip(panels, axes, strict=True):
        for name, of in told.items():
            if panel in of:
                style = "-" if "entropy" in of else ":"
                place.plot(steps, of[panel].mean(0), style, label=name)
        place.set(xlabel="step", ylabel=labels[panel])
        place.grid(alpha=0.3)
    grid, curves = _overlay(options)
    for name, values in curves.items():
        axes[0].plot(grid, values, "--", alpha=0.6, label=f"{name} (published)")
    if conserves(options):
        for name, values in published.CONSERVATION.items():
            axes[-1].plot(
                published.ROLLOUT_STEPS, values, "--", alpha=0.6, label=f"{name} (published)"
            )
    axes[0].set(xscale="log", yscale="log")
    axes[0].legend(fontsize="xx-small")
    figures.save_figure(figure, options.run_dir, "rollout")
