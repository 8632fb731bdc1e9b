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
from jaxlab.envs.traffic.scenario import rows_for
from jaxlab.envs.traffic.simulation import Simulator
from jaxlab.envs.traffic.tables import network_tables, path_tables

#: Capacities, and the slot that is nobody's, fill multiples of so many slots.
_SLOTS = 64
#: No road network of this format holds more vehicles at once, and few machines the arrays.
MOST_SLOTS = 2**21


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


def estimate_capacity(net: RoadNet, demand: Demand, max_demand: float = 1.0) -> int:
    """Slots for vehicles on the road: all of the largest scenario, or all that roads can hold.

    Untrained signals fill any road, so no smaller number is safe; slots that are not in
    use cost next to nothing (see `Simulator.within`). Roads hold one vehicle per `length` metres
    of the shortest one in the demand, halved for scenarios with shorter ones.
    """
    if demand.num_vehicles == 0:
        return _SLOTS - 1
    length = demand.drivers[:, list(DRIVER_FIELDS).index("length")].min()
    storage = int(np.sum(np.ceil(2 * net.length / length) + 1))
    need = min(rows_for(demand.num_vehicles, max_demand), storage)
    return _SLOTS * -(-(need + 1) // _SLOTS) - 1


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
      capacity: Vehicles on the road at once; by default with room for all of them.
      max_demand: Largest demand of a scenario, relative to that of the files.
      options: Fields of `TrafficSignalControl`.

    Raises:
      DataError: when a file is missing or inconsistent; ConfigError for bad options.
    """
    net = load_roadnet(roadnet)
    demand = load_flow(flow, net, duration=duration, dt=dt, seed=seed)
    capacity = estimate_capacity(net, demand, max_demand) if capacity is None else capacity
    if capacity < 1:
        raise ConfigError(f"capacity is {capacity}; at least one vehicle must fit on the road")
    if capacity > MOST_SLOTS:
        raise ConfigError(f"capacity is {capacity}; expected at most {MOST_SLOTS} vehicles")
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
