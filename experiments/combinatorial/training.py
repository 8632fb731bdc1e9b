"""Trains, evaluates, certifies, and reports."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from experiments.combinatorial.evaluating import (
    evaluate,
    evaluate_files,
    instance_of,
    solve_with,
    test_set,
)
from experiments.combinatorial.learnt import Learnt, learnt
from experiments.combinatorial.train_options import TrainOptions
from jaxlab.agents.dqn import certificates
from jaxlab.core import devices, reporting
from jaxlab.core.figures import draw_curve, learning_curves, new_figure, save_figure
from jaxlab.core.stages import Stage, combined_performance, run_stages
from jaxlab.envs.combinatorial import pictures


def variants(options: TrainOptions) -> dict[str, TrainOptions]:
    """What is trained, by name: the options, and what ablations leave out of them."""
    found = {"trained": options}
    if options.ablate == "schedule":
        few = max(options.iterations, options.steps // 10)
        found |= {
            "constant_batch": dataclasses.replace(options, first_batch=64, batch_growth=1.0),
            "few_gradient_steps": dataclasses.replace(options, steps=few),
            "linear": dataclasses.replace(options, embedding="linear"),
        }
    return found


def main(options: TrainOptions) -> None:
    """Train and report; see the options."""
    # What is saved with checkpoints is what was asked for.
    arguments = options.run_arguments()
    options = options.resolved()
    made = {name: learnt(variant) for name, variant in variants(options).items()}
    stages = [
        Stage(
            name,
            lambda results, of=of: of.learner,
            of.steps,
            jax.tree.map(lambda x: np.full((options.seeds,), x, np.float32), of.hyper),
            {"chunk": max(1, of.steps // 40)},
        )
        for name, of in made.items()
    ]
    arguments.pop("steps")
    results = run_stages(stages, hyper_axis=0, **arguments)
    summary: dict[str, Any] = {}
    for name, of in made.items():
        theta = results[name].seed_state().theta
        found = evaluate(of, options, theta)
        found["certificate"] = certificate(of, options, theta, found)
        if name == "trained":
            found["files"] = evaluate_files(of, options, theta)
            summary |= found
        else:
            summary[name] = found
    if not devices.is_primary():
        return
    assert options.run_dir is not None
    draw(made["trained"], options, results)
    reporting.write_summary(options.run_dir, summary, combined_performance(results))
    _print(options, summary, list(made))
    print(f"results in {options.run_dir}")


def certificate(of: Learnt, options: TrainOptions, theta: Any, found: Any) -> dict[str, Any] | None:
    """What the theory says beside what was realised; None where actions' values are learnt."""
    if of.approximator is None:
        return None
    key = jax.random.key(options.seed)
    whole = options.problem in ("mis", "mvc")
    proof = certificates.certify(
        of.env, of.approximator, theta, key, states=options.certificate_states, whole=whole
    )
    return proof._asdict() | {
        "needed_accuracy_for_1_percent": certificates.needed_accuracy(
            0.01 * abs(found["reference"]), of.env.horizon
        ),
        "realised_loss": abs(found["greedy"]["mean"] - found["reference"]),
    }


def draw(of: Learnt, options: TrainOptions, results: Any) -> None:
    """Learning curves and solutions of the first test instances."""
    assert options.run_dir is not None
    names = {"loss": "loss"} | (
        {"residual": "Bellman residual", "batch": "states of the iteration"}
        if options.algorithm == "fitted"
        else {"return": "return"}
    )
    learning_curves(options.run_dir, results["trained"].metrics, names)
    if len(results) > 1:
        figure, axes = new_figure()
        for name, result in results.items():
            residual = np.asarray(result.metrics["residual"], float)
            draw_curve(axes, result.metrics["step"], residual, label=name)
        axes.set_xlabel("gradient steps")
        axes.set_ylabel("Bellman residual")
        axes.set_yscale("log")
        axes.legend()
        save_figure(figure, options.run_dir, "ablation")
    if options.problem not in ("tsp", "cvrp", "maxcut"):
        return
    params = test_set(of, options.test)
    theta = results["trained"].seed_state().theta
    count = min(3, options.test)
    figure, grid = new_figure(3.4 * count, 3.6, nrows=1, ncols=count, squeeze=False)
    for number, axes in enumerate(grid[0]):
        one = jax.tree.map(lambda x, n=number: x[n], params)
        instance = instance_of(options.problem, one)
        if options.problem == "maxcut":
            sides = solve_with(of, options, theta, instance)
            pictures.draw_cut(axes, instance.matrix, sides, f"cut {instance.cut(sides):g}")
            continue
        places = np.asarray(one.coordinates)
        instance = dataclasses.replace(instance, coordinates=places)
        found = solve_with(of, options, theta, instance)
        drawn = pictures.draw_tour if options.problem == "tsp" else pictures.draw_routes
        drawn(axes, places, found, f"length {instance.length(found):.3f}")
    save_figure(figure, options.run_dir, "solutions")


def _print(options: TrainOptions, summary: dict[str, Any], names: list[str]) -> None:
    rows: list[list[Any]] = []
    for name in names:
        found = summary if name == "trained" else summary[name]
        for decoder, values in found.items():
            if isinstance(values, dict) and "gap" in values:
                span = f"{100 * values['gap_low']:.2f} .. {100 * values['gap_high']:.2f}"
                gap, optimal = 100 * values["gap"], 100 * values["optimal"]
                rows.append([name, decoder, values["mean"], gap, span, optimal])
    title = f"{options.problem} {options.size}, {summary['test_instances']} fresh instances"
    columns = ["run", "decoding", "mean", "gap %", "95 % interval", "optimal %"]
    reporting.print_table(columns, rows, title=title)
    proof = summary["certificate"]
    if proof is not None:
        print(
            f"certificate: error of values about {proof['eps']:.3g}, so greedy strings lose at most "
            f"{proof['gap_bound']:.3g}; they lost {proof['realised_loss']:.3g} on average"
        )
