"""Frames and units: rotating and inertial, about the barycentre or a primary, in km and s.

At time 0 the axes of both frames agree; the inertial frame does not turn afterwards.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.systems import System

CENTRES = ("barycentre", "primary", "secondary")


def _centre(centre: str, mu: float) -> float:
    """Where on the axis of the rotating frame a centre lies."""
    places = dict(zip(CENTRES, (0.0, -mu, 1 - mu), strict=True))
    if centre not in places:
        raise ConfigError(f"centre '{centre}' is unknown: {', '.join(CENTRES)}")
    return places[centre]


def _turn(xy: Array, angle: Array) -> Array:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    x, y = xy[..., 0], xy[..., 1]
    return jnp.stack([cos * x - sin * y, sin * x + cos * y], -1)


def to_inertial(
    state: Float[Array, "*batch 6"],
    time: Float[Array, "*batch"],
    mu: float,
    centre: str = "barycentre",
) -> Float[Array, "*batch 6"]:
    """States of the rotating frame as seen from a centre by axes that do not turn.

    Units of the system; the velocity is relative to the centre, which moves if it is a primary.
    """
    shift = jnp.zeros(6, state.dtype).at[0].set(_centre(centre, mu))
    state = state - shift
    position, velocity = state[..., :3], state[..., 3:]
    x, y = position[..., 0], position[..., 1]
    carried = velocity + jnp.stack([-y, x, jnp.zeros_like(x)], -1)
    return jnp.concatenate(
        [
            _turn(position[..., :2], time),
            position[..., 2:],
            _turn(carried[..., :2], time),
            carried[..., 2:],
        ],
        -1,
    )


def to_rotating(
    state: Float[Array, "*batch 6"],
    time: Float[Array, "*batch"],
    mu: float,
    centre: str = "barycentre",
) -> Float[Array, "*batch 6"]:
    """The inverse of `to_inertial`."""
    position = jnp.concatenate([_turn(state[..., :2], -time), state[..., 2:3]], -1)
    carried = jnp.concatenate([_turn(state[..., 3:5], -time), state[..., 5:]], -1)
    x, y = position[..., 0], position[..., 1]
    velocity = carried - jnp.stack([-y, x, jnp.zeros_like(x)], -1)
    shift = jnp.zeros(6, state.dtype).at[0].set(_centre(centre, mu))
    return jnp.concatenate([position, velocity], -1) + shift


def to_km(state: Float[Array, "*batch 6"], system: System) -> Float[Array, "*batch 6"]:
    """Positions in km and velocities in km/s."""
    return state * _units(state, system)


def from_km(state: Float[Array, "*batch 6"], system: System) -> Float[Array, "*batch 6"]:
    """The inverse of `to_km`."""
    return state / _units(state, system)


def _units(state: Array, system: System) -> Array:
    return jnp.array([system.length_km] * 3 + [system.velocity_km_s] * 3, state.dtype)
