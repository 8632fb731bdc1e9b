"""The task of a traffic environment as a pytree of arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from jaxlab.envs.traffic.vehicles import Drivers


@struct.dataclass
class Incidents:
    """Lanes closed or slowed for a while, `[incidents]` each.

    Attributes:
      lane: Lane index, -1 for none.
      start, end: Seconds; in force while start <= t < end.
      speed_factor: Multiplies the lane's speed limit; 0 closes the lane to newcomers,
        while vehicles already on it drive on at the old limit.
    """

    lane: jax.Array
    start: jax.Array
    end: jax.Array
    speed_factor: jax.Array


@struct.dataclass
class TrafficParams:
    """Demand and conditions of one episode.

    Attributes:
      depart_step: Step in which a vehicle joins its entry queue, `[vehicles]`, int32; the
        largest int32 for vehicles that stay at home. Rows are sorted by entry lane and time.
      path: Path of each vehicle, `[vehicles]`.
      driver: Driver type of each vehicle, `[vehicles]`.
      priority: Tie-break at crossings, `[vehicles]`.
      entry_offset: First vehicle of each entry lane, `[entries + 1]`.
      drivers: Driver types, `[types]` each.
      incidents: `[incidents]` each; the number may be 0.
      clearance: Seconds without right of way (but right turns) after a change of phase, `[]`.
      min_green: Seconds a phase lasts at least, clearance included, `[]`.
      sensor_noise: Standard deviation of counting errors relative to the count, `[]`.
      sensor_dropout: Probability that a lane's detector reads zero, `[]`.
      overfull: Whether the demand has more vehicles than rows, `[]`, bool.
    """

    depart_step: jax.Array
    path: jax.Array
    driver: jax.Array
    priority: jax.Array
    entry_offset: jax.Array
    drivers: Drivers
    incidents: Incidents
    clearance: jax.Array
    min_green: jax.Array
    sensor_noise: jax.Array
    sensor_dropout: jax.Array
    overfull: jax.Array


def lane_conditions(
    params: TrafficParams, step: jax.Array, dt: float, num_lanes: int
) -> tuple[jax.Array | None, jax.Array | None]:
    """Speed factor and closure of every lane, `[lanes + 1]`; None where no incident can be."""
    incidents = params.incidents
    if incidents.lane.shape[0] == 0:
        return None, None
    time = step * jnp.asarray(dt, incidents.start.dtype)
    active = (incidents.start <= time) & (time < incidents.end) & (incidents.lane >= 0)
    row = jnp.where(active, incidents.lane, num_lanes)
    factor = jnp.ones(num_lanes + 1, incidents.speed_factor.dtype)
    closed = jnp.zeros(num_lanes + 1, bool)
    closed = closed.at[row].max(active & (incidents.speed_factor <= 0))
    slow = jnp.where(active & (incidents.speed_factor > 0), incidents.speed_factor, 1)
    return factor.at[row].min(slow), closed.at[num_lanes].set(False)
