"""Scenarios: what may vary between two episodes on one network, as small arrays.

A scenario says how the nominal demand is changed and under which conditions it drives.
`scenario_params` turns it into the arrays the simulator takes, by drawing vehicles
from the nominal demand again: each of them gets a weight, the product of the factors
that apply to it, and as many copies as its weight commands.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.environment import Constant
from jaxlab.core.errors import CapacityError, ScenarioError
from jaxlab.envs.traffic.params import Incidents, TrafficParams
from jaxlab.envs.traffic.roadnet import LEFT, RIGHT, STRAIGHT, RoadNet
from jaxlab.envs.traffic.simulation import Simulator
from jaxlab.envs.traffic.vehicles import Drivers

#: Equal slices of the demand's duration that a time profile multiplies.
PROFILE_BINS = 12
#: Surges and closed or slowed lanes that a scenario has room for.
SURGES, INCIDENT_LANES = 3, 6
#: Where vehicles may come from.
SIDES = ("north", "east", "south", "west")
#: Copies of a vehicle depart up to so many seconds before or after it.
JITTER = 30.0
#: Weights are multiples of 1/1024, so that counting copies is integer arithmetic.
_UNIT = 1024
_LARGEST_WEIGHT = 64.0
_NEVER = np.iinfo(np.int32).max


@runtime_checkable
class Setting(Protocol):
    """What scenarios need of the environment they are for, `TrafficSignalControl`."""

    @property
    def simulator(self) -> Simulator: ...
    @property
    def demand(self) -> Constant: ...
    @property
    def net(self) -> RoadNet: ...
    @property
    def table(self) -> dict[str, np.ndarray]: ...
    @property
    def clearance(self) -> float: ...
    @property
    def min_green(self) -> float: ...
    @property
    def duration(self) -> float: ...
    @property
    def max_demand(self) -> float: ...
    def nominal_params(self) -> TrafficParams: ...


@struct.dataclass
class Surge:
    """More (or fewer) vehicles from some origins for a while, `[surges]` each.

    Attributes:
      origins: Whether each origin takes part, `[surges, origins]`, bool.
      start, end: Seconds; vehicles that depart while start <= t < end are multiplied.
      factor: By how much; 1 for an unused slot.
    """

    origins: jax.Array
    start: jax.Array
    end: jax.Array
    factor: jax.Array


@struct.dataclass
class Scenario:
    """Changes to the nominal demand and conditions; every leaf may be stacked.

    Attributes:
      demand: Multiplies the whole demand, `[]`.
      origins: Multiplies the vehicles of each origin (road of entry), `[origins]`.
      profile: Multiplies the departures in equal slices of the demand's duration, `[slices]`.
      turns: Weights of going straight, left and right, `[3]`: a vehicle counts with the
        mean over the turns of its route, relative to all vehicles, so that the number of
        vehicles stays the same.
      surges: Surges, `[SURGES]` each.
      incidents: Closed or slowed lanes, `[INCIDENT_LANES]` each.
      drivers: Multiplies each parameter of all drivers, `[]` each.
      clearance, min_green, sensor_noise, sensor_dropout: As in `TrafficParams`, `[]`.
      seed: Told apart by it, two scenarios with the same numbers draw different
        vehicles, `[]`, int32.
    """

    demand: jax.Array
    origins: jax.Array
    profile: jax.Array
    turns: jax.Array
    surges: Surge
    incidents: Incidents
    drivers: Drivers
    clearance: jax.Array
    min_green: jax.Array
    sensor_noise: jax.Array
    sensor_dropout: jax.Array
    seed: jax.Array


class Origins(NamedTuple):
    """Where the vehicles of an environment come from and what their paths consist of.

    Attributes:
      road: Road of each origin, `[origins]`; `names` are its names, `side` its index in `SIDES`.
      of_path: Origin of each path, `[paths]`.
      turns: Straight, left and right movements of each path, `[paths, 3]`.
    """

    road: np.ndarray
    names: tuple[str, ...]
    side: np.ndarray
    of_path: np.ndarray
    turns: np.ndarray


def _sides(net: RoadNet, roads: np.ndarray) -> np.ndarray:
    """Index in `SIDES` of where each of `roads` leads in from."""
    along = np.array([net.road_points[r][-1] - net.road_points[r][0] for r in roads])
    east_west = np.abs(along[:, 0]) >= np.abs(along[:, 1])
    return np.where(
        east_west,
        np.where(along[:, 0] > 0, SIDES.index("west"), SIDES.index("east")),
        np.where(along[:, 1] > 0, SIDES.index("south"), SIDES.index("north")),
    )


@functools.lru_cache(maxsize=32)
def origins_of(env: Setting) -> Origins:
    """Origins of an environment's paths, in order of their roads."""
    table, paths = env.table, env.simulator.paths.value
    entry_road = table["lane_road"][paths["entry_lanes"]]
    road, of_entry = np.unique(entry_road, return_inverse=True)
    lanes = len(table["lane_road"])
    rank = table["movement_rank"][table["link_junction"], table["link_movement"]]
    rank = np.append(rank, 0)  # the last row is for drivables that are no links
    link = paths["paths"] - lanes
    kind = rank[np.where((link >= 0) & (link < len(rank) - 1), link, -1)]
    return Origins(
        road=road,
        names=tuple(env.net.road_ids[r] for r in road),
        side=_sides(env.net, road),
        of_path=of_entry[paths["entry"]].astype(np.int32),
        turns=np.stack([(kind == k).sum(1) for k in (STRAIGHT, LEFT, RIGHT)], axis=1),
    )


