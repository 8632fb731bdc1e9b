"""What the study found: gaps and violations with intervals, slopes, figures, tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.cmdp import study_figures
from experiments.cmdp.study import Arm, Study, optima, run_study
from experiments.cmdp.study_options import StudyOptions
from jaxlab.agents import pdnac
from jaxlab.core import devices, reporting
from jaxlab.core.intervals import bootstrap
from jaxlab.core.stages import Results, combined_performance
from jaxlab.envs.cmdp.evaluation import evaluate, slack_gains
from jaxlab.envs.cmdp.model import CMDP


class Measured(NamedTuple):
    """A run against the exact answer; gaps and violations are positive where it falls short.

    Attributes:
      samples: Transitions at the points of the curves, `[points]`.
      gap, violation: Averages over all policies so far, `[points, seeds]`; a violation is that
        of the constraint violated most.
      recent_gap, recent_violation: Of the policies since the last point.
      averaged: Gap and violation of the averaged policy, `[2, seeds]`; NaN where there is none.
    """

    samples: np.ndarray
    gap: np.ndarray
    violation: np.ndarray
    recent_gap: np.ndarray
    recent_violation: np.ndarray
    averaged: np.ndarray


def main(options: StudyOptions) -> None:
    """Run the study and report it."""
    report(*run_study(options))


def report(study: Study, results: Results) -> None:
    """Write and print everything the study is judged by."""
    options = study.options
    measured = {
        name: measure(study, arm, results[name])
        for name, arm in study.arms.items()
        if arm.part != "cartpole"
    }
    summary: dict[str, Any] = {
        "model": options.model,
        "optimum": study.solution.optimum,
        "multipliers": study.solution.multipliers,
        "slater_margin": study.solution.slater_margin,
        "arms": {name: describe(of) for name, of in measured.items()},
        "slopes": slopes(study, measured),
    }
    if "cartpole" in study.arms:
        summary["cartpole"] = continuous(results["cartpole"])
    if devices.is_primary():
        assert options.run_dir is not None
        study_figures.draw(study, results, measured)
        reporting.write_summary(options.run_dir, summary, combined_performance(results))
        _print(study, summary)
        print(f"results in {options.run_dir}")


def measure(study: Study, arm: Arm, result: Any) -> Measured:
    """A run's curves."""
    if arm.solution is None:
        exact = optima(study, result)
    else:
        assert arm.problem is not None
        exact = [(arm.problem, arm.solution)] * study.options.seeds
    optimum = np.array([solution.gain for _, solution in exact])
    average, recent = (result.metrics[name] for name in ("average_gains", "gains"))
    return Measured(
        result.metrics["step"] * arm.samples,
        optimum - average[..., 0],
        np.max(-average[..., 1:], -1),
        optimum - recent[..., 0],
        np.max(-recent[..., 1:], -1),
        averaged(exact, result.state),
    )


def averaged(exact: list[tuple[CMDP, Any]], state: Any) -> np.ndarray:
    """Gap and violation of the averaged policy of each seed, `[2, seeds]`."""
    if getattr(getattr(state, "averages", None), "occupancy", None) is None:
        return np.full((2, len(exact)), np.nan)
    policies = np.asarray(pdnac.averaged_policy(state))
    valued = jax.jit(evaluate)
    found = []
    for (problem, solution), policy in zip(exact, policies, strict=True):
        gains = valued(problem.cast(), policy).gains
        violation = -np.asarray(slack_gains(problem, gains))
        found.append([solution.gain - float(gains[0]), float(violation.max())])
    return np.array(found).T


