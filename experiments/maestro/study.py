"""The study: variants on the same seeds, one after the other, and a table of what they reach.

An arm is a variant and who designs in it. Its seeds are one batch, in a folder of its own,
so that a study is interrupted and continued anywhere, also an arm at a time.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.maestro.options import Options
from experiments.maestro.training import train
from experiments.maestro.variants import Arm
from jaxlab.core import devices, figures, intervals, reporting, runfolder
from jaxlab.core.errors import ConfigError, Interrupted
from jaxlab.core.progress import say

Json = dict[str, Any]

#: What arms are compared with, where it is among them.
BASELINE = "no_curriculum"
#: Files of the report.
TABLE, DATA = "study.md", "study.json"


def study(options: Options) -> None:
    """Run the arms that are not done yet, and report on all that are.

    Raises:
      ConfigError: an arm is unknown, or its folder holds something else.
    """
    assert options.run_dir is not None
    for arm in map(Arm.parse, options.arms):
        folder = options.run_dir / arm.folder
        if (folder / runfolder.SUMMARY).is_file():
            say(f"{arm.name}: done before, in {folder}")
            continue
        say(f"{arm.name}: {options.seeds} seeds from {options.seed} on, in {folder}")
        try:
            train(_options_of(options, arm))
        except Interrupted:
            say(f"the study goes on with: {reporting.resume_command(options.run_dir)}")
            raise
    report(options)


def _options_of(options: Options, arm: Arm) -> Options:
    """The options of an arm's run, which is begun or continued."""
    assert options.run_dir is not None
    folder = options.run_dir / arm.folder
    begun = (folder / runfolder.CONFIG).is_file()
    changed = dataclasses.replace(
        options,
        study=False,
        arms=(),
        variant=arm.variant,
        curriculum=None,
        architect=arm.architect or options.architect,
        run_dir=folder,
        resume=folder if begun else None,
        animation_seconds=0.0,
        json=False,
    )
    if not begun and devices.is_primary():
        values = {f.name: getattr(changed, f.name) for f in dataclasses.fields(changed)}
        runfolder.create(folder, "maestro", values)
    return changed


class Row(NamedTuple):
    """An arm in numbers, seed by seed, `[seeds]` each."""

    arm: Arm
    travel_time: np.ndarray
    returns: np.ndarray
    architect: Json | None


def report(options: Options) -> None:
    """Table, numbers and figure of all arms that are done.

    Raises:
      ConfigError: no arm is, or one ran with other seeds.
    """
    assert options.run_dir is not None
    if not devices.is_primary():
        return
    rows, reference = [], 0.0
    arms = [Arm.parse(arm) for arm in options.arms]
    for arm in arms:
        path = options.run_dir / arm.folder / runfolder.SUMMARY
        if not path.is_file():
            continue
        summary = json.loads(path.read_text())
        learned = summary["policies"]["learned"]
        if len(learned["return"]["seeds"]) != options.seeds:
            raise ConfigError(f"{path}: ran with other seeds than this study; remove its folder")
        rows.append(
            Row(
                arm,
                np.array(learned["average_travel_time"]["seeds"]),
                np.array(learned["return"]["seeds"]),
                summary["architect"],
            )
        )
        reference = float(summary["policies"]["max_pressure"]["return"]["median"])
    if not rows:
        raise ConfigError(f"{options.run_dir}: no arm of the study is done")
    baseline = next((row for row in rows if row.arm.variant == BASELINE), None)
    told = [describe(row, baseline, reference) for row in rows]
    document = {
        "arms": told,
        "seeds": [options.seed + n for n in range(options.seeds)],
        "steps": options.steps,
        "references": {"max_pressure": reference}
        | ({BASELINE: float(baseline.returns.mean())} if baseline else {}),
        "provenance": reporting.provenance(),
    }
    runfolder.write_bytes(
        options.run_dir / DATA, (runfolder.to_json(document, indent=2) + "\n").encode()
    )
    text = table(told, baseline is not None)
    runfolder.write_bytes(options.run_dir / TABLE, text.encode())
    draw(options.run_dir, rows)
    print(text, end="")
    missing = [arm.name for arm in arms if not any(row.arm == arm for row in rows)]
    if missing:
        say(f"not done yet: {', '.join(missing)}; continue with --resume {options.run_dir}")


