"""Coefficients of DOP853, and what they are for equations of second order."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

#: Coefficients other than zero, with their places.
Row = tuple[tuple[int, float], ...]

#: Products of coefficients below this are rounding.
ROUNDING = 1e-14


class Tableau(NamedTuple):
    """Rows in pairs: for slopes, and times the matrix for slopes of slopes.

    Attributes:
      stages: Time of each stage as part of the step, and its rows.
      weights: Rows of the step itself.
      errors: Rows of the estimates of order five and three.
    """

    stages: tuple[tuple[float, tuple[Row, Row]], ...]
    weights: tuple[Row, Row]
    errors: tuple[tuple[Row, Row], tuple[Row, Row]]


@functools.cache
def tableau() -> Tableau:
    """The method of Dormand and Prince, from scipy's public attributes."""
    from scipy.integrate import DOP853

    matrix = DOP853.A
    size = len(matrix)

    def pair(row: np.ndarray) -> tuple[Row, Row]:
        return tuple(
            tuple((j, float(a)) for j, a in enumerate(of) if abs(a) > ROUNDING)
            for of in (row[:size], row[:size] @ matrix)
        )  # type: ignore[return-value]

    stages = tuple((float(row.sum()), pair(row)) for row in matrix)
    return Tableau(stages, pair(DOP853.B), (pair(DOP853.E5), pair(DOP853.E3)))


class Matrices(NamedTuple):
    """The same numbers as arrays: of times, of slopes, and of slopes of slopes."""

    times: np.ndarray
    first: np.ndarray
    second: np.ndarray
    weights: np.ndarray
    double_weights: np.ndarray


@functools.cache
def matrices() -> Matrices:
    """The method without its error estimates."""
    from scipy.integrate import DOP853

    matrix, weights = DOP853.A, DOP853.B
    return Matrices(matrix.sum(1), matrix, matrix @ matrix, weights, weights @ matrix)
