"""Distances between places as TSPLIB defines them (Reinelt 1991, TSPLIB95 documentation)."""

from __future__ import annotations

import numpy as np

#: Of the earth, in kilometres, as TSPLIB has it.
EARTH_RADIUS = 6378.388
#: TSPLIB's value, which its published optima rest on.
PI = 3.141592


def _norms(points: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(points[:, None] - points[None]).sum(-1))


def nearest_integer(values: np.ndarray) -> np.ndarray:
    """TSPLIB's `nint`: halves are rounded up."""
    return np.floor(values + 0.5)


def euclidean(points: np.ndarray) -> np.ndarray:
    """EUC_2D and EUC_3D: rounded distances."""
    return nearest_integer(_norms(points))


def exact_euclidean(points: np.ndarray) -> np.ndarray:
    """Distances without rounding, as instances drawn in the unit square have them."""
    return _norms(points)


def ceiling(points: np.ndarray) -> np.ndarray:
    """CEIL_2D: distances rounded up."""
    return np.ceil(_norms(points))


def manhattan(points: np.ndarray) -> np.ndarray:
    """MAN_2D and MAN_3D."""
    return nearest_integer(np.abs(points[:, None] - points[None]).sum(-1))


def maximum(points: np.ndarray) -> np.ndarray:
    """MAX_2D and MAX_3D: the largest rounded difference of a coordinate."""
    return nearest_integer(np.abs(points[:, None] - points[None])).max(-1)


def pseudo_euclidean(points: np.ndarray) -> np.ndarray:
    """ATT: the root of a tenth of the squares, rounded up."""
    return np.ceil(np.sqrt(np.square(points[:, None] - points[None]).sum(-1) / 10.0))


def geographical(points: np.ndarray) -> np.ndarray:
    """GEO: whole kilometres on the idealised earth; places are DDD.MM latitudes, longitudes."""
    degrees = np.trunc(points)
    minutes = points - degrees
    latitude, longitude = (PI * (degrees + 5.0 * minutes / 3.0) / 180.0).T
    q1 = np.cos(longitude[:, None] - longitude)
    q2 = np.cos(latitude[:, None] - latitude)
    q3 = np.cos(latitude[:, None] + latitude)
    arc = np.arccos(np.clip(0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3), -1.0, 1.0))
    distances = np.trunc(EARTH_RADIUS * arc + 1.0)
    np.fill_diagonal(distances, 0.0)
    return distances


#: By the name that a file gives.
METRICS = {
    "EUC_2D": euclidean,
    "EUC_3D": euclidean,
    "CEIL_2D": ceiling,
    "MAN_2D": manhattan,
    "MAN_3D": manhattan,
    "MAX_2D": maximum,
    "MAX_3D": maximum,
    "ATT": pseudo_euclidean,
    "GEO": geographical,
}
