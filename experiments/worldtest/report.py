"""What the sessions came to: tables by family and environment, intervals, figures."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.worldtest.options import FAMILIES
from experiments.worldtest.published import CHANCE, PUBLISHED
from jaxlab.core import figures, reporting
from jaxlab.core.intervals import bootstrap

Rows = Sequence[Mapping[str, Any]]

SHORT = {"masked_frame_prediction": "frames", "planning": "planning", "change_detection": "changes"}


def task_scores(rows: Rows, agent: str, **where: str) -> np.ndarray:
    """Mean score of each task over sessions, `[tasks]`; `where` picks a family, an environment."""
    by_task: dict[str, list[float]] = {}
    for row in rows:
        fits = all(row[name] == value for name, value in where.items())
        if row["agent"] == agent and fits:
            by_task.setdefault(row["task"], []).append(float(row["score"]))
    return np.array([np.mean(scores) for scores in by_task.values()])


def summarise(rows: Rows, agents: Sequence[str], families: Sequence[str]) -> dict[str, Any]:
    """Scores of each agent: of all tasks, by family, by environment."""
    environments = sorted({row["environment"] for row in rows})
    return {
        agent: {
            "all": _told(task_scores(rows, agent)),
            "families": {
                family: _told(task_scores(rows, agent, family=family)) for family in families
            },
            "environments": {
                environment: {
                    family: _mean(task_scores(rows, agent, family=family, environment=environment))
                    for family in families
                }
                for environment in environments
            },
            "acts": _mean(np.array([row["acts"] for row in rows if row["agent"] == agent])),
            "cpu_seconds_per_session": _mean(
                np.array([row["cpu_seconds"] for row in rows if row["agent"] == agent])
            ),
        }
        for agent in agents
    }


def write(
    run_dir: pathlib.Path,
    rows: Rows,
    agents: Sequence[str],
    mode: str,
    floors: Mapping[str, float],
) -> None:
    """Write `summary.json` and figures, and print the tables; `floors` are those of tasks."""
    families = [family for family in FAMILIES if any(row["family"] == family for row in rows)]
    told = summarise(rows, agents, families)
    by_family = mean_floors(rows, floors, families)
    spent = sum(float(row["cpu_seconds"]) for row in rows)
    performance = {"cpu_seconds": round(spent, 1), **reporting.peak_memory()}
    reporting.write_summary(
        run_dir,
        {
            "agents": told,
            "published": {name: row._asdict() for name, row in PUBLISHED.items()},
            "chance": {"masked_frame_prediction": CHANCE},
            "floors": by_family,
            "floors_by_task": dict(floors),
            "mode": mode,
        },
        performance,
    )
    _draw_families(run_dir, told, families)
    _draw_environments(run_dir, told, families)
    _print(told, families, by_family)


def mean_floors(
    rows: Rows, floors: Mapping[str, float], families: Sequence[str]
) -> dict[str, float | None]:
    """Mean floor of the tasks of each family that were taken and have one."""
    family_of = {row["task"]: row["family"] for row in rows}
    return {
        family: _mean(
            np.array([floors[t] for t, of in family_of.items() if of == family and t in floors])
        )
        for family in families
    }


def _told(scores: np.ndarray) -> dict[str, Any]:
    """Mean over tasks with its interval, and how many tasks there were."""
    if not len(scores):
        return {"mean": None, "low": None, "high": None, "tasks": 0}
    found = bootstrap(scores)
    return {
        "mean": float(found.estimate),
        "low": float(found.low),
        "high": float(found.high),
        "tasks": len(scores),
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _print(
    told: Mapping[str, Any], families: Sequence[str], floors: Mapping[str, float | None]
) -> None:
    columns = ["agent", *(SHORT[family] for family in families), "all", "acts"]
    rows: list[list[Any]] = [
        [
            agent,
            *(_cell(of["families"][family]) for family in families),
            _cell(of["all"]),
            f"{of['acts']:.0f}" if of["acts"] is not None else "-",
        ]
        for agent, of in told.items()
    ]
    rows.append(["floors of the tasks", *(_number(floors[f]) for f in families), "-", "-"])
    rows += [
        [
            f"published: {name}",
            *(_published(getattr(row, family)) for family in families),
            f"{row.all:.3f}",
            "-",
        ]
        for name, row in PUBLISHED.items()
    ]
    reporting.print_table(
        columns, rows, title="Scores, 95 % intervals over tasks (published: s.e.m.)"
    )
    environments = sorted({name for of in told.values() for name in of["environments"]})
    columns = ["environment", *(f"{agent} {SHORT[f]}" for f in families for agent in told)]
    rows = [
        [name, *(_number(of["environments"][name][f]) for f in families for of in told.values())]
        for name in environments
    ]
    reporting.print_table(columns, rows, title="Scores by environment")


def _cell(told: Mapping[str, Any]) -> str:
    if told["mean"] is None:
        return "-"
    return f"{told['mean']:.3f} [{told['low']:.3f}, {told['high']:.3f}]"


def _published(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3f} +- {pair[1]:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _draw_families(run_dir: pathlib.Path, told: Mapping[str, Any], families: Sequence[str]) -> None:
    """Bars of each agent and of published rows, by family."""
    names = [*told, *PUBLISHED]
    figure, axes = figures.new_figure(8.0, 4.8)
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        if name in told:
            cells = [told[name]["families"][family] for family in families]
            means = [cell["mean"] or 0.0 for cell in cells]
            below = [m - (cell["low"] or 0.0) for m, cell in zip(means, cells, strict=True)]
            above = [(cell["high"] or 0.0) - m for m, cell in zip(means, cells, strict=True)]
        else:
            pairs = [getattr(PUBLISHED[name], family) for family in families]
            means, below = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            above = below
        where = np.arange(len(families)) + (number - (len(names) - 1) / 2) * width
        axes.bar(
            where,
            means,
            width,
            yerr=np.maximum([below, above], 0),
            label=name if name in told else f"{name} (published)",
            alpha=1.0 if name in told else 0.5,
            error_kw={"linewidth": 0.8},
        )
    axes.set_xticks(range(len(families)), [SHORT[family] for family in families])
    axes.set_ylabel("score")
    figure.legend(fontsize="x-small", ncols=3, loc="outside lower center")
    figures.save_figure(figure, run_dir, "families")


def _draw_environments(
    run_dir: pathlib.Path, told: Mapping[str, Any], families: Sequence[str]
) -> None:
    """Scores of each agent by environment, as shades."""
    environments = sorted({name for of in told.values() for name in of["environments"]})
    grid = np.array(
        [
            [
                np.nan if value is None else value
                for of in told.values()
                for value in (of["environments"][name][family] for family in families)
            ]
            for name in environments
        ],
        float,
    )
    figure, axes = figures.new_figure(1.5 + 0.9 * grid.shape[1], 1.6 + 0.22 * len(environments))
    picture = axes.imshow(grid, vmin=0, vmax=1, aspect="auto", cmap="viridis")
    axes.set_yticks(range(len(environments)), environments, fontsize="x-small")
    labels = [f"{agent}\n{SHORT[family]}" for agent in told for family in families]
    axes.set_xticks(range(len(labels)), labels, fontsize="x-small")
    figure.colorbar(picture, label="score")
    figures.save_figure(figure, run_dir, "environments")
