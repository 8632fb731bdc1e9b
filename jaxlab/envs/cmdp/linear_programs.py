"""Linear programs over occupation measures, solved by HiGHS and polished to the last digits.

An occupation measure `d[s, a]` is the long-run fraction of time that a stationary policy
spends in state s with action a: it balances flows into and out of every state and sums to one
(Altman, "Constrained Markov decision processes", 1999, chapter 4).
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack
from scipy.sparse import csr_array as Sparse

from jaxlab.core.errors import ConvergenceError, ScenarioError
from jaxlab.envs.cmdp.decomposition import Decomposition, NotUnichain
from jaxlab.envs.cmdp.model import CMDP

#: Entries of solutions below this are zero.
SMALL = 1e-9
#: Systems above so many unknowns are left with the digits of HiGHS.
MOST_POLISHED = 3000
#: Programs with more nonzero entries are decomposed.
MOST_ENTRIES = 300_000


class Optimum(NamedTuple):
    """Solution of a program.

    Attributes:
      value: Largest value of the objective.
      measure: Occupation measure `[S, A]`.
      multipliers: Of the constraints `[m]`, at least zero.
      potentials: Of the states `[S]`: relative values of the Lagrangian.
      gain: Multiplier of the total mass: the gain of the Lagrangian, bounds left out.
    """

    value: float
    measure: np.ndarray
    multipliers: np.ndarray
    potentials: np.ndarray
    gain: float


def flow_matrix(problem: CMDP) -> Sparse:
    """Balance of flows and total mass as equations `[S + 1, S A]` on a flat measure."""
    states, actions = problem.states, problem.actions
    leaving = kron(eye_array(states), np.ones((1, actions)))
    arriving = csr_array(np.asarray(problem.transitions).reshape(states * actions, states)).T
    total = csr_array(np.ones((1, states * actions)))
    return csr_array(vstack([leaving - arriving, total]))


def maximise(
    problem: CMDP,
    objective: np.ndarray,
    flows: Sparse,
    *,
    bounded: bool = True,
) -> Optimum | None:
    """The occupation measure of the largest average of `objective [S, A]`.

    Args:
      problem: The process.
      objective: What is averaged.
      flows: See `flow_matrix`.
      bounded: Whether the bounds of the problem hold.

    Returns:
      The optimum, None where no measure satisfies the bounds.

    Raises:
      ConvergenceError: The solver gave up.
    """
    if flows.nnz > MOST_ENTRIES:
        with contextlib.suppress(NotUnichain):
            mixed = Decomposition(problem).maximise(objective, bounded=bounded)
            return None if mixed is None else Optimum(*mixed)
    signs, limits = _constraints(problem, bounded)
    balance = np.zeros(flows.shape[0])
    balance[-1] = 1.0
    found = _solve(objective.reshape(-1), signs, limits, flows, balance)
    if found is None:
        return None
    measure, multipliers, potentials = found
    return Optimum(
        float(objective.reshape(-1) @ measure),
        measure.reshape(problem.reward.shape),
        multipliers,
        potentials[:-1],
        float(potentials[-1]),
    )


def widest_margin(problem: CMDP, flows: Sparse) -> Optimum:
    """The measure whose least slack is largest: its value is the Slater margin.

    Where it is negative, no policy satisfies the bounds, and the multipliers, which sum to one,
    prove it: no policy has a larger average of the slacks weighted by them.
    """
    if flows.nnz > MOST_ENTRIES:
        with contextlib.suppress(NotUnichain):
            return Optimum(*Decomposition(problem).widest_margin())
    signs, limits = _constraints(problem, True)
    column = csr_array(-np.ones((len(limits), 1)))
    empty = csr_array((flows.shape[0], 1))
    balance = np.zeros(flows.shape[0])
    balance[-1] = 1.0
    objective = np.zeros(signs.shape[1] + 1)
    objective[-1] = 1.0
    found = _solve(
        objective,
        np.hstack([signs, column.toarray()]),
        limits,
        csr_array(hstack([flows, empty])),
        balance,
        free=1,
    )
    assert found is not None, "the margin may be as low as it likes"
    point, multipliers, potentials = found
    return Optimum(
        float(point[-1]),
        point[:-1].reshape(problem.reward.shape),
        multipliers,
        potentials[:-1],
        float(potentials[-1]),
    )


def attainable(problem: CMDP, signal: int, flows: Sparse) -> tuple[float, float]:
    """Least and largest average of one cost signal over all policies, other bounds aside."""
    values = np.asarray(problem.costs)[signal]
    ends = [maximise(problem, sign * values, flows, bounded=False) for sign in (-1.0, 1.0)]
    low, high = ends
    assert low is not None
    assert high is not None
    return -low.value, high.value


def require_feasible(problem: CMDP, flows: Sparse, margin: Optimum) -> None:
    """Refuse bounds that no policy satisfies, with a proof.

    Raises:
      ScenarioError: Names the bound outside its attainable range, or the weights of a
        combination of the constraints that no policy can satisfy.
    """
    if margin.value >= -SMALL:
        return
    names = _constraint_names(problem)
    for signal, name in enumerate(names):
        low, high = attainable(problem, signal, flows)
        bound, sense = float(problem.bounds[signal]), float(problem.senses[signal])
        if sense * (high if sense > 0 else low) < sense * bound - SMALL:
            raise ScenarioError(
                f"the bound {bound:g} is outside the attainable range: {name}, but averages of "
                f"signal {signal} lie between {low:.10g} and {high:.10g} whatever the policy"
            )
    weights = " + ".join(
        f"{weight:.6g} * slack({name})"
        for weight, name in zip(margin.multipliers, names, strict=True)
        if weight > SMALL
    )
    raise ScenarioError(
        f"no policy satisfies all bounds together: the average of {weights} is at most "
        f"{margin.value:.10g} whatever the policy; loosen one of these bounds"
    )


def _constraint_names(problem: CMDP) -> list[str]:
    return [
        f"signal {n} {'>=' if sense > 0 else '<='} {bound:g}"
        for n, (sense, bound) in enumerate(
            zip(np.asarray(problem.senses), np.asarray(problem.bounds), strict=True)
        )
    ]


def _constraints(problem: CMDP, bounded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows `[m, S A]` and limits `[m]` of what is to be at least its limit."""
    if not bounded:
        return np.zeros((0, problem.states * problem.actions)), np.zeros(0)
    senses = np.asarray(problem.senses)
    rows = senses[:, None] * np.asarray(problem.costs).reshape(
        problem.signals, problem.states * problem.actions
    )
    return rows, senses * np.asarray(problem.bounds)


