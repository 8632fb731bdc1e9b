"""The vehicle model: car following, stopping and crossing rules, one formula each.

A deterministic Gipps/Krauss-like model with the rules of CityFlow (Zhang et al., WWW
2019; `vehicle.cpp` of the engine). All functions are elementwise over arrays of any
shape, in the dtype of their inputs. Distances in m, speeds in m/s, times in s.
Operations stand in the engine's order: queues amplify rounding errors.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

#: Speed limit on turns and clearance kept before a crossing, fixed in the engine.
TURN_SPEED = 8.3333
YIELD_DISTANCE = 5.0
#: A vehicle slower than this is waiting; a tail at least this fast lets others in.
WAITING_SPEED = 0.1
TAIL_MOVES_SPEED = 2.0
_EPSILON = 1e-8
_NO_SAFE_SPEED = -100.0


def _rounded(x: jax.Array) -> jax.Array:
    """The identity, as a fence against algebra.

    XLA rewrites a / (b / c) as a * c / b and fuses a * b + c into one operation, which
    rounds differently; a maximum in between ends the pattern and costs next to nothing.
    """
    return jnp.maximum(x, jnp.finfo(x.dtype).min)


@struct.dataclass
class Drivers:
    """Parameters of driver-vehicle units, one array `[types]` each (SI units)."""

    length: jax.Array
    max_acceleration: jax.Array
    max_deceleration: jax.Array
    usual_acceleration: jax.Array
    usual_deceleration: jax.Array
    min_gap: jax.Array
    max_speed: jax.Array
    headway_time: jax.Array

    def of(self, kind: jax.Array, index: jax.Array | None = None) -> Drivers:
        """Parameters of the vehicles of type `kind` (of those at `index`, if given).

        With one type only nothing is gathered. The parameters are still made arrays by
        a selection XLA cannot see through: it would turn a division by a common scalar
        into a multiplication with its reciprocal, which rounds differently.
        """
        if self.length.shape == (1,):
            some = (kind if index is None else index) >= 0
            return jax.tree.map(lambda x: jnp.where(some, x[0], 1), self)
        kind = kind if index is None else kind[index]
        return jax.tree.map(lambda x: x[kind], self)


def look_ahead(driver: Drivers, dt: float) -> jax.Array:
    """Distance within which leaders and junctions matter."""
    v = driver.max_speed
    return _rounded(v * v / driver.usual_deceleration) / 2 + v * dt * 2


def braking_distance(speed: jax.Array, deceleration: jax.Array) -> jax.Array:
    """Shortest stopping distance."""
    return 0.5 * speed * speed / deceleration


def safe_speed(
    leader_speed: jax.Array,
    leader_deceleration: jax.Array,
    speed: jax.Array,
    deceleration: jax.Array,
    gap: jax.Array,
    dt: float,
    target_gap: jax.Array | float,
) -> jax.Array:
    """Largest next speed that still allows stopping behind a braking leader.

    Returns -100 where there is none (the vehicle then brakes as hard as it can).
    """
    energy = _rounded(0.5 * leader_speed * leader_speed / leader_deceleration)
    c = speed * dt / 2 + target_gap - energy - gap
    a = _rounded(0.5 / deceleration)
    b = 0.5 * dt
    curvature = _rounded(4 * a * c)
    discriminant = b * b - curvature
    root = jnp.sqrt(jnp.maximum(discriminant, 0))
    braking = _rounded(0.5 / a) * (root - b)
    closing = 2 * leader_speed - leader_deceleration * dt + 2 * (gap - target_gap) / dt
    return jnp.where(b * b < curvature, _NO_SAFE_SPEED, jnp.minimum(braking, closing))


def following_speed(
    speed: jax.Array,
    driver: Drivers,
    leader_speed: jax.Array,
    leader: Drivers,
    gap: jax.Array,
    dt: float,
) -> jax.Array:
    """Next speed that keeps safety, the minimum gap and the time headway."""
    emergency = safe_speed(
        leader_speed, leader.max_deceleration, speed, driver.max_deceleration, gap, dt, 0.0
    )
    comfort = safe_speed(
        leader_speed,
        leader.usual_deceleration,
        speed,
        driver.usual_deceleration,
        gap,
        dt,
        driver.min_gap,
    )
    approach = jnp.maximum(speed - leader_speed, 0)
    headway = (gap + (leader_speed + approach / 2) * dt - speed * dt / 2) / (
        driver.headway_time + dt / 2
    )
    return jnp.minimum(jnp.minimum(emergency, comfort), headway)


def stopping_speed(speed: jax.Array, driver: Drivers, distance: jax.Array, dt: float) -> jax.Array:
    """Next speed of a vehicle that has to stop within `distance` metres."""
    gained = speed + driver.usual_acceleration * dt
    reach = (speed + gained) * dt / 2 + (gained * gained / driver.usual_deceleration / 2)
    steps = _rounded(_rounded(2 * distance / (speed + _EPSILON)) / dt)
    # The floor is taken in floating point: the engine's integer overflows at rest, harmlessly.
    # At the line itself steps is 0: a standing vehicle must not become 0 / 0.
    steps = jnp.maximum(steps, jnp.finfo(steps.dtype).tiny)
    slowed = speed - speed / jnp.where(steps >= 1, jnp.floor(steps), steps)
    return jnp.where(reach < distance, gained, slowed)


def steps_to_reach(
    speed: jax.Array,
    distance: jax.Array,
    target: jax.Array,
    acceleration: jax.Array,
    dt: float,
) -> jax.Array:
    """Steps until a vehicle accelerating to `target` has covered `distance`, as a float.

    Keeps the engine's two unit slips for dt != 1 (the first branch lacks a division by
    dt, the stage speed divides by dt), since they decide who yields.
    """
    needed = _rounded(_rounded((target - speed) / acceleration) / dt)
    stage_steps = jnp.floor(needed)
    stage_speed = speed + stage_steps * acceleration / dt
    stage_distance = (speed + stage_speed) * (stage_steps * dt) / 2
    last = jnp.where(stage_speed < target, (stage_speed + target) * dt / 2, 0)
    accelerating = jnp.where(target <= speed, 0, stage_distance + last)
    gain = _rounded(2 * acceleration * jnp.maximum(distance, 0))
    root = jnp.sqrt(_rounded(speed * speed) + gain)
    early = jnp.ceil(_rounded((root - speed) / acceleration) / dt)
    cruising = jnp.ceil(_rounded((distance - accelerating) / target) / dt)
    late = jnp.ceil(needed) + cruising
    steps = jnp.where(accelerating > distance, early, late)
    faster = jnp.ceil(distance / jnp.maximum(speed, _EPSILON))
    return jnp.where(distance <= 0, 0, jnp.where(speed > target, faster, steps))


def can_yield(
    speed: jax.Array, distance: jax.Array, deceleration: jax.Array, length: jax.Array
) -> jax.Array:
    """Whether a vehicle can stop before a crossing, or has its tail beyond it."""
    before = (distance > 0) & (braking_distance(speed, deceleration) < distance - YIELD_DISTANCE)
    beyond = (distance < 0) & (distance + length < 0)
    return before | beyond
