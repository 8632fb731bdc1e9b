"""One-step forecasts by the length of the context, the resolution or a coefficient."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.pde_icl import published
from experiments.pde_icl.cases import Case, baselines, errors, make_case
from experiments.pde_icl.options import (
    CoefficientOptions,
    ContextOptions,
    ResolutionOptions,
    SeriesOptions,
)
from experiments.pde_icl.reading import Reader, forecast_rows, readers
from experiments.pde_icl.storing import Arrays, finish, speed, stored
from jaxlab.core import figures
from jaxlab.core.errors import DataError
from jaxlab.llm.power_laws import fit_power_law, log_mean_interval

#: Means below this are raised to it on logarithmic axes, as in the paper's space sweep.
FLOOR = 1e-4
#: Contexts and resolutions from which the paper's guide lines begin.
GUIDE = 20


def context(options: ContextOptions) -> None:
    """Errors by the rows of the context."""
    cases = {n: _case(options, options.columns, n) for n in options.contexts}
    _sweep(options, cases, "N_T", "context", GUIDE)


def resolution(options: ResolutionOptions) -> None:
    """Errors by the points in space."""
    cases = {n: _case(options, n, options.rows) for n in options.resolutions}
    _sweep(options, cases, "N_X", "resolution", GUIDE)


def coefficients(options: CoefficientOptions) -> None:
    """Errors by the diffusion or the speed."""
    cases = {c: _case(options, options.columns, options.rows, c) for c in options.coefficients}
    _sweep(options, cases, "coefficient", "coefficients", None)


def _case(
    options: SeriesOptions, columns: int, rows: int, coefficient: float | None = None
) -> Case:
    """A case whose last row is asked for: `rows` steps, and as many rows of context."""
    return make_case(
        options.problem,
        range(options.seed, options.seed + options.seeds),
        columns,
        rows,
        rows,
        duration=options.duration,
        coefficient=options.coefficient if coefficient is None else coefficient,
        context_only=options.context_only,
    )


def _sweep(
    options: SeriesOptions, cases: dict[Any, Case], x: str, name: str, guide: int | None
) -> None:
    assert options.run_dir is not None
    curves: dict[str, list[np.ndarray]] = {}
    arrays: dict[str, np.ndarray] = {x: np.array(list(cases))}
    for case in cases.values():
        for label, forecasts in baselines(case, 1).items():
            curves.setdefault(label, []).append(errors(forecasts, case.truth(1))[0][:, 0])
        curves.setdefault("quantisation", []).append(case.floor())
    models: dict[str, dict[str, Any]] = {}
    for reader in readers(options):
        parts = [_part(options, reader, x, *item) for item in cases.items()]
        models[reader.name] = _model_curves(cases, parts)
        for key, value in models[reader.name].items():
            if isinstance(value, np.ndarray):
                arrays[f"{reader.name}/{key}"] = value
    arrays |= {f"{label}/rmse": np.stack(value) for label, value in curves.items()}
    results = {label: _summary(arrays[x], told, guide) for label, told in models.items()} | {
        "baselines": {label: np.mean(value, axis=1) for label, value in curves.items()}
    }
    rows = [
        row for index, setting in enumerate(cases) for row in _rows(setting, index, models, curves)
    ]
    _draw(options, arrays[x], models, curves, x, name)
    title = f"{options.problem}: one-step RMSE over {options.seeds} initial conditions"
    finish(options, [x, *_TOLD], rows, arrays, results, title)


def _part(options: SeriesOptions, reader: Reader, x: str, setting: Any, case: Case) -> Arrays:
    """A model's answers in one setting, from disk if they are there."""
    assert options.run_dir is not None

    def answer() -> Arrays:
        return forecast_rows(reader, case.context, options, 1, keep_entropies=True)

    found = stored(options.run_dir, f"{reader.name}-{setting}", answer)
    if options.progress:
        print(f"{reader.name}: {x} = {setting} done", file=sys.stderr, flush=True)
    return found


_ENTROPIES = ("entropy", "raw_entropy", "processed_entropy")
_TOLD = ("forecast", "RMSE", "low", "high", "median", *_ENTROPIES, "valid")


def _rows(
    setting: Any,
    index: int,
    models: dict[str, dict[str, Any]],
    curves: dict[str, list[np.ndarray]],
) -> list[list[Any]]:
    """Rows of the table in one setting: models, then baselines."""
    rows: list[list[Any]] = []
    for name, told in models.items():
        means = [float(told[key][index].mean()) for key in (*_ENTROPIES, "valid")]
        rows.append([setting, name, *_interval(told["rmse"][index]), *means])
    for name, values in curves.items():
        rows.append([setting, name, *_interval(values[index]), "", "", "", ""])
    return rows


