"""The conformance test of learners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxlab.core.assertions import (
    Traced,
    attempt,
    fresh,
    leaves_with_paths,
    member,
    primitives,
    require,
    require_equal,
    require_no_callback,
    require_same_signature,
    require_strong,
)
from jaxlab.core.environment import PyTree
from jaxlab.core.learner import REDUCTIONS, Learner, Metric


def check_learner(
    learner: Learner,
    hyper: PyTree,
    *,
    seed: int = 0,
    steps: int = 3,
    seeds: int = 2,
    branches_on_t: bool = True,
    tolerance: float | None = 1e-4,
) -> dict[str, Metric]:
    """Hold a learner to the contract of `jaxlab.core.learner`, in the active precision.

    `init` and `step` are pure: no host callback, the same key gives the same bits; the
    state keeps its structure, shapes and explicit dtypes; `step` is traced once; metrics
    are finite `Metric`s of fixed structure; seeds map with `t` unbatched, and give then
    what each gives alone.

    Args:
      learner: The learner.
      hyper: Its hyper-parameters.
      seed: Seed of all keys.
      steps: Steps taken.
      seeds: Members of the mapped run.
      branches_on_t: Require that no `lax.cond` of a step becomes a select, which computes
        both sides, when seeds are mapped: that is what a schedule does that branches on a
        counter in the state in place of `t`. False where a branch rightly depends on the
        state.
      tolerance: Bound on the difference of mapped and lone floats after one step, absolute
        and relative; None leaves the comparison out.

    Returns:
      The metrics of the last step.

    Raises:
      AssertionError: The learner breaks the contract; the message says where.
    """
    key = jax.random.key(seed)
    abstract = attempt("init", jax.eval_shape, learner.init, key, hyper)
    require_strong("init's state", abstract)
    counter = jnp.zeros((), jnp.int32)
    stepped = attempt("step", jax.eval_shape, learner.step, abstract, counter)
    require(isinstance(stepped, tuple) and len(stepped) == 2, "step returns no (state, metrics)")
    require_strong("step's state", stepped[0])
    require_same_signature("state of init and of step", abstract, stepped[0])
    _require_metrics(stepped[1])
    single = jax.make_jaxpr(learner.step)(abstract, counter).jaxpr
    require_no_callback("step", single)

    state = attempt("init", jax.jit(learner.init), key, hyper)
    require_equal("init twice with one key", state, fresh(learner.init)(key, hyper), exact=True)
    first = state
    step = Traced(learner.step)
    for number in range(steps):
        previous, t = state, jnp.asarray(number, jnp.int32)
        state, metrics = out = attempt("step", step, previous, t)
        require(step.traces == 1, "step is traced again at its second call")
        _require_finite(metrics)
        if number == 0:
            for run in (step, fresh(learner.step)):
                require_equal("step twice from one state", out, run(previous, t), exact=True)
    _check_seeds(learner, hyper, jax.random.split(key, seeds), tolerance)
    if branches_on_t:
        states = jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), first)
        mapped = jax.make_jaxpr(jax.vmap(learner.step, (0, None)))(states, counter).jaxpr
        before, after = (list(primitives(j)).count("cond") for j in (single, mapped))
        require(
            after >= before,
            f"{before - after} of {before} lax.cond in step become selects when seeds are mapped: "
            "they branch on the state; branch on t",
        )
    return metrics


def _require_metrics(metrics: Any) -> None:
    require(isinstance(metrics, Mapping), f"metrics are no mapping: {type(metrics).__name__}")
    for name, metric in metrics.items():
        require(isinstance(metric, Metric), f"metric {name!r} is no Metric")
        known = ", ".join(REDUCTIONS)
        require(metric.reduce in REDUCTIONS, f"metric {name!r}: {metric.reduce!r} not in {known}")
        require_strong(f"metric {name!r}", metric)


def _require_finite(metrics: Mapping[str, Metric]) -> None:
    for name, metric in metrics.items():
        for path, leaf in leaves_with_paths(metric):
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                require(jnp.isfinite(leaf).all(), f"metric {name!r}{path} is not finite")


def _check_seeds(learner: Learner, hyper: PyTree, keys: jax.Array, tolerance: float | None) -> None:
    """Seeds map, and one step of each is what it is alone."""
    t = jnp.zeros((), jnp.int32)
    init = jax.jit(jax.vmap(learner.init, (0, None)))
    states = attempt("vmap of init over keys", init, keys, hyper)
    step = jax.jit(jax.vmap(learner.step, (0, None)))
    new = attempt("vmap of step over seeds with t unbatched", step, states, t)
    if tolerance is None:
        return
    alone = jax.jit(learner.step)
    for i in range(len(keys)):
        expected = alone(member(states, i), t)
        require_equal("step, seeds mapped and alone", member(new, i), expected, limit=tolerance)
