"""Summaries over seeds: interquartile mean and bootstrap intervals.

After Agarwal et al., "Deep reinforcement learning at the edge of the statistical
precipice", NeurIPS 2021: few seeds call for robust means with percentile intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]


class Interval(NamedTuple):
    """A point estimate with the ends of its interval, each `[...]`."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray


def mean(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis; `values` is `[seeds, ...]`."""
    return np.asarray(np.mean(values, axis=0))


def median(values: np.ndarray) -> np.ndarray:
    """Median over the first axis; `values` is `[seeds, ...]`."""
    return np.asarray(np.median(values, axis=0))


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half over the first axis; `values` is `[seeds, ...]`.

    A quarter of the weight is cut at either end; where a quarter of the seeds is no
    whole number, the seeds at the edge count in part.
    """
    values = np.sort(np.asarray(values, float), axis=0)
    count = values.shape[0]
    edges = np.clip(np.arange(count + 1), count / 4, 3 * count / 4)
    weights = np.diff(edges) / (count / 2)
    return np.asarray(np.tensordot(weights, values, axes=1))


def bootstrap(
    values: np.ndarray,
    statistic: Statistic = mean,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of a statistic over the first axis.

    Args:
      values: `[seeds, ...]`; a single seed has an interval of width zero.
      statistic: Maps `[seeds, ...]` to `[...]`.
      confidence: Probability that the interval is to cover.
      resamples: How many times the seeds are drawn with replacement.
      seed: Seed of the resampling, so that the interval is the same tomorrow.
    """
    values = np.asarray(values, float)
    if values.ndim < 1 or values.shape[0] < 1:
        raise ValueError("bootstrap needs at least one value along the first axis")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    if values.shape[0] == 1:
        estimate = np.asarray(statistic(values))
        return Interval(estimate, estimate, estimate)
    generator = np.random.default_rng(seed)
    draws = generator.integers(values.shape[0], size=(resamples, values.shape[0]))
    replicates = np.stack([statistic(values[draw]) for draw in draws])
    tail = (1 - confidence) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=0)
    return Interval(statistic(values), low, high)
