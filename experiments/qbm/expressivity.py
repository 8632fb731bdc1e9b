"""What machines can express: the least divergence of each kind, from the best of many starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.qbm.grid import run_arguments, stage, trained
from experiments.qbm.study_options import LEARNERS, ExpressivityOptions
from jaxlab.core import devices, reporting
from jaxlab.core.stages import Results, combined_performance, run_stages
from jaxlab.envs.qbm.restricted import RestrictedModel

VISIBLE = 4
#: Hidden operators and numbers of hidden units.
KINDS = (("Z", 1), ("Z", 2), ("Z", 3), ("XZ", 1), ("XZ", 2), ("XYZ", 1), ("XYZ", 2))
#: All pictures of full rows or columns, even parity, two ones of four.
DATA = ("all_bars", "parity", "cardinality")
#: Starts that end so close to the best count as having found it.
NEAR = 1e-3


def main(options: ExpressivityOptions) -> None:
    """Train all kinds of machines and report how close they came."""
    stages = [
        stage(
            f"{operators}_{hidden}",
            RestrictedModel(VISIBLE, hidden, operators),
            LEARNERS["em"],
            DATA,
            options.steps,
            seed=options.seed,
            seeds=options.seeds,
            width=options.width,
        )
        for operators, hidden in KINDS
    ]
    results = run_stages(stages, **run_arguments(options))
    summary = {"machines": describe(results)}
    if devices.is_primary():
        assert options.run_dir is not None
        reporting.write_summary(options.run_dir, summary, combined_performance(results))
        _print(summary["machines"])
        print(f"results in {options.run_dir}")


def describe(results: Results) -> list[dict[str, Any]]:
    """Each kind of machine on each data set, as plain data."""
    told = []
    for operators, hidden in KINDS:
        model = RestrictedModel(VISIBLE, hidden, operators)
        for data, of in trained(results[f"{operators}_{hidden}"], DATA).items():
            told.append(
                {
                    "operators": operators,
                    "hidden": hidden,
                    "parameters": model.size,
                    "data": data,
                    "best": of.best_divergence,
                    "median": float(np.median(of.last)),
                    "share_near_best": float(np.mean(of.last < of.best_divergence + NEAR)),
                    "largest_parameter": float(np.abs(of.best).max()),
                }
            )
    return told


def _print(told: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for n in range(0, len(told), len(DATA)):
        group = told[n : n + len(DATA)]
        cells = [f"{row['best']:.4g} ({100 * row['share_near_best']:.0f} %)" for row in group]
        first = group[0]
        rows.append([first["operators"], first["hidden"], first["parameters"], *cells])
    names = [name.replace("_", " ") for name in DATA]
    reporting.print_table(
        ["hidden operators", "hidden units", "parameters", *names],
        rows,
        title="Least KL over all starts (share of starts near it), 4 visible bits",
    )
