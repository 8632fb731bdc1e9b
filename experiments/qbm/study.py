"""em beside gradient descent and others on restricted machines: runs, tables, files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.qbm import study_figures
from experiments.qbm.grid import Trained, run_arguments, stage, targets_of, trained
from experiments.qbm.problems import unbounded_reason
from experiments.qbm.study_options import LEARNERS, StudyOptions
from jaxlab.core import devices, reporting, runfolder
from jaxlab.core.intervals import bootstrap, mean, median
from jaxlab.core.stages import Results, combined_performance, run_stages
from jaxlab.envs.qbm import datasets, restricted, sampling
from jaxlab.envs.qbm.restricted import RestrictedModel

#: Divergences below count as a fit.
FITTED = 1e-5
#: Points of a curve in the summary.
POINTS = 25


class Case(NamedTuple):
    """A machine and a data set."""

    model: RestrictedModel
    data: str

    @property
    def name(self) -> str:
        """For files and stages."""
        return f"{machine_name(self.model)}_{self.data}"


#: What each learner left on each case.
Found = dict[Case, dict[str, Trained]]


def machine_name(model: RestrictedModel) -> str:
    """A machine in a word, for files and stages."""
    return f"{model.operators}_{model.visible}x{model.hidden}"


def machines(options: StudyOptions) -> Iterator[RestrictedModel]:
    """All machines of the study."""
    for operators, n, m in itertools.product(options.operators, options.visible, options.hidden):
        yield RestrictedModel(n, m, operators)


def main(options: StudyOptions) -> None:
    """Run the study and report it."""
    stages = [
        stage(
            f"{machine_name(model)}_{name}",
            model,
            LEARNERS[name],
            options.data,
            options.newton_steps if LEARNERS[name].newton else options.steps,
            seed=options.seed,
            seeds=options.seeds,
            width=options.width,
        )
        for model in machines(options)
        for name in options.learners
    ]
    results = run_stages(stages, **run_arguments(options))
    report(options, results)


def collect(options: StudyOptions, results: Results) -> Found:
    """The runs by machine and data set."""
    found: Found = {}
    for model in machines(options):
        for name in options.learners:
            left = trained(results[f"{machine_name(model)}_{name}"], options.data)
            for data, of in left.items():
                found.setdefault(Case(model, data), {})[name] = of
    return found


def report(options: StudyOptions, results: Results) -> None:
    """Write and print what the study found."""
    found = collect(options, results)
    summary: dict[str, Any] = {
        "cases": [describe(case, learners) for case, learners in found.items()]
    }
    drawn = {case: _draw(options, case, learners) for case, learners in found.items()}
    summary["samples"] = {case.name: told for case, (told, _, _) in drawn.items()}
    if devices.is_primary():
        assert options.run_dir is not None
        for case, (_, bits, _) in drawn.items():
            _write_samples(options.run_dir, case.name, bits)
        study_figures.draw(options.run_dir, found, {c: rows for c, (_, _, rows) in drawn.items()})
        reporting.write_summary(options.run_dir, summary, combined_performance(results))
        _print(summary)
        print(f"results in {options.run_dir}")


def describe(case: Case, learners: Mapping[str, Trained]) -> dict[str, Any]:
    """The numbers of a machine and data set, as plain data."""
    model = case.model
    hidden = tuple(range(model.visible, model.visible + model.hidden))
    target = targets_of([case.data], model.visible)[0]
    return {
        "operators": model.operators,
        "visible": model.visible,
        "hidden": model.hidden,
        "data": case.data,
        "m_step_unbounded": unbounded_reason(target, model.strings, hidden),
        "learners": {name: _numbers(of, learners.get("gradient")) for name, of in learners.items()},
    }


def _numbers(of: Trained, gradient: Trained | None) -> dict[str, Any]:
    told = {
        "mean": interval(of.last),
        "median": interval(of.last, median),
        "best": float(of.best_divergence),
        "fitted": interval((of.last < FITTED).astype(float)),
        "em_steps": float(of.em_steps.mean()),
        "iterations": float(of.iterations.mean()),
        "cpu_seconds": float(of.cpu_per_step * of.step[-1]),
        "curve": _thinned(of),
    }
    if gradient is not None and of is not gradient:
        # Starts are the same, so the differences are by start.
        told["less_gradient"] = interval(of.last - gradient.last)
    return told


def interval(by_seed: np.ndarray, statistic: Any = mean) -> dict[str, float]:
    """A statistic over starts with its bootstrap interval of 95 %."""
    found = bootstrap(by_seed, statistic)
    ends = {"low": float(found.low), "high": float(found.high)}
    return {"estimate": float(found.estimate)} | ends


def _thinned(of: Trained) -> dict[str, Any]:
    """Some points of the curve, evenly on a logarithmic scale."""
    chosen = log_spaced(of.step, POINTS)
    found = bootstrap(of.curve[chosen].T)
    return {
        "step": of.step[chosen].tolist(),
        "mean": np.asarray(found.estimate).tolist(),
        "low": np.asarray(found.low).tolist(),
        "high": np.asarray(found.high).tolist(),
    }


def log_spaced(step: np.ndarray, count: int) -> np.ndarray:
    """Indices of about `count` steps, evenly on a logarithmic scale; the last is the end."""
    wanted = np.geomspace(step[0], step[-1], count)
    return np.unique(np.clip(np.searchsorted(step, wanted), 0, len(step) - 1))


def _draw(
    options: StudyOptions, case: Case, learners: Mapping[str, Trained]
) -> tuple[dict[str, Any], np.ndarray, study_figures.Distributions]:
    """Samples of the best machine: what they are like, their bits, distributions for a figure."""
    best = min(learners, key=lambda name: learners[name].best_divergence)
    model, target = case.model, targets_of([case.data], case.model.visible)[0]
    theta = learners[best].best
    spins = sampling.sample_spins(jax.random.key(options.seed), theta, model, options.samples)
    bits = (np.asarray(spins) < 0).astype(np.int8)
    weights = np.full(len(bits), 1 / len(bits))
    frequencies = datasets.distribution(np.asarray(spins), weights)
    exact = {
        name: np.asarray(restricted.probabilities(of.best, model)) for name, of in learners.items()
    }
    told = {
        "learner": best,
        "divergence": learners[best].best_divergence,
        "count": len(bits),
        "share_on_data": float(frequencies[target > 0].sum()),
        "total_variation_of_model": float(np.abs(exact[best] - target).sum() / 2),
        "total_variation_of_samples": float(np.abs(frequencies - target).sum() / 2),
    }
    return told, bits, study_figures.Distributions(target, frequencies, exact)


def _write_samples(folder: Path, name: str, bits: np.ndarray) -> None:
    text = "".join("".join(map(str, row)) + "\n" for row in bits)
    runfolder.write_text(folder / "samples" / f"{name}.txt", text)


def _print(summary: Mapping[str, Any]) -> None:
    rows = [
        [
            f"{case['operators']} ({case['visible']},{case['hidden']}) {case['data']}",
            name,
            shown(told["mean"]),
            shown(told["median"]),
            f"{100 * told['fitted']['estimate']:.0f} %",
            shown(told["less_gradient"]) if "less_gradient" in told else "-",
            round(told["em_steps"]),
            round(told["iterations"]),
            told["cpu_seconds"],
        ]
        for case in summary["cases"]
        for name, told in case["learners"].items()
    ]
    columns = ["case", "learner", "mean KL", "median KL", f"< {FITTED:g}", "less gradient's"]
    reporting.print_table(
        [*columns, "em steps", "iterations", "CPU-s"], rows, title="At the end, all starts"
    )
    rows = [
        [
            name,
            told["learner"],
            told["divergence"],
            told["share_on_data"],
            told["total_variation_of_model"],
            told["total_variation_of_samples"],
        ]
        for name, told in summary["samples"].items()
    ]
    columns = ["case", "learner", "KL", "samples on the data", "TV of the model", "TV of samples"]
    reporting.print_table(columns, rows, title="Samples of the best machine")


def shown(told: Mapping[str, float]) -> str:
    """An estimate with its interval."""
    return f"{told['estimate']:.4g} [{told['low']:.4g}, {told['high']:.4g}]"
