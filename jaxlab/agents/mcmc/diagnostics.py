"""What samples say about their chains: effective size, R-hat, basins, feasible shares.

Everything here runs on the host, on samples `[chains, draws, dim]`. Effective sizes and
R-hat are numpyro's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpyro.diagnostics import effective_sample_size as _effective_sample_size
from numpyro.diagnostics import split_gelman_rubin as _split_gelman_rubin

from jaxlab.core.errors import DataError


def by_chain(record: Any) -> np.ndarray:
    """Samples `[seeds * chains, draws, dim]` of a record `[draws, seeds, chains, ...]`.

    Args:
      record: What `Result.records()` holds under `chain/position`.

    Raises:
      DataError: The record has fewer axes.
    """
    record = np.asarray(record)
    if record.ndim < 3:
        raise DataError(
            f"the record has shape {record.shape}, expected [draws, seeds, chains, ...], as in "
            "Result.records()['chain/position']"
        )
    flat = record.reshape(*record.shape[:3], -1)
    return np.moveaxis(flat, 0, 2).reshape(-1, record.shape[0], flat.shape[-1])


def _check(samples: Any) -> np.ndarray:
    samples = np.asarray(samples)
    if samples.ndim != 3 or samples.shape[0] < 1 or samples.shape[1] < 4:
        raise DataError(
            f"samples have shape {samples.shape}, expected [chains, draws, dim] with at least 4 "
            "draws; run longer or thin less"
        )
    if not np.isfinite(samples).all():
        bad = ~np.isfinite(samples).all(axis=(1, 2))
        raise DataError(f"samples of {bad.sum()} of {len(bad)} chains are not finite")
    return samples.astype(np.float64)


def effective_sample_size(samples: Any) -> np.ndarray:
    """Effective number of independent draws `[dim]` of samples `[chains, draws, dim]`.

    Geyer's initial monotone sequence over chains, as in Stan. NaN where no chain moves.

    Raises:
      DataError: The shape is another, or a sample is not finite.
    """
    samples = _check(samples)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(_effective_sample_size(samples))


def split_rhat(samples: Any) -> np.ndarray:
    """Split R-hat `[dim]` of samples `[chains, draws, dim]`: Gelman et al. 2013, section 11.4.

    NaN where no chain moves. A value near 1 from chains in one basin says nothing about
    others: see `basins`.

    Raises:
      DataError: The shape is another, or a sample is not finite.
    """
    return np.asarray(_split_gelman_rubin(_check(samples)))


def summary(
    samples: Any, *, seconds: float | None = None, gradients: float | None = None
) -> dict[str, np.ndarray]:
    """Moments and quality of samples.

    Args:
      samples: `[chains, draws, dim]`, of frozen chains only.
      seconds: Time they took.
      gradients: Gradients they took, of all chains.

    Returns:
      By name, each `[dim]`: `mean`, `sd`, `ess`, `rhat`, `standard_error` of the mean, and
      where the cost is given `ess_per_second`, `ess_per_gradient`.

    Raises:
      DataError: The shape is another, or a sample is not finite.
    """
    samples = _check(samples)
    ess = effective_sample_size(samples)
    sd = samples.std(axis=(0, 1))
    result = {
        "mean": samples.mean(axis=(0, 1)),
        "sd": sd,
        "ess": ess,
        "rhat": split_rhat(samples),
        "standard_error": sd / np.sqrt(ess),
    }
    if seconds is not None:
        result["ess_per_second"] = ess / seconds
    if gradients is not None:
        result["ess_per_gradient"] = ess / gradients
    return result


class Basins(NamedTuple):
    """Samples by basin of attraction.

    Attributes:
      names: Labels of the basins, ascending `[basins]`.
      share: Share of all samples in each.
      chains: Number of chains that stayed in each all the time.
      rhat: Split R-hat `[basins, dim]` of those chains; NaN where there is none.
      ess: Their effective sample size `[basins, dim]`.
      changes: Changes of basin from one draw to the next, of all chains together.
    """

    names: np.ndarray
    share: np.ndarray
    chains: np.ndarray
    rhat: np.ndarray
    ess: np.ndarray
    changes: int


def basins(samples: Any, labels: Any) -> Basins:
    """Diagnostics basin by basin: R-hat over disconnected basins means little.

    Args:
      samples: `[chains, draws, dim]`.
      labels: Integer `[chains, draws]`, the basin of each sample.

    Raises:
      DataError: A shape does not fit, or a sample is not finite.
    """
    samples, labels = _check(samples), np.asarray(labels)
    if labels.shape != samples.shape[:2] or labels.dtype.kind not in "iub":
        raise DataError(
            f"labels are {labels.dtype} of shape {labels.shape}, expected integers of shape "
            f"{samples.shape[:2]}, one for every sample"
        )
    names = np.unique(labels)
    stayed = np.stack([(labels == name).all(axis=1) for name in names])
    nothing = np.full(samples.shape[2], np.nan)
    return Basins(
        names=names,
        share=np.array([(labels == name).mean() for name in names]),
        chains=stayed.sum(axis=1),
        rhat=np.stack([split_rhat(samples[s]) if s.any() else nothing for s in stayed]),
        ess=np.stack([effective_sample_size(samples[s]) if s.any() else nothing for s in stayed]),
        changes=int((labels[:, 1:] != labels[:, :-1]).sum()),
    )


def neighbouring(
    features: Any, width: float, periods: Sequence[float | None] | None = None
) -> np.ndarray:
    """Labels of basins `[...]` by what distinguishes them: samples linked by neighbours.

    The features are cut into cells; occupied cells that touch, corners included, are one basin.
    So basins are told apart where nothing was sampled between them for at least a width.

    Args:
      features: Of every sample, `[..., k]`.
      width: Of a cell, the same for all features; scale them first.
      periods: Of those features that are angles or the like, None for the others.

    Returns:
      Integers from 0, the basin with the most samples first.

    Raises:
      DataError: A shape does not fit, or a number is not finite.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    features = np.asarray(features, np.float64)
    if features.ndim < 1 or 0 in features.shape or not np.isfinite(features).all():
        raise DataError(
            f"features are of shape {features.shape}, expected finite numbers [..., k], one row "
            "for every sample"
        )
    size = features.shape[-1]
    periods = [None] * size if periods is None else list(periods)
    if len(periods) != size or not width > 0 or any(p is not None and p < width for p in periods):
        raise DataError(
            f"width {width} must be positive, and periods {periods} {size} numbers of at least "
            "that, or None"
        )
    # A period is a whole number of cells; none is written as 0 for the tree.
    around = np.array([0 if p is None else int(p / width) for p in periods])
    widths = np.array([width if p is None else p / max(int(p / width), 1) for p in periods])
    cells = np.floor(features.reshape(-1, size) / widths)
    cells = np.where(around > 0, np.mod(cells, np.maximum(around, 1)), cells)
    occupied, place = np.unique(cells, axis=0, return_inverse=True)
    near = KDTree(occupied, boxsize=around).query_pairs(1.5, p=np.inf, output_type="ndarray")
    links = coo_array((np.ones(len(near)), near.T), shape=(len(occupied),) * 2)
    labels = connected_components(links, directed=False)[1][place.reshape(-1)]
    rank = np.argsort(np.argsort(-np.bincount(labels), kind="stable"))
    return rank[labels].reshape(features.shape[:-1])


