"""Figures of the study of learners."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.qbm.grid import Trained
from experiments.qbm.study_options import LEARNERS
from jaxlab.core import figures

COLOURS = {
    "em_gradient": "tab:red",
    "gradient": "tab:blue",
    "adam": "tab:green",
    "em": "tab:purple",
    "natural_gradient": "tab:orange",
}
#: Points of a curve, evenly on a logarithmic scale.
POINTS = 40
#: Divergences are drawn down to this.
FLOOR = 1e-9


class Distributions(NamedTuple):
    """Distributions of visible bits, `[states]` each.

    Attributes:
      target: Of the data.
      samples: Frequencies of samples of the best machine.
      models: Exact ones, by learner.
    """

    target: np.ndarray
    samples: np.ndarray
    models: Mapping[str, np.ndarray]


def draw(
    folder: Path,
    found: Mapping[Any, Mapping[str, Trained]],
    distributions: Mapping[Any, Distributions],
) -> None:
    """Draw curves against iterations and CPU-seconds, and distributions, for each machine."""
    machines: dict[Any, dict[str, Any]] = {}
    for case in found:
        machines.setdefault(case.model, {})[case.data] = case
    for model, cases in machines.items():
        name = f"{model.operators}_{model.visible}x{model.hidden}"
        curves = {data: found[case] for data, case in cases.items()}
        for axis in ("iterations", "seconds"):
            _draw_curves(folder, f"{axis}_{name}", curves, axis)
        _draw_distributions(folder, f"samples_{name}", cases, distributions)


def _draw_curves(
    folder: Path, name: str, curves: Mapping[str, Mapping[str, Trained]], axis: str
) -> None:
    """A panel for each data set: the mean over starts with its interval of 95 %."""
    count = len(curves)
    columns = min(2, count)
    rows = -(-count // columns)
    figure, grid = figures.new_figure(
        4.6 * columns, 2.9 * rows, nrows=rows, ncols=columns, squeeze=False
    )
    panels = list(grid.flat)
    for axes, (data, learners) in zip(panels, curves.items(), strict=False):
        for learner, of in learners.items():
            if axis == "seconds" and not np.isfinite(of.cpu_per_step):
                continue
            chosen = np.searchsorted(of.step, np.geomspace(of.step[0], of.step[-1], POINTS))
            chosen = np.unique(np.clip(chosen, 0, len(of.step) - 1))
            x = of.step[chosen] * (of.cpu_per_step if axis == "seconds" else 1)
            axes.set_prop_cycle(color=[COLOURS[learner]])
            values = np.maximum(of.curve[chosen], FLOOR)
            figures.draw_curve(axes, x, values, label=LEARNERS[learner].title)
        axes.set(xscale="log", yscale="log", title=data.replace("_", " "))
        axes.grid(alpha=0.3)
    for axes in panels[count:]:
        axes.set_visible(False)
    label = "iterations" if axis == "iterations" else "CPU-seconds, all starts"
    for axes in panels[max(0, count - columns) : count]:
        axes.set_xlabel(label)
    for axes in grid[:, 0]:
        axes.set_ylabel("KL (nats)")
    panels[0].legend(fontsize="x-small")
    figures.save_figure(figure, folder, name)


def _draw_distributions(
    folder: Path,
    name: str,
    cases: Mapping[str, Any],
    distributions: Mapping[Any, Distributions],
) -> None:
    """The data, samples of the best machine, and the best machine of every learner."""
    figure, grid = figures.new_figure(8.0, 2.2 * len(cases), nrows=len(cases), squeeze=False)
    for axes, (data, case) in zip(grid[:, 0], cases.items(), strict=True):
        of = distributions[case]
        states = np.arange(len(of.target))
        axes.bar(states, of.target, width=1.0, color="0.8", label="data")
        axes.plot(states, of.samples, "k_", label="samples of the best machine")
        for learner, p in of.models.items():
            axes.plot(states, p, ".", color=COLOURS[learner], ms=3, label=LEARNERS[learner].title)
        axes.set(title=data.replace("_", " "), ylabel="probability")
    grid[-1, 0].set_xlabel("bit string as a number")
    grid[0, 0].legend(fontsize="x-small")
    figures.save_figure(figure, folder, name)