def nominal_scenario(env: Setting) -> Scenario:
    """The scenario that changes nothing."""
    real, origins = jnp.result_type(float), len(origins_of(env).road)

    def numbers(value: float, *shape: int) -> jax.Array:
        # Made by numpy: as computations these would be compiled one by one.
        return jnp.asarray(np.full(shape, value, real))

    return Scenario(
        demand=numbers(1.0),
        origins=numbers(1.0, origins),
        profile=numbers(1.0, PROFILE_BINS),
        turns=numbers(1.0, 3),
        surges=Surge(
            origins=jnp.asarray(np.zeros((SURGES, origins), bool)),
            start=numbers(0.0, SURGES),
            end=numbers(0.0, SURGES),
            factor=numbers(1.0, SURGES),
        ),
        incidents=Incidents(
            lane=jnp.asarray(np.full(INCIDENT_LANES, -1, np.int32)),
            start=numbers(0.0, INCIDENT_LANES),
            end=numbers(0.0, INCIDENT_LANES),
            speed_factor=numbers(1.0, INCIDENT_LANES),
        ),
        drivers=Drivers(**{name: numbers(1.0) for name in Drivers.__dataclass_fields__}),
        clearance=numbers(env.clearance),
        min_green=numbers(env.min_green),
        sensor_noise=numbers(0.0),
        sensor_dropout=numbers(0.0),
        seed=jnp.asarray(np.int32(0)),
    )


def flat() -> np.ndarray:
    """Profile of the nominal demand, `[slices]`."""
    return np.ones(PROFILE_BINS)


def ramp(start: float, end: float) -> np.ndarray:
    """Profile that goes straight from one multiplier to another, `[slices]`."""
    return start + (end - start) * (np.arange(PROFILE_BINS) + 0.5) / PROFILE_BINS


def peak(duration: float, *, time: float, width: float, height: float) -> np.ndarray:
    """Profile with a bell of half width `width` (s) at `time` (s) and the mean 1, `[slices]`.

    Args:
      height: Ratio of the bell's top to the level far from it.
    """
    return peaks(duration, times=(time,), width=width, height=height)


def double_peak(
    duration: float, *, times: tuple[float, float], width: float, height: float
) -> np.ndarray:
    """Profile with two such bells and the mean 1, `[slices]`."""
    return peaks(duration, times=times, width=width, height=height)


def peaks(duration: float, *, times: tuple[float, ...], width: float, height: float) -> np.ndarray:
    """Profile with a bell at each of `times` and the mean 1, `[slices]`."""
    middle = (np.arange(PROFILE_BINS) + 0.5) * duration / PROFILE_BINS
    bells = np.exp(-0.5 * ((middle[:, None] - np.array(times)) / width) ** 2)
    shape = 1 + (height - 1) * bells.max(axis=1)
    return shape / shape.mean()


def num_rows(env: Setting) -> int:
    """Vehicles that params made of a scenario have room for, see `rows_for`."""
    return rows_for(env.demand.value["depart_step"].shape[0], env.max_demand)


