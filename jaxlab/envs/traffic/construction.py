"""Environments from road networks and flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.core.environment import Constant
from jaxlab.core.errors import ConfigError
from jaxlab.envs.traffic.demand import DRIVER_FIELDS, Demand, load_flow
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.presets import default_scenario
from jaxlab.envs.traffic.roadnet import RoadNet, load_roadnet
from jaxlab.envs.traffic.simulation import Simulator
from jaxlab.envs.traffic.tables import network_tables, path_tables


def demand_arrays(demand: Demand) -> Constant:
    """The demand as the environment holds it."""
    columns = dict(zip(DRIVER_FIELDS, demand.drivers.T, strict=True))
    del columns["width"]
    return Constant(
        {
            "depart_step": demand.depart_step,
            "path": demand.path,
            "driver": demand.driver,
            "priority": demand.priority,
            "entry_offset": demand.entry_offset,
            "drivers": columns,
        }
    )


def estimate_capacity(net: RoadNet, demand: Demand, dt: float, max_demand: float = 1.0) -> int:
    """Slots for vehicles on the road: the free-flow need six times over, at most all vehicles.

    Free-flow need is the largest number of vehicles that would drive at once at the
    speed limit. Congestion multiplies it: on the city networks random signals by two,
    signals that never change by up to five or six. What exceeds it is reported, never
    dropped; slots that are not in use cost little.
    """
    if demand.num_vehicles == 0:
        return 63
    length = np.append(net.length, 0.0)
    speed = demand.drivers[demand.driver, list(DRIVER_FIELDS).index("max_speed")]
    trip = length[demand.paths].sum(1)[demand.path] / speed / dt
    start = np.sort(demand.depart_step)
    end = np.sort(demand.depart_step + trip)
    at_once = np.arange(1, len(start) + 1) - np.searchsorted(end, start)
    vehicles = int(np.ceil(max_demand * demand.num_vehicles))
    need = min(int(np.ceil(6 * max_demand * at_once.max())), vehicles)
    return max(64 * -(-(need + 1) // 64), 64) - 1


def make_environment(
    roadnet: str | Path | dict[str, Any],
    flow: str | Path | list[Any],
    *,
    duration: float = 3600.0,
    dt: float = 1.0,
    seed: int = 0,
    capacity: int | None = None,
    max_demand: float = 1.0,
    record_arrivals: bool = False,
    **options: Any,
) -> TrafficSignalControl:
    """Build the environment from CityFlow files or their parsed JSON.

    Args:
      duration: Seconds of demand to expand.
      capacity: Vehicles on the road at once; estimated from the demand by default.
      max_demand: Largest demand of a scenario, relative to that of the files.
      options: Fields of `TrafficSignalControl`.

    Raises:
      DataError: when a file is missing or inconsistent; ConfigError for bad options.
    """
    net = load_roadnet(roadnet)
    demand = load_flow(flow, net, duration=duration, dt=dt, seed=seed)
    capacity = estimate_capacity(net, demand, dt, max_demand) if capacity is None else capacity
    if capacity < 1:
        raise ConfigError(f"capacity is {capacity}; at least one vehicle must fit on the road")
    simulator = Simulator(
        network_tables(net), path_tables(demand, net), dt, capacity, record_arrivals
    )
    return TrafficSignalControl(
        simulator,
        demand_arrays(demand),
        net,
        duration=duration,
        max_demand=max_demand,
        **options,
    )


def default_environment(*, seed: int = 0, **options: Any) -> TrafficSignalControl:
    """A 4x4 grid of Hangzhou's geometry with an hour of demand drawn from published totals.

    Args:
      seed: Seed of the demand.
      options: Of `make_environment`.
    """
    return make_environment(*default_scenario(seed), **options)
