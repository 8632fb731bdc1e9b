"""Low-thrust transfers to a periodic orbit: what is given of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.low_thrust import Thruster
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate
from jaxlab.envs.cr3bp.systems import System, require_mass_parameter

#: A target orbit must close to this, by the size of its states.
CLOSURE = 1e-6


class Weights(NamedTuple):
    """What a transfer costs besides its gap.

    Attributes:
      propellant: kappa1, of the part of the initial mass that is burnt.
      time: kappa2, of a unit of time of flight.
    """

    propellant: Float[Array, ""]
    time: Float[Array, ""]


class Transfer(NamedTuple):
    """From a state to a periodic orbit; n = 2 in the plane, 3 in space.

    Attributes:
      mu: Mass parameter.
      start: Position, velocity and mass at departure, `[2 n + 1]`.
      thruster: What drives the spacecraft.
      target: Ballistic states around the orbit, evenly in time, `[nodes, 2 n]`.
      period: Of the orbit.
      duration: Shortest and longest time of flight, `[2]`.
      weights: Of propellant and time.
    """

    mu: Float[Array, ""]
    start: Float[Array, " state"]
    thruster: Thruster
    target: Float[Array, "nodes components"]
    period: Float[Array, ""]
    duration: Float[Array, "2"]
    weights: Weights


def make_transfer(
    mu: float,
    start: np.ndarray | jax.Array,
    thruster: Thruster,
    orbit: np.ndarray | jax.Array,
    period: float,
    *,
    duration: tuple[float, float],
    weights: tuple[float, float] = (1e-2, 1e-4),
    nodes: int = 128,
) -> Transfer:
    """A transfer to the orbit through a state.

    Args:
      mu: Mass parameter.
      start: Position and velocity, and the mass (1 if left out), `[2 n]` or `[2 n + 1]`.
      thruster: In units of the system.
      orbit: A state on the target orbit, `[2 n]`.
      period: Its period.
      duration: Shortest and longest time of flight.
      weights: kappa1 of propellant, kappa2 of time.
      nodes: States stored around the orbit.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A shape is wrong, a number out of range, or the orbit does not close.
    """
    require_mass_parameter(mu)
    orbit, start = _numbers("orbit", orbit), _numbers("start", start)
    size = orbit.shape[-1] if orbit.ndim == 1 else 0
    if size not in (4, 6) or start.shape not in ((size,), (size + 1,)):
        raise ConfigError(
            "start and orbit are [4] in the plane or [6] in space, start with a mass behind if it "
            f"is not 1: got {list(start.shape)} and {list(orbit.shape)}"
        )
    if start.shape == (size + 1,) and not start[-1] > 0:
        raise ConfigError(f"start has a mass of {float(start[-1]):g}: expected a positive number")
    limits, weight = _numbers("duration", duration), _numbers("weights", weights)
    if limits.shape != (2,) or not 0 < limits[0] < limits[1]:
        raise ConfigError(f"duration {duration}: expected 0 < shortest < longest")
    if weight.shape != (2,) or not (weight >= 0).all():
        raise ConfigError(f"weights {weights}: expected two numbers, not negative")
    engine = _numbers("thruster", thruster)
    if engine.shape != (3,) or not (engine > 0).all():
        raise ConfigError(f"thruster {tuple(thruster)}: expected three positive numbers")
    if not _numbers("period", period) > 0 or not isinstance(nodes, int) or nodes < 8:
        raise ConfigError(f"period {period} must be positive, nodes {nodes} at least 8")
    if start.shape == (size,):
        start = np.append(start, 1.0)
    fine = Accuracy(tolerance=1e-14)
    times = jnp.arange(nodes) * (period / nodes)
    around = propagate(
        jnp.broadcast_to(orbit, (nodes + 1, size)), jnp.append(times, period), mu, accuracy=fine
    )
    if not (around.status == Status.DONE).all():
        raise ConfigError("the target orbit runs into a primary or cannot be followed")
    if float(jnp.linalg.norm(around.state[nodes // 2] - orbit)) < CLOSURE:
        raise ConfigError(
            "the target orbit stays where it is: give a periodic orbit, no equilibrium"
        )
    gap = float(jnp.linalg.norm(around.state[-1] - orbit) / jnp.linalg.norm(orbit))
    if not gap < CLOSURE:
        raise ConfigError(
            f"the target orbit does not close: after its period of {period:g} it is {gap:.1e} away, "
            f"by its size, which must be below {CLOSURE:g}; correct it first "
            "(jaxlab.envs.cr3bp.orbits.correct)"
        )
    return Transfer(
        jnp.asarray(mu, float),
        jnp.asarray(start),
        Thruster(*map(jnp.asarray, engine)),
        around.state[:-1],
        jnp.asarray(period, float),
        jnp.asarray(limits),
        Weights(*map(jnp.asarray, weight)),
    )


def _numbers(name: str, value: Any) -> np.ndarray:
    """Finite numbers as float64.

    Raises:
      ConfigError: They are not.
    """
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} {value!r}: expected numbers") from None
    if not np.isfinite(array).all():
        raise ConfigError(f"{name} {value}: expected finite numbers")
    return array


def thruster_in_units(
    system: System,
    *,
    thrust: float,
    mass: float,
    specific_impulse: float,
    smoothing: float = 1e-2,
) -> Thruster:
    """A thruster in units of a system.

    Args:
      thrust: Newton.
      mass: Initial mass, kg.
      specific_impulse: Seconds.
      smoothing: rho, in units of the switching function.

    Raises:
      ConfigError: A number is not positive.
    """
    if not 0 < smoothing < np.inf:
        raise ConfigError(f"smoothing {smoothing:g}: expected a positive number")
    return Thruster(
        system.thrust_acceleration(thrust, mass),
        system.exhaust_speed(specific_impulse),
        smoothing,
    )


def circular_start(mu: float, radius: float, angle: float = np.pi) -> np.ndarray:
    """A planar state on a direct circular orbit about the larger primary, `[4]`.

    Args:
      mu: Mass parameter.
      radius: Of the orbit.
      angle: From the line to the smaller primary; pi is opposite to it.

    The speed is that of the orbit of the larger primary's mass alone, in the turning frame.

    Raises:
      ConfigError: The radius is not positive.
    """
    if not radius > 0:
        raise ConfigError(f"radius {radius:g}: expected a positive number")
    speed = np.sqrt((1 - mu) / radius) - radius
    along, across = np.cos(angle), np.sin(angle)
    return np.array([radius * along - mu, radius * across, -speed * across, speed * along])
