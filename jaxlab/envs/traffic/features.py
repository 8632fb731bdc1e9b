"""What junctions and their green phases are like, in numbers of about 0 to 1.

Rewards and priors are designed over these features by name. Vehicles are counted per
lane in units of `FULL_LANE`, about what one lane discharges in 20 s of green.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.envs.traffic.controllers import phase_pressure
from jaxlab.envs.traffic.detectors import lane_delay

if TYPE_CHECKING:
    from jaxlab.envs.traffic.environment import SignalControlState, TrafficSignalControl

#: Vehicles on a lane that count as 1, metres per standing vehicle, seconds of green that count as 1.
FULL_LANE, SPACE, LONG_GREEN = 10.0, 7.5, 60.0


class Feature(NamedTuple):
    """A feature: its name, what it is, its range, and whether more is worse (-1) or better (+1)."""

    name: str
    description: str
    low: float = 0.0
    high: float = 1.0
    sign: int = 0


JUNCTION_FEATURES = (
    Feature("queue", "standing vehicles per approach lane, in tens", sign=-1),
    Feature("count", "vehicles per approach lane, in tens"),
    Feature("waiting", "share of the vehicles on the approach lanes that stand", sign=-1),
    Feature("pressure", "vehicles per approach lane less those per exit lane, in tens", -1.0),
    Feature(
        "speed",
        "speed over the limit, mean over occupied approach lanes, 1 where all are empty",
        sign=1,
    ),
    Feature("occupancy", "how full the fullest approach lane is"),
    Feature("phase_age", "minutes since the present green phase was chosen"),
    Feature("switched", "1 if the last decision changed the phase, else 0"),
    Feature("neighbour_queue", "mean queue of the junctions upstream"),
    Feature("neighbour_count", "mean count of the junctions upstream"),
)
ACTION_FEATURES = (
    Feature("queue", "standing vehicles per lane that the phase serves, in tens"),
    Feature("count", "vehicles per lane that the phase serves, in tens"),
    Feature("pressure", "vehicles before less vehicles behind each movement served, in tens", -1.0),
    Feature("is_current", "1 for the phase that is green now, else 0"),
)


def junction_features(
    env: TrafficSignalControl, state: SignalControlState
) -> Float[Array, "junctions features"]:
    """`JUNCTION_FEATURES` of every junction, free of sensor errors, within their ranges.

    A phase chosen at the first decision does not count as switched.
    """
    table, measured = env.table, env.detectors(state)
    real = state.traffic.speed.dtype
    approach, leaving = table["approach"], table["exit"]
    lanes = lambda rows: jnp.asarray(np.maximum((rows >= 0).sum(1), 1), real)  # noqa: E731
    number = _sum_over(approach, measured.count, real)
    standing = _sum_over(approach, measured.waiting, real)
    queue, count = standing / lanes(approach), number / lanes(approach)
    out = _sum_over(leaving, measured.count, real) / lanes(leaving)
    delay = lane_delay(state.traffic, table, env.simulator.num_lanes)
    occupied = jnp.maximum(_sum_over(approach, measured.count > 0, real), 1)
    room = jnp.asarray(np.maximum(table["length"][: env.simulator.num_lanes] / SPACE, 1), real)
    fullness = measured.count.astype(real) / room
    fullest = jnp.max(jnp.where(approach >= 0, fullness[approach], 0), axis=1)
    age = measured.age.astype(real) * jnp.asarray(env.simulator.dt / LONG_GREEN, real)
    switched = (measured.age <= env.interval_steps) & (measured.age < measured.step)
    columns = {
        "queue": queue / FULL_LANE,
        "count": count / FULL_LANE,
        "waiting": standing / jnp.maximum(number, 1),
        "pressure": (count - out) / FULL_LANE,
        "speed": 1 - _sum_over(approach, delay, real) / occupied,
        "occupancy": fullest,
        "phase_age": age,
        "switched": switched.astype(real),
        "neighbour_queue": _mean_upstream(env.neighbours, queue / FULL_LANE),
        "neighbour_count": _mean_upstream(env.neighbours, count / FULL_LANE),
    }
    return _stacked(columns, JUNCTION_FEATURES)


def action_features(
    env: TrafficSignalControl, state: SignalControlState
) -> Float[Array, "junctions actions features"]:
    """`ACTION_FEATURES` of every action of every junction; 0 for padded actions.

    Right turns are left out: they are free in all phases. Sums are divided by the lanes
    and links of the junction's largest phase, so that phases compare by what they serve.
    """
    table, measured = env.table, env.detectors(state)
    real = state.traffic.speed.dtype
    choices = table["green_phases"]
    exists, row = choices >= 0, np.arange(len(choices))[:, None]
    served = _served_lanes(table)[row, np.maximum(choices, 0)] & exists[:, :, None]
    lanes = np.maximum(served.sum(-1).max(1, keepdims=True), 1)
    moving = ~table["right_turn"][table["link_junction"], table["link_movement"]]
    links = np.where(exists, _served_links(table)[row, np.maximum(choices, 0)], 0).max(1)
    links = np.maximum(links, 1)

    def per_lane(vehicles: jax.Array) -> jax.Array:
        total = jnp.sum(jnp.where(served, vehicles.astype(real), 0), axis=-1)
        return total / jnp.asarray(lanes * FULL_LANE, real)

    ahead = (measured.count[table["link_start"]] - measured.count[table["link_end"]]).astype(real)
    pressure = phase_pressure(table, jnp.where(moving, ahead, 0))[row, np.maximum(choices, 0)]
    columns = {
        "queue": per_lane(measured.waiting),
        "count": per_lane(measured.count),
        "pressure": pressure / jnp.asarray(links[:, None] * FULL_LANE, real),
        "is_current": (choices == measured.phase[:, None]).astype(real),
    }
    features = _stacked(columns, ACTION_FEATURES)
    return jnp.where(exists[:, :, None], features, 0)


def _sum_over(rows: np.ndarray, lanes: jax.Array, real: jnp.dtype) -> jax.Array:
    """Sum of a lane quantity over each row of lanes, which is padded with -1."""
    return jnp.sum(jnp.where(rows >= 0, lanes.astype(real)[rows], 0), axis=1)


def _mean_upstream(neighbours: np.ndarray, value: jax.Array) -> jax.Array:
    count = jnp.asarray(np.maximum((neighbours >= 0).sum(1), 1), value.dtype)
    return _sum_over(neighbours, value, value.dtype) / count


def _served_lanes(table: dict[str, np.ndarray]) -> np.ndarray:
    """Lanes from which a phase lets go straight on or left, `[junctions, phases, lanes]`."""
    allows = table["phase_allows"] & ~table["right_turn"][:, None]
    junction, movement = table["link_junction"], table["link_movement"]
    served = np.zeros((*allows.shape[:2], len(table["lane_road"])), bool)
    for link, lane in enumerate(table["link_start"]):
        served[junction[link], :, lane] |= allows[junction[link], :, movement[link]]
    return served


def _served_links(table: dict[str, np.ndarray]) -> np.ndarray:
    """Number of links, right turns left out, that a phase lets go, `[junctions, phases]`."""
    allows = table["phase_allows"] & ~table["right_turn"][:, None]
    junction, movement = table["link_junction"], table["link_movement"]
    number = np.zeros(allows.shape[:2], np.int64)
    np.add.at(number, junction, allows[junction, :, movement])
    return number


def _stacked(columns: dict[str, jax.Array], features: tuple[Feature, ...]) -> jax.Array:
    """Columns in the order of the features, within their ranges."""
    return jnp.stack([jnp.clip(columns[f.name], f.low, f.high) for f in features], axis=-1)
