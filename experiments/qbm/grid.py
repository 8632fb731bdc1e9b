"""Machines and learners of a study as a pipeline of runs, each on all data sets and starts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from experiments.qbm.study_options import CHUNKS, KEPT, Studied
from jaxlab.agents import quantum_em
from jaxlab.agents.quantum_em import Closed, EMConfig, EMState, Hyper
from jaxlab.core.learner import Learner, Metrics
from jaxlab.core.stages import Stage
from jaxlab.core.training import Result
from jaxlab.envs.qbm import datasets, restricted
from jaxlab.envs.qbm.restricted import RestrictedModel

#: Targets by name and number of visible bits.
TARGETS: dict[str, Callable[[int], np.ndarray]] = {
    "bernoulli": datasets.bernoulli_mixture,
    "parity": datasets.parity,
    "cardinality": datasets.cardinality,
    "random_strings": datasets.random_strings,
    "bars": lambda visible: datasets.bars_and_stripes(2, visible // 2, single_lines=True),
    "all_bars": lambda visible: datasets.bars_and_stripes(2, visible // 2),
}


class Trained(NamedTuple):
    """A learner on one machine and data set, from all starts.

    Attributes:
      step: Iterations where the curve was taken, `[points]`.
      curve: Divergences there, `[points, seeds]`.
      last: Divergences at the end, `[seeds]`.
      em_steps: m-steps that ended (steps that moved, for learners without), `[seeds]`.
      iterations: Before a run ended by itself, `[seeds]`.
      best: Parameters of the best start at its best moment, `[size]`.
      best_divergence: There.
      cpu_per_step: CPU-seconds of an iteration of all starts.
    """

    step: np.ndarray
    curve: np.ndarray
    last: np.ndarray
    em_steps: np.ndarray
    iterations: np.ndarray
    best: np.ndarray
    best_divergence: float
    cpu_per_step: float


def targets_of(data: Sequence[str], visible: int) -> np.ndarray:
    """Targets `[data, 2^visible]`."""
    return np.stack([TARGETS[name](visible) for name in data])


def learner_on_targets(model: RestrictedModel, config: EMConfig, targets: np.ndarray) -> Learner:
    """The learner of `quantum_em.make` on all targets `[data, 2^visible]` from the same start.

    Its states are those of the learner, with an axis of data sets; curves are recorded. Data sets
    are taken in turn in one program: what the runs of one need together, such as an e-step where
    any m-step ends, the others do not pay for, and a batch of starts stays in the cache.
    """

    def of(target: Any) -> Learner:
        problem = Closed(
            model.size,
            lambda parameters: restricted.evaluate(parameters, model, target),
            lambda parameters: restricted.metric(parameters, model),
        )
        return quantum_em.make(problem, config, keep=True)

    def init(key: jax.Array, hyper: Hyper) -> EMState:
        return jax.vmap(lambda target: of(target).init(key, hyper))(jnp.asarray(targets))

    def step(state: EMState, t: jax.Array) -> tuple[EMState, Metrics]:
        state, metrics = lax.map(
            lambda row: of(row[0]).step(row[1], t), (jnp.asarray(targets), state)
        )
        one = jnp.ones((), np.float32)
        return state, {name: dataclasses.replace(m, weight=one) for name, m in metrics.items()}

    return Learner(init, step)


def starts(model: RestrictedModel, seed: int, seeds: int, width: float) -> np.ndarray:
    """Starts `[seeds, size]`, the same for every learner and data set; by seed, whichever others
    there are."""
    draw = jax.vmap(
        lambda number: jax.random.uniform(
            jax.random.fold_in(jax.random.key(0), number), (model.size,), np.float64, -width, width
        )
    )
    return np.asarray(draw(np.arange(seed, seed + seeds, dtype=np.uint32)))


def stage(
    name: str,
    model: RestrictedModel,
    learner: Studied,
    data: Sequence[str],
    steps: int,
    *,
    seed: int,
    seeds: int,
    width: float,
) -> Stage:
    """The run of a learner on a machine and all data sets."""
    one, default = np.ones(seeds), Hyper()
    numbers = Hyper(
        learning_rate=one * learner.learning_rate,
        damping=one * default.damping,
        width=one * width,
        parameters=starts(model, seed, seeds, width),
    )
    targets = targets_of(data, model.visible)
    chunk = steps // CHUNKS
    thin = next(n for n in range(max(1, chunk // KEPT), 0, -1) if chunk % n == 0)
    return Stage(
        name,
        lambda results: learner_on_targets(model, learner.config, targets),
        steps,
        numbers,
        {
            "seeds": seeds,
            "hyper_axis": 0,
            "chunk": chunk,
            "thin": thin,
            "checkpoint_every": CHUNKS // 2,
            "between": cpu_seconds,
            "show": ("best_divergence", "em_steps"),
        },
    )


def cpu_seconds(state: Any, metrics: dict[str, Any], host: Any) -> tuple[Any, Any]:
    """Between chunks: the CPU time of the process so far."""
    metrics["cpu_seconds"] = np.asarray(time.process_time())
    return state, host


def trained(result: Result, data: Sequence[str]) -> dict[str, Trained]:
    """What a stage of `stage` left, by data set."""
    records, metrics, state = result.records(), result.metrics, result.state
    step, spent = metrics["step"], np.ravel(metrics["cpu_seconds"])
    # The first chunk includes compilation, and after a continuation the count begins again.
    each = np.diff(spent) / np.diff(step)
    used = float(np.median(each[each > 0])) if (each > 0).any() else float("nan")

    curves = np.asarray(records["curve/divergence"])
    iterations = metrics["steps_in_use"].sum(0)
    found = {}
    for n, name in enumerate(data):
        divergence = np.asarray(state.best_divergence[:, n])
        best = int(np.argmin(divergence))
        found[name] = Trained(
            step=records["step"],
            curve=curves[:, :, n],
            last=np.asarray(state.divergence[:, n]),
            em_steps=np.asarray(state.em_steps[:, n]),
            iterations=iterations[:, n],
            best=np.asarray(state.best_parameters[best, n]),
            best_divergence=float(divergence[best]),
            cpu_per_step=used / len(data),
        )
    return found


def run_arguments(options: Any) -> dict[str, Any]:
    """Arguments of `run_stages` from the options; stages have their own steps."""
    arguments = options.run_arguments()
    del arguments["steps"], arguments["seeds"]
    return arguments
