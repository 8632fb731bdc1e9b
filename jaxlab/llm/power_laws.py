"""Slopes of power laws, and intervals of means on a logarithmic axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxlab.core.errors import DataError
from jaxlab.core.intervals import Interval


class PowerLaw(NamedTuple):
    """`factor * n ** exponent`."""

    exponent: float
    factor: float


def fit_power_law(
    n: Any, values: Any, *, first: float | None = None, last: float | None = None
) -> PowerLaw:
    """Least squares of log values on log n.

    Args:
      n: `[points]`, positive.
      values: `[points]`, positive.
      first, last: Use only points with `first <= n <= last`.

    Raises:
      DataError: Fewer than two points are left, or one is not positive and finite.
    """
    n, values = np.asarray(n, float), np.asarray(values, float)
    kept = np.ones(n.shape, bool)
    kept &= n >= first if first is not None else True
    kept &= n <= last if last is not None else True
    n, values = n[kept], values[kept]
    if len(np.unique(n)) < 2:
        raise DataError(f"a power law from {len(n)} points: expected at least two")
    if not (np.all(np.isfinite(values) & (values > 0)) and np.all(n > 0)):
        raise DataError("a power law: expected positive, finite numbers")
    x, y = np.log(n), np.log(values)
    centred = x - x.mean()
    exponent = float(centred @ y / (centred @ centred))
    return PowerLaw(exponent, float(np.exp(y.mean() - exponent * x.mean())))


def log_mean_interval(
    values: Any, *, confidence: float = 0.95, floor: float | None = None
) -> Interval:
    """Means over the first axis with Student intervals by the delta method in log10.

    Args:
      values: `[samples, ...]`; one sample has an interval of no width.
      confidence: Probability that the interval is to cover.
      floor: Means below it are raised to it, as the paper does for logarithmic plots.

    Raises:
      DataError: There is no sample.
    """
    from scipy import stats

    values = np.asarray(values, float)
    if values.ndim < 1 or values.shape[0] < 1:
        raise DataError("an interval of no samples: expected at least one")
    count = values.shape[0]
    mean = values.mean(0)
    if floor is not None:
        mean = np.maximum(mean, floor)
    if count == 1:
        return Interval(mean, mean, mean)
    error = values.std(0, ddof=1) / np.sqrt(count)
    reach = stats.t.ppf((1 + confidence) / 2, count - 1) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.exp(np.where(mean > 0, reach / mean, 0.0))
    return Interval(mean, mean / factor, mean * factor)
