"""Chains of a policy on the host: classes of states, periods, mixing times."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

#: States above which no mixing time is computed: it takes powers of a dense matrix.
MOST_STATES = 4000
#: States that a message names at most.
MOST_NAMED = 12


class Classes(NamedTuple):
    """States of a chain by whether they return.

    Attributes:
      recurrent: Closed classes, each an ascending array of states.
      transient: States outside all of them.
      periods: Of the closed classes.
    """

    recurrent: tuple[np.ndarray, ...]
    transient: np.ndarray
    periods: tuple[int, ...]

    @property
    def ergodic(self) -> bool:
        """One aperiodic class of all states."""
        return self.unichain and not self.transient.size

    @property
    def unichain(self) -> bool:
        """One aperiodic closed class; other states lead into it."""
        return self.periods == (1,)


def classes(matrix: Any) -> Classes:
    """Classes of a chain `[S, S]` (dense or sparse): only which entries are positive counts."""
    graph = csr_array(matrix)
    graph.eliminate_zeros()
    count, label = connected_components(graph, directed=True, connection="strong")
    rows, columns = graph.nonzero()
    leaving = np.zeros(count, bool)
    leaving[label[rows[label[rows] != label[columns]]]] = True
    recurrent = tuple(np.flatnonzero(label == n) for n in range(count) if not leaving[n])
    recurrent = tuple(sorted(recurrent, key=lambda states: int(states[0])))
    periods = tuple(_period(graph, states) for states in recurrent)
    return Classes(recurrent, np.flatnonzero(leaving[label]), periods)


def _period(graph: csr_array, states: np.ndarray) -> int:
    inside = csr_array(graph[states][:, states])
    order, before = breadth_first_order(inside, 0, directed=True)
    depth = np.zeros(len(states), np.int64)
    for state in order[1:]:
        depth[state] = depth[before[state]] + 1
    rows, columns = inside.nonzero()
    return math.gcd(*(depth[rows] + 1 - depth[columns]).tolist()) if len(rows) else 1


def reachable(transitions: Any) -> np.ndarray:
    """Where some action leads, `[S, S]`, bool: the chain of every policy that tries all actions."""
    return np.any(np.asarray(transitions) > 0, axis=1)


def warn_unless_ergodic(transitions: Any) -> Classes:
    """Warn where policies that try every action have no ergodic chain.

    Warns:
      RuntimeWarning: Names the classes of states.
    """
    found = classes(reachable(transitions))
    if not found.ergodic:
        warnings.warn(
            f"the chain of policies that try every action is not ergodic: {describe(found)}. "
            "Averages depend on the start, or are reached in some states only",
            RuntimeWarning,
            stacklevel=2,
        )
    return found


def describe(found: Classes) -> str:
    """The classes in words."""
    parts = []
    for states, period in zip(found.recurrent, found.periods, strict=True):
        rhythm = "" if period == 1 else f" of period {period}"
        parts.append(f"closed class {_named(states)}{rhythm}")
    if found.transient.size:
        parts.append(f"transient states {_named(found.transient)}")
    return ", ".join(parts)


def _named(states: np.ndarray) -> str:
    names = ", ".join(map(str, states[:MOST_NAMED]))
    more = f", ... ({len(states)} states)" if len(states) > MOST_NAMED else ""
    return f"{{{names}{more}}}"


def mixing_time(matrix: Any, stationary: Any, distance: float = 0.25) -> float:
    """First `t` at which the chain is within `distance` of stationary, from every state.

    Distance is total variation, which never grows with time: powers are squared until it is
    small, then the time is found by bisection.

    Returns:
      The time, infinite where the chain does not mix.
    """
    if not classes(matrix).unichain:
        return math.inf
    powers = [np.asarray(matrix, np.float64)]
    while _variation(powers[-1], stationary) > distance:
        powers.append(powers[-1] @ powers[-1])
        # Slower chains than this are beyond the digits of their transition probabilities.
        if len(powers) > 60:
            return math.inf
    if len(powers) == 1:
        return 1.0
    # The distance is too large after 2^(n-2) steps and small enough after 2^(n-1).
    time, current = 2 ** (len(powers) - 2), powers[-2]
    for exponent in range(len(powers) - 3, -1, -1):
        further = current @ powers[exponent]
        if _variation(further, stationary) > distance:
            time, current = time + 2**exponent, further
    return float(time + 1)


def _variation(power: np.ndarray, stationary: Any) -> float:
    return float(np.max(0.5 * np.abs(power - np.asarray(stationary)).sum(1)))
