"""Table, figures, animation and summary of a run."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from experiments.maestro.evaluation import MEASURES, Evaluation
from experiments.maestro.options import Options
from jaxlab.core import figures, reporting
from jaxlab.core.devices import is_primary
from jaxlab.core.intervals import bootstrap, median
from jaxlab.core.training import Result
from jaxlab.envs.traffic.animation import save_animation
from jaxlab.envs.traffic.environment import TrafficSignalControl

NAMES = {
    "learned": "learned policy",
    "fixed_time": "fixed time",
    "max_pressure": "max pressure",
    "sotl": "SOTL",
}
FRAMES_PER_SECOND = 12


def report(
    options: Options, env: TrafficSignalControl, evaluation: Evaluation, result: Result | None
) -> None:
    """Write and print everything a run is judged by."""
    if not is_primary():
        return
    run_dir = options.run_dir
    assert run_dir is not None
    draw(options, evaluation)
    if options.animation_seconds > 0:
        animate(options, env, evaluation)
    learned = evaluation.measures["learned"]
    results: dict[str, Any] = {key: float(np.median(learned[key])) for key, _, _ in MEASURES}
    results["policies"] = {
        name: {key: _summary(values[key]) for key, _, _ in MEASURES}
        for name, values in evaluation.measures.items()
    }
    performance = None if result is None else result.performance
    reporting.write_summary(run_dir, results, performance)
    columns = ["policy", *(f"{name} ({unit})" if unit else name for _, name, unit in MEASURES)]
    rows = [
        [NAMES[name], *(_cell(values[key]) for key, _, _ in MEASURES)]
        for name, values in evaluation.measures.items()
    ]
    seeds = len(learned["return"])
    title = f"On the untouched demand; median of {seeds} seeds with its 95 % interval"
    reporting.print_table(columns, rows, title=title)
    print(f"results in {run_dir}")


def _summary(values: np.ndarray) -> dict[str, Any]:
    interval = bootstrap(values, median)
    return {
        "median": float(interval.estimate),
        "low": float(interval.low),
        "high": float(interval.high),
        "seeds": [float(v) for v in values],
    }


def _cell(values: np.ndarray) -> str:
    interval = bootstrap(values, median)
    text = f"{float(interval.estimate):.1f}"
    if len(values) > 1:
        text += f" [{float(interval.low):.1f}, {float(interval.high):.1f}]"
    return text


def draw(options: Options, evaluation: Evaluation) -> None:
    """Learning curve and travel time distribution."""
    assert options.run_dir is not None
    metrics = reporting.read_metrics(options.run_dir)
    if metrics and "average_travel_time" in metrics:
        figure, axes = figures.new_figure()
        decisions = metrics["step"] * options.num_envs * options.decisions / 1000
        figures.draw_curve(
            axes, decisions, metrics["average_travel_time"], label="training, with exploration"
        )
        for (name, values), colour in zip(
            list(evaluation.measures.items()), ("C1", "C2", "C3", "C4"), strict=False
        ):
            level = float(np.median(values["average_travel_time"]))
            axes.axhline(level, color=colour, linestyle="--", linewidth=1, label=NAMES[name])
        axes.set_xlabel("joint decisions (thousands)")
        axes.set_ylabel("average travel time (s)")
        axes.legend(frameon=False)
        figures.save_figure(figure, options.run_dir, "learning_curve")
    figure, axes = figures.new_figure()
    longest = max((t.max() for t in evaluation.travel_times.values() if len(t)), default=1.0)
    for name, times in evaluation.travel_times.items():
        if len(times):
            bins = np.linspace(0, longest, 61)
            axes.hist(times, bins, histtype="step", linewidth=1.5, label=NAMES[name])
    axes.set_xlabel("trip time of vehicles that arrived (s)")
    axes.set_ylabel("vehicles")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    figures.save_figure(figure, options.run_dir, "travel_times")


def animate(options: Options, env: TrafficSignalControl, evaluation: Evaluation) -> None:
    """The first seed's policy at work, one frame per decision, from the middle of the run."""
    assert options.run_dir is not None
    params = env.nominal_params()
    total = evaluation.states.decisions.shape[0]
    count = min(max(round(options.animation_seconds / env.decision_interval), 1), total)
    first = (total - count) // 2

    def pictures():
        for n in range(first, first + count):
            state = jax.tree.map(lambda x, n=n: x[n], evaluation.states)
            yield env.render(state, params)

    save_animation(options.run_dir / "figures" / "traffic.gif", pictures(), fps=FRAMES_PER_SECOND)
