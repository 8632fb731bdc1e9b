"""em where the e-step is a dual problem of its own: both steps are convex fits of moments.

Parameters theta and multipliers l form one point. The e-step moves l with theta held, towards
the target's moments; the m-step moves theta with l = 0, towards the moments of the e-step's
state. So one step of the learner is the same damped Newton step with another mask.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.quantum_em.config import EMConfig, Hyper
from jaxlab.agents.quantum_em.levenberg import Trial, judge
from jaxlab.agents.quantum_em.problem import Dual, ascend, damped_solution
from jaxlab.agents.quantum_em.rules import Move, Rule, penalty


@struct.dataclass
class Phase:
    """Where between two e-steps the run is.

    Attributes:
      estimating: Whether it is in the e-step.
      log_partition: Potential of the model alone at the present parameters.
      multipliers: Those of the last or the present e-step.
      moments: Goal of the m-step.
      inner: Iterations of the present step done.
      dampings: Of the e-step and of the m-step.
      residual: Largest gap at the end of the last m-step.
    """

    estimating: Bool[Array, ""]
    log_partition: Float[Array, ""]
    multipliers: Float[Array, " multipliers"]
    moments: Float[Array, " terms"]
    inner: Int[Array, ""]
    dampings: Float[Array, " phases"]
    residual: Float[Array, ""]


def rule(problem: Dual, config: EMConfig) -> Rule:
    """em on a problem with a dual e-step; the m-step by damped Newton or gradient steps."""
    size, count = problem.size, len(problem.goal)
    goal = np.asarray(problem.goal, np.float64)
    of_parameters = np.arange(size + count) < size
    limit = min(config.most_inner, config.m_steps or config.most_inner)
    l2, by_gradient = config.l2, config.method == "em_gradient"
    stop = -1.0 if config.stop is None else config.stop

    def init(hyper: Hyper, parameters: Array) -> tuple[Array, Phase]:
        zero = jnp.zeros((), parameters.dtype)
        multipliers = jnp.zeros(count, parameters.dtype)
        psi, both = problem.potential(jnp.concatenate([parameters, multipliers]))
        inner, dampings = jnp.zeros((), jnp.int32), jnp.full(2, hyper.damping + zero)
        phase = Phase(jnp.ones((), bool), psi, multipliers, both[:size], inner, dampings, zero)
        return jnp.full((), jnp.inf, parameters.dtype), phase

    def advance(
        hyper: Hyper, parameters: Array, divergence: Array, phase: Phase, runs: Array
    ) -> Move:
        estimating = phase.estimating
        active = jnp.where(estimating, ~of_parameters, of_parameters)
        point = jnp.concatenate([parameters, jnp.where(estimating, phase.multipliers, 0.0)])
        wanted = jnp.concatenate([phase.moments, jnp.asarray(goal)])
        ridge = jnp.where(estimating, 0.0, l2)

        def gap_at(at: Array, moments: Array) -> Array:
            return jnp.where(active, wanted - moments - ridge * at, 0.0)

        psi, moments = problem.potential(point)
        gap = gap_at(point, moments)
        matrix = jnp.where(active[:, None] & active[None, :], problem.metric(point), 0.0)
        damping = jnp.where(estimating, phase.dampings[0], phase.dampings[1])
        step = damped_solution(matrix, damping + ridge, gap)
        along_gradient = ~estimating & by_gradient
        step = jnp.where(along_gradient, ascend(0.0, gap, hyper.learning_rate), step)
        psi_there, moments_there = problem.potential(point + step)
        gap_there = gap_at(point + step, moments_there)
        fall = psi - psi_there + step @ jnp.where(active, wanted, 0.0)
        bend = penalty(point[:size], l2) - penalty((point + step)[:size], l2)
        trial = Trial(
            decrease=fall + jnp.where(estimating, 0.0, bend),
            scale=psi,
            promised=step @ gap - 0.5 * step @ (matrix @ step + ridge * step),
            gap_before=jnp.max(jnp.abs(gap)),
            gap_after=jnp.max(jnp.abs(gap_there)),
        )
        accepted, damping, stalled = judge(trial, damping)
        small = along_gradient & (jnp.abs(trial.decrease) <= stop)
        accepted = jnp.where(along_gradient, ~small, accepted)
        point = jnp.where(accepted, point + step, point)
        psi = jnp.where(accepted, psi_there, psi)
        moments = jnp.where(accepted, moments_there, moments)
        left = jnp.where(accepted, trial.gap_after, trial.gap_before)
        bound = jnp.where(estimating, config.most_inner, limit)
        ends = (left <= config.tolerance) | small | stalled | (phase.inner + 1 >= bound)
        estimated, maximised = ends & estimating, ends & ~estimating
        reached, multipliers = point[:size], point[size:]
        found = multipliers @ goal - psi + phase.log_partition
        divergence = jnp.where(estimated, found, divergence)
        done = (trial.gap_before <= config.tolerance) | small
        memory = Phase(
            estimating=jnp.where(ends, ~estimating, estimating),
            log_partition=jnp.where(estimating, phase.log_partition, psi),
            multipliers=jnp.where(estimating, multipliers, phase.multipliers),
            moments=jnp.where(estimated, moments[:size], phase.moments),
            inner=jnp.where(ends, 0, phase.inner + 1).astype(jnp.int32),
            dampings=jnp.where(jnp.stack([estimating, ~estimating]), damping, phase.dampings),
            residual=jnp.where(maximised, left, phase.residual),
        )
        finished = ~estimating & (phase.inner == 0) & done
        return Move(reached, divergence, memory, maximised, finished)

    return Rule(init, advance)
