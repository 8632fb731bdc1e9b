"""Figures of the study, and the best transfer as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.cr3bp import transfer_files
from experiments.cr3bp.instance import OBJECTIVE, TARGET
from experiments.cr3bp.study import Study
from jaxlab.agents.mcmc import pareto
from jaxlab.core import figures
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.objective import departure
from jaxlab.envs.cr3bp.propagation import propagate_low_thrust

COLOURS = {
    "random_walk": "tab:gray",
    "mala": "tab:blue",
    "preconditioned_mala": "tab:cyan",
    "barker": "tab:purple",
    "hmc": "tab:green",
    "nuts": "tab:orange",
    "samples": "tab:red",
}
#: States of the best transfer that are drawn and written.
POINTS = 600
#: Date of departure in exported ephemerides, which the problem leaves open.
EPOCH = "2030-01-01T00:00:00"


def draw(
    study: Study,
    results: Mapping[str, Any],
    samples: Mapping[str, Any],
    chains: Mapping[str, Any],
    solved: Mapping[str, Any],
) -> None:
    """Draw all figures; the best transfer is drawn and written where one was solved."""
    folder = study.options.run_dir
    _draw_gaps(folder, samples, chains)
    _draw_traces(folder, chains, study.options.samplers)
    draw_front(folder, solved)
    found = best(solved)
    if found is not None:
        draw_transfer(study, *found)


def _draw_gaps(folder: Path, samples: Mapping[str, Any], chains: Mapping[str, Any]) -> None:
    """Histograms of J*: samples of both models, and what chains made of them."""
    figure, (left, right) = figures.new_figure(9.0, 3.6, ncols=2, sharex=True)
    bins = np.logspace(-4, 0, 61)
    for model, cost in samples.items():
        left.hist(cost.value.ravel(), bins, histtype="step", density=True, label=f"{model} model")
    for name, of in chains.items():
        model, sampler = name.split("_", 1)
        right.hist(
            of.value.ravel(),
            bins,
            histtype="step",
            density=True,
            color=COLOURS[sampler],
            linestyle="-" if model == "tuned" else ":",
            label=name.replace("_", " "),
        )
    for axes, title in ((left, "fresh samples"), (right, "chains")):
        axes.set(xscale="log", xlabel="J*", ylabel="density", title=title)
        axes.legend(fontsize="x-small")
    figures.save_figure(figure, folder, "objective")


def _draw_traces(folder: Path, chains: Mapping[str, Any], samplers: Sequence[str]) -> None:
    """The median gap of all chains against CPU time."""
    figure, rows = figures.new_figure(9.0, 3.6, ncols=2, sharey=True)
    for axes, model in zip(rows, ("base", "tuned"), strict=True):
        for sampler in samplers:
            of = chains[f"{model}_{sampler}"]
            gaps = np.moveaxis(of.gap, 1, 0).reshape(len(of.step), -1)
            low, middle, high = np.quantile(gaps, (0.25, 0.5, 0.75), axis=1)
            spent = of.step * of.cpu_per_step
            if not np.isfinite(spent).all():
                continue
            axes.plot(spent, middle, color=COLOURS[sampler], label=sampler.replace("_", " "))
            axes.fill_between(spent, low, high, color=COLOURS[sampler], alpha=0.15, linewidth=0)
        axes.set(yscale="log", xlabel="CPU-seconds", title=f"from the {model} model")
        axes.legend(fontsize="x-small")
    rows[0].set_ylabel("gap: median and quartiles of the chains")
    figures.save_figure(figure, folder, "traces")


def draw_front(folder: Path, solved: Mapping[str, Any]) -> None:
    """Solved transfers by time of flight and propellant, and those that none dominates."""
    figure, axes = figures.new_figure(6.4, 4.2)
    every = []
    for name, found in solved.items():
        keep = np.asarray(found.solved)
        points = np.stack([found.time, 100 * np.asarray(found.propellant)], -1)[keep]
        model, sampler = name.split("_", 1)
        axes.scatter(
            *points.T,
            s=10,
            color=COLOURS[sampler],
            marker="o" if model == "tuned" else "x",
            linewidths=0.8,
            label=f"{name.replace('_', ' ')} ({len(points)})",
        )
        every.append(points)
    joined = np.concatenate(every)
    if len(joined):
        front = joined[pareto.non_dominated(joined)]
        front = front[np.argsort(front[:, 0])]
        axes.step(*front.T, where="post", color="black", linewidth=1, label="front")
    axes.set(xlabel="time of flight (units of the system)", ylabel="propellant (% of the mass)")
    axes.legend(fontsize="x-small")
    figures.save_figure(figure, folder, "front")


def best(solved: Mapping[str, Any]) -> tuple[np.ndarray, float] | None:
    """Costates and time of the solved transfer with the least propellant."""
    found = [
        (float(propellant), np.asarray(costates), float(time))
        for of in solved.values()
        for costates, time, propellant, done in zip(
            np.asarray(of.costates).reshape(-1, of.costates.shape[-1]),
            np.ravel(of.time),
            np.ravel(of.propellant),
            np.ravel(of.solved),
            strict=True,
        )
        if done
    ]
    if not found:
        return None
    _, costates, time = min(found, key=lambda one: one[0])
    return costates, time


def draw_transfer(study: Study, costates: np.ndarray, time: float) -> None:
    """Draw a transfer and write it as a table, as arrays and as an ephemeris."""
    transfer, folder = study.target.transfer, study.options.run_dir
    begin = departure(OBJECTIVE, jnp.asarray(costates)[None], transfer)[0]
    times = np.linspace(0, time, POINTS)
    arc = propagate_low_thrust(
        jnp.broadcast_to(begin, (POINTS, len(begin))),
        jnp.asarray(times),
        float(transfer.mu),
        transfer.thruster,
        accuracy=OBJECTIVE.accuracy,
    )
    state = np.asarray(arc.state)
    figure, axes = figures.new_figure(9.0, 4.4, ncols=2)
    transfer_files.draw_paths(*axes, transfer, times, state)
    figures.save_figure(figure, folder, "transfer")
    figure, axes = figures.new_figure(6.4, 4.8, nrows=2, sharex=True)
    transfer_files.draw_throttle(*axes, transfer, times, state)
    figures.save_figure(figure, folder, "throttle")
    paths = {name: folder / f"transfer.{name}" for name in transfer_files.KINDS}
    system = published_orbit(TARGET).system
    transfer_files.write(
        paths, times, state, system, EPOCH, object_name=f"TO {TARGET}", overwrite=True
    )
