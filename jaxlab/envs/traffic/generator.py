"""Grid road networks of any size in CityFlow's roadnet JSON, as plain dicts.

Names and file order are those of the grids in common use: junction `intersection_i_j`
stands in column `i` from the west and row `j` from the south, `road_i_j_k` leaves it
heading `k` (0 east, 1 north, 2 west, 3 south), and lanes count from the innermost.
Columns 1 .. C and rows 1 .. R carry signals; the border around them is virtual.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxlab.core.errors import ScenarioError

#: Unit vectors of the headings east, north, west, south.
HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))
#: Movement by the number of left quarter turns it makes; a half turn is not a movement.
MOVEMENTS = {0: "go_straight", 1: "turn_left", 3: "turn_right"}
#: Lane labels by movement.
_LABELS = {"straight": "go_straight", "left": "turn_left", "right": "turn_right"}
_CURVE_INTERVALS = 10
#: Control arm of the cubic that approximates a quarter of an ellipse.
_QUARTER_ARM = 4.0 / 3.0 * (math.sqrt(2.0) - 1.0)

Json = dict[str, Any]
Vector = tuple[float, float]


def grid_roadnet(
    rows: int,
    columns: int,
    *,
    row_distance: float | Sequence[float] = 800.0,
    column_distance: float | Sequence[float] = 600.0,
    intersection_width: float = 15.0,
    lanes: Sequence[str] = ("left", "straight", "right"),
    lane_width: float = 4.0,
    max_speed: float = 11.111,
    green_time: float = 30.0,
    clearance_time: float = 5.0,
) -> Json:
    """Make a grid of signalised junctions with two-way roads, in CityFlow's roadnet format.

    Every junction has four legs and nine phases: 0 clearance, 1 east-west straight,
    2 north-south straight, 3 east-west left, 4 north-south left, then everything
    coming from the 5 west, 6 east, 7 south, 8 north. Right turns are free in all of them.

    Args:
      rows, columns: Signalised junctions from south to north and from west to east.
      row_distance: Length of the east-west roads, m: one number, or the `columns + 1`
        lengths from west to east, those to the border included.
      column_distance: Length of the north-south roads, m: one number, or `rows + 1`
        lengths from south to north.
      intersection_width: Distance from a junction's centre to its stop lines, m.
      lanes: The movements served by each lane, innermost first: `left`, `straight`,
        `right`, or several joined by `+` (`"left+straight"`). Where two lanes serve one
        movement CityFlow picks the first lane of a vehicle at random.
      lane_width: m.
      max_speed: Speed limit of all lanes, m/s.
      green_time, clearance_time: Durations of the phases 1-8 and of phase 0 in the plan, s.

    Returns:
      `{"intersections": [...], "roads": [...]}`; coordinates are rounded to a millimetre.

    Raises:
      ScenarioError: where the numbers do not make a network.
    """
    if rows < 1 or columns < 1:
        raise ScenarioError(f"a grid needs at least one row and one column, got {rows} x {columns}")
    served = _served_movements(lanes)
    for name, value in (
        ("lane_width", lane_width),
        ("max_speed", max_speed),
        ("green_time", green_time),
        ("clearance_time", clearance_time),
    ):
        if not (value > 0 and math.isfinite(value)):
            raise ScenarioError(f"{name} must be positive and finite, got {value}")
    if intersection_width <= (len(served) - 0.5) * lane_width:
        raise ScenarioError(
            f"intersection_width {intersection_width} m leaves no room to turn right from "
            f"{len(served)} lanes of {lane_width} m; it must exceed "
            f"{(len(served) - 0.5) * lane_width} m"
        )
    grid = _Grid(
        x=_positions(row_distance, columns, 2 * intersection_width, "row_distance"),
        y=_positions(column_distance, rows, 2 * intersection_width, "column_distance"),
        width=intersection_width,
        served=served,
        lane_width=lane_width,
    )
    places = [(i, j) for i in range(columns + 2) for j in range(rows + 2)]
    places = [place for place in places if not grid.is_corner(*place)]
    times = (clearance_time, green_time)
    lane = {"width": lane_width, "maxSpeed": max_speed}
    return {
        "intersections": [grid.intersection(i, j, times) for i, j in places],
        "roads": [
            grid.road(i, j, k, lane) for i, j in places for k in range(4) if grid.has_road(i, j, k)
        ],
    }


def _served_movements(lanes: Sequence[str]) -> list[set[str]]:
    if isinstance(lanes, str) or not lanes:
        raise ScenarioError(f"lanes must be a sequence of lane labels, got {lanes!r}")
    served = []
    for label in lanes:
        parts = label.split("+")
        if unknown := [part for part in parts if part not in _LABELS]:
            raise ScenarioError(
                f"lane label '{label}': '{unknown[0]}' is none of {', '.join(_LABELS)}"
            )
        served.append({_LABELS[part] for part in parts})
    return served


def _positions(
    distance: float | Sequence[float], junctions: int, at_least: float, name: str
) -> list[float]:
    """Coordinates of the lines of a grid; the first signalised one is 0."""
    gaps = [distance] * (junctions + 1) if isinstance(distance, int | float) else list(distance)
    if len(gaps) != junctions + 1:
        raise ScenarioError(
            f"{name} has {len(gaps)} lengths; {junctions} junctions in a line need {junctions + 1}"
        )
    if any(not (gap > at_least and math.isfinite(gap)) for gap in gaps):
        raise ScenarioError(
            f"{name}: every road must be longer than the junctions at its ends "
            f"({at_least} m), got {gaps}"
        )
    line = [-float(gaps[0])]
    for gap in gaps:
        line.append(line[-1] + gap)
    return line


class _Grid:
    """Places and curves of one grid, and its JSON records."""

    def __init__(
        self,
        x: list[float],
        y: list[float],
        width: float,
        served: list[set[str]],
        lane_width: float,
    ):
        self.x, self.y, self.width, self.served, self.lane_width = x, y, width, served, lane_width
        self.last_column, self.last_row = len(x) - 1, len(y) - 1

    def is_inner(self, i: int, j: int) -> bool:
        return 0 < i < self.last_column and 0 < j < self.last_row

    def is_corner(self, i: int, j: int) -> bool:
        return i in (0, self.last_column) and j in (0, self.last_row)

    def has_road(self, i: int, j: int, k: int) -> bool:
        """Whether a road leaves place (i, j) with heading k: one of its ends has signals."""
        ni, nj = i + HEADINGS[k][0], j + HEADINGS[k][1]
        inside = 0 <= ni <= self.last_column and 0 <= nj <= self.last_row
        return inside and (self.is_inner(i, j) or self.is_inner(ni, nj))

    def road(self, i: int, j: int, k: int, lane: Json) -> Json:
        ni, nj = i + HEADINGS[k][0], j + HEADINGS[k][1]
        return {
            "id": f"road_{i}_{j}_{k}",
            "points": [_point(self.x[i], self.y[j]), _point(self.x[ni], self.y[nj])],
            "lanes": [dict(lane) for _ in self.served],
            "startIntersection": f"intersection_{i}_{j}",
            "endIntersection": f"intersection_{ni}_{nj}",
        }

    def intersection(self, i: int, j: int, times: tuple[float, float]) -> Json:
        inner = self.is_inner(i, j)
        approach = {
            k: f"road_{i - HEADINGS[k][0]}_{j - HEADINGS[k][1]}_{k}"
            for k in range(4)
            if self._has_approach(i, j, k)
        }
        exits = {k: f"road_{i}_{j}_{k}" for k in range(4) if self.has_road(i, j, k)}
        links = self._road_links(i, j, approach, exits) if inner else []
        return {
            "id": f"intersection_{i}_{j}",
            "point": _point(self.x[i], self.y[j]),
            "width": self.width if inner else 0,
            "roads": [*approach.values(), *exits.values()],
            "roadLinks": links,
            "trafficLight": {
                "roadLinkIndices": list(range(len(links))),
                "lightphases": _phases(links, *times) if inner else [],
            },
            "virtual": not inner,
        }

    def _has_approach(self, i: int, j: int, k: int) -> bool:
        start = i - HEADINGS[k][0], j - HEADINGS[k][1]
        inside = 0 <= start[0] <= self.last_column and 0 <= start[1] <= self.last_row
        return inside and self.has_road(*start, k)

    def _road_links(
        self, i: int, j: int, approach: dict[int, str], exits: dict[int, str]
    ) -> list[Json]:
        links = []
        for a, start_road in approach.items():
            for b, end_road in exits.items():
                movement = MOVEMENTS.get((b - a) % 4)
                start_lanes = [n for n, moves in enumerate(self.served) if movement in moves]
                if movement is None or not start_lanes:
                    continue
                lane_links = [
                    {
                        "startLaneIndex": m,
                        "endLaneIndex": n,
                        "points": self._curve(i, j, a, b, m, n),
                    }
                    for m in start_lanes
                    for n in range(len(self.served))
                ]
                links.append(
                    {
                        "type": movement,
                        "startRoad": start_road,
                        "endRoad": end_road,
                        "direction": a,
                        "laneLinks": lane_links,
                    }
                )
        return links

    def _curve(self, i: int, j: int, a: int, b: int, m: int, n: int) -> list[Json]:
        centre = (self.x[i], self.y[j])
        start = _offset(centre, a, -self.width, (m + 0.5) * self.lane_width)
        end = _offset(centre, b, self.width, (n + 0.5) * self.lane_width)
        return lane_link_curve(start, HEADINGS[a], end, HEADINGS[b])


def _offset(centre: Vector, heading: int, ahead: float, right: float) -> Vector:
    (x, y), (dx, dy) = centre, HEADINGS[heading]
    return x + dx * ahead + dy * right, y + dy * ahead - dx * right


def lane_link_curve(start: Vector, leaving: Vector, end: Vector, entering: Vector) -> list[Json]:
    """Eleven points of a smooth curve from the end of a lane to the start of another.

    A cubic Bezier curve, tangent to both lanes, whose control arms are 0.5523 (that is
    4/3 (sqrt 2 - 1)) of the displacement along each lane's heading. For a turn between
    perpendicular roads this is the usual approximation of a quarter of an ellipse; for
    a lane going straight on it is an S that shifts sideways and is straight if it need not.

    Args:
      start, end: End point of the lane before, start point of the lane after, m.
      leaving, entering: Unit vectors of the headings of those lanes.
    """
    along = [(end[0] - start[0]) * d[0] + (end[1] - start[1]) * d[1] for d in (leaving, entering)]
    arm = [_QUARTER_ARM * length for length in along]
    control = (
        start,
        (start[0] + arm[0] * leaving[0], start[1] + arm[0] * leaving[1]),
        (end[0] - arm[1] * entering[0], end[1] - arm[1] * entering[1]),
        end,
    )
    points = []
    for step in range(_CURVE_INTERVALS + 1):
        t = step / _CURVE_INTERVALS
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
        x, y = (sum(w * c[axis] for w, c in zip(weights, control, strict=True)) for axis in (0, 1))
        points.append(_point(x, y))
    return points


def _phases(links: list[Json], clearance_time: float, green_time: float) -> list[Json]:
    right = {n for n, link in enumerate(links) if link["type"] == "turn_right"}

    def moving(headings: set[int], movement: str | None = None) -> set[int]:
        return {
            n
            for n, link in enumerate(links)
            if link["direction"] in headings and movement in (None, link["type"])
        }

    greens = [
        moving(axis, movement)
        for movement in ("go_straight", "turn_left")
        for axis in ({0, 2}, {1, 3})
    ]
    greens += [moving({heading}) for heading in (0, 2, 1, 3)]
    phases = [(clearance_time, right)] + [(green_time, green | right) for green in greens]
    return [{"time": time, "availableRoadLinks": sorted(allowed)} for time, allowed in phases]


def _point(x: float, y: float) -> Json:
    # The added zero turns -0.0 into 0.0.
    return {"x": round(x, 3) + 0.0, "y": round(y, 3) + 0.0}
