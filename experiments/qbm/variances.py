"""Variances of gradients at random parameters by the number of units: are there plateaus?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from experiments.qbm.grid import run_arguments, targets_of
from experiments.qbm.study import interval, shown
from experiments.qbm.study_options import VariancesOptions
from jaxlab.core import devices, figures, reporting
from jaxlab.core.learner import Learner, Metrics, maximum, record
from jaxlab.core.stages import Results, Stage, combined_performance, run_stages
from jaxlab.core.training import Result
from jaxlab.envs.qbm import restricted
from jaxlab.envs.qbm.restricted import RestrictedModel

#: Parts of the gradient: by fields of visible units, and by couplings.
PARTS = {"fields": "visible fields", "couplings": "couplings"}


@struct.dataclass
class Draws:
    """One batch of draws.

    Attributes:
      key: Of the batch.
      target: Probabilities of visible bits.
      width: Draws are uniform in [-width, width].
    """

    key: jax.Array
    target: Any
    width: Any


def scan(model: RestrictedModel) -> Learner:
    """A step draws parameters and records the gradient of the divergence there."""

    def init(key: jax.Array, hyper: Any) -> Draws:
        target, width = hyper
        return Draws(key, jnp.asarray(target), jnp.asarray(width))

    def step(state: Draws, t: jax.Array) -> tuple[Draws, Metrics]:
        key = jax.random.fold_in(state.key, t)
        draw = jax.random.uniform(key, (model.size,), np.float64, -1.0, 1.0)
        found = restricted.evaluate(state.width * draw, model, state.target)
        kept = {
            "fields": -found.gap[: model.visible],
            "couplings": -found.gap[-int(np.prod(model.shapes[2])) :],
        }
        metrics = {
            "divergence": maximum(found.divergence),
            "gradient": record(kept),
        }
        return dataclasses.replace(state), metrics

    return Learner(init, step)


def main(options: VariancesOptions) -> None:
    """Draw for all sizes and report the variances."""
    stages = [_stage(options, visible) for visible in options.visible]
    results = run_stages(stages, **run_arguments(options))
    summary = {"variances": describe(options, results)}
    summary["slopes"] = slopes(options, results)
    if devices.is_primary():
        assert options.run_dir is not None
        _draw(options.run_dir, options, summary["variances"])
        reporting.write_summary(options.run_dir, summary, combined_performance(results))
        _print(summary)
        print(f"results in {options.run_dir}")


def _stage(options: VariancesOptions, visible: int) -> Stage:
    """Rows are data sets by widths by batches."""
    model = RestrictedModel(visible, visible // 2, options.operators)
    targets = np.repeat(targets_of(options.data, visible), len(options.widths) * options.seeds, 0)
    widths = np.tile(np.repeat(options.widths, options.seeds), len(options.data))
    rows = {"seeds": len(widths), "hyper_axis": 0, "chunk": options.steps}
    return Stage(
        f"{options.operators}_{visible}",
        lambda results: scan(model),
        options.steps,
        (targets, widths),
        rows,
    )


def by_batch(options: VariancesOptions, result: Result) -> dict[str, np.ndarray]:
    """Variances over the draws of a batch, averaged over the components of a part,
    `[data, widths, batches]`."""
    records = result.records()
    shape = (len(options.data), len(options.widths), options.seeds)
    return {
        part: np.var(records[f"gradient/{part}"], axis=0, ddof=1).mean(-1).reshape(shape)
        for part in PARTS
    }


def describe(options: VariancesOptions, results: Results) -> list[dict[str, Any]]:
    """Variances with intervals by size, data set, width and part, as plain data."""
    told = []
    for visible in options.visible:
        found = by_batch(options, results[f"{options.operators}_{visible}"])
        for part in PARTS:
            for d, data in enumerate(options.data):
                for w, width in enumerate(options.widths):
                    row = {"visible": visible, "data": data, "width": width, "part": part}
                    told.append(row | {"variance": interval(found[part][d, w])})
    return told


def slopes(options: VariancesOptions, results: Results) -> list[dict[str, Any]]:
    """Slopes of the logarithm of the variance by visible units; a plateau has a negative one."""
    told = []
    for part in PARTS:
        found = [
            by_batch(options, results[f"{options.operators}_{visible}"])[part]
            for visible in options.visible
        ]
        logs = np.log(np.stack(found))
        centred = np.array(options.visible, float) - np.mean(options.visible)
        slope = np.tensordot(centred, logs, 1) / np.sum(centred**2)
        for d, data in enumerate(options.data):
            for w, width in enumerate(options.widths):
                told.append(
                    {"data": data, "width": width, "part": part, "slope": interval(slope[d, w])}
                )
    return told


def _draw(folder: Path, options: VariancesOptions, told: list[dict[str, Any]]) -> None:
    figure, panels = figures.new_figure(9.0, 3.4, ncols=2)
    for axes, (part, title) in zip(panels, PARTS.items(), strict=True):
        for data in options.data:
            for width in options.widths:
                rows = [
                    row["variance"]
                    for row in told
                    if (row["part"], row["data"], row["width"]) == (part, data, width)
                ]
                low, middle, high = (
                    np.array([row[key] for row in rows]) for key in ("low", "estimate", "high")
                )
                (line,) = axes.plot(
                    options.visible, middle, "o-", ms=3, label=f"{data}, width {width:g}"
                )
                axes.fill_between(
                    options.visible, low, high, color=line.get_color(), alpha=0.25, linewidth=0
                )
        axes.set(yscale="log", xlabel="visible units", title=f"gradient by {title}")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("variance")
    panels[0].legend(fontsize="x-small")
    figures.save_figure(figure, folder, "variances")


def _print(summary: Mapping[str, Any]) -> None:
    rows = [
        [row["part"], row["data"], row["width"], row["visible"], shown(row["variance"])]
        for row in summary["variances"]
    ]
    columns = ["gradient by", "data", "width", "visible units", "variance"]
    reporting.print_table(columns, rows, title="Variances of the gradient")
    rows = [
        [row["part"], row["data"], row["width"], shown(row["slope"])] for row in summary["slopes"]
    ]
    reporting.print_table(
        ["gradient by", "data", "width", "slope"], rows, title="Slope of log variance by units"
    )
