"""Reduction of metrics over the steps of a chunk, in the carry of its scan.

Nothing is stacked but records: a mean is a weighted sum and a sum of weights, so the
memory of a chunk does not grow with its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import REDUCTIONS, Metric, Metrics

PyTree = Any

#: Names that rows and records use themselves.
RESERVED = ("step", "seconds")

#: The reduced parts of each metric, by name.
Accumulators = dict[str, PyTree]


def check(metrics: Any) -> None:
    """Refuse what is not a mapping from names to `Metric`.

    Raises:
      ConfigError: Names the entry and what was expected.
    """
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"Learner.step returned metrics of type {type(metrics).__name__}; expected a dict "
            "from names to Metric (see jaxlab.core.learner.mean, last, total, maximum, record)"
        )
    for name, metric in metrics.items():
        if not isinstance(metric, Metric):
            raise ConfigError(
                f"metric {name!r} is a {type(metric).__name__}; wrap the value with "
                "jaxlab.core.learner.mean, last, total, maximum or record"
            )
        if metric.reduce not in REDUCTIONS:
            raise ConfigError(
                f"metric {name!r} asks for the reduction {metric.reduce!r}; expected one of "
                f"{', '.join(REDUCTIONS)}"
            )
        if name in RESERVED:
            raise ConfigError(f"metric {name!r}: the name is reserved; rename the metric")


def has_records(metrics: Metrics) -> bool:
    """Whether any metric is a record."""
    return any(metric.reduce == "record" for metric in metrics.values())


def start(metrics: Metrics) -> Accumulators:
    """Accumulators before the first step, from the shapes of one step's metrics."""
    return {name: _start_one(metric) for name, metric in metrics.items()}


def _start_one(metric: Metric) -> PyTree:
    if metric.reduce == "mean":
        dtype = _mean_dtype(metric.value.dtype)
        return jnp.zeros(metric.value.shape, dtype), jnp.zeros(metric.weight.shape, dtype)
    if metric.reduce == "max":
        return jnp.full(metric.value.shape, _lowest(metric.value.dtype), metric.value.dtype)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metric.value)


def _mean_dtype(dtype: Any) -> Any:
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32


def _lowest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf
    return False if dtype == jnp.bool_ else jnp.iinfo(dtype).min


def add(accumulators: Accumulators, metrics: Metrics) -> Accumulators:
    """Account for one more step."""
    return {name: _add_one(accumulators[name], metric) for name, metric in metrics.items()}


def _add_one(accumulator: PyTree, metric: Metric) -> PyTree:
    if metric.reduce == "mean":
        weighted_sum, weights = accumulator
        weight = metric.weight.astype(weights.dtype)
        # A step without weight may hold NaN (no episode ended), which times 0 is NaN.
        term = jnp.where(weight != 0, metric.value.astype(weighted_sum.dtype) * weight, 0)
        return weighted_sum + term, weights + weight
    if metric.reduce == "max":
        return jnp.maximum(accumulator, metric.value)
    if metric.reduce == "sum":
        return (accumulator + metric.value).astype(accumulator.dtype)
    return metric.value


def reduced(accumulators: Accumulators, metrics: Metrics) -> Accumulators:
    """The accumulators of all metrics but records."""
    return {name: accumulators[name] for name, m in metrics.items() if m.reduce != "record"}


def finish(accumulators: Accumulators) -> dict[str, np.ndarray]:
    """The reduced values on the host; a mean without weight is NaN.

    The division is not part of the compiled chunk, where a NaN would stop a debugger.
    """
    return {
        name: _ratio(*map(np.asarray, parts)) if isinstance(parts, tuple) else np.asarray(parts)
        for name, parts in accumulators.items()
    }


def _ratio(weighted_sum: np.ndarray, weights: np.ndarray) -> np.ndarray:
    # Weights are one per seed, values may have further axes.
    weights = weights.reshape(weights.shape + (1,) * (weighted_sum.ndim - weights.ndim))
    weights = np.broadcast_to(weights, weighted_sum.shape)
    quotient = np.full(weighted_sum.shape, np.nan, weighted_sum.dtype)
    return np.divide(weighted_sum, weights, out=quotient, where=weights != 0)


def records(accumulators: Accumulators, metrics: Metrics) -> dict[str, PyTree]:
    """The records of the latest step."""
    return {name: accumulators[name] for name, m in metrics.items() if m.reduce == "record"}
