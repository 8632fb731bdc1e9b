"""What accuracy of values says of strings that are greedy with respect to them.

After Davidovich et al. (2025), with values V that are exact where strings end, N letters at most,
and `eps` the largest error of V.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.agents.dqn.approximators import Approximator
from jaxlab.agents.dqn.fitted import values_after
from jaxlab.agents.dqn.process import random_state

PyTree = Any


def greedy_gap(eps: Any, horizon: int) -> Any:
    """The most that a greedy string loses: `2 eps (N - 1)`."""
    return 2 * eps * max(horizon - 1, 0)


def exact_for_whole_costs(eps: float, horizon: int) -> bool:
    """Whether greedy strings are optimal where all costs are whole: the loss is below one."""
    return greedy_gap(eps, horizon) < 1


def needed_accuracy(gap: float, horizon: int) -> float:
    """Largest error of each iteration for a loss of at most `gap`: `gap / (2 N^2)`."""
    return gap / (2 * horizon**2)


def sup_error(residual: Any, horizon: int) -> Any:
    """A bound on `eps` by the largest residual of Bellman's equation: errors add up over N."""
    return residual * horizon


class Certificate(NamedTuple):
    """Estimates for a value that was learnt.

    Attributes:
      states: Random states that were looked at.
      residual: Largest residual of Bellman's equation in them.
      eps: N times that: an estimate of the largest error.
      gap_bound: What greedy strings lose at most if that is right.
      exact: Whether that proves them optimal, costs being whole.
    """

    states: int
    residual: float
    eps: float
    gap_bound: float
    exact: bool


def certify(
    process: Any,
    approximator: Approximator,
    theta: PyTree,
    key: jax.Array,
    *,
    states: int = 512,
    greedy_walks: float = 0.5,
    whole: bool = False,
) -> Certificate:
    """Estimate how far a learnt value can lead astray.

    The supremum is over random states only, so this is an estimate and no proof.
    """

    def residual(key: jax.Array) -> jax.Array:
        params, decision = random_state(process, key, 0, greedy_walks)
        goal = jnp.min(values_after(process, approximator, theta, params, decision))
        error = jnp.abs(approximator.apply(theta, params, decision) - goal)
        return jnp.where(process.done(params, decision), 0.0, error)

    keys = jax.random.split(key, states)
    largest = float(np.max(jax.jit(lambda k: jax.lax.map(residual, k, batch_size=64))(keys)))
    eps = float(sup_error(largest, process.horizon))
    bound = float(greedy_gap(eps, process.horizon))
    proved = whole and exact_for_whole_costs(eps, process.horizon)
    return Certificate(states, largest, eps, bound, proved)