def _solve(
    objective: np.ndarray,
    rows: np.ndarray,
    limits: np.ndarray,
    equations: Sparse,
    right: np.ndarray,
    *,
    free: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Maximise under `rows x >= limits`, `equations x = right`, `x >= 0` but the last `free`.

    Returns:
      Point, multipliers of the rows and of the equations; None where infeasible.
    """
    count = len(objective)
    ranges = [(0.0, None)] * (count - free) + [(None, None)] * free
    found = linprog(
        -objective,
        A_ub=-rows if len(rows) else None,
        b_ub=-limits if len(rows) else None,
        A_eq=equations,
        b_eq=right,
        bounds=ranges,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status == 2:
        return None
    if found.status != 0:
        raise ConvergenceError(f"the linear program was not solved: {found.message}")
    multipliers = -found.ineqlin.marginals if len(rows) else np.zeros(0)
    duals = -found.eqlin.marginals
    support = found.x > SMALL
    support[count - free :] = True
    if support.sum() > MOST_POLISHED:
        return found.x, np.maximum(multipliers, 0.0), duals
    return _polish(found.x, multipliers, duals, support, objective, rows, limits, equations, right)


def _polish(
    point: np.ndarray,
    multipliers: np.ndarray,
    duals: np.ndarray,
    support: np.ndarray,
    objective: np.ndarray,
    rows: np.ndarray,
    limits: np.ndarray,
    equations: Sparse,
    right: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve the equations of the optimal vertex and of complementary slackness once more.

    Least changes of the solver's answer do it, so that degenerate vertices are no exception.
    """
    tight = multipliers > SMALL
    active = np.vstack([equations[:, support].toarray(), rows[tight][:, support]])
    goal = np.concatenate([right, limits[tight]])
    better = point * support
    better[support] += _least_change(active, goal - active @ point[support])
    both = np.concatenate([duals, -multipliers[tight]])
    both = both + _least_change(active.T, objective[support] - active.T @ both)
    fine = np.zeros_like(multipliers)
    fine[tight] = -both[len(duals) :]
    return better, fine, both[: len(duals)]


def _least_change(matrix: np.ndarray, gap: np.ndarray) -> np.ndarray:
    return scipy.linalg.lstsq(matrix, gap, lapack_driver="gelsy")[0]
