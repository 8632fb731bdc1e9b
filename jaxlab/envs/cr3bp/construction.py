"""Makes environments of low-thrust control from transfers."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxlab.core.environment import Constant
from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.environment import ControlParams, LowThrustControl, Spacecraft
from jaxlab.envs.cr3bp.transfers import Transfer, circular_start, make_transfer, thruster_in_units

#: Mean radii of Saturn and Titan (km), of the IAU's report of 2015.
SATURN_TITAN_KM = (58232.0, 2574.7)


def make_environment(
    transfer: Transfer,
    *,
    dry_mass: float = 0.9,
    segment: float = 0.25,
    tolerance: float = 1e-2,
    collision_radius: tuple[float, float] = (1e-2, 1e-3),
    penalty: float = 1.0,
    **fields: Any,
) -> LowThrustControl:
    """The environment in which a transfer is to be flown.

    Args:
      transfer: Of which the start, the target orbit, thrust and weights are taken.
      dry_mass: By the initial mass.
      segment: Time of a step.
      tolerance: Gap below which the spacecraft has arrived.
      collision_radius: Of the larger and the smaller primary.
      penalty: Of a collision.
      fields: Of `LowThrustControl`.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A number is out of range.
    """
    require_x64(LowThrustControl.name)
    mass = float(transfer.start[-1])
    if not 0 < dry_mass < mass:
        raise ConfigError(f"dry_mass {dry_mass}: expected a number between 0 and the mass {mass:g}")
    radii = np.asarray(collision_radius, np.float64)
    if radii.shape != (2,) or not (np.isfinite(radii) & (radii > 0)).all():
        raise ConfigError(f"collision_radius {collision_radius}: expected two positive numbers")
    for name, value in (("segment", segment), ("tolerance", tolerance)):
        if not 0 < value < math.inf:
            raise ConfigError(f"{name} {value}: expected a positive number")
    if not 0 <= penalty < math.inf:
        raise ConfigError(f"penalty {penalty}: expected a number, not negative")
    thruster, weights = transfer.thruster, transfer.weights
    number = lambda value: jnp.asarray(value, jnp.float64)  # noqa: E731
    params = ControlParams(
        mu=transfer.mu,
        start=transfer.start,
        target=transfer.target,
        spacecraft=Spacecraft(thruster.acceleration, thruster.exhaust_speed, number(dry_mass)),
        segment=number(segment),
        tolerance=number(tolerance),
        collision_radius=number(radii),
        weights=jnp.stack([weights.propellant, weights.time]),
        penalty=number(penalty),
    )
    spatial = transfer.target.shape[1] == 6
    return LowThrustControl(nominal=Constant(params), spatial=spatial, **fields)


def default_environment(*, spatial: bool = False, **fields: Any) -> LowThrustControl:
    """From orbits about Saturn inside of Titan's to an orbit about Titan: 1 t, 0.5 N, 3000 s.

    In the plane to a distant retrograde orbit, in space to a halo orbit about L1. A tenth of the
    mass is propellant, which lasts for 110 segments of a quarter of a unit of time at full thrust.

    Args:
      spatial: Whether the target orbit is the halo orbit.
      fields: Of `make_environment` and `LowThrustControl`.
    """
    row = published_orbit("st-l1-halo-n-stable" if spatial else "st-dro-small")
    system, keep = row.system, slice(None) if spatial else [0, 1, 3, 4]
    mu = system.mass_parameter
    start = np.zeros(6)
    start[[0, 1, 3, 4]] = circular_start(mu, 0.85)
    transfer = make_transfer(
        mu,
        start[keep],
        thruster_in_units(system, thrust=0.5, mass=1000.0, specific_impulse=3000.0),
        row.initial()[keep],
        row.period,
        duration=(1.0, 100.0),
    )
    titan = {"collision_radius": tuple(r / system.length_km for r in SATURN_TITAN_KM)}
    return make_environment(transfer, **(titan | fields))
