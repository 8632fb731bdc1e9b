"""Demand: CityFlow's flow JSON expanded into one row per vehicle.

Rows are sorted by entry lane, then by the order in which vehicles join its queue, so
the simulator keeps one pointer per entry lane and never searches.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.traffic.json_files import member, number, read_json
from jaxlab.envs.traffic.roadnet import RoadNet
from jaxlab.envs.traffic.routing import Router

#: Fields of a driver-vehicle unit, in the order of the columns of `Demand.drivers`.
DRIVER_FIELDS = {
    "length": "length",
    "width": "width",
    "max_acceleration": "maxPosAcc",
    "max_deceleration": "maxNegAcc",
    "usual_acceleration": "usualPosAcc",
    "usual_deceleration": "usualNegAcc",
    "min_gap": "minGap",
    "max_speed": "maxSpeed",
    "headway_time": "headwayTime",
}
NEVER = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True, eq=False)
class Demand:
    """Vehicles of one scenario on one network.

    Attributes:
      depart_step: Step in which a vehicle joins the queue of its entry lane, `[vehicles]`, int32.
      path: Row of `paths` it drives, `[vehicles]`.
      driver: Row of `drivers` it uses, `[vehicles]`.
      priority: Random tie-break of the engine, `[vehicles]`, int32.
      entry_lanes: Lanes on which vehicles enter, ascending, `[entries]`.
      entry_offset: First vehicle of each entry lane, `[entries + 1]`.
      paths: Drivables of each path, padded with `num_drivables`, `[paths, hops]`.
      path_entry: Index into `entry_lanes` of each path, `[paths]`.
      drivers: Columns of `DRIVER_FIELDS` in SI units, `[types, 9]`.
      vehicle_ids: CityFlow's names, `flow_<flow>_<number>`.
    """

    depart_step: np.ndarray
    path: np.ndarray
    driver: np.ndarray
    priority: np.ndarray
    entry_lanes: np.ndarray
    entry_offset: np.ndarray
    paths: np.ndarray
    path_entry: np.ndarray
    drivers: np.ndarray
    vehicle_ids: tuple[str, ...]

    @property
    def num_vehicles(self) -> int:
        return len(self.depart_step)


@dataclasses.dataclass(frozen=True)
class _Flow:
    route: tuple[int, ...]
    driver: tuple[float, ...]
    interval: float
    start: float
    end: float


def load_flow(
    source: str | Path | list[Any],
    net: RoadNet,
    *,
    duration: float,
    dt: float = 1.0,
    seed: int = 0,
) -> Demand:
    """Read a CityFlow flow file (or its parsed JSON) for a run of `duration` seconds.

    Args:
      seed: Seed of the engine's generator, which draws entry lanes and priorities.

    Raises:
      DataError: naming the flow and the field at fault, an unknown road, a destination
        that cannot be reached or a movement that no lane serves.
      ConfigError: `duration` or `dt` is not positive, or `seed` is no 32-bit number.
    """
    where = "flow" if isinstance(source, list) else str(source)
    records = source if isinstance(source, list) else read_json(source)
    if not isinstance(records, list):
        raise DataError(f"{where}: a flow file holds an array of flows")
    if not dt > 0 or not duration > 0:
        raise ConfigError(f"duration ({duration:g} s) and dt ({dt:g} s) must be positive")
    if not duration / dt < 2**31:
        raise ConfigError(
            f"duration ({duration:g} s) makes 2^31 steps or more of dt = {dt:g} s; expected fewer"
        )
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed is {seed}; expected a number from 0 to 2^32 - 1")
    router = Router(net)
    road_of = {name: r for r, name in enumerate(net.road_ids)}
    flows = [_read_flow(f, i, where, router, road_of) for i, f in enumerate(records)]
    steps, flow_of, serial = _departures(flows, int(np.ceil(duration / dt - 1e-9)), dt)
    lanes, priority = _draw_entries(flows, steps, flow_of, router, seed, where)
    return _assemble(flows, steps, flow_of, serial, lanes, priority, router, net, where)


def _read_flow(record: Any, i: int, where: str, router: Router, road_of: dict[str, int]) -> _Flow:
    place = f"{where}: flow[{i}]"
    anchors = []
    for name in member(record, "route", list, place):
        if not isinstance(name, str) or name not in road_of:
            raise DataError(f"{place}: route names road {name!r}, which the network does not have")
        anchors.append(road_of[name])
    if not anchors:
        raise DataError(f"{place}: the route is empty")
    vehicle = member(record, "vehicle", dict, place)
    driver = tuple(number(vehicle, f, f"{place}: vehicle") for f in DRIVER_FIELDS.values())
    for name, value in zip(DRIVER_FIELDS.values(), driver, strict=True):
        if value < 0 or (value == 0 and name not in ("minGap", "headwayTime")):
            raise DataError(f"{place}: vehicle field '{name}' is {value:g}; it must be positive")
        if not 1e-9 < value < 1e9 and value != 0:
            raise DataError(
                f"{place}: vehicle field '{name}' is {value:g}, which no vehicle has; "
                "expected metres, seconds, m/s and m/s^2"
            )
    record = {"startTime": 0, "endTime": -1, **record}
    start = number(record, "startTime", place, at_least=0)
    end = number(record, "endTime", place, at_least=-1)
    if end != -1 and end < start:
        raise DataError(f"{place}: endTime {end:g} lies before startTime {start:g}")
    interval = number(record, "interval", place)
    if interval <= 0 or (interval < 1 and start != end):
        raise DataError(f"{place}: interval is {interval:g} s; the engine needs at least 1 s")
    return _Flow(router.complete(tuple(anchors), place), driver, interval, start, end)


def _departures(flows: list[_Flow], steps: int, dt: float) -> tuple[np.ndarray, ...]:
    """Step, flow and serial number of every vehicle, in order of creation.

    Clocks are accumulated in floating point as the engine does (spec: `Flow::nextStep`).
    """
    interval = np.array([f.interval for f in flows])
    start, end = np.array([f.start for f in flows]), np.array([f.end for f in flows])
    waited, made, clock = interval.copy(), np.zeros(len(flows), int), 0.0
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for n in range(steps):
        active = (clock >= start) & ((end == -1) | (clock <= end))
        emitted = []
        while (due := active & (waited >= interval)).any():
            which = np.flatnonzero(due)
            emitted.append((which, made[which]))
            made[which] += 1
            waited[which] -= interval[which]
        if emitted:
            flow = np.concatenate([w for w, _ in emitted])
            serial = np.concatenate([s for _, s in emitted])
            order = np.argsort(flow, kind="stable")
            rows.append((np.full(len(flow), n), flow[order], serial[order]))
        waited[active] += dt
        clock += dt
    if not rows:
        return np.zeros(0, int), np.zeros(0, int), np.zeros(0, int)
    return tuple(np.concatenate(column) for column in zip(*rows, strict=True))


def _draw_entries(
    flows: list[_Flow],
    steps: np.ndarray,
    flow_of: np.ndarray,
    router: Router,
    seed: int,
    where: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Entry lane and priority of every vehicle, drawn as the engine draws them.

    Per step the engine's Mersenne Twister gives two numbers per new vehicle (priority,
    thread) and then, road by road, one for the entry lane.
    """
    generator = np.random.RandomState(seed)
    choices = [router.first_lanes(f.route, f"{where}: flow[{i}]") for i, f in enumerate(flows)]
    lanes, priority = np.zeros(len(steps), int), np.zeros(len(steps), np.int32)
    bounds = np.flatnonzero(np.diff(steps, prepend=-1, append=-1))
    for a, b in itertools.pairwise(bounds):
        draws = np.frombuffer(generator.bytes(12 * (b - a)), "<u4")
        priority[a:b] = draws[: 2 * (b - a) : 2].astype(np.int32)
        roads = np.array([flows[f].route[0] for f in flow_of[a:b]])
        for draw, v in zip(draws[2 * (b - a) :], a + np.argsort(roads, kind="stable"), strict=True):
            options = choices[flow_of[v]]
            lanes[v] = options[int(draw) % len(options)]
    return lanes, priority


