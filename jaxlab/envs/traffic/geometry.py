"""Plane geometry of roads on the host: polylines, lane offsets, turning curves, crossings.

Follows CityFlow (Zhang et al., WWW 2019) operation by operation, since crossing
distances decide who yields. Everything here is numpy in float64 and runs once.
"""

from __future__ import annotations

import itertools

import numpy as np

Points = np.ndarray  # [n, 2], metres

_TOLERANCE = 1e-8
_CURVE_INTERVALS = 10
_SHORTEST_TANGENT = 5.0


def norm(v: np.ndarray) -> float:
    """Euclidean length in the order sqrt(x*x + y*y)."""
    return float(np.sqrt(v[0] * v[0] + v[1] * v[1]))


def unit(v: np.ndarray) -> np.ndarray:
    """Unit vector along `v`."""
    return v / norm(v)


def _lengths(vectors: np.ndarray) -> np.ndarray:
    return np.sqrt(vectors[..., 0] * vectors[..., 0] + vectors[..., 1] * vectors[..., 1])


def distances_along(points: np.ndarray) -> np.ndarray:
    """Distance of each point from the first along polylines `[..., n, 2]`, summed front to back."""
    steps = np.cumsum(_lengths(np.diff(points, axis=-2)), axis=-1)
    return np.concatenate([np.zeros_like(points[..., :1, 0]), steps], axis=-1)


def polyline_length(points: Points) -> float:
    """Length of a polyline, summed front to back."""
    return float(distances_along(points)[-1])


def point_at(points: Points, distance: float) -> np.ndarray:
    """Point at `distance` along a polyline, clamped to its ends."""
    distance = min(max(distance, 0.0), polyline_length(points))
    if distance <= 0.0:
        return points[0]
    for a, b in itertools.pairwise(points):
        length = norm(a - b)
        if distance > length:
            distance -= length
        else:
            return a + (b - a) * (distance / length)
    return points[-1]


def direction_at(points: Points, distance: float) -> np.ndarray:
    """Unit direction of the segment at `distance` along a polyline."""
    for a, b in itertools.pairwise(points):
        length = norm(b - a)
        if distance < length:
            return unit(b - a)
        distance -= length
    return unit(points[-1] - points[-2])


def shorten(points: Points, start: float, end: float) -> Points:
    """Move the first and last point inwards by `start` and `end` metres."""
    points = points.copy()
    if start:
        points[0] = points[0] + unit(points[1] - points[0]) * start
    if end:
        points[-1] = points[-1] - unit(points[-1] - points[-2]) * end
    return points


def lane_polylines(road: Points, widths: list[float]) -> list[Points]:
    """Offset a road's polyline to the right, once per lane; lane 0 is the innermost."""
    steps = [unit(b - a) for a, b in itertools.pairwise(road)]
    tangents = [steps[0], *[unit(n + p) for p, n in itertools.pairwise(steps)]]
    tangents.append(steps[-1])
    inner, lanes = 0.0, []
    for width in widths:
        offset = (inner + (inner + width)) / 2.0
        right = [-np.array([-u[1], u[0]]) for u in tangents]
        lanes.append(np.array([p + r * offset for p, r in zip(road, right, strict=True)]))
        inner += width
    return lanes


def turning_curve(start_lane: Points, end_lane: Points, width: float) -> Points:
    """Eleven-point curve from one lane to another across a junction of the given width.

    Used where a network file gives no points for a lane link. The lanes are the
    unshortened ones; control points lie half the chord (at least 5 m) along each lane.
    """
    before = polyline_length(start_lane) - width
    start, end = point_at(start_lane, before), point_at(end_lane, 0.0 + width)
    chord = norm(end - start)
    heading_in, heading_out = direction_at(start_lane, before), direction_at(end_lane, 0.0 + width)

    def tangent(heading: np.ndarray, sign: float) -> np.ndarray:
        reach = sign * heading * chord * 0.5
        if reach @ reach < _SHORTEST_TANGENT**2 and width >= _SHORTEST_TANGENT:
            # The engine forgets the sign here for the outgoing lane; kept for equality.
            reach = _SHORTEST_TANGENT * heading
        return reach

    controls = [start, start + tangent(heading_in, 1.0), end + tangent(heading_out, -1.0), end]
    curve = []
    for i in range(_CURVE_INTERVALS + 1):
        a, level = i / _CURVE_INTERVALS, controls
        while len(level) > 1:
            level = [(q - p) * a + p for p, q in itertools.pairwise(level)]
        curve.append(level[0])
    return np.array(curve)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _on_segment(start: np.ndarray, end: np.ndarray, point: np.ndarray) -> np.ndarray:
    aside = _cross(end - start, point - start)
    between = ((point - start) * (point - end)).sum(-1)
    return (np.abs(aside) < _TOLERANCE) & (between < _TOLERANCE)


def first_crossings(curve: Points, others: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First intersection of a polyline with each of some others.

    Pairs of segments are tried in order of `curve`, then of the other. Parallel segments
    are passed over; touching ends count (CityFlow, `Intersection::initCrosses`).

    Args:
      curve: `[n, 2]`, m.
      others: Padded with copies of their last points, `[m, p, 2]`.

    Returns:
      Whether they meet, and at which distance along `curve` and along the other, `[m]` each.
    """
    start_a, end_a = curve[None, :-1, None], curve[None, 1:, None]
    start_b, end_b = others[:, None, :-1], others[:, None, 1:]
    step_a, step_b = end_a - start_a, end_b - start_b
    determinant = _cross(step_a, step_b)
    skew = np.abs(determinant) >= _TOLERANCE
    ratio = _cross(start_b - start_a, step_b) / np.where(skew, determinant, 1.0)
    point = start_a + step_a * ratio[..., None]
    hits = skew & _on_segment(start_a, end_a, point) & _on_segment(start_b, end_b, point)
    flat = hits.reshape(len(others), -1)
    row, pair = np.arange(len(others)), flat.argmax(1)
    i, j = np.divmod(pair, others.shape[1] - 1)
    at = point[row, i, j]
    along = distances_along(curve)[i] + _lengths(at - curve[i])
    along_other = distances_along(others)[row, j] + _lengths(at - others[row, j])
    return flat.any(1), along, along_other
