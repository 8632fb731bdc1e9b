"""Published initial states of periodic orbits.

From the JPL three-body periodic-orbit service (version 1.0, the Poincare catalogue) as it
prints them; components of 1e-12 and less are its residuals. They are what the corrector
and the integrators are tried with, and starts for continuing a family.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.systems import System, get_system


@dataclasses.dataclass(frozen=True)
class PublishedOrbit:
    """One row of the catalogue.

    Attributes:
      name: How it is called here.
      system_name: The system it belongs to.
      state: Position and velocity in units of the system, 6 numbers.
      period: In units of the system.
      jacobi: The Jacobi constant as published.
      closure: How far the orbit misses its start after one period, by integration to rounding.
    """

    name: str
    system_name: str
    state: tuple[float, ...]
    period: float
    jacobi: float
    closure: float

    @property
    def system(self) -> System:
        """The system it belongs to."""
        return get_system(self.system_name)

    def initial(self) -> np.ndarray:
        """The initial state, `[6]`."""
        return np.array(self.state)


def _orbit(
    name: str,
    system: str,
    start: tuple[float, float, float],
    period: float,
    jacobi: float,
    closure: float,
    residual: tuple[float, float] = (0.0, 0.0),
) -> PublishedOrbit:
    """An orbit that starts perpendicular to the xz plane."""
    x, z, vy = start
    state = (x, 0.0, z, residual[0], vy, residual[1])
    return PublishedOrbit(name, system, state, period, jacobi, closure)


_ROWS = (
    _orbit(
        "em-l1-halo-n",
        "earth-moon",
        (-4.1456184803140111e-01, 9.0753120433295065e-01, 1.4076145460136695),
        3.1233143922761588,
        0.19516273085815472,
        9.2e-11,
        (-1.1555581216266303e-12, 3.9979936124406781e-13),
    ),
    _orbit(
        "em-l2-halo-s-short",
        "earth-moon",
        (1.0809931218390707, -0.20235953267405354, -0.19895001215078018),
        2.3538670417546639,
        3.01521427092201,
        3.1e-13,
        (1.0157158264396639e-14, 7.2218178975912707e-15),
    ),
    _orbit(
        "em-l2-halo-s",
        "earth-moon",
        (1.1648780946517576, -0.11145303634437023, -0.20191923237095796),
        3.3031221822879884,
        3.10340975229164,
        3.3e-13,
    ),
    _orbit(
        "em-l1-lyapunov",
        "earth-moon",
        (0.81596252146384562, 0.0, 0.20722124749217649),
        2.8447547942812985,
        3.15001683280912,
        1.9e-12,
    ),
    _orbit(
        "em-l2-lyapunov",
        "earth-moon",
        (1.1182825695532028, 0.0, 0.18601928389638619),
        3.4205694071950448,
        3.15000013081292,
        3.0e-12,
    ),
    _orbit(
        "st-butterfly-n",
        "saturn-titan",
        (0.97753007347844856, 0.039522030056289147, -0.011884747036685137),
        3.6919029518069890,
        3.0091858300914192,
        3.1e-13,
    ),
    _orbit(
        "st-dro",
        "saturn-titan",
        (1.103634678919254, 0.0, -0.21342330800746742),
        5.492907935575565,
        2.98839303169219,
        6.1e-14,
        (4.668503057380735e-14, 0.0),
    ),
    _orbit(
        "st-dro-small",
        "saturn-titan",
        (1.0549936000489382, 0.0, -0.14088164677008905),
        3.5216493062423346,
        2.99660551341371,
        6.5e-12,
    ),
    _orbit(
        "st-l1-halo-n",
        "saturn-titan",
        (0.9528941255154755, 0.00314126302443851, 0.03731390450960828),
        2.9897839170583227,
        3.01453015574561,
        3.3e-13,
    ),
    _orbit(
        "st-l1-halo-n-stable",
        "saturn-titan",
        (0.9727073630185178, 0.052359188837347824, 0.05787729669648653),
        2.1872001284419813,
        3.00300100925057,
        3.8e-14,
    ),
    _orbit(
        "st-l2-lyapunov",
        "saturn-titan",
        (1.0515420654956817, 0.0, -0.0649696006249525),
        3.28254772270122,
        3.01175078412119,
        3.9e-13,
        (-3.21270600551531e-16, 0.0),
    ),
)
ORBITS = {row.name: row for row in _ROWS}


def published_orbit(name: str) -> PublishedOrbit:
    """A row of the catalogue by name.

    Raises:
      ConfigError: There is none of that name; the message lists what there is.
    """
    try:
        return ORBITS[name]
    except KeyError:
        raise ConfigError(
            f"no published orbit is called '{name}': known are {', '.join(ORBITS)}"
        ) from None
