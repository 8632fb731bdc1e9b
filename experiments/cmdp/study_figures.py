"""Figures of the study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cmdp.study import Study
from jaxlab.core import figures


def draw(study: Study, results: Mapping[str, Any], measured: Mapping[str, Any]) -> None:
    """Draw all that the arms allow."""
    folder = study.options.run_dir
    assert folder is not None
    for part in ("estimators", "baselines", "remedies", "problems"):
        names = [name for name, arm in study.arms.items() if arm.part == part]
        if part in ("baselines", "remedies") and names and "batch" in measured:
            names = ["batch", *names]
        if names:
            _draw_curves(folder, part, {name: measured[name] for name in names})
    rates = [name for name, arm in study.arms.items() if arm.part == "rates"]
    if rates:
        _draw_rates(study, measured, rates)
    moving = [n for n, arm in study.arms.items() if arm.part in ("estimators", "remedies")]
    if moving:
        _draw_multipliers(study, results, measured, moving)


def _draw_curves(folder: Path, part: str, measured: Mapping[str, Any]) -> None:
    """Gap and violation of the average so far against transitions, on log axes."""
    figure, panels = figures.new_figure(9.0, 3.6, ncols=2)
    for axes, field in zip(panels, ("gap", "violation"), strict=True):
        for name, of in measured.items():
            figures.draw_curve(axes, of.samples, np.abs(getattr(of, field)), label=name)
        axes.set(xscale="log", yscale="log", xlabel="transitions", ylabel=f"|average {field}|")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="x-small")
    figures.save_figure(figure, folder, part)


def _draw_rates(study: Study, measured: Mapping[str, Any], names: list[str]) -> None:
    """Gap plus violation at the end against the horizon, with lines of slope -1/2 and -1/4."""
    figure, axes = figures.new_figure(5.6, 4.0)
    for kind in ("known", "unknown"):
        arms = [study.arms[name] for name in names if name.startswith(f"{kind}_")]
        if not arms:
            continue
        horizons = np.array([arm.horizon for arm in arms], float)
        short = np.stack(
            [
                np.maximum(measured[arm.name].gap[-1], 0)
                + np.maximum(measured[arm.name].violation[-1], 0)
                for arm in arms
            ]
        )
        figures.draw_curve(axes, horizons, short, label=f"{kind} mixing time")
        if kind == "known":
            for slope, style in ((-0.5, ":"), (-0.25, "--")):
                line = short[0].mean() * (horizons / horizons[0]) ** slope
                axes.plot(horizons, line, style, color="gray", linewidth=1, label=f"slope {slope}")
    axes.set(xscale="log", yscale="log", xlabel="horizon T", ylabel="gap + violation")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")
    figures.save_figure(figure, study.options.run_dir or ".", "rates")


def _draw_multipliers(
    study: Study, results: Mapping[str, Any], measured: Mapping[str, Any], names: list[str]
) -> None:
    """Multipliers, and slacks of recent policies: averages settle, last iterates cycle."""
    figure, panels = figures.new_figure(9.0, 3.6, ncols=2)
    for name in names:
        steps = measured[name].samples
        (line,) = panels[0].plot(
            steps, results[name].metrics["multipliers"][:, 0, 0], linewidth=1, label=name
        )
        recent = -measured[name].recent_violation[:, 0]
        panels[1].plot(steps, recent, linewidth=1, color=line.get_color())
    panels[0].axhline(float(study.solution.multipliers[0]), color="black", linewidth=0.8)
    panels[1].axhline(0.0, color="black", linewidth=0.8)
    panels[0].set(xlabel="transitions", ylabel="multiplier of the first seed")
    panels[1].set(xlabel="transitions", ylabel="slack of recent policies")
    panels[0].legend(fontsize="x-small")
    figures.save_figure(figure, study.options.run_dir or ".", "multipliers")
