"""What can be measured on the road: counts, queues, delays, travel times."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.envs.traffic.params import TrafficParams
from jaxlab.envs.traffic.simulation import TrafficState
from jaxlab.envs.traffic.vehicles import WAITING_SPEED


@struct.dataclass
class Detectors:
    """Measurements that controllers and observations are made of.

    Attributes:
      count: Vehicles on each lane, `[lanes]`.
      waiting: Vehicles slower than 0.1 m/s on each lane, `[lanes]`.
      phase, age: Phase of each junction and the steps since it was asked for, `[junctions]`.
      clearing: Steps of clearance left, `[junctions]`.
      step: Steps simulated, `[]`.
    """

    count: jax.Array
    waiting: jax.Array
    phase: jax.Array
    age: jax.Array
    clearing: jax.Array
    step: jax.Array


def lane_counts(state: TrafficState, lanes: int) -> Int[Array, " lanes"]:
    """Vehicles on each lane."""
    zeros = jnp.zeros(state.last.shape, jnp.int32)
    return zeros.at[state.drivable].add(1)[:lanes]


def lane_waiting(state: TrafficState, lanes: int) -> Int[Array, " lanes"]:
    """Vehicles slower than 0.1 m/s on each lane."""
    slow = (state.speed < WAITING_SPEED) & (state.vehicle >= 0)
    zeros = jnp.zeros(state.last.shape, jnp.int32)
    return zeros.at[state.drivable].add(slow.astype(jnp.int32))[:lanes]


def lane_delay(
    state: TrafficState, table: Mapping[str, np.ndarray], lanes: int
) -> Float[Array, " lanes"]:
    """1 - mean speed / speed limit on each lane, 0 on empty lanes (LibSignal's delay)."""
    real = state.speed.dtype
    zeros = jnp.zeros(state.last.shape, real)
    total = zeros.at[state.drivable].add(state.speed)[:lanes]
    count = lane_counts(state, lanes)
    mean = total / jnp.maximum(count, 1).astype(real)
    limit = jnp.asarray(table["max_speed"][:lanes], real)
    return jnp.where(count > 0, 1 - mean / limit, 0)


@struct.dataclass
class Totals:
    """State of the network as a whole, `[]` each.

    Attributes:
      average_travel_time: Seconds, over all vehicles that departed by now: trip times of
        those that arrived, ages of all others, insertion delay included (CityFlow's rule).
      finished, running, waiting_to_enter: Vehicles, int32.
    """

    average_travel_time: jax.Array
    finished: jax.Array
    running: jax.Array
    waiting_to_enter: jax.Array


def totals(state: TrafficState, params: TrafficParams, dt: float) -> Totals:
    """Travel time and vehicle counts of the network."""
    real = state.speed.dtype
    departed = params.depart_step < state.step
    number = jnp.sum(departed, dtype=jnp.int32)
    running = jnp.sum(state.vehicle >= 0, dtype=jnp.int32)
    # Ages of those still under way = ages of all that departed less those of the arrived.
    # Sums of steps stay below 2^31 for 6,000 vehicles over 36,000 steps each.
    head = params.entry_offset[:-1] + state.queue_head
    entry = jnp.searchsorted(
        params.entry_offset[1:], jnp.arange(departed.shape[0], dtype=jnp.int32), side="right"
    )
    queued = departed & (
        jnp.arange(departed.shape[0], dtype=jnp.int32)
        >= head[jnp.minimum(entry, head.shape[0] - 1)]
    )
    waiting_age = jnp.sum(jnp.where(queued, state.step - params.depart_step, 0), dtype=jnp.int32)
    running_age = jnp.sum(
        jnp.where(state.vehicle >= 0, state.step - state.departed, 0), dtype=jnp.int32
    )
    steps = (state.travel_steps + waiting_age + running_age).astype(real)
    return Totals(
        average_travel_time=steps * jnp.asarray(dt, real) / jnp.maximum(number, 1).astype(real),
        finished=state.finished,
        running=running,
        waiting_to_enter=number - state.finished - running,
    )
