"""Table, figures, animation and summary of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.maestro.evaluation import BASELINES, MEASURES, Evaluation, film, without_experience
from experiments.maestro.options import Options
from jaxlab.core import checkpointing, devices, figures, reporting, runfolder
from jaxlab.core.intervals import bootstrap, median
from jaxlab.core.learner import Learner
from jaxlab.envs.traffic.animation import save_animation
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.frames import frame_of_state
from jaxlab.envs.traffic.rendering import Renderer
from jaxlab.envs.traffic.scenario import wanted_vehicles
from jaxlab.envs.traffic.scenario_schema import scenario_from_json
from jaxlab.shaping.architect_log import ARCHITECT_LOG, ArchitectLog
from jaxlab.shaping.curricula import BAND, success

NAMES = {
    "learned": "MADDPG",
    "fixed_time": "fixed time",
    "max_pressure": "max pressure",
    "sotl": "SOTL",
}
COLOURS = {
    "learned": "tab:blue",
    "fixed_time": "tab:red",
    "max_pressure": "tab:green",
    "sotl": "tab:orange",
}
#: Seconds of traffic between two pictures of the animation, and pictures per second.
PICTURE_INTERVAL, FRAMES_PER_SECOND = 2.0, 15
PICTURE_WIDTH = 640


def report(
    options: Options,
    env: TrafficSignalControl,
    learner: Learner,
    state: Any,
    evaluation: Evaluation,
    host: dict[str, Any],
    performance: dict[str, Any] | None,
) -> None:
    """Write and print everything a run is judged by.

    Args:
      state: Of the learner, every leaf `[seeds, ...]`.
      host: Host data of the run, see `stages.Stages`.
      performance: Times and rates; None where nothing was trained.
    """
    first = _first_seed(state)
    if not devices.is_primary():
        return
    assert options.run_dir is not None
    draw_learning(options.evaluate or options.run_dir, options, evaluation)
    draw_travel_times(options.run_dir, evaluation)
    draw_curriculum(options.run_dir, env, host)
    if options.animation_seconds > 0:
        animate(options, env, learner, first)
    learned = evaluation.measures["learned"]
    results: dict[str, Any] = {
        "preset": options.preset,
        "variant": options.variant_name,
        "architect": designed(options),
        "seeds": options.seeds,
    }
    results |= {key: float(np.median(learned[key])) for key, _, _ in MEASURES}
    results["policies"] = {
        name: {key: _summary(values[key]) for key, _, _ in MEASURES}
        for name, values in evaluation.measures.items()
    }
    results["stages"] = [entry["history"] for entry in host["curricula"]]
    path = reporting.write_summary(options.run_dir, results, performance)
    if options.json:
        print(json.dumps(json.loads(path.read_text())))
        return
    columns = ["policy", *(f"{name} ({unit})" if unit else name for _, name, unit in MEASURES)]
    rows = [
        [NAMES[name], *(_cell(values[key]) for key, _, _ in MEASURES)]
        for name, values in evaluation.measures.items()
    ]
    seeds = f"the median of {options.seeds} seeds with its 95 % interval"
    what = "one seed" if options.seeds == 1 else seeds
    reporting.print_table(columns, rows, title=f"On the untouched demand: {what}")
    if told := results["architect"]:
        by = ", ".join(f"{name} {count}" for name, count in told["designed_by"].items())
        print(
            f"architect {told['name']}: {told['designs']} designs, {told['accepted']} accepted at "
            f"once, {told['repaired']} repaired, {told['fallback']} left to the rules ({by})"
        )
    print(f"results in {options.run_dir}")


def designed(options: Options) -> dict[str, Any] | None:
    """Who designed how much; None in a variant without an architect."""
    source = options.evaluate or options.run_dir
    if not options.plan.parts or source is None:
        return None
    return {"name": options.architect, **ArchitectLog(source / ARCHITECT_LOG).summary()}


def _first_seed(state: Any) -> Any:
    """What the policy of the first seed needs, on the host; every process must call it."""
    fetched = devices.fetch(without_experience(state).replace(tasks=None))
    return jax.tree.map(lambda x: x[0], fetched)


def saved_host(run_dir: Path) -> dict[str, Any]:
    """Host data in the newest checkpoint of a run."""
    document = checkpointing.read_document(run_dir / runfolder.CHECKPOINTS)
    return document["host"]["between"]


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


def draw_learning(source: Path, options: Options, evaluation: Evaluation) -> None:
    """Learning curve, from the metrics of the run in `source`."""
    assert options.run_dir is not None
    metrics = reporting.read_metrics(source)
    figure, axes = figures.new_figure(6.8, 4.2)
    axes.set_prop_cycle(color=["tab:gray", COLOURS["learned"]])
    decisions = metrics["step"] * options.maddpg.num_envs * options.maddpg.decisions / 1000
    for name, label in (
        ("average_travel_time", "training scenarios, exploring"),
        ("greedy_base_average_travel_time", "MADDPG on the untouched demand"),
    ):
        if name in metrics:
            figures.draw_curve(axes, decisions, metrics[name], label=label, statistic=median)
    for name in BASELINES:
        level = float(np.median(evaluation.measures[name]["average_travel_time"]))
        axes.axhline(level, color=COLOURS[name], linestyle="--", linewidth=1, label=NAMES[name])
    axes.set_xlabel("decisions of a seed in all its copies of the network (thousands)")
    axes.set_ylabel("average travel time (s)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    figures.save_figure(figure, options.run_dir, "learning_curve")


def draw_travel_times(run_dir: Path, evaluation: Evaluation) -> None:
    """How long trips took, and which share of all vehicles had arrived by then."""
    figure, (density, arrived) = figures.new_figure(9.6, 3.8, ncols=2)
    times = evaluation.travel_times
    # A handful of stragglers would squeeze all others into a corner.
    longest = max((np.quantile(t, 0.995) for t in times.values() if len(t)), default=1.0)
    bins = np.linspace(0, longest, 61)
    for name, trips in times.items():
        style = {"color": COLOURS[name], "label": NAMES[name], "linewidth": 1.5}
        departed = max(evaluation.departed[name], 1)
        height = np.histogram(trips, bins)[0] / departed / (bins[1] - bins[0]) * 60
        density.stairs(height, bins, **style)
        shown = np.sort(trips[trips <= longest])
        share = np.append(np.arange(1, len(shown) + 1), len(shown)) / departed
        arrived.step(np.append(shown, longest), share, where="post", **style)
    density.set_ylabel("share of vehicles per minute of travel time")
    arrived.set_ylabel("share of vehicles that arrived")
    arrived.set_ylim(0, 1.02)
    for axes in (density, arrived):
        axes.set_xlabel("travel time (s)")
        axes.set_xlim(0, longest)
        axes.grid(alpha=0.3)
    density.legend(frameon=False)
    figures.save_figure(figure, run_dir, "travel_times")


def draw_curriculum(run_dir: Path, env: TrafficSignalControl, host: dict[str, Any]) -> None:
    """Timeline of the curriculum: difficulty, vehicles and success by stage, each seed a line."""
    figure, rows = figures.new_figure(6.8, 6.4, nrows=3, sharex=True)
    difficulty, vehicles, reached = rows
    nominal = max(len(env.demand.value["depart_step"]), 1)
    longest = 1
    for n, entry in enumerate(host["curricula"]):
        history = entry["history"]
        stage = np.arange(1, len(history) + 1)
        longest = max(longest, len(history))
        demand = [
            float(wanted_vehicles(env, scenario_from_json(env, r["scenario"]))) / nominal
            for r in history
        ]
        scores = np.clip([success(r["metrics"]) for r in history], 0, 3)
        style = {"marker": "o", "markersize": 3, "linewidth": 1, "color": f"C{n % 10}"}
        difficulty.plot(stage, [r["difficulty"] for r in history], **style)
        vehicles.plot(stage, demand, **style)
        reached.plot(stage, scores, **style)
    reached.axhspan(*BAND, color="0.9", zorder=0)
    reached.annotate("held", (longest, BAND[0]), fontsize="small", color="0.4", va="bottom")
    for axes in (vehicles, reached):
        axes.axhline(1, color="0.5", linestyle="--", linewidth=1)
    difficulty.set(ylabel="difficulty", ylim=(-0.05, 1.05))
    vehicles.set(ylabel="vehicles relative to\nthe untouched demand", ylim=(0, None))
    reached.set(ylabel="success relative to\nmax pressure", ylim=(0, None), xlabel="stage")
    reached.xaxis.get_major_locator().set_params(integer=True)
    for axes in rows:
        axes.grid(alpha=0.3)
    figures.save_figure(figure, run_dir, "curriculum")


def animate(options: Options, env: TrafficSignalControl, learner: Learner, state: Any) -> None:
    """The greedy policy of one seed at work on the untouched demand, from its middle."""
    assert options.run_dir is not None
    params = env.nominal_params()
    length = np.asarray(params.drivers.length)
    parts = max(math.ceil(env.decision_interval / PICTURE_INTERVAL - 1e-9), 1)
    seconds = min(options.animation_seconds, env.duration)
    renderer = Renderer(env.net, width=PICTURE_WIDTH, title="Greedy MADDPG")
    shown = jax.jit(env.phase_shown)

    def pictures() -> Iterator[np.ndarray]:
        states = film(
            env,
            learner,
            state,
            params,
            start=(env.duration - seconds) / 2,
            seconds=seconds,
            interval=env.decision_interval / parts,
        )
        for seen in states:
            phase = np.asarray(shown(seen, seen.signals.phase, params))
            yield renderer.draw(
                frame_of_state(
                    env.net, seen.traffic, phase, dt=env.simulator.dt, vehicle_length=length
                )
            )

    path = options.run_dir / runfolder.FIGURES / "traffic.gif"
    save_animation(path, pictures(), fps=FRAMES_PER_SECOND)
