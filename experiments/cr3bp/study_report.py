"""What the study found: shares, fronts, figures, tables and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.cr3bp import study_figures
from experiments.cr3bp.instance import OBJECTIVE, costs
from experiments.cr3bp.study import MODELS, Study, positions, run_study
from experiments.cr3bp.study_options import StudyOptions
from jaxlab.agents.mcmc import diagnostics, pareto
from jaxlab.core import devices, reporting
from jaxlab.core.intervals import bootstrap
from jaxlab.core.stages import Results, combined_performance
from jaxlab.envs.cr3bp.solving import Solved, solve_transfers

#: Gaps that count: about what can be solved, and what counts as feasible unsolved.
CLOSE, FEASIBLE = 1e-2, 1e-3
#: Times that differ by this much without a sample between them belong to two basins, in units of
#: the system; and how many of the largest basins are told one by one.
BASIN_WIDTH, LARGEST = 0.25, 5
#: How far beyond the worst point of a front its reference point lies.
BEYOND = 1.1


class Chains(NamedTuple):
    """Chains of a sampler.

    Attributes:
      step: Of the states that were kept, `[draws]`.
      gap: There, `[seeds, draws, chains]`.
      value: J* there.
      position: Costates there, `[seeds, draws, chains, 4]`.
      times: Time of flight and time on the target orbit there, `[seeds, draws, chains, 2]`.
      cpu_per_step: CPU-seconds of one seed's chains.
      acceptance: Mean acceptance after adaptation.
      gradients: Of one seed's chains in a step, after adaptation.
    """

    step: np.ndarray
    gap: np.ndarray
    value: np.ndarray
    position: np.ndarray
    times: np.ndarray
    cpu_per_step: float
    acceptance: float
    gradients: float


def main(options: StudyOptions) -> None:
    """Run the study and report it."""
    report(*run_study(options))


def report(study: Study, results: Results) -> None:
    """Write and print everything the study is judged by."""
    options = study.options
    drawn = {model: study.samples(results, model) for model in MODELS}
    valued = {model: cost for model, (_, cost) in drawn.items()}
    chains = {
        f"{model}_{name}": chains_of(study, results[f"{model}_{name}"])
        for model in MODELS
        for name in options.samplers
    }
    solved = {name: _solve(study, positions(results[name])[:, -1]) for name in chains}
    solved |= {f"{model}_samples": _solve(study, x) for model, (x, _) in drawn.items()}
    summary: dict[str, Any] = {
        "samples": {
            model: {
                "close": _interval((cost.gap < CLOSE).mean(1)),
                "feasible": _interval((cost.gap < FEASIBLE).mean(1)),
                "solved": _interval(np.asarray(solved[f"{model}_samples"].solved).mean(1)),
            }
            for model, cost in valued.items()
        },
        "chains": {name: _describe(study, chains, solved, name) for name in chains},
    }
    summary |= fronts(solved)
    if devices.is_primary():
        assert options.run_dir is not None
        study_figures.draw(study, results, valued, chains, solved)
        reporting.write_summary(options.run_dir, summary, combined_performance(results))
        _print(summary)
        print(f"results in {options.run_dir}")


def chains_of(study: Study, result: Any) -> Chains:
    """The states that chains kept, valued."""
    where = positions(result)
    cost = costs(where, study.target.transfer)
    step, spent = result.metrics["step"], np.ravel(result.metrics["cpu_seconds"])
    # The first chunk includes compilation, and after a continuation the count begins again.
    used = np.diff(spent) / np.diff(step)
    used = np.median(used[used > 0]) if (used > 0).any() else np.nan
    half, seeds = len(step) // 2, study.options.seeds
    late = result.metrics["acceptance"][half:]
    gradients = result.metrics["gradients"][half:].sum(0).mean() / (step[-1] - step[half - 1])
    return Chains(
        result.records()["step"],
        cost.gap,
        cost.value,
        where,
        np.stack([cost.time, cost.phase_time], -1),
        float(used) / seeds,
        float(late.mean()),
        float(gradients),
    )


def share(of: Chains, warmup: int, last: float, gap: float) -> np.ndarray:
    """Share of states within a gap after adaptation and up to a step, by seed."""
    window = (of.step > warmup) & (of.step <= last)
    if not window.any():
        return np.full(of.gap.shape[0], np.nan)
    return (of.gap[:, window] < gap).mean((1, 2))


def _describe(
    study: Study, chains: Mapping[str, Chains], solved: Mapping[str, Solved], name: str
) -> dict[str, Any]:
    """Numbers of one sampler, at equal iterations and at equal CPU time."""
    of, steps = chains[name], study.options.steps
    model = name.split("_")[0]
    rivals = [other for key, other in chains.items() if key.startswith(model)]
    budget = min(other.cpu_per_step * other.step[-1] for other in rivals)
    told: dict[str, Any] = {
        "acceptance": of.acceptance,
        "cpu_seconds_per_iteration": of.cpu_per_step,
        "cpu_seconds_budget": budget,
        "solved": _interval(np.asarray(solved[name].solved).mean(1)),
    }
    for axis, last in (("iterations", steps), ("cpu", budget / of.cpu_per_step)):
        for level, gap in (("feasible", FEASIBLE), ("close", CLOSE)):
            told[f"{level}_at_equal_{axis}"] = _interval(share(of, steps // 2, last, gap))
    ends = np.asarray(solved[name].solved)
    told["ends"] = diagnostics.feasible_shares(of.gap[:, -1, : ends.shape[1]], FEASIBLE, ends)
    return told | {"basins": basins(of, steps // 2, float(study.target.transfer.period))}


def basins(of: Chains, warmup: int, period: float) -> dict[str, Any]:
    """What diagnostics say of chains after adaptation, basin by basin.

    Basins are told apart by the times of flight and on the target orbit, which jump where J* has
    another minimum over them. R-hat and effective sizes are those of chains that stay in theirs;
    of the sizes the smallest over the costates counts.
    """
    late = of.step > warmup
    seeds, draws, chains, size = of.position[:, late].shape
    samples = np.moveaxis(of.position[:, late], 1, 2).reshape(seeds * chains, draws, size)
    times = np.moveaxis(of.times[:, late], 1, 2).reshape(seeds * chains, draws, 2)
    # Where J* is infinite there are no times; no chain stays there.
    known = np.isfinite(times).all((1, 2))
    samples, times = samples[known], times[known]
    labels = diagnostics.neighbouring(times, BASIN_WIDTH, (None, period))
    found = diagnostics.basins(samples, labels)
    ess, rhat = found.ess.min(1), found.rhat.max(1)
    several = (found.chains > 1) & np.isfinite(rhat)
    total = float(np.nansum(ess))
    steps = int(of.step[-1]) - warmup
    spent, gradients = steps * of.cpu_per_step * seeds, steps * of.gradients * seeds
    return {
        "count": len(found.names),
        "chains_that_stay": float(found.chains.sum() / (seeds * chains)),
        "changes": found.changes,
        "rhat_below_1.01": float((rhat[several] < 1.01).mean()) if several.any() else None,
        "rhat_median": float(np.median(rhat[several])) if several.any() else None,
        "ess": total,
        "ess_per_cpu_second": total / spent if np.isfinite(spent) else None,
        "ess_per_gradient": total / gradients if gradients else None,
        "largest": [
            {
                "share": float(found.share[n]),
                "chains": int(found.chains[n]),
                "rhat": float(rhat[n]) if np.isfinite(rhat[n]) else None,
                "ess": float(ess[n]) if np.isfinite(ess[n]) else None,
            }
            for n in range(min(LARGEST, len(found.names)))
        ],
    }


def _interval(by_seed: np.ndarray) -> dict[str, Any]:
    if not np.isfinite(by_seed).all():
        return {"mean": None, "low": None, "high": None, "by_seed": None}
    found = bootstrap(by_seed)
    return {
        "mean": float(by_seed.mean()),
        "low": float(found.low),
        "high": float(found.high),
        "by_seed": by_seed.tolist(),
    }


def _solve(study: Study, costates: np.ndarray) -> Solved:
    """Transfers from the first costates of each seed, `[seeds, solve]`."""
    options = study.options
    begin = jnp.asarray(costates[:, : options.solve])
    return solve_transfers(begin, study.target.transfer, OBJECTIVE, rounds=options.rounds)


def fronts(solved: Mapping[str, Solved]) -> dict[str, Any]:
    """Fronts of propellant and time, and the areas they dominate, against one reference."""
    points = {
        name: np.stack([found.propellant, found.time], -1)[np.asarray(found.solved)]
        for name, found in solved.items()
    }
    every = np.concatenate(list(points.values()))
    if len(every) == 0:
        return {"front": [], "reference": None, "hypervolume": dict.fromkeys(points, 0.0)}
    reference = BEYOND * every.max(0)
    best = every[pareto.non_dominated(every)]
    areas = {
        name: pareto.hypervolume(own, reference) if len(own) else 0.0
        for name, own in points.items()
    }
    return {
        "front": best[np.argsort(best[:, 1])].tolist(),
        "reference": reference.tolist(),
        "hypervolume": areas,
    }


def _print(summary: Mapping[str, Any]) -> None:
    rows = [
        [model, _percent(told["close"]), _percent(told["feasible"]), _percent(told["solved"])]
        for model, told in summary["samples"].items()
    ]
    reporting.print_table(
        ["model", f"gap < {CLOSE:g}", f"gap < {FEASIBLE:g}", "solved"],
        rows,
        title="Fresh samples of the models",
    )
    rows = [
        [
            name,
            _percent(told["feasible_at_equal_iterations"]),
            _percent(told["feasible_at_equal_cpu"]),
            _percent(told["close_at_equal_cpu"]),
            _percent(told["solved"]),
            told["acceptance"],
            summary["hypervolume"][name],
        ]
        for name, told in summary["chains"].items()
    ]
    reporting.print_table(
        [
            "chains",
            f"gap < {FEASIBLE:g}, equal iterations",
            "equal CPU",
            f"gap < {CLOSE:g}, equal CPU",
            "solved",
            "acceptance",
            "hypervolume",
        ],
        rows,
        title="Chains from the best samples of each model",
    )
    rows = [[name, *_quality(told)] for name, told in summary["chains"].items()]
    reporting.print_table(
        [
            "chains",
            "basins",
            "chains that stay",
            "median R-hat within",
            "R-hat < 1.01",
            "ESS",
            "by CPU-second",
            "by gradient",
            "ends feasible",
            "ends solved",
        ],
        rows,
        title="Basin by basin, after adaptation",
    )


def _quality(told: Mapping[str, Any]) -> list[Any]:
    of, ends = told["basins"], told["ends"]
    numbers = [of[k] for k in ("rhat_median", "rhat_below_1.01", "ess", "ess_per_cpu_second")]
    numbers += [of["ess_per_gradient"], ends["raw"], ends["solved"]]
    shown = ["-" if number is None else f"{number:.3g}" for number in numbers]
    return [of["count"], f"{of['chains_that_stay']:.2f}", *shown]


def _percent(told: Mapping[str, Any]) -> str:
    if told["mean"] is None:
        return "-"
    low, mean, high = (100 * told[key] for key in ("low", "mean", "high"))
    return f"{mean:.2f} % [{low:.2f}, {high:.2f}]"
