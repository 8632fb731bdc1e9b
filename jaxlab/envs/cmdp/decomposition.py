"""Large dense processes: the linear program decomposed into unconstrained processes.

The set of occupation measures is the convex hull of those of deterministic policies. A small
linear program mixes the policies found so far (Dantzig and Wolfe, "Decomposition principle for
linear programs", 1960); its multipliers price the signals, and policy iteration finds the best
policy at these prices, until no policy improves the mixture. For a thousand dense states that
takes a hundredth of the time of the full program.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.optimize import linprog

from jaxlab.core.errors import ConvergenceError
from jaxlab.envs.cmdp import chains
from jaxlab.envs.cmdp.model import CMDP

#: The mixture's value and its upper bound differ by less, relative to the values of signals.
TOLERANCE = 1e-12
MOST_ROUNDS = 500
#: Actions replace others only where they are better by so much: rounding would cycle for ever.
BETTER = 1e-11


class NotUnichain(Exception):
    """A policy has several closed classes; its averages depend on the start."""


class Mixed(NamedTuple):
    """Optimal mixture of policies; fields as in `linear_programs.Optimum`."""

    value: float
    measure: np.ndarray
    multipliers: np.ndarray
    potentials: np.ndarray
    gain: float


class _Best(NamedTuple):
    choice: np.ndarray
    gain: float
    bias: np.ndarray
    stationary: np.ndarray


class Decomposition:
    """Policies of one process, and programs over their mixtures."""

    def __init__(self, problem: CMDP):
        self.transitions = np.asarray(problem.transitions)
        self.reward = np.asarray(problem.reward)
        self.senses = np.asarray(problem.senses)
        self.limits = self.senses * np.asarray(problem.bounds)
        self.costs = self.senses[:, None, None] * np.asarray(problem.costs)
        self.found: list[_Best] = []
        self.start = np.argmax(self.reward, 1)

    def maximise(self, objective: np.ndarray, *, bounded: bool = True) -> Mixed | None:
        """See `linear_programs.maximise`."""
        if not bounded or not len(self.limits):
            best = self._add(objective)
            return Mixed(best.gain, self._measure(best), np.zeros(0), best.bias, best.gain)
        if self.widest_margin().value < 0:
            return None
        return self._generate(objective, margin=False)

    def widest_margin(self) -> Mixed:
        """See `linear_programs.widest_margin`."""
        return self._generate(np.zeros_like(self.reward), margin=True)

    def _generate(self, objective: np.ndarray, *, margin: bool) -> Mixed:
        if not self.found:
            self._add(np.tensordot(np.ones(len(self.limits)), self.costs, 1))
        scale = 1 + np.abs(objective).max() + np.abs(self.costs).max(initial=0.0)
        for _ in range(MOST_ROUNDS):
            weights, multipliers, value = self._master(objective, margin)
            best = self._add(objective + np.tensordot(multipliers, self.costs, 1))
            bound = best.gain - multipliers @ self.limits
            if bound - value <= TOLERANCE * scale * (1 + np.abs(multipliers).sum()):
                measure = np.zeros_like(self.reward)
                for weight, policy in zip(weights, self.found, strict=False):
                    if weight > 0:
                        measure += weight * self._measure(policy)
                return Mixed(value, measure, multipliers, best.bias, best.gain)
        raise ConvergenceError(f"no optimal mixture of policies after {MOST_ROUNDS} rounds")

    def _master(self, objective: np.ndarray, margin: bool) -> tuple[np.ndarray, np.ndarray, float]:
        """Best mixture of the policies so far: weights, multipliers, value."""
        count, bounds = len(self.found), len(self.limits)
        slack = np.array([self._averages(policy, self.costs) for policy in self.found]).T
        worth = np.array([self._averages(policy, objective[None])[0] for policy in self.found])
        # With the margin as one more, free, unknown.
        rows = np.hstack([-slack, np.ones((bounds, 1)) if margin else np.zeros((bounds, 0))])
        cost = np.append(-worth, -1.0) if margin else -worth
        total = np.append(np.ones(count), 0.0) if margin else np.ones(count)
        ranges = [(0.0, None)] * count + [(None, None)] * margin
        found = linprog(
            cost,
            A_ub=rows,
            b_ub=-self.limits,
            A_eq=total[None],
            b_eq=[1.0],
            bounds=ranges,
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.status != 0:
            raise ConvergenceError(f"no mixture of policies was found: {found.message}")
        weights = np.maximum(found.x[:count], 0.0)
        multipliers = np.maximum(-found.ineqlin.marginals, 0.0)
        return weights / weights.sum(), multipliers, float(-found.fun)

    def _averages(self, policy: _Best, signals: np.ndarray) -> np.ndarray:
        return signals[:, np.arange(len(policy.choice)), policy.choice] @ policy.stationary

    def _measure(self, policy: _Best) -> np.ndarray:
        measure = np.zeros_like(self.reward)
        measure[np.arange(len(measure)), policy.choice] = policy.stationary
        return measure

    def _add(self, worth: np.ndarray) -> _Best:
        """The best policy for `worth [S, A]`, by policy iteration from the last one."""
        states = np.arange(len(worth))
        choice = self.start
        scale = 1 + np.abs(worth).max()
        while True:
            chain = self.transitions[states, choice]
            matrix = np.eye(len(chain)) - chain + 1.0
            factors = scipy.linalg.lu_factor(matrix)
            stationary = scipy.linalg.lu_solve(factors, np.ones(len(chain)), trans=1)
            means = worth[states, choice]
            gain = float(means @ stationary)
            bias = scipy.linalg.lu_solve(factors, means - gain)
            if not np.isfinite(gain) or np.abs(stationary @ chain - stationary).max() > 1e-9:
                raise NotUnichain
            values = worth + self.transitions @ bias
            better = values.max(1) > values[states, choice] + BETTER * (
                scale + np.abs(values).max(1)
            )
            if not better.any():
                break
            choice = np.where(better, np.argmax(values, 1), choice)
        if len(chains.classes(chain).recurrent) != 1:
            raise NotUnichain
        self.start = choice
        best = _Best(choice, gain, bias, stationary)
        self.found.append(best)
        return best
