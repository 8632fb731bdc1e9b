"""Figures of a run, drawn without a display."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxlab.core import runfolder
from jaxlab.core.intervals import Statistic, bootstrap, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(width: float = 6.4, height: float = 4.0, **subplots: Any) -> tuple[Figure, Any]:
    """A figure and its axes; drawn by Agg whatever the machine has for a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**subplots)


def save_figure(figure: Figure, run_dir: pathlib.Path | str, name: str) -> pathlib.Path:
    """Write `figures/<name>.png`.

    Raises:
      CheckpointError: The disk is full.
    """
    path = pathlib.Path(run_dir) / runfolder.FIGURES / f"{name}.png"
    write_figure(figure, path)
    return path


def write_figure(figure: Figure, path: pathlib.Path) -> None:
    """Write a PNG, whole or nothing of it.

    Raises:
      CheckpointError: The disk is full.
    """
    import io

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    runfolder.write_bytes(path, buffer.getvalue())


def draw_curve(
    axes: Axes,
    x: np.ndarray,
    values: np.ndarray,
    *,
    label: str | None = None,
    statistic: Statistic = mean,
    confidence: float = 0.95,
) -> None:
    """Draw a statistic over seeds with its bootstrap interval.

    Args:
      axes: Where to draw.
      x: `[points]`.
      values: `[points, seeds]`; points where every seed is NaN are left out, and seeds
        that are NaN at a point do not count there.
      label: Entry of the legend.
      statistic: What is drawn, such as `intervals.interquartile_mean`.
      confidence: Coverage of the shaded interval.
    """
    values = np.asarray(values, float)
    shown = ~np.all(np.isnan(values), axis=1)
    points = [
        bootstrap(row[~np.isnan(row)], statistic, confidence=confidence, resamples=500)
        for row in values[shown]
    ]
    if not points:
        return
    estimate, low, high = (np.array(part) for part in zip(*points, strict=True))
    (line,) = axes.plot(np.asarray(x)[shown], estimate, label=label, linewidth=1.5)
    if values.shape[1] > 1:
        axes.fill_between(
            np.asarray(x)[shown], low, high, color=line.get_color(), alpha=0.25, linewidth=0
        )


def learning_curves(
    run_dir: pathlib.Path | str,
    metrics: Mapping[str, np.ndarray],
    names: Mapping[str, str],
    *,
    file: str = "learning_curve",
    x: str = "step",
) -> pathlib.Path:
    """Write a figure with one panel per metric.

    Args:
      run_dir: Folder of the run.
      metrics: As `reporting.read_metrics` returns them.
      names: Metrics to draw, each with the label (and unit) of its axis.
      file: Name of the figure.
      x: Metric on the horizontal axis.
    """
    figure, grid = new_figure(5.5 * len(names), 3.6, nrows=1, ncols=len(names), squeeze=False)
    for axes, (name, label) in zip(grid[0], names.items(), strict=True):
        values = np.asarray(metrics[name], float)
        draw_curve(axes, metrics[x], values.reshape(len(values), -1))
        axes.set_xlabel(x)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    return save_figure(figure, run_dir, file)