def rows_for(vehicles: int, max_demand: float) -> int:
    """`max_demand` times the nominal number of vehicles, and what rounding weights may add.

    Raises:
      ScenarioError: there are too many to count.
    """
    rows = int(np.ceil(max_demand * vehicles)) + vehicles // (_UNIT // 2) + 2
    if rows >= _NEVER // _UNIT:
        raise ScenarioError(
            f"max_demand = {max_demand:g} makes {rows} vehicles, which cannot be counted; "
            f"stay below {_NEVER // _UNIT}"
        )
    return rows


def vehicle_weights(env: Setting, scenario: Scenario) -> Float[Array, " vehicles"]:
    """How often each vehicle of the nominal demand appears in a scenario, on average."""
    demand, origins = env.demand.value, origins_of(env)
    real = scenario.demand.dtype
    time = demand["depart_step"] * env.simulator.dt
    bins = scenario.profile.shape[0]
    slot = np.clip(time / env.duration * bins, 0, bins - 1).astype(int)
    origin = origins.of_path[demand["path"]]
    turns = origins.turns[demand["path"]]
    movements = jnp.asarray(turns.sum(1), real)
    mixed = jnp.asarray(turns, real) @ scenario.turns
    turn = jnp.where(movements > 0, mixed / jnp.maximum(movements, 1), 1)
    turn = turn / jnp.mean(turn)
    weight = scenario.demand * scenario.origins[origin] * scenario.profile[slot] * turn
    surges, clock = scenario.surges, jnp.asarray(time, real)
    for n in range(surges.factor.shape[0]):
        active = surges.origins[n, origin] & (surges.start[n] <= clock) & (clock < surges.end[n])
        weight = weight * jnp.where(active, surges.factor[n], 1)
    return weight


@functools.partial(jax.jit, static_argnums=0)
def wanted_vehicles(env: Setting, scenario: Scenario) -> Float[Array, ""]:
    """Number of vehicles of a scenario, to be held against `num_rows`."""
    return jnp.sum(vehicle_weights(env, scenario))


def check_scenario(env: Setting, scenario: Scenario) -> None:
    """Refuse, on the host, a scenario with more vehicles than its params have room for.

    Raises:
      CapacityError: naming the numbers and what to change.
    """
    vehicles = env.demand.value["depart_step"].shape[0]
    wanted = float(wanted_vehicles(env, scenario)) if vehicles else 0.0
    if not wanted <= env.max_demand * vehicles + 1:
        raise CapacityError(
            f"the scenario has {wanted:.0f} vehicles, but the environment has room for "
            f"{env.max_demand * vehicles:.0f} (max_demand {env.max_demand:g} times the "
            f"nominal {vehicles}); lower its factors or make the environment with "
            f"max_demand={np.ceil(wanted / max(vehicles, 1) * 10) / 10:g}"
        )


def scenario_params(env: Setting, scenario: Scenario, key: jax.Array) -> TrafficParams:
    """Params of one scenario; compiles, and maps over stacked scenarios and keys.

    A vehicle of weight w appears floor(w) or ceil(w) times. Which of the two is drawn
    so that the mean is w and the total is that of the weights, up to rounding these to
    1/1024 (systematic sampling in a random order). Further copies depart up to `JITTER`
    seconds earlier or later. The nominal scenario gives the nominal vehicles exactly.

    Returns:
      Params with `num_rows(env)` vehicles, unused ones never departing. Where more are
      wanted, `overfull` is set (see `check_scenario`).
    """
    params = env.nominal_params()
    drivers = jax.tree.map(jnp.multiply, params.drivers, scenario.drivers)
    params = params.replace(
        drivers=drivers,
        incidents=scenario.incidents,
        clearance=scenario.clearance,
        min_green=scenario.min_green,
        sensor_noise=scenario.sensor_noise,
        sensor_dropout=scenario.sensor_dropout,
    )
    if env.demand.value["depart_step"].shape[0] == 0:
        return params
    key = jax.random.fold_in(key, scenario.seed)
    draw_key, shift_key, priority_key = jax.random.split(key, 3)
    rows = num_rows(env)
    weight = vehicle_weights(env, scenario)
    source, copy, total = _draw(draw_key, weight, rows)
    present = jnp.arange(rows, dtype=jnp.int32) < total

    dt, horizon = env.simulator.dt, max(round(env.duration / env.simulator.dt) - 1, 0)
    reach = round(JITTER / dt)
    shift = jax.random.randint(shift_key, (rows,), -reach, reach + 1, jnp.int32)
    depart = params.depart_step[source]
    depart = jnp.where(copy == 0, depart, jnp.clip(depart + shift, 0, horizon))
    drawn = jax.random.randint(priority_key, (rows,), -_NEVER, _NEVER, jnp.int32)
    priority = jnp.where(copy == 0, params.priority[source], drawn)
    priority = jnp.where(present, priority, 0)

    path = params.path[source]
    entries = params.entry_offset.shape[0] - 1
    entry = jnp.asarray(env.simulator.paths.value["entry"])[path].astype(jnp.int32)
    entry = jnp.where(present, entry, entries)
    depart = jnp.where(present, depart, _NEVER)
    order = jnp.lexsort((depart, entry))
    starts = jnp.searchsorted(entry[order], jnp.arange(entries + 1, dtype=jnp.int32))
    return params.replace(
        depart_step=depart[order],
        path=path[order],
        driver=params.driver[source][order],
        priority=priority[order],
        entry_offset=starts.astype(jnp.int32),
        overfull=(total > rows) | ~(jnp.sum(weight) <= rows),
    )


