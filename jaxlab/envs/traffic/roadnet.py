"""Road networks: CityFlow's roadnet JSON as flat numpy tables.

Drivables are numbered lanes first (in file order of the roads), then lane links (in
file order of the junctions); index `num_drivables` stands for "nowhere".
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.core.errors import DataError
from jaxlab.envs.traffic import geometry
from jaxlab.envs.traffic.crossings import crossing_tables
from jaxlab.envs.traffic.json_files import member, number, read_json

#: Right of way by movement, higher first (CityFlow's `RoadLinkType`).
MOVEMENT_RANK = {"go_straight": 3, "turn_left": 2, "turn_right": 1}
STRAIGHT, LEFT, RIGHT = 3, 2, 1
#: Coordinates that a network may have, m: beyond, floats tell no centimetres apart.
FARTHEST = 1e9


@dataclasses.dataclass(frozen=True, eq=False)
class RoadNet:
    """A road network. Distances in metres, speeds in m/s, times in s.

    Networks of equal content are equal and hash alike, so an environment may hold one.

    Attributes:
      road_ids, lane_ids, link_ids, junction_ids: Names; junctions are the non-virtual intersections.
      polylines: One `[n, 2]` polyline per drivable.
      length, max_speed: `[drivables]`; links have no limit of their own (10,000 m/s).
      lane_road, lane_index: Road of a lane and its index on the road, 0 innermost, `[lanes]`.
      road_start, road_end: Junction index at either end of a road, -1 for a border, `[roads]`.
      link_start, link_end: Lanes joined by a link, `[links]`.
      link_junction, link_movement: Junction of a link and the index of its road link there, `[links]`.
      link_rank: 3 straight, 2 left, 1 right, `[links]`.
      lane_links: Links leaving a lane in file order, padded with -1, `[lanes, fan]`.
      cross_foe: Link crossed, by distance along the own link, padded with -1, `[links, crosses]`.
      cross_slot: Column of the same crossing in the foe's row, `[links, crosses]`.
      cross_distance: Distance of the crossing along the own link, `[links, crosses]`.
      num_phases: `[junctions]`.
      phase_time: Duration of each phase in the file's plan, `[junctions, phases]`.
      phase_allows: Road links with right of way, `[junctions, phases, movements]`, bool.
      movement_rank: Rank of each road link, 0 for padding, `[junctions, movements]`.
      movement_roads: Start and end road of each road link, -1 padding, `[junctions, movements, 2]`.
    """

    road_ids: tuple[str, ...]
    lane_ids: tuple[str, ...]
    link_ids: tuple[str, ...]
    junction_ids: tuple[str, ...]
    intersections: tuple[dict[str, Any], ...]
    road_points: tuple[np.ndarray, ...]
    lane_width: np.ndarray
    polylines: tuple[np.ndarray, ...]
    length: np.ndarray
    max_speed: np.ndarray
    lane_road: np.ndarray
    lane_index: np.ndarray
    road_start: np.ndarray
    road_end: np.ndarray
    link_start: np.ndarray
    link_end: np.ndarray
    link_junction: np.ndarray
    link_movement: np.ndarray
    link_rank: np.ndarray
    lane_links: np.ndarray
    cross_foe: np.ndarray
    cross_slot: np.ndarray
    cross_distance: np.ndarray
    num_phases: np.ndarray
    phase_time: np.ndarray
    phase_allows: np.ndarray
    movement_rank: np.ndarray
    movement_roads: np.ndarray

    @functools.cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256("\n".join((*self.drivable_ids, *self.junction_ids)).encode())
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            for array in value if field.name in ("polylines", "road_points") else (value,):
                if isinstance(array, np.ndarray):
                    digest.update(array.tobytes())
        return digest.hexdigest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoadNet) and self._digest == other._digest

    @property
    def num_lanes(self) -> int:
        return len(self.lane_ids)

    @property
    def num_links(self) -> int:
        return len(self.link_ids)

    @property
    def num_drivables(self) -> int:
        return self.num_lanes + self.num_links

    @property
    def num_junctions(self) -> int:
        return len(self.junction_ids)

    @property
    def drivable_ids(self) -> tuple[str, ...]:
        return self.lane_ids + self.link_ids


def load_roadnet(source: str | Path | dict[str, Any]) -> RoadNet:
    """Read a road network from a CityFlow roadnet file, or from its parsed JSON.

    Raises:
      DataError: naming the file, the place in it and what was expected there.
    """
    if isinstance(source, dict):
        return _Reader(source, "roadnet").read()
    document = read_json(source)
    if not isinstance(document, dict):
        raise DataError(
            f"{source}: a roadnet file holds an object with 'intersections' and 'roads'"
        )
    return _Reader(document, str(source)).read()


class _Reader:
    """One pass over a roadnet document, collecting tables and checking every reference."""

    def __init__(self, document: dict[str, Any], where: str):
        self.where = where
        self.roads = member(document, "roads", list, where)
        self.intersections = member(document, "intersections", list, where)
        self.road_of = self._index(self.roads, "roads")
        self.intersection_of = self._index(self.intersections, "intersections")

    def _index(self, records: list[Any], kind: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for i, record in enumerate(records):
            name = member(record, "id", str, f"{self.where}: {kind}[{i}]")
            if name in found:
                raise DataError(f"{self.where}: {kind} '{name}' appears twice; ids must be unique")
            found[name] = i
        if not found:
            raise DataError(f"{self.where}: '{kind}' is empty")
        return found

    def read(self) -> RoadNet:
        virtual = [
            member(record, "virtual", bool, f"{self.where}: intersection '{record['id']}'")
            for record in self.intersections
        ]
        real = [i for i, v in enumerate(virtual) if not v]
        if not real:
            raise DataError(f"{self.where}: all intersections are virtual; nothing to control")
        self.junction_of = {i: j for j, i in enumerate(real)}
        self.width = [
            0.0 if v else number(record, "width", f"{self.where}: {record['id']}", at_least=0.0)
            for record, v in zip(self.intersections, virtual, strict=True)
        ]
        lanes = self._read_lanes()
        links = self._read_links(real)
        return self._assemble(real, lanes, links)

    def _road_ends(self, road: dict[str, Any], where: str) -> list[int]:
        ends = []
        for side in ("startIntersection", "endIntersection"):
            name = member(road, side, str, where)
            if name not in self.intersection_of:
                raise DataError(f"{where}: {side} '{name}' is not an intersection of this file")
            ends.append(self.intersection_of[name])
        return ends

    def _read_lanes(self) -> dict[str, list[Any]]:
        table: dict[str, list[Any]] = {
            k: [] for k in ("id", "road", "index", "width", "speed", "polyline", "raw")
        }
        self.ends, self.points, self.first_lane, self.lane_count = [], [], [], []
        for r, road in enumerate(self.roads):
            where = f"{self.where}: road '{road['id']}'"
            start, end = self._road_ends(road, where)
            points = self._points(member(road, "points", list, where), where)
            if len(points) < 2 or any(
                geometry.norm(b - a) == 0.0 for a, b in itertools.pairwise(points)
            ):
                raise DataError(f"{where}: needs at least two distinct points")
            lanes = member(road, "lanes", list, where)
            if not lanes:
                raise DataError(f"{where}: has no lanes")
            widths = [number(lane, "width", where, at_least=0.0) for lane in lanes]
            trimmed = geometry.shorten(points, self.width[start], self.width[end])
            if geometry.polyline_length(points) <= self.width[start] + self.width[end]:
                raise DataError(f"{where}: is shorter than the junctions at its ends")
            self.ends.append((start, end))
            self.points.append(points)
            self.first_lane.append(len(table["id"]))
            self.lane_count.append(len(lanes))
            table["id"] += [f"{road['id']}_{i}" for i in range(len(lanes))]
            table["road"] += [r] * len(lanes)
            table["index"] += range(len(lanes))
            table["width"] += widths
            table["speed"] += [number(lane, "maxSpeed", where, at_least=0.1) for lane in lanes]
            table["polyline"] += geometry.lane_polylines(trimmed, widths)
            table["raw"] += geometry.lane_polylines(points, widths)
        return table

    def _points(self, records: list[Any], where: str) -> np.ndarray:
        points = [[number(p, axis, where) for axis in ("x", "y")] for p in records]
        if any(abs(value) > FARTHEST for point in points for value in point):
            raise DataError(f"{where}: a point lies more than {FARTHEST:g} m from the origin")
        return np.array(points).reshape(-1, 2)

    def _read_links(self, real: list[int]) -> dict[str, list[Any]]:
        table: dict[str, list[Any]] = {
            k: [] for k in ("start", "end", "junction", "movement", "rank", "polyline")
        }
        self.movements: list[list[tuple[int, int, int]]] = []
        for j, i in enumerate(real):
            record = self.intersections[i]
            where = f"{self.where}: intersection '{record['id']}'"
            self.movements.append([])
            for m, road_link in enumerate(member(record, "roadLinks", list, where)):
                self._read_road_link(table, j, m, road_link, f"{where}: roadLinks[{m}]", i)
        return table

    def _read_road_link(
        self, table: dict[str, list[Any]], j: int, m: int, record: Any, where: str, i: int
    ) -> None:
        kind = member(record, "type", str, where)
        if kind not in MOVEMENT_RANK:
            raise DataError(f"{where}: type '{kind}' is none of {', '.join(MOVEMENT_RANK)}")
        roads = []
        for side, at in (("startRoad", 1), ("endRoad", 0)):
            name = member(record, side, str, where)
            if name not in self.road_of:
                raise DataError(f"{where}: {side} '{name}' is not a road of this file")
            roads.append(self.road_of[name])
            if self.ends[roads[-1]][at] != i:
                raise DataError(f"{where}: {side} '{name}' does not touch this intersection")
        self.movements[j].append((MOVEMENT_RANK[kind], *roads))
        for n, lane_link in enumerate(member(record, "laneLinks", list, where)):
            place = f"{where}: laneLinks[{n}]"
            lanes = []
            for side, road in zip(("startLaneIndex", "endLaneIndex"), roads, strict=True):
                index = member(lane_link, side, int, place)
                if not 0 <= index < self.lane_count[road]:
                    raise DataError(
                        f"{place}: {side} {index} is out of range; "
                        f"road '{self.roads[road]['id']}' has {self.lane_count[road]} lanes"
                    )
                lanes.append(self.first_lane[road] + index)
            points = self._points(member({"points": [], **lane_link}, "points", list, place), place)
            table["start"].append(lanes[0])
            table["end"].append(lanes[1])
            table["junction"].append(j)
            table["movement"].append(m)
            table["rank"].append(MOVEMENT_RANK[kind])
            table["polyline"].append(points if len(points) else i)

    def _assemble(
        self, real: list[int], lanes: dict[str, list[Any]], links: dict[str, list[Any]]
    ) -> RoadNet:
        start, end = np.array(links["start"], int), np.array(links["end"], int)
        for k, curve in enumerate(links["polyline"]):
            if not isinstance(curve, np.ndarray):
                before, after = lanes["raw"][start[k]], lanes["raw"][end[k]]
                curve = geometry.turning_curve(before, after, self.width[curve])
                links["polyline"][k] = curve
            if geometry.polyline_length(curve) == 0.0:
                raise DataError(f"{self.where}: lane link {k} has no length")
        polylines = tuple(lanes["polyline"]) + tuple(links["polyline"])
        speed = np.array(lanes["speed"] + [10_000.0] * len(start))
        crossings = crossing_tables(links["polyline"], np.array(links["junction"], int))
        ends = np.array(self.ends).reshape(-1, 2)
        junction = np.vectorize(lambda i: self.junction_of.get(i, -1), otypes=[int])
        return RoadNet(
            road_ids=tuple(self.road_of),
            lane_ids=tuple(lanes["id"]),
            link_ids=tuple(
                f"{lanes['id'][a]}_TO_{lanes['id'][b]}" for a, b in zip(start, end, strict=True)
            ),
            junction_ids=tuple(self.intersections[i]["id"] for i in real),
            intersections=tuple(self._intersection(i) for i in range(len(self.intersections))),
            road_points=tuple(self.points),
            lane_width=np.array(lanes["width"]),
            polylines=polylines,
            length=np.array([geometry.polyline_length(p) for p in polylines]),
            max_speed=speed,
            lane_road=np.array(lanes["road"]),
            lane_index=np.array(lanes["index"]),
            road_start=junction(ends[:, 0]),
            road_end=junction(ends[:, 1]),
            link_start=start,
            link_end=end,
            link_junction=np.array(links["junction"], int),
            link_movement=np.array(links["movement"], int),
            link_rank=np.array(links["rank"], int),
            lane_links=_padded_groups(start, len(lanes["id"])),
            **crossings,
            **self._phases(real),
        )

    def _intersection(self, i: int) -> dict[str, Any]:
        record = self.intersections[i]
        where = f"{self.where}: intersection '{record['id']}'"
        point = member(record, "point", dict, where)
        listed = member(record, "roads", list, where)
        for name in listed:
            if not isinstance(name, str) or name not in self.road_of:
                raise DataError(
                    f"{where}: 'roads' names {name!r}, which is not a road of this file"
                )
        return {
            "id": record["id"],
            "point": (number(point, "x", where), number(point, "y", where)),
            "virtual": i not in self.junction_of,
            "width": self.width[i],
            "roads": [self.road_of[name] for name in listed],
            "ends": [r for r, pair in enumerate(self.ends) if i in pair],
            "starts": [pair[0] == i for pair in self.ends if i in pair],
        }

    def _phases(self, real: list[int]) -> dict[str, np.ndarray]:
        plans = []
        for j, i in enumerate(real):
            where = f"{self.where}: intersection '{self.intersections[i]['id']}'"
            light = member(self.intersections[i], "trafficLight", dict, where)
            phases = member(light, "lightphases", list, where)
            if not phases:
                raise DataError(f"{where}: trafficLight has no lightphases; at least one is needed")
            plans.append([self._phase(p, len(self.movements[j]), where) for p in phases])
        most = max(len(p) for p in plans)
        wide = max([len(m) for m in self.movements] + [1])
        time, allows = np.zeros((len(real), most)), np.zeros((len(real), most, wide), bool)
        rank, roads = np.zeros((len(real), wide), int), np.full((len(real), wide, 2), -1)
        for j, plan in enumerate(plans):
            if sum(t for t, _ in plan) <= 0:
                raise DataError(
                    f"{self.where}: the signal plan of '{self.intersections[real[j]]['id']}' lasts 0 s"
                )
            for p, (seconds, available) in enumerate(plan):
                time[j, p] = seconds
                allows[j, p, available] = True
            for m, (kind, a, b) in enumerate(self.movements[j]):
                rank[j, m], roads[j, m] = kind, (a, b)
        return {
            "num_phases": np.array([len(p) for p in plans]),
            "phase_time": time,
            "phase_allows": allows,
            "movement_rank": rank,
            "movement_roads": roads,
        }

    def _phase(self, record: Any, movements: int, where: str) -> tuple[float, list[int]]:
        seconds = number(record, "time", f"{where}: lightphase", at_least=0.0)
        available = member(record, "availableRoadLinks", list, f"{where}: lightphase")
        for m in available:
            if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m < movements:
                raise DataError(
                    f"{where}: availableRoadLinks names {m!r}; expected 0 to {movements - 1}"
                )
        return seconds, available


def _padded_groups(group: np.ndarray, count: int) -> np.ndarray:
    """Members of each group in order, padded with -1, `[count, largest]`."""
    members = [np.flatnonzero(group == g) for g in range(count)]
    table = np.full((count, max([len(m) for m in members] + [1])), -1)
    for g, m in enumerate(members):
        table[g, : len(m)] = m
    return table
