"""Scores of the three families, as released and put right.

As released, a wrong choice of a patch and a change reported too early count -1; put right,
they count 0, as in the published means. The curve of late reports is the same.
"""

from __future__ import annotations

import math

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.tasks.formats import Mode


def masked_frame_score(choice: int | None, answer: int, mode: Mode = "fixed") -> float:
    """1 for the right patch, 0 for none (`choice` None), -1 (released) or 0 for a wrong one."""
    if choice is None:
        return 0.0
    return 1.0 if choice == answer else _wrong(mode)


def planning_score(reached: bool) -> float:
    """1 if the goal was reached within the horizon."""
    return float(reached)


def change_score(reported: int | None, trigger: int | None, mode: Mode = "fixed") -> float:
    """Score of a change reported at time `reported`, which could be seen from `trigger` on.

    Times count actions from 1: what is first seen in frame k (0 at the start) has the time
    k + 1. With r = reported / trigger a late report scores 1.377 / (1 - r exp(-r)) - 1.178,
    between 0 and 1.

    Args:
      reported: None if no report was made.
      trigger: None if there was nothing to be seen yet.

    Raises:
      ConfigError: a time is below 1.
    """
    if reported is None:
        return 0.0
    if min(reported, trigger or 1) < 1:
        raise ConfigError(f"times count from 1, got {reported} and {trigger}")
    if trigger is None or reported < trigger - 1:
        return _wrong(mode)
    if reported <= trigger:
        return 1.0
    return late_score(reported / trigger)


def late_score(ratio: float) -> float:
    """Score of a report at `ratio` times the time at which the change was first to be seen."""
    score = 1.377 / (1.0 - ratio * math.exp(-ratio)) - 1.178
    return min(max(score, 0.0), 1.0)


def _wrong(mode: Mode) -> float:
    return -1.0 if mode == "released" else 0.0
