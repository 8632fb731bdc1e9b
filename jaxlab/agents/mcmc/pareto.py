"""Two objectives, both to be small: the non-dominated front and its quality."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlab.core.errors import DataError


def _check(objectives: Any) -> np.ndarray:
    objectives = np.asarray(objectives, float)
    if objectives.ndim != 2 or objectives.shape[1] != 2:
        raise DataError(
            f"objectives have shape {objectives.shape}, expected [points, 2]: two numbers to "
            "minimise for every point"
        )
    if np.isnan(objectives).any():
        raise DataError("objectives hold NaN; leave such points out, or give them as infinity")
    return objectives


def non_dominated(objectives: Any, feasible: Any | None = None) -> np.ndarray:
    """Which points no other dominates, `[points]`.

    A point dominates another if neither of its objectives is larger and one is smaller; so
    equal points do not dominate each other.

    Args:
      objectives: `[points, 2]`, both minimised.
      feasible: `[points]`; points that are not feasible neither count nor dominate.

    Raises:
      DataError: A shape does not fit, or an objective is NaN.
    """
    objectives = _check(objectives)
    kept = np.ones(len(objectives), bool) if feasible is None else np.asarray(feasible, bool)
    if kept.shape != (len(objectives),):
        raise DataError(f"feasible has shape {kept.shape}, expected ({len(objectives)},)")
    # By the first objective, then the second: whatever dominates a point comes before it.
    order = np.lexsort((objectives[:, 1], objectives[:, 0]))
    order = order[kept[order]]
    first, second = objectives[order].T
    # The best second objective among those with a smaller first one, which dominate a point
    # that is no better; and the best among those with the same first one.
    group = np.searchsorted(first, first, side="left")
    best = np.minimum.accumulate(np.append(np.inf, second))
    front = (second < best[group]) & (second == second[group])
    result = np.zeros(len(objectives), bool)
    result[order[front]] = True
    return result


def hypervolume(objectives: Any, reference: Any) -> float:
    """Area dominated by points and bounded by a reference point: Zitzler & Thiele 1998.

    Points that do not lie below the reference in both objectives count nothing.

    Args:
      objectives: `[points, 2]`, both minimised.
      reference: `[2]`; keep it fixed where areas are to be compared.

    Raises:
      DataError: A shape does not fit, or a number is NaN.
    """
    objectives, reference = _check(objectives), np.asarray(reference, float)
    if reference.shape != (2,) or not np.isfinite(reference).all():
        raise DataError(f"reference is {reference.tolist()}, expected two finite numbers")
    inside = objectives[(objectives < reference).all(axis=1)]
    if len(inside) == 0:
        return 0.0
    front = np.unique(inside[non_dominated(inside)], axis=0)
    # From left to right the front falls: each point adds the strip down to it.
    above = np.append(reference[1], front[:-1, 1])
    return float(np.sum((reference[0] - front[:, 0]) * (above - front[:, 1])))


def spacing(front: Any) -> float:
    """How unevenly the points of a front lie: Schott 1995, zero where all gaps are equal.

    Deviation of the distances (in the 1-norm) from each point to its nearest neighbour.
    Scale the objectives first where their units differ.

    Args:
      front: `[points, 2]`, at least two points.

    Raises:
      DataError: There are fewer points, or a number is NaN.
    """
    front = _check(front)
    if len(front) < 2:
        raise DataError(f"the front has {len(front)} points, expected at least two")
    distance = np.abs(front[:, None] - front[None]).sum(-1)
    np.fill_diagonal(distance, np.inf)
    return float(np.std(distance.min(axis=1), ddof=1))


def coverage(values: Any, edges: Any) -> np.ndarray:
    """How many points of a front fall into each bin of one objective, `[len(edges) - 1]`."""
    return np.histogram(np.asarray(values, float), bins=np.asarray(edges, float))[0]
