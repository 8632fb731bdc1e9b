"""One step of each method on a problem with a closed e-step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.quantum_em.config import EMConfig, Hyper
from jaxlab.agents.quantum_em.levenberg import Trial, judge
from jaxlab.agents.quantum_em.problem import Closed, Values, ascend, damped_solution

#: Share of the decrease that a straight line promises which Armijo's rule asks for.
ARMIJO = 1e-4

PyTree = Any


class Move(NamedTuple):
    """What one step leaves.

    Attributes:
      parameters: Where the method is.
      divergence: The divergence there.
      memory: What the method remembers.
      m_step: Whether an m-step ended (every step that moved, for methods without them).
      finished: Whether the method cannot go on.
    """

    parameters: Array
    divergence: Array
    memory: PyTree
    m_step: Bool[Array, ""]
    finished: Bool[Array, ""]


class Rule(NamedTuple):
    """A method: what it knows first, and one step.

    Attributes:
      init: From hyper-parameters and parameters to the divergence there and the memory.
      advance: One step, from both with the parameters, the divergence and the memory. The last
        argument tells whether the run goes on; what is computed for one that has finished is
        thrown away.
    """

    init: Callable[[Hyper, Array], tuple[Array, PyTree]]
    advance: Callable[[Hyper, Array, Array, PyTree, Array], Move]


@struct.dataclass
class MStep:
    """An m-step on its way, by Levenberg and Marquardt's method.

    Attributes:
      log_partition, moments: Of the model at the present parameters.
      gap: Negative gradient of the divergence there.
      goal: Moments of the e-step's state.
      inner: Iterations done.
      damping: Of the next step.
      residual: Largest gap of moments at the end of the last m-step.
    """

    log_partition: Float[Array, ""]
    moments: Float[Array, " terms"]
    gap: Float[Array, " terms"]
    goal: Float[Array, " terms"]
    inner: Int[Array, ""]
    damping: Float[Array, ""]
    residual: Float[Array, ""]


@struct.dataclass
class Ascent:
    """An m-step on its way, by gradient steps.

    Attributes:
      log_partition: Of the model at the present parameters.
      goal: Moments of the e-step's state.
      gap: The goal less the moments of the model; after an e-step it is the negative gradient of
        the divergence to the last bit.
      inner: Iterations done.
    """

    log_partition: Float[Array, ""]
    goal: Float[Array, " terms"]
    gap: Float[Array, " terms"]
    inner: Int[Array, ""]


@struct.dataclass
class Descent:
    """What a method without m-steps remembers.

    Attributes:
      gap: Negative gradient of the divergence at the present parameters.
      extra: Moments of the gradient, or the length of the next trial.
    """

    gap: Float[Array, " terms"]
    extra: PyTree


def rule(problem: Closed, config: EMConfig) -> Rule:
    """The rule of the method that the configuration names."""
    makers = {
        "em": _em,
        "em_gradient": _em_gradient,
        "gradient": _gradient,
        "adam": _optax,
        "amsgrad": _optax,
        "natural_gradient": _natural_gradient,
    }
    return makers[config.method](problem, config)


def _first_descent(
    problem: Closed, extra: Callable[[Array], PyTree]
) -> Callable[[Hyper, Array], tuple[Array, Descent]]:
    def init(hyper: Hyper, parameters: Array) -> tuple[Array, Descent]:
        values = Values(*problem.evaluate(parameters))
        return values.divergence, Descent(values.gap, extra(parameters))

    return init


def penalty(parameters: Array, l2: float) -> Array | float:
    """What the objective has beside the divergence."""
    return 0.5 * l2 * jnp.sum(parameters**2) if l2 else 0.0


def _penalised(gap: Array, parameters: Array, l2: float) -> Array:
    """The negative gradient of the objective from that of the divergence."""
    return gap - l2 * parameters if l2 else gap


def _m_change(
    parameters: Array, trial: Array, memory: MStep | Ascent, there: Values, l2: float
) -> Array:
    """Change of the m-step's objective, `psi - theta . goal` with the penalty."""
    change = there.log_partition - memory.log_partition - (trial - parameters) @ memory.goal
    return change + penalty(trial, l2) - penalty(parameters, l2)


