"""Named three-body systems: mass parameter, units, libration points.

A system is two primaries on circular orbits about their barycentre. Lengths are
measured in their distance, times in the inverse of their angular velocity, so that one
revolution takes 2 pi; the frame turns with them, the larger at (-mu, 0, 0), the smaller
at (1 - mu, 0, 0).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxlab.core.errors import ConfigError

#: Standard gravity (m/s^2), by which a specific impulse becomes an exhaust speed.
STANDARD_GRAVITY = 9.80665


def require_mass_parameter(mu: Any) -> None:
    """Refuse a mass parameter outside (0, 0.5].

    Raises:
      ConfigError: It is outside, or no number.
    """
    values = np.asarray(mu, np.float64)
    if not bool(np.all((values > 0) & (values <= 0.5))):
        raise ConfigError(
            f"the mass parameter is {mu}: it is the smaller mass by the sum, in (0, 0.5]"
        )


@dataclasses.dataclass(frozen=True)
class System:
    """Two primaries and the units of their frame.

    Attributes:
      name: Primary and secondary, in lower case with a dash between them.
      mass_parameter: Mass of the secondary by that of both, in (0, 0.5].
      length_km: Unit of length (km).
      time_s: Unit of time (s).
    """

    name: str
    mass_parameter: float
    length_km: float
    time_s: float

    def __post_init__(self) -> None:
        require_mass_parameter(self.mass_parameter)
        for unit in ("length_km", "time_s"):
            value = getattr(self, unit)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{self.name}: {unit} is {value}, it must be positive")

    @property
    def velocity_km_s(self) -> float:
        """Unit of velocity (km/s)."""
        return self.length_km / self.time_s

    @property
    def acceleration_m_s2(self) -> float:
        """Unit of acceleration (m/s^2)."""
        return 1e3 * self.velocity_km_s / self.time_s

    def thrust_acceleration(self, thrust_n: float, mass_kg: float) -> float:
        """Acceleration by a thrust (N) on a mass (kg), in units of the system."""
        if not (thrust_n > 0 and mass_kg > 0):
            raise ConfigError(f"thrust {thrust_n} N and mass {mass_kg} kg must be positive")
        return thrust_n / mass_kg / self.acceleration_m_s2

    def exhaust_speed(self, specific_impulse_s: float) -> float:
        """Exhaust speed of a specific impulse (s), in units of the system."""
        if not specific_impulse_s > 0:
            raise ConfigError(f"a specific impulse of {specific_impulse_s} s must be positive")
        return specific_impulse_s * STANDARD_GRAVITY / (1e3 * self.velocity_km_s)


# Mass parameters and units as the JPL three-body periodic-orbit service (version 1.0) gives
# them; its lengths are not the mean distances of the bodies (Titan's is 1,221,870 km).
_JPL = (
    System("earth-moon", 1.215058560962404e-02, 389703.2648292776, 382981.2891290545),
    System("saturn-titan", 2.366393158331484e-04, 1195677.151917583, 212238.2726842311),
    System("jupiter-europa", 2.52801752854e-05, 668518.69872684, 48562.3417930319),
    System("sun-earth", 3.0542e-06, 149597871.0, 5022635.0),
)
SYSTEMS = {system.name: system for system in _JPL}


def get_system(name: str) -> System:
    """A system by name.

    Raises:
      ConfigError: There is none of that name; the message lists what there is.
    """
    try:
        return SYSTEMS[name]
    except KeyError:
        known = ", ".join(SYSTEMS)
        raise ConfigError(
            f"no system is called '{name}': known are {known}; System(...) makes any other"
        ) from None


def libration_points(mu: float) -> np.ndarray:
    """The five equilibria L1 to L5, `[5, 3]`, in units of the system.

    The collinear ones solve Euler's quintic (Szebehely, Theory of Orbits, section 4.3); the
    others form equilateral triangles with the primaries.
    """
    require_mass_parameter(mu)
    points = np.zeros((5, 3))
    hill = (mu / 3) ** (1 / 3)
    starts = (1 - mu - hill, 1 - mu + hill, -1 - 5 * mu / 12)
    brackets = ((-mu, 1 - mu), (1 - mu, 2.0), (-2.0, -mu))
    for n, (start, bracket) in enumerate(zip(starts, brackets, strict=True)):
        points[n, 0] = _collinear(mu, start, bracket)
    points[3:, 0] = 0.5 - mu
    points[3:, 1] = math.sqrt(3) / 2, -math.sqrt(3) / 2
    return points


def _collinear(mu: float, x: float, bracket: tuple[float, float]) -> float:
    """Newton on the force along the axis, which grows all the way between two singularities."""
    low, high = bracket
    for _ in range(100):
        large, small = x + mu, x - 1 + mu
        force = x - (1 - mu) * large / abs(large) ** 3 - mu * small / abs(small) ** 3
        slope = 1 + 2 * (1 - mu) / abs(large) ** 3 + 2 * mu / abs(small) ** 3
        low, high = (x, high) if force < 0 else (low, x)
        new = x - force / slope
        if not low <= new <= high:
            new = (low + high) / 2
        if abs(new - x) <= 2e-16 * abs(x):
            return new
        x = new
    return x