def describe(row: Row, baseline: Row | None, reference: float) -> Json:
    """An arm in numbers over its seeds.

    Interquartile means with 95 % bootstrap intervals; the coefficient of variation and the
    risk-adjusted return (mean - reference) / standard deviation of the return, the reference
    being max pressure's return and the mean of `BASELINE`; and differences to the baseline,
    paired by seed: below zero the arm's travel times are shorter.
    """
    spread = float(row.returns.std(ddof=1)) if len(row.returns) > 1 else float("nan")
    mean = float(row.returns.mean())
    told: Json = {
        "arm": row.arm.name,
        "average_travel_time": _interval(row.travel_time),
        "return": _interval(row.returns),
        "return_mean": mean,
        "return_std": spread,
        "coefficient_of_variation": spread / abs(mean) if mean else float("nan"),
        "risk_adjusted_return": {"max_pressure": _ratio(mean - reference, spread)},
        "seeds": {
            "average_travel_time": row.travel_time.tolist(),
            "return": row.returns.tolist(),
        },
        "architect": row.architect,
    }
    if baseline is not None:
        told["risk_adjusted_return"][BASELINE] = _ratio(mean - baseline.returns.mean(), spread)
    if baseline is not None and baseline.arm != row.arm:
        difference = row.travel_time - baseline.travel_time
        told["difference"] = _interval(difference)
        told["better"] = float(np.mean(difference < 0) + 0.5 * np.mean(difference == 0))
    return told


def _interval(values: np.ndarray) -> Json:
    found = intervals.bootstrap(values, intervals.interquartile_mean)
    return {"iqm": float(found.estimate), "low": float(found.low), "high": float(found.high)}


def _ratio(excess: float, spread: float) -> float:
    return float(excess / spread) if spread > 0 else float("nan")


def table(told: Sequence[Json], compared: bool) -> str:
    """Markdown."""
    heads = ["arm", "travel time (s)", "return", "CV", "risk-adjusted, max pressure"]
    if compared:
        heads += [f"risk-adjusted, {BASELINE}", "paired difference (s)", "seeds that gain"]
    lines = [heads, ["---"] * len(heads)]
    for arm in told:
        risk = arm["risk_adjusted_return"]
        line = [
            f"`{arm['arm']}`",
            _shown(arm["average_travel_time"]),
            _shown(arm["return"]),
            f"{arm['coefficient_of_variation']:.1%}",
            f"{risk['max_pressure']:.1f}",
        ]
        if compared:
            line += [
                f"{risk[BASELINE]:.2f}",
                _shown(arm["difference"]) if "difference" in arm else "-",
                f"{arm['better']:.0%}" if "better" in arm else "-",
            ]
        lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(value: Json) -> str:
    return f"{value['iqm']:.1f} [{value['low']:.1f}, {value['high']:.1f}]"


def draw(run_dir: Path, rows: Sequence[Row]) -> None:
    """Travel times of the arms: a dot for a seed, the interquartile mean with its interval."""
    figure, axes = figures.new_figure(6.8, 0.5 * len(rows) + 1.2)
    for n, row in enumerate(rows):
        found = intervals.bootstrap(row.travel_time, intervals.interquartile_mean)
        axes.plot(row.travel_time, np.full(len(row.travel_time), n), ".", color="0.6")
        ends = [[found.estimate - found.low], [found.high - found.estimate]]
        axes.errorbar([found.estimate], [n], xerr=ends, fmt="o", color="tab:blue", capsize=3)
    axes.set_yticks(range(len(rows)), [row.arm.name for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("average travel time on the untouched demand (s)")
    axes.grid(alpha=0.3, axis="x")
    figures.save_figure(figure, run_dir, "study")
