"""One step of each method on a problem with a closed e-step."""

from __future__ import annotations

import dataclasses
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
      values: The model there.
      memory: What the method remembers.
      m_step: Whether an m-step ended (every step that moved, for methods without them).
      finished: Whether the method cannot go on.
    """

    parameters: Array
    values: Values
    memory: PyTree
    m_step: Bool[Array, ""]
    finished: Bool[Array, ""]


class Rule(NamedTuple):
    """A method: what it remembers first, and one step.

    Attributes:
      init: From hyper-parameters, parameters and values there to the memory.
      advance: One step, from the same with the memory. The last argument tells whether the run
        goes on; what is computed for one that has finished is thrown away.
    """

    init: Callable[[Hyper, Array, Values], PyTree]
    advance: Callable[[Hyper, Array, Values, PyTree, Array], Move]


@struct.dataclass
class Goal:
    """An m-step on its way.

    Attributes:
      moments: Those of the e-step's state.
      inner: Iterations done.
      damping: Of Levenberg and Marquardt.
      residual: Largest gap of moments at the end of the last m-step; zero with gradient steps.
    """

    moments: Float[Array, " terms"]
    inner: Int[Array, ""]
    damping: Float[Array, ""]
    residual: Float[Array, ""]


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


def _start(hyper: Hyper, parameters: Array, values: Values) -> Goal:
    zero = jnp.zeros((), parameters.dtype)
    return Goal(values.target_moments, jnp.zeros((), jnp.int32), hyper.damping + zero, zero)


def penalty(parameters: Array, l2: float) -> Array | float:
    """What the objective has beside the divergence."""
    return 0.5 * l2 * jnp.sum(parameters**2) if l2 else 0.0


def _m_objective(parameters: Array, values: Values, moments: Array, l2: float) -> Array:
    """The m-step's objective, the divergence of the e-step's state up to a constant."""
    return values.log_partition - parameters @ moments + penalty(parameters, l2)


def _gap(parameters: Array, values: Values, moments: Array, l2: float) -> Array:
    """The negative gradient of the objective."""
    gap = moments - values.moments
    return gap - l2 * parameters if l2 else gap


def _choose(flag: Array, first: Values, second: Values) -> Values:
    return Values(*(jnp.where(flag, a, b) for a, b in zip(first, second, strict=True)))


def _turn(goal: Goal, ends: Array, values: Values, gap: Array, damping: Array) -> Goal:
    """The e-step, where an m-step ends: at the parameters reached."""
    return Goal(
        jnp.where(ends, values.target_moments, goal.moments),
        jnp.where(ends, 0, goal.inner + 1).astype(jnp.int32),
        damping,
        jnp.where(ends, jnp.max(jnp.abs(gap)), goal.residual),
    )


def _if_any(
    flag: Array, function: Callable[[Array], Array], argument: Array, otherwise: Array
) -> Array:
    """`function(argument)` where the flag is set; when mapped, computed only if any flag is.

    A `lax.cond` becomes a select when its flag is mapped, which computes both sides always; a
    loop of no or one turn runs while there is a flag.
    """

    def turn(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # The argument changes, or the compiler would move the function out of the loop.
        return jnp.zeros_like(carry[0]), jnp.zeros_like(carry[1]), function(carry[1])

    return lax.while_loop(lambda carry: carry[0], turn, (flag, argument, otherwise))[2]


def _inner_limit(config: EMConfig) -> int:
    return min(config.most_inner, config.m_steps or config.most_inner)


def _em(problem: Closed, config: EMConfig) -> Rule:
    metric = problem.metric
    assert metric is not None
    l2, limit = config.l2, _inner_limit(config)

    def advance(hyper: Hyper, parameters: Array, values: Values, goal: Goal, runs: Array) -> Move:
        gap = _gap(parameters, values, goal.moments, l2)
        matrix = metric(parameters)
        step = damped_solution(matrix, goal.damping + l2, gap)
        there = Values(*problem.evaluate(parameters + step))
        gap_there = _gap(parameters + step, there, goal.moments, l2)
        trial = Trial(
            before=_m_objective(parameters, values, goal.moments, l2),
            after=_m_objective(parameters + step, there, goal.moments, l2),
            promised=step @ gap - 0.5 * step @ (matrix @ step + l2 * step),
            gap_before=jnp.max(jnp.abs(gap)),
            gap_after=jnp.max(jnp.abs(gap_there)),
        )
        accepted, damping = judge(trial, goal.damping)
        reached = jnp.where(accepted, parameters + step, parameters)
        values = _choose(accepted, there, values)
        left = jnp.where(accepted, gap_there, gap)
        solved = jnp.max(jnp.abs(left)) <= config.tolerance
        ends = solved | (goal.inner + 1 >= limit)
        # Solved before its first iteration: a fixed point of em.
        fixed = (goal.inner == 0) & (trial.gap_before <= config.tolerance)
        return Move(reached, values, _turn(goal, ends, values, left, damping), ends, fixed)

    return Rule(_start, advance)


def _em_gradient(problem: Closed, config: EMConfig) -> Rule:
    l2, limit = config.l2, _inner_limit(config)
    stop = -1.0 if config.stop is None else config.stop

    def advance(hyper: Hyper, parameters: Array, values: Values, goal: Goal, runs: Array) -> Move:
        gap = _gap(parameters, values, goal.moments, l2)
        trial = ascend(parameters, gap, hyper.learning_rate)
        there = Values(*problem.evaluate(trial))
        change = _m_objective(trial, there, goal.moments, l2) - _m_objective(
            parameters, values, goal.moments, l2
        )
        small = jnp.abs(change) <= stop
        reached = jnp.where(small, parameters, trial)
        ends = small | (goal.inner + 1 >= limit)
        # Within an m-step nothing needs the moments of the e-step's state but its divergence.
        estimated = _if_any(
            ends & runs,
            lambda at: Values(*problem.evaluate(at)).target_moments,
            reached,
            goal.moments,
        )
        values = _choose(small, values, there)._replace(target_moments=estimated)
        inner = jnp.where(ends, 0, goal.inner + 1).astype(jnp.int32)
        memory = dataclasses.replace(goal, moments=estimated, inner=inner)
        return Move(reached, values, memory, ends, small & (goal.inner == 0))

    return Rule(_start, advance)


def _gradient(problem: Closed, config: EMConfig) -> Rule:
    l2 = config.l2
    stop = -1.0 if config.stop is None else config.stop

    def advance(
        hyper: Hyper, parameters: Array, values: Values, memory: PyTree, runs: Array
    ) -> Move:
        gap = _gap(parameters, values, values.target_moments, l2)
        trial = ascend(parameters, gap, hyper.learning_rate)
        there = Values(*problem.evaluate(trial))
        before = values.divergence + penalty(parameters, l2)
        small = jnp.abs(there.divergence + penalty(trial, l2) - before) <= stop
        return Move(
            jnp.where(small, parameters, trial), _choose(small, values, there), (), ~small, small
        )

    return Rule(lambda hyper, parameters, values: (), advance)


def _optax(problem: Closed, config: EMConfig) -> Rule:
    transform = transformation(config)

    def advance(
        hyper: Hyper, parameters: Array, values: Values, memory: PyTree, runs: Array
    ) -> Move:
        gap = _gap(parameters, values, values.target_moments, config.l2)
        direction, memory = transform.update(-gap, memory, parameters)
        reached = parameters - hyper.learning_rate * direction
        never = jnp.zeros((), bool)
        return Move(reached, Values(*problem.evaluate(reached)), memory, ~never, never)

    return Rule(lambda hyper, parameters, values: transform.init(parameters), advance)


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
        hyper: Hyper, parameters: Array, values: Values, length: Array, runs: Array
    ) -> Move:
        gap = _gap(parameters, values, values.target_moments, l2)
        direction = damped_solution(metric(parameters), hyper.damping + l2, gap)
        trial = parameters + length * direction
        there = Values(*problem.evaluate(trial))
        before = values.divergence + penalty(parameters, l2)
        after = there.divergence + penalty(trial, l2)
        accepted = after <= before - ARMIJO * length * (direction @ gap)
        return Move(
            jnp.where(accepted, trial, parameters),
            _choose(accepted, there, values),
            # The first length that is tried next: whole steps as soon as they succeed.
            jnp.where(accepted, jnp.minimum(2 * length, 1.0), length / 2),
            accepted,
            jnp.max(jnp.abs(gap)) <= config.tolerance,
        )

    return Rule(lambda hyper, parameters, values: jnp.ones((), parameters.dtype), advance)