def _if_any(flag: Array, function: Callable[[Array], Any], argument: Array, otherwise: Any) -> Any:
    """`function(argument)` where the flag is set; when mapped, computed only if any flag is.

    A `lax.cond` becomes a select when its flag is mapped, which computes both sides always; a
    loop of no or one turn runs while there is a flag.
    """

    def turn(carry: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
        # The argument changes, or the compiler would move the function out of the loop.
        return jnp.zeros_like(carry[0]), jnp.zeros_like(carry[1]), function(carry[1])

    return lax.while_loop(lambda carry: carry[0], turn, (flag, argument, otherwise))[2]


def _inner_limit(config: EMConfig) -> int:
    return min(config.most_inner, config.m_steps or config.most_inner)


def _em(problem: Closed, config: EMConfig) -> Rule:
    metric = problem.metric
    assert metric is not None
    l2, limit = config.l2, _inner_limit(config)

    def init(hyper: Hyper, parameters: Array) -> tuple[Array, MStep]:
        values, zero = Values(*problem.evaluate(parameters)), jnp.zeros((), parameters.dtype)
        known = (values.log_partition, values.moments, values.gap, values.moments + values.gap)
        inner, damping = jnp.zeros((), jnp.int32), hyper.damping + zero
        return values.divergence, MStep(*known, inner, damping, zero)

    def advance(
        hyper: Hyper, parameters: Array, divergence: Array, memory: MStep, runs: Array
    ) -> Move:
        # After an e-step the gap of the m-step is that of the divergence.
        first = memory.inner == 0
        m_gap = jnp.where(first, memory.gap, memory.goal - memory.moments)
        gap = _penalised(m_gap, parameters, l2)
        matrix = metric(parameters)
        step = damped_solution(matrix, memory.damping + l2, gap)
        there = Values(*problem.evaluate(parameters + step))
        gap_there = _penalised(memory.goal - there.moments, parameters + step, l2)
        trial = Trial(
            decrease=-_m_change(parameters, parameters + step, memory, there, l2),
            scale=memory.log_partition,
            promised=step @ gap - 0.5 * step @ (matrix @ step + l2 * step),
            gap_before=jnp.max(jnp.abs(gap)),
            gap_after=jnp.max(jnp.abs(gap_there)),
        )
        accepted, damping, stalled = judge(trial, memory.damping)
        left = jnp.where(accepted, trial.gap_after, trial.gap_before)
        ends = (left <= config.tolerance) | stalled | (memory.inner + 1 >= limit)
        # Solved before its first iteration: a fixed point of em.
        fixed = first & (trial.gap_before <= config.tolerance)
        moments = jnp.where(accepted, there.moments, memory.moments)
        slope = jnp.where(accepted, there.gap, memory.gap)
        memory = MStep(
            log_partition=jnp.where(accepted, there.log_partition, memory.log_partition),
            moments=moments,
            gap=slope,
            goal=jnp.where(ends, moments + slope, memory.goal),
            inner=jnp.where(ends, 0, memory.inner + 1).astype(jnp.int32),
            damping=damping,
            residual=jnp.where(ends, left, memory.residual),
        )
        reached = jnp.where(accepted, parameters + step, parameters)
        divergence = jnp.where(accepted, there.divergence, divergence)
        return Move(reached, divergence, memory, ends, fixed)

    return Rule(init, advance)


def _em_gradient(problem: Closed, config: EMConfig) -> Rule:
    l2, limit = config.l2, _inner_limit(config)
    stop = -1.0 if config.stop is None else config.stop

    def e_step(parameters: Array) -> tuple[Array, Array]:
        values = Values(*problem.evaluate(parameters))
        return values.moments + values.gap, values.gap

    def init(hyper: Hyper, parameters: Array) -> tuple[Array, Ascent]:
        values, inner = Values(*problem.evaluate(parameters)), jnp.zeros((), jnp.int32)
        goal = values.moments + values.gap
        return values.divergence, Ascent(values.log_partition, goal, values.gap, inner)

    def advance(
        hyper: Hyper, parameters: Array, divergence: Array, memory: Ascent, runs: Array
    ) -> Move:
        gap = _penalised(memory.gap, parameters, l2)
        trial = ascend(parameters, gap, hyper.learning_rate)
        there = Values(*problem.evaluate(trial))
        small = jnp.abs(_m_change(parameters, trial, memory, there, l2)) <= stop
        reached = jnp.where(small, parameters, trial)
        ends = small | (memory.inner + 1 >= limit)
        # Within an m-step nothing needs the moments of the e-step's state.
        left = memory.goal - there.moments
        goal, gap = _if_any(ends & runs, e_step, reached, (memory.goal, left))
        finished = small & (memory.inner == 0)
        memory = Ascent(
            log_partition=jnp.where(small, memory.log_partition, there.log_partition),
            goal=goal,
            gap=gap,
            inner=jnp.where(ends, 0, memory.inner + 1).astype(jnp.int32),
        )
        divergence = jnp.where(small, divergence, there.divergence)
        return Move(reached, divergence, memory, ends, finished)

    return Rule(init, advance)


def _gradient(problem: Closed, config: EMConfig) -> Rule:
    l2 = config.l2
    stop = -1.0 if config.stop is None else config.stop

    def advance(
        hyper: Hyper, parameters: Array, divergence: Array, memory: Descent, runs: Array
    ) -> Move:
        gap = _penalised(memory.gap, parameters, l2)
        trial = ascend(parameters, gap, hyper.learning_rate)
        there = Values(*problem.evaluate(trial))
        before = divergence + penalty(parameters, l2)
        small = jnp.abs(there.divergence + penalty(trial, l2) - before) <= stop
        return Move(
            jnp.where(small, parameters, trial),
            jnp.where(small, divergence, there.divergence),
            Descent(jnp.where(small, memory.gap, there.gap), ()),
            ~small,
            small,
        )

    return Rule(_first_descent(problem, lambda parameters: ()), advance)


def _optax(problem: Closed, config: EMConfig) -> Rule:
    transform = transformation(config)

    def advance(
        hyper: Hyper, parameters: Array, divergence: Array, memory: Descent, runs: Array
    ) -> Move:
        gap = _penalised(memory.gap, parameters, config.l2)
        direction, extra = transform.update(-gap, memory.extra, parameters)
        reached = parameters - hyper.learning_rate * direction
        there, never = Values(*problem.evaluate(reached)), jnp.zeros((), bool)
        return Move(reached, there.divergence, Descent(there.gap, extra), ~never, never)

    return Rule(_first_descent(problem, transform.init), advance)


def transformation(config: EMConfig) -> optax.GradientTransformation:
    """How a gradient becomes a direction: as it is, by Adam's, or by AMSGrad's rule."""
    first, second = config.decays
    if config.method == "gradient":
        return optax.identity()
    maker = optax.scale_by_amsgrad if config.method == "amsgrad" else optax.scale_by_adam
    return maker(b1=first, b2=second)


def _natural_gradient(problem: Closed, config: EMConfig) -> Rule:
    metric = problem.metric
    assert metric is not None
    l2 = config.l2

    def advance(
        hyper: Hyper, parameters: Array, divergence: Array, memory: Descent, runs: Array
    ) -> Move:
        gap, length = _penalised(memory.gap, parameters, l2), memory.extra
        direction = damped_solution(metric(parameters), hyper.damping + l2, gap)
        trial = parameters + length * direction
        there = Values(*problem.evaluate(trial))
        before = divergence + penalty(parameters, l2)
        after = there.divergence + penalty(trial, l2)
        accepted = after <= before - ARMIJO * length * (direction @ gap)
        # The first length that is tried next: whole steps as soon as they succeed.
        longer = jnp.where(accepted, jnp.minimum(2 * length, 1.0), length / 2)
        return Move(
            jnp.where(accepted, trial, parameters),
            jnp.where(accepted, there.divergence, divergence),
            Descent(jnp.where(accepted, there.gap, memory.gap), longer),
            accepted,
            jnp.max(jnp.abs(gap)) <= config.tolerance,
        )

    return Rule(_first_descent(problem, lambda parameters: jnp.ones((), parameters.dtype)), advance)