def _assemble(
    flows: list[_Flow],
    steps: np.ndarray,
    flow_of: np.ndarray,
    serial: np.ndarray,
    lanes: np.ndarray,
    priority: np.ndarray,
    router: Router,
    net: RoadNet,
    where: str,
) -> Demand:
    # Every path a flow could take is kept, so that a scenario may redistribute vehicles.
    paths: dict[tuple[int, ...], int] = {}
    for i, flow in enumerate(flows):
        for lane in router.first_lanes(flow.route, where):
            path = router.path(flow.route, lane, f"{where}: flow[{i}]")
            paths.setdefault(path, len(paths))
    table = np.full((len(paths), max([len(p) for p in paths] + [0]) + 1), net.num_drivables)
    for path, row in paths.items():
        table[row, : len(path)] = path
    types = {driver: n for n, driver in enumerate(dict.fromkeys(f.driver for f in flows))}
    order = np.lexsort((np.arange(len(steps)), steps, lanes))
    entry_lanes = np.unique(table[:, 0]) if len(paths) else np.zeros(0, int)
    path_of = [
        paths[router.path(flows[f].route, lane, where)]
        for f, lane in zip(flow_of, lanes, strict=True)
    ]
    return Demand(
        depart_step=steps[order].astype(np.int32),
        path=np.array(path_of, np.int32)[order],
        driver=np.array([types[flows[f].driver] for f in flow_of], np.int32)[order],
        priority=priority[order],
        entry_lanes=entry_lanes.astype(np.int32),
        entry_offset=np.searchsorted(lanes[order], np.append(entry_lanes, net.num_lanes)).astype(
            np.int32
        ),
        paths=table.astype(np.int32),
        path_entry=np.searchsorted(entry_lanes, table[:, 0]).astype(np.int32),
        drivers=np.array(list(types), float).reshape(-1, len(DRIVER_FIELDS)),
        vehicle_ids=tuple(f"flow_{flow_of[v]}_{serial[v]}" for v in order),
    )
