"""The exact answer of a finite constrained decision process."""

from __future__ import annotations

import dataclasses
import math
import warnings

import jax
import numpy as np

from jaxlab.core.errors import ScenarioError
from jaxlab.core.precision import require_x64
from jaxlab.envs.cmdp import chains, linear_programs
from jaxlab.envs.cmdp.evaluation import Evaluation, evaluate, policy_chain
from jaxlab.envs.cmdp.linear_programs import SMALL, Optimum
from jaxlab.envs.cmdp.model import CMDP


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """The exact answer.

    Attributes:
      optimum: Best average in the sense of the problem's own objective.
      gain: The same as a reward: negated where the problem minimises.
      multipliers: Of the bounds `[m]`, at least zero: what a unit of slack is worth.
      policy: An optimal policy `[S, A]`; in states it does not return to it leads back.
      measure: Its occupation measure `[S, A]`.
      signals: Its averages of the cost signals `[m]`.
      slater_margin: Largest least slack of any policy; infinite without constraints.
      mixing_time: Of the policy's chain, in steps; infinite where it does not mix, NaN where
        there are too many states to tell.
      gain_unconstrained: Best average without bounds, in the problem's own sense.
      classes: Of the policy's chain.
    """

    optimum: float
    gain: float
    multipliers: np.ndarray
    policy: np.ndarray
    measure: np.ndarray
    signals: np.ndarray
    slater_margin: float
    mixing_time: float
    gain_unconstrained: float
    classes: chains.Classes


def solve(problem: CMDP, *, require_slater: bool = True) -> Solution:
    """Solve a decision process by linear programs over occupation measures.

    Args:
      problem: The process.
      require_slater: Refuse bounds that can be met but not strictly; otherwise only warn.

    Raises:
      ScenarioError: No policy satisfies the bounds (with a proof), or none strictly.
      ConvergenceError: The solver of linear programs gave up.
      PrecisionError: JAX computes in 32 bits.

    Warns:
      RuntimeWarning: Names the classes of states where a chain is not ergodic.
    """
    require_x64("the exact solution of a decision process")
    chains.warn_unless_ergodic(problem.transitions)
    flows = linear_programs.flow_matrix(problem)
    margin = slater_margin(problem, require=require_slater)
    reward = np.asarray(problem.reward)
    best = linear_programs.maximise(problem, reward, flows)
    free = linear_programs.maximise(problem, reward, flows, bounded=False)
    if best is None:
        raise ScenarioError("no policy satisfies the bounds, by less than can be told exactly")
    assert free is not None
    policy = policy_of(problem, best)
    chain = np.asarray(policy_chain(problem.transitions, policy))
    found = chains.classes(chain)
    if not found.unichain:
        warnings.warn(
            f"the optimal policy's chain does not mix: {chains.describe(found)}; its average "
            "may depend on the start",
            RuntimeWarning,
            stacklevel=2,
        )
    return Solution(
        optimum=problem.own(best.value),
        gain=best.value,
        multipliers=best.multipliers,
        policy=policy,
        measure=best.measure,
        signals=np.tensordot(np.asarray(problem.costs), best.measure, 2),
        slater_margin=margin,
        mixing_time=_mixing_time(chain, best.measure.sum(1)),
        gain_unconstrained=problem.own(free.value),
        classes=found,
    )


def slater_margin(problem: CMDP, *, require: bool = True) -> float:
    """The largest least slack that a policy has in all bounds; infinite without bounds.

    Raises:
      ScenarioError: No policy satisfies the bounds, or (where required) none strictly.

    Warns:
      RuntimeWarning: None satisfies them strictly, where that is not required.
    """
    if not problem.signals:
        return math.inf
    flows = linear_programs.flow_matrix(problem)
    margin = linear_programs.widest_margin(problem, flows)
    linear_programs.require_feasible(problem, flows, margin)
    if margin.value <= SMALL:
        message = (
            "no policy satisfies all bounds strictly: there is no Slater point, and multipliers "
            "are not bounded; loosen a bound"
        )
        if require:
            raise ScenarioError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return 0.0
    return margin.value


def unconstrained_optimum(problem: CMDP) -> float:
    """The best average reward without bounds, in the problem's own sense."""
    flows = linear_programs.flow_matrix(problem)
    found = linear_programs.maximise(problem, np.asarray(problem.reward), flows, bounded=False)
    assert found is not None
    return problem.own(found.value)


def evaluate_exactly(problem: CMDP, policy: np.ndarray) -> Evaluation:
    """Evaluate a policy `[S, A]` in 64 bits; see `jaxlab.envs.cmdp.evaluation.evaluate`.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ScenarioError: The chain has several closed classes: averages depend on the start.
    """
    require_x64("the exact evaluation of a policy")
    chain = np.asarray(policy_chain(problem.transitions, np.asarray(policy)))
    found = chains.classes(chain)
    if len(found.recurrent) > 1:
        raise ScenarioError(f"the policy's averages depend on the start: {chains.describe(found)}")
    return jax.jit(evaluate)(problem.cast(), np.asarray(policy, np.float64))


def policy_of(problem: CMDP, optimum: Optimum) -> np.ndarray:
    """The policy of an optimal measure; from states where it is never, the best way back."""
    measure = np.maximum(optimum.measure, 0.0)
    mass = measure.sum(1)
    visited = mass > SMALL
    policy = np.zeros_like(measure)
    policy[visited] = np.where(measure[visited] > SMALL * mass[visited, None], measure[visited], 0)
    policy[visited] /= policy[visited].sum(1, keepdims=True)
    transitions = np.asarray(problem.transitions)
    known = visited.copy()
    while not known.all():
        leading = transitions[:, :, known].sum(2)
        fresh = ~known & (leading > 0).any(1)
        if not fresh.any():
            # No policy leads from these states to the others.
            policy[~known, 0] = 1.0
            return policy
        policy[fresh, np.argmax(leading[fresh], 1)] = 1.0
        known |= fresh
    return _improve(problem, policy, ~visited, optimum.multipliers)


def _improve(
    problem: CMDP, policy: np.ndarray, where: np.ndarray, multipliers: np.ndarray
) -> np.ndarray:
    """Policy iteration on the Lagrangian in some states of a chain with one closed class."""
    weights = multipliers * np.asarray(problem.senses)
    worth = np.asarray(problem.reward) + np.tensordot(weights, np.asarray(problem.costs), 1)
    transitions = np.asarray(problem.transitions)
    while where.any():
        chain = np.asarray(policy_chain(transitions, policy))
        if not chains.classes(chain).unichain:
            return policy
        means = (policy * worth).sum(1)
        matrix = np.eye(len(chain)) - chain + 1.0
        gain = means @ np.linalg.solve(matrix.T, np.ones(len(chain)))
        values = worth + transitions @ np.linalg.solve(matrix, means - gain)
        better = values.max(1) > (policy * values).sum(1) + SMALL * (1 + np.abs(values).max(1))
        if not np.any(better & where):
            return policy
        improved = policy.copy()
        improved[better & where] = np.eye(policy.shape[1])[np.argmax(values[better & where], 1)]
        if not chains.classes(policy_chain(transitions, improved)).unichain:
            return policy
        policy = improved
    return policy


def _mixing_time(chain: np.ndarray, stationary: np.ndarray) -> float:
    if len(chain) > chains.MOST_STATES:
        return math.nan
    return chains.mixing_time(chain, stationary)
