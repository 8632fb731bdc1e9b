"""Small networks for tests, on which one compiled program runs any trips and phases."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.params import Incidents, TrafficParams
from jaxlab.envs.traffic.trips import CAR

NEVER = np.iinfo(np.int32).max
#: Phase of `with_all_green` in which every movement has right of way.
ALL_GREEN = 9
#: Fields of the state that runs record, by slot `[steps, slots]` or `[steps]`.
RECORDED = (
    *("vehicle", "path", "hop", "drivable", "previous", "position", "speed", "gap", "blocker"),
    *("finished", "travel_steps", "overflow"),
)


class Trip(NamedTuple):
    """A vehicle: roads it drives on, step of departure, row of the driver types, first lane."""

    route: tuple[str, ...]
    step: int = 0
    kind: int = 0
    choice: int = 0


def with_all_green(roadnet: dict[str, Any]) -> dict[str, Any]:
    """The network with one more phase, of everything at once."""
    for place in roadnet["intersections"]:
        if not place["virtual"]:
            everything = list(range(len(place["roadLinks"])))
            record = {"time": 30.0, "availableRoadLinks": everything}
            place["trafficLight"]["lightphases"].append(record)
    return roadnet


def all_routes(roadnet: dict[str, Any], longest: int) -> list[tuple[str, ...]]:
    """Routes of two to `longest` roads that start at the border."""
    virtual = {i["id"] for i in roadnet["intersections"] if i["virtual"]}
    follow: dict[str, list[str]] = {}
    for place in roadnet["intersections"]:
        for link in place["roadLinks"]:
            follow.setdefault(link["startRoad"], []).append(link["endRoad"])
    routes = [(r["id"],) for r in roadnet["roads"] if r["startIntersection"] in virtual]
    for route in routes:
        if len(route) < longest:
            routes += [(*route, road) for road in follow.get(route[-1], [])]
    return [route for route in routes if len(route) > 1]


class World:
    """A network with its routes, driver types and room for some vehicles."""

    def __init__(
        self,
        roadnet: dict[str, Any],
        *,
        vehicles: int,
        drivers: tuple[dict[str, float], ...] = (CAR,),
        longest: int = 3,
        dt: float = 1.0,
    ):
        once = {"interval": 1.0, "startTime": 0, "endTime": 0}
        self.routes = all_routes(roadnet, longest)
        flow = [{"vehicle": d, "route": list(r), **once} for d in drivers for r in self.routes]
        self.env: TrafficSignalControl = make_environment(
            roadnet, flow, duration=dt, dt=dt, capacity=vehicles
        )
        self.net, self.simulator, self.vehicles = self.env.net, self.env.simulator, vehicles
        self.kinds = len(drivers)
        self.paths_of: dict[tuple[str, ...], list[int]] = {}
        for row, path in enumerate(self.simulator.paths.value["paths"]):
            lanes = path[path < self.net.num_lanes]
            route = tuple(self.net.road_ids[r] for r in self.net.lane_road[lanes])
            self.paths_of.setdefault(route, []).append(row)

    def params(self, trips: list[Trip], incidents: Incidents | None = None) -> TrafficParams:
        """Params in which exactly these trips take place; `priority` is the number of the trip."""
        entry = self.simulator.paths.value["entry"]
        entries = len(self.simulator.paths.value["entry_lanes"])
        rows = []
        for n, trip in enumerate(trips):
            path = self.paths_of[trip.route][trip.choice % len(self.paths_of[trip.route])]
            rows.append((entry[path], trip.step, n, path, trip.kind))
        rows.sort()
        offset = np.searchsorted([row[0] for row in rows], np.arange(entries + 1))
        rows += [(entries, NEVER, n, 0, 0) for n in range(len(rows), self.vehicles)]
        _, step, number, path, kind = np.array(rows, np.int32).T
        params = self.env.nominal_params()
        return params.replace(
            depart_step=jnp.asarray(step),
            path=jnp.asarray(path),
            driver=jnp.asarray(kind),
            priority=jnp.asarray(number),
            entry_offset=jnp.asarray(offset.astype(np.int32)),
            incidents=incident() if incidents is None else incidents,
        )

    def run(self, params: TrafficParams, phases: np.ndarray) -> dict[str, np.ndarray]:
        """`RECORDED` after every step under `phases [steps, junctions]`."""
        seen = self.compiled(params, jnp.asarray(phases, jnp.int32))
        return {name: np.asarray(value) for name, value in seen.items()}

    @functools.cached_property
    def compiled(self):
        """The function of params and phases, counting its traces in `traces`."""
        self.traces = 0

        @jax.jit
        def run(params, phases):
            self.traces += 1

            def step(state, phase):
                state = self.simulator.step(state, phase, params)
                return state, {name: getattr(state, name) for name in RECORDED}

            return jax.lax.scan(step, self.simulator.reset(params), phases)[1]

        return run

    def track(self, seen: dict[str, np.ndarray], params: TrafficParams, number: int):
        """Drivable (-1 off the road), position, speed and blocker's number of a trip, by step."""
        row = int(np.flatnonzero(np.asarray(params.priority) == number)[0])
        here = seen["vehicle"] == row
        on, slot = here.any(1), here.argmax(1)
        steps = np.arange(len(slot))
        taken = {name: seen[name][steps, slot] for name in ("drivable", "position", "speed")}
        foe = seen["vehicle"][steps, seen["blocker"][steps, slot]]
        numbers = np.append(np.asarray(params.priority), -1)
        return (
            np.where(on, taken["drivable"], -1),
            np.where(on, taken["position"], np.nan),
            np.where(on, taken["speed"], np.nan),
            np.where(on, numbers[foe], -1),
        )


def incident(
    lane: int = -1, start: float = 0.0, end: float = 0.0, speed_factor: float = 1.0
) -> Incidents:
    """Incidents with one row, by default of no lane."""
    real = jnp.result_type(float)
    numbers = [jnp.array([x], real) for x in (start, end, speed_factor)]
    return Incidents(jnp.array([lane], jnp.int32), *numbers)


#: Routes through `two_junctions`.
WEST, SOUTH = ("road_0_1_0", "road_1_1_0"), ("road_1_0_1", "road_1_1_2")
#: Actions: phase 2 (north-south straight on) at the first junction, 3 at the second.
HOLD = (1, 2)


def two_junctions() -> World:
    """Two junctions of twelve approach lanes; the second has phases 0 to 3 only."""
    roadnet = grid_roadnet(1, 2, row_distance=(150.0, 60.0, 150.0), column_distance=150.0)
    second = next(i for i in roadnet["intersections"] if i["id"] == "intersection_2_1")
    del second["trafficLight"]["lightphases"][4:]
    return World(roadnet, vehicles=31)