def describe(of: Measured) -> dict[str, Any]:
    """The end of a run in numbers: means over seeds with intervals."""
    half = len(of.samples) // 2
    return {
        "transitions": float(of.samples[-1]),
        "gap": _interval(of.gap[-1]),
        "violation": _interval(of.violation[-1]),
        "gap_deviation": float(np.std(of.gap[-1])),
        "largest_violation": float(np.max(of.violation[-1])),
        "averaged_policy_gap": _interval(of.averaged[0]),
        "averaged_policy_violation": _interval(of.averaged[1]),
        # Worst points of the second half: a last iterate that cycles shows here.
        "worst_recent_gap": _interval(np.nanmax(of.recent_gap[half:], 0)),
        "worst_recent_violation": _interval(np.nanmax(of.recent_violation[half:], 0)),
    }


def slopes(study: Study, measured: Mapping[str, Measured]) -> dict[str, Any]:
    """Slopes of gap + violation against the horizon on log axes, with intervals over seeds."""
    found = {}
    for kind in ("known", "unknown"):
        arms = [
            arm
            for name, arm in study.arms.items()
            if arm.part == "rates" and name.startswith(f"{kind}_")
        ]
        if len(arms) < 2:
            continue
        horizons = np.log([arm.horizon for arm in arms])
        short = np.stack([shortfall(measured[arm.name]) for arm in arms], 1)

        def slope(values: np.ndarray, at: np.ndarray = horizons) -> np.ndarray:
            return np.asarray(np.polyfit(at, np.log(np.mean(values, 0)), 1)[0])

        found[kind] = {
            "horizons": [arm.horizon for arm in arms],
            "shortfall": short.mean(0),
            **_told(bootstrap(short, slope)),
        }
    return found


def shortfall(of: Measured) -> np.ndarray:
    """Gap plus violation at the end of a run, by seed; neither counts where negative."""
    return np.maximum(of.gap[-1], 0.0) + np.maximum(of.violation[-1], 0.0)


def continuous(result: Any) -> dict[str, Any]:
    """The continuous task: averages over transitions, at first and in the last quarter."""
    points = len(result.metrics["step"])
    last = slice(points - max(1, points // 4), None)
    reward, left = result.metrics["reward"], result.metrics["slack"][..., 0]
    return {
        "transitions": float(result.metrics["step"][-1]),
        "first_reward": _interval(reward[0]),
        "reward": _interval(reward[last].mean(0)),
        "first_slack": _interval(left[0]),
        "slack": _interval(left[last].mean(0)),
    }


def _interval(values: np.ndarray) -> dict[str, Any]:
    if not np.all(np.isfinite(values)):
        return {"mean": None, "low": None, "high": None}
    return _told(bootstrap(np.asarray(values)))


def _told(interval: Any) -> dict[str, float]:
    return {
        "mean": float(interval.estimate),
        "low": float(interval.low),
        "high": float(interval.high),
    }


def _print(study: Study, summary: Mapping[str, Any]) -> None:
    rows = [
        [
            name,
            f"{told['transitions']:.3g}",
            *(
                _text(told[key])
                for key in ("gap", "violation", "averaged_policy_gap", "averaged_policy_violation")
            ),
            _text(told["worst_recent_violation"]),
        ]
        for name, told in summary["arms"].items()
    ]
    head = ["run", "transitions", "gap", "violation", "gap of averaged policy"]
    head = [*head, "its violation", "worst recent violation"]
    reporting.print_table(head, rows, title=f"{study.options.model}, means over seeds")
    if summary["slopes"]:
        rows = [[f"{kind} mixing time", _text(of)] for kind, of in summary["slopes"].items()]
        reporting.print_table(["", "slope of gap + violation"], rows)
    if "cartpole" in summary:
        told = summary["cartpole"]
        rows = [
            [name, _text(told[f"first_{name}"]), _text(told[name])] for name in ("reward", "slack")
        ]
        reporting.print_table(["cart-pole", "at first", "last quarter"], rows)


def _text(told: Mapping[str, Any]) -> str:
    if told["mean"] is None:
        return "-"
    return f"{told['mean']:.4f} [{told['low']:.4f}, {told['high']:.4f}]"