def _interval(errors: np.ndarray) -> list[float]:
    """Mean, both ends of its interval, and median."""
    return [*(float(end) for end in log_mean_interval(errors)), float(np.median(errors))]


def _model_curves(cases: dict[Any, Case], parts: Sequence[Arrays]) -> dict[str, Any]:
    """Errors `[settings, seeds]`, mean entropies of a number, validity, and speed."""
    found: dict[str, list[np.ndarray]] = {}
    for case, part in zip(cases.values(), parts, strict=True):
        error, largest = errors(case.values(part["numbers"][:, 0]), case.truth(1))
        good = part["valid"][:, 0, 0]
        for name, values in (("rmse", error[:, 0]), ("max_error", largest[:, 0])):
            found.setdefault(name, []).append(_replaced(values, good))
        found.setdefault("valid", []).append(good)
        found.setdefault("tries", []).append(part["tries"][:, 0, 0])
        for name in ("entropy", "raw_entropy", "processed_entropy"):
            found.setdefault(name, []).append(part[name][:, 0, 0].mean(-1))
    stacked: dict[str, Any] = {name: np.stack(values) for name, values in found.items()}
    return stacked | {"speed": speed([part["cost"] for part in parts])}


def _replaced(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Errors of rows that stayed malformed are those of the seed before, as in the paper."""
    if not valid.any():
        raise DataError("no well-formed row in any seed: take --grammar strict")
    last = np.maximum.accumulate(np.where(valid, np.arange(len(valid)), -1))
    return values[np.where(last < 0, int(np.argmax(valid)), last)]


def _summary(x: np.ndarray, told: dict[str, Any], guide: int | None) -> dict[str, Any]:
    mean = np.maximum(told["rmse"].mean(1), FLOOR)
    found: dict[str, Any] = {
        "rmse": mean,
        "entropy": told["entropy"].mean(1),
        "valid": told["valid"].mean(1),
        "speed": told["speed"],
        "exponent": fit_power_law(x, mean).exponent if len(x) > 1 else None,
    }
    if guide is not None and np.sum(x >= guide) > 1:
        found["exponent_from_guide"] = fit_power_law(x, mean, first=guide).exponent
    return found


def _draw(
    options: SeriesOptions,
    x: np.ndarray,
    models: dict[str, dict[str, Any]],
    curves: dict[str, list[np.ndarray]],
    label: str,
    name: str,
) -> None:
    assert options.run_dir is not None
    figure, (left, right) = figures.new_figure(10.0, 4.0, ncols=2)
    for model, told in models.items():
        interval = log_mean_interval(told["rmse"].T, floor=FLOOR)
        (line,) = left.plot(x, interval.estimate, marker="o", label=model)
        left.fill_between(x, interval.low, interval.high, color=line.get_color(), alpha=0.25)
        right.plot(x, told["entropy"].mean(1), marker="o", label=f"{model}, allowed")
        if options.temperature:
            mean = told["processed_entropy"].mean(1)
            right.plot(x, mean, marker=".", color=line.get_color(), label=f"{model}, processed")
    for baseline, values in curves.items():
        left.plot(x, np.mean(values, axis=1), linestyle=":", label=baseline)
    if options.problem == "allen_cahn" and name in ("context", "resolution"):
        by_context = name == "context"
        grid = published.CONTEXT_ROWS if by_context else published.RESOLUTIONS
        told_errors = published.CONTEXT_RMSE if by_context else published.RESOLUTION_RMSE
        for model, published_errors in told_errors.items():
            left.plot(
                grid, published_errors, linestyle="--", alpha=0.6, label=f"{model} (published)"
            )
        for model, nats in published.ENTROPY.items() if by_context else ():
            right.plot(
                published.ENTROPY_ROWS,
                nats,
                linestyle="--",
                alpha=0.6,
                label=f"{model} (published)",
            )
    left.set(xscale="log", yscale="log", xlabel=label, ylabel="RMSE")
    right.set(xscale="log", xlabel=label, ylabel="entropy of a number (nats)")
    for axes in (left, right):
        axes.minorticks_off()
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.legend(fontsize="xx-small")
        axes.grid(alpha=0.3)
    figures.save_figure(figure, options.run_dir, name)
