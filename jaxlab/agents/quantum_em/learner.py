"""The em algorithm and its rivals as learners."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.quantum_em import dual
from jaxlab.agents.quantum_em.config import EMConfig, Hyper
from jaxlab.agents.quantum_em.problem import Closed, Dual
from jaxlab.agents.quantum_em.rules import Rule, rule
from jaxlab.agents.quantum_em.starting import Initial, draw, start
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metrics, last, maximum, record, total
from jaxlab.core.training import Result, run

PyTree = Any


@struct.dataclass
class EMState:
    """One run.

    Attributes:
      key: Key of the run.
      hyper: Hyper-parameters.
      parameters: Where the method is.
      divergence: That of the e-step's state from the model there; with a dual e-step, of the
        last one that was solved (infinite before the first).
      memory: What the method remembers: the goal of the m-step, moments of the gradient, ...
      em_steps: m-steps that ended; steps that moved for methods without m-steps.
      finished: Whether it cannot go on; then the state stays as it is.
      restarts: Fresh starts so far.
      best_parameters: The lowest divergence so far was there.
      best_divergence: That divergence.
    """

    key: jax.Array
    hyper: Hyper
    parameters: Float[Array, " terms"]
    divergence: Float[Array, ""]
    memory: PyTree
    em_steps: Int[Array, ""]
    finished: Bool[Array, ""]
    restarts: Int[Array, ""]
    best_parameters: Float[Array, " terms"]
    best_divergence: Float[Array, ""]


def make(
    problem: Closed | Dual,
    config: EMConfig | None = None,
    *,
    initial: Initial | None = None,
    keep: bool = False,
) -> Learner:
    """Build a learner that fits a model to its target.

    A step is one inner iteration: of the m-step (or the dual e-step) for em, one descent step
    for the others. Runs of many seeds are one `vmap`.

    Args:
      problem: The model with its target.
      config: The method.
      initial: Start by key; `Hyper.parameters` comes before it, and without both starts are
        uniform in [-width, width].
      keep: Also record the divergence of every step (thinned by `run`).

    Returns:
      A learner; metrics are `divergence`, `best_divergence`, `em_steps`, `finished`,
      `restarts` and `largest_parameter`.

    Warns:
      RuntimeWarning: The m-step has no finite minimiser and nothing bounds the parameters.

    Raises:
      ConfigError: The method needs something that the problem lacks.
    """
    config = EMConfig() if config is None else config
    if isinstance(problem, Dual):
        if config.method not in ("em", "em_gradient"):
            raise ConfigError(
                f"method {config.method!r}: a problem with a dual e-step is trained by em or "
                "em_gradient (with m_steps=1 that descends along the gradient)"
            )
        chosen = dual.rule(problem, config)
    else:
        if config.method in ("em", "natural_gradient") and problem.metric is None:
            raise ConfigError(f"method {config.method!r}: give the problem its metric")
        chosen = rule(problem, config)
    if problem.unbounded is not None and not config.l2:
        warnings.warn(
            f"the m-step has no finite minimiser: {problem.unbounded}. Parameters grow without "
            "end; set l2 in EMConfig, or stop early",
            RuntimeWarning,
            stacklevel=2,
        )
    built = _Fit(problem.size, config, chosen, initial, keep)
    return Learner(built.init, built.step)


@dataclasses.dataclass(frozen=True, eq=False)
class _Fit:
    size: int
    config: EMConfig
    rule: Rule
    initial: Initial | None
    keep: bool

    def init(self, key: jax.Array, hyper: Hyper | None) -> EMState:
        run_key, start_key = jax.random.split(key)
        hyper, parameters = start(start_key, hyper, self.size, self.initial)
        divergence, memory = self.rule.init(hyper, parameters)
        zero = jnp.zeros((), jnp.int32)
        return EMState(
            key=run_key,
            hyper=hyper,
            parameters=parameters,
            divergence=divergence,
            memory=memory,
            em_steps=zero,
            finished=jnp.zeros((), bool),
            restarts=zero,
            best_parameters=parameters,
            best_divergence=divergence,
        )

    def step(self, state: EMState, t: jax.Array) -> tuple[EMState, Metrics]:
        move = self.rule.advance(
            state.hyper, state.parameters, state.divergence, state.memory, ~state.finished
        )
        better = move.divergence < state.best_divergence
        moved = dataclasses.replace(
            state,
            parameters=move.parameters,
            divergence=move.divergence,
            memory=move.memory,
            em_steps=state.em_steps + move.m_step.astype(jnp.int32),
            finished=move.finished,
            best_parameters=jnp.where(better, move.parameters, state.best_parameters),
            best_divergence=jnp.where(better, move.divergence, state.best_divergence),
        )
        new = _select(state.finished, state, moved)
        if self.config.restarts:
            new = self._restarted(new, t)
        metrics = {
            "divergence": last(new.divergence),
            "best_divergence": last(new.best_divergence),
            "em_steps": last(new.em_steps),
            "finished": last(new.finished),
            "restarts": last(new.restarts),
            "largest_parameter": maximum(jnp.max(jnp.abs(new.parameters))),
            "steps_in_use": total((~state.finished).astype(jnp.int32)),
        }
        if self.keep:
            metrics["curve"] = record({"divergence": new.divergence})
        return new, metrics

    def _restarted(self, state: EMState, t: jax.Array) -> EMState:
        poor = state.best_divergence > self.config.restart_above
        again = state.finished & poor & (state.restarts < self.config.restarts)
        key = jax.random.fold_in(state.key, t)
        parameters = draw(key, state.hyper, self.size, self.initial)
        divergence, memory = self.rule.init(state.hyper, parameters)
        fresh = dataclasses.replace(
            state,
            parameters=parameters,
            divergence=divergence,
            memory=memory,
            finished=jnp.zeros((), bool),
            restarts=state.restarts + 1,
        )
        return _select(again, fresh, state)


def _select(flag: Array, first: EMState, second: EMState) -> EMState:
    """Leaf by leaf; what both share, such as the key, is left alone."""
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(flag, a, b), first, second)


def fit(
    problem: Closed | Dual,
    config: EMConfig | None = None,
    *,
    steps: int,
    seeds: int = 1,
    hyper: Hyper | None = None,
    initial: Initial | None = None,
    **options: Any,
) -> Result:
    """Train from several starts at once: `run` on the learner of `make`.

    Args:
      problem: The model with its target.
      config: The method.
      steps: Inner iterations.
      seeds: Starts.
      hyper: Numbers.
      initial: See `make`.
      **options: Others of `jaxlab.core.training.run`.

    Returns:
      The result; `result.state.parameters` is `[seeds, terms]`, `best_start` picks one.
    """
    learner = make(problem, config, initial=initial)
    return run(learner, steps=steps, seeds=seeds, hyper=hyper or Hyper(), **options)


def best_start(result: Result) -> tuple[Array, Array]:
    """Parameters `[terms]` and divergence of the best of all starts, at its best moment."""
    chosen = jnp.argmin(result.state.best_divergence)
    return result.state.best_parameters[chosen], result.state.best_divergence[chosen]
