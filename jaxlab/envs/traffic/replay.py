"""Replay files for CityFlow's viewer: a drawing of the network and a log of the traffic."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull

from jaxlab.core.runfolder import replacing
from jaxlab.envs.traffic.frames import GREEN, RED, UNSIGNALLED, Frame, Polylines
from jaxlab.envs.traffic.geometry import unit
from jaxlab.envs.traffic.roadnet import RoadNet

_LETTERS = {UNSIGNALLED: "i", RED: "r", GREEN: "g"}
#: The least part of a road that is drawn as belonging to the junction, m.
_LEAST_APRON = 5.0


def write_replay(
    roadnet_path: str | Path, replay_path: str | Path, net: RoadNet, frames: Iterable[Frame]
) -> int:
    """Write the two files CityFlow's viewer opens, one line of the second per frame.

    The network goes to `roadnet_path` (JSON), the traffic to `replay_path`: vehicles
    `x y angle id lane-change-direction length width` separated by commas, a semicolon, and for every road that
    ends at a junction its name and one letter per lane, `g`, `r`, or `i` where no signal stands.
    Positions are rounded to 0.1 mm and angles to 1e-6 radians. Frames may come from a generator; they are not kept.

    Returns:
      The number of frames written.

    Raises:
      DataError: where a file cannot be written.
    """
    written = 0
    place = Polylines(net.polylines)
    with replacing(Path(roadnet_path)) as drawing, replacing(Path(replay_path)) as log:
        drawing.write_text(json.dumps({"static": roadnet_log(net)}), encoding="utf-8")
        with log.open("w", encoding="utf-8") as lines:
            for frame in frames:
                lines.write(replay_line(net, place, frame) + "\n")
                written += 1
    return written


def replay_line(net: RoadNet, place: Polylines, frame: Frame) -> str:
    """One line of a replay log, without the newline; `place` holds the net's polylines."""
    x, y, angle = place.place(frame.drivable, frame.distance)
    columns = np.round(x, 4), np.round(y, 4), np.round(angle, 6), frame.length, frame.width
    vehicles = zip(frame.vehicle_ids, *(column.tolist() for column in columns), strict=True)
    shown = "".join(
        f"{x} {y} {a} {name} 0 {long} {wide}," for name, x, y, a, long, wide in vehicles
    )
    return f"{shown};{_signals(net, frame.lane_signals)}"


def _signals(net: RoadNet, lane_signals: np.ndarray) -> str:
    letters: list[str] = [_LETTERS[s] for s in lane_signals.tolist()]
    first = np.searchsorted(net.lane_road, np.arange(len(net.road_ids) + 1)).tolist()
    return "".join(
        f"{net.road_ids[r]} {' '.join(letters[first[r] : first[r + 1]])},"
        for r in np.flatnonzero(net.road_end >= 0).tolist()
    )


def roadnet_log(net: RoadNet) -> dict[str, Any]:
    """The network as CityFlow's viewer draws it: `nodes` with outlines, and `edges`."""
    ends: dict[str, list[str]] = {"from": [""] * len(net.road_ids), "to": [""] * len(net.road_ids)}
    nodes = []
    for node in net.intersections:
        for road, starts in zip(node["ends"], node["starts"], strict=True):
            ends["from" if starts else "to"][road] = node["id"]
        record = {"id": node["id"], "point": list(node["point"]), "virtual": node["virtual"]}
        if not node["virtual"]:
            record["width"] = node["width"]
        nodes.append(record | {"outline": _outline(net, node).ravel().tolist()})
    edges = [
        {
            "id": name,
            "from": ends["from"][r],
            "to": ends["to"][r],
            "points": net.road_points[r].tolist(),
            "nLane": int((net.lane_road == r).sum()),
            "laneWidths": net.lane_width[net.lane_road == r].tolist(),
        }
        for r, name in enumerate(net.road_ids)
    ]
    return {"nodes": nodes, "edges": edges}


def _outline(net: RoadNet, node: dict[str, Any]) -> np.ndarray:
    """Convex hull of a junction's centre and of the mouths of its roads, `[n, 2]`, m."""
    centre, corners = np.array(node["point"], float), []
    for road, starts in zip(node["ends"], node["starts"], strict=True):
        lanes = net.lane_road == road
        width, length = net.lane_width[lanes].sum(), net.length[: net.num_lanes][lanes].mean()
        points = net.road_points[road]
        along = unit(points[-1] - points[0])
        side, away = width * np.array([along[1], -along[0]]), along if starts else -along
        apron = max(0.5 * min(node["width"], width), _LEAST_APRON)
        reach = [node["width"]] + ([node["width"] + apron] if apron < length else [])
        corners += [centre + away * r + shift for r in reach for shift in (0.0, side)]
    points = np.array([centre, *corners])
    return points[ConvexHull(points).vertices]