def _draw(
    key: jax.Array, weight: Float[Array, " vehicles"], rows: int
) -> tuple[Int[Array, " rows"], Int[Array, " rows"], Int[Array, ""]]:
    """Vehicle in each row, the number of its copies in rows before, and the rows in use."""
    order_key, offset_key = jax.random.split(key)
    parts = jnp.round(jnp.clip(weight, 0, _LARGEST_WEIGHT) * _UNIT).astype(jnp.int32)
    order = jax.random.permutation(order_key, weight.shape[0])
    offset = jax.random.randint(offset_key, (), 0, _UNIT, jnp.int32)
    upper = jnp.cumsum(parts[order], dtype=jnp.int32) + offset
    count = upper // _UNIT - (upper - parts[order]) // _UNIT
    copies = jnp.zeros_like(parts).at[order].set(count)
    end = jnp.cumsum(copies, dtype=jnp.int32)
    row = jnp.arange(rows, dtype=jnp.int32)
    source = jnp.searchsorted(end, row, side="right").astype(jnp.int32)
    source = jnp.minimum(source, weight.shape[0] - 1)
    return source, row - (end - copies)[source], end[-1]


def sample_scenario(env: Setting, key: jax.Array) -> Scenario:
    """A mild variation of the nominal scenario that always fits: compiles.

    Between 70 and 120 % of the nominal vehicles (at most `max_demand`), other shares of
    origins and turns, a swell somewhere in time, another seed.
    """
    scenario = nominal_scenario(env)
    real = scenario.demand.dtype
    keys = jax.random.split(key, 5)

    def factors(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jnp.exp(0.2 * jax.random.truncated_normal(key, -2, 2, shape, real))

    most = min(1.2, env.max_demand)
    demand = jax.random.uniform(keys[0], (), real, min(0.7, most), most)
    moment = jax.random.uniform(keys[1], (), real)
    angle = 2 * np.pi * ((np.arange(PROFILE_BINS) + 0.5) / PROFILE_BINS - moment)
    scenario = scenario.replace(
        origins=factors(keys[2], scenario.origins.shape),
        profile=1 + 0.3 * jnp.cos(angle.astype(real)),
        turns=factors(keys[3], (3,)),
        seed=jax.random.randint(keys[4], (), 0, _NEVER, jnp.int32),
    )
    vehicles = max(env.demand.value["depart_step"].shape[0], 1)
    mean = wanted_vehicles(env, scenario) / vehicles
    return scenario.replace(demand=demand / jnp.maximum(mean, 1e-6))


def origin_mask(env: Setting, place: str) -> Bool[np.ndarray, " origins"]:
    """Origins on a side (`north`, ...), on the road of that name, or `everywhere`.

    Raises:
      ScenarioError: no vehicle enters there.
    """
    origins = origins_of(env)
    if place == "everywhere":
        return np.ones(len(origins.road), bool)
    if place in SIDES:
        mask = origins.side == SIDES.index(place)
    else:
        mask = np.array([name == place for name in origins.names], bool)
    if not mask.any():
        raise ScenarioError(
            f"no vehicle enters at '{place}'; choose everywhere, a side "
            f"({', '.join(SIDES)}) or one of the roads {', '.join(origins.names)}"
        )
    return mask