def feasible_shares(error: Any, tolerance: float, solved: Any | None = None) -> dict[str, float]:
    """Share of samples that meet their constraints, as sampled and after a local solver.

    Args:
      error: Constraint violation of every sample, any shape; NaN counts as infeasible.
      tolerance: Largest violation that is feasible.
      solved: Whether a solver started at the sample converged, of the same shape.

    Returns:
      `raw`, and `solved` where it is given.

    Raises:
      DataError: There are no samples, or the shapes differ.
    """
    error = np.asarray(error)
    if error.size == 0:
        raise DataError("there are no samples; a feasible share needs at least one")
    shares = {"raw": float(np.mean(error < tolerance))}
    if solved is not None:
        solved = np.asarray(solved, bool)
        if solved.shape != error.shape:
            raise DataError(
                f"solved has shape {solved.shape}, expected that of error, {error.shape}"
            )
        shares["solved"] = float(np.mean(solved))
    return shares


def communication_barrier(swap_acceptance: Any) -> float:
    """Sum of the refusals of all pairs of a ladder: the global barrier Lambda.

    Syed et al. 2022, "Non-reversible parallel tempering: a scalable highly parallel MCMC
    scheme". It hardly depends on a fine ladder, and about `2 Lambda` rungs are efficient.

    Args:
      swap_acceptance: Mean probability of an exchange `[rungs - 1]`.
    """
    return float(np.sum(1 - np.asarray(swap_acceptance, float)))


def round_trip_rate(swap_acceptance: Any) -> float:
    """Round trips per step, of all replicas of a ladder, if each move forgot the last.

    `1 / (2 + 2 sum r / (1 - r))` with refusals r, for non-reversible exchanges (Syed et al.
    2022). Fewer round trips than this show that replicas move too little between exchanges.

    Args:
      swap_acceptance: Mean probability of an exchange `[rungs - 1]`.
    """
    accepted = np.asarray(swap_acceptance, float)
    with np.errstate(divide="ignore"):
        return float(1 / (2 + 2 * np.sum((1 - accepted) / accepted)))
