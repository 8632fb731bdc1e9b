"""Options of the commands of the three-body problem; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

#: More samples of one arc than this are a mistake, or a run out of memory.
MOST_SAMPLES = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SystemOptions(DeviceOptions):
    """Options of every command on one system of two primaries."""

    system: str | None = None
    """Primaries by name: earth-moon, saturn-titan, jupiter-europa or sun-earth."""
    mu: float | None = None
    """Mass parameter in (0, 0.5] of any other system, instead of --system."""
    state: tuple[float, ...] = ()
    """Position and velocity at the start, in units of the system: 6 numbers, 4 in the plane."""
    json: bool = False
    """Print one JSON object instead of tables."""
    x64: bool = True
    """Compute with 64-bit floats, which the three-body problem needs."""

    def mass_parameter(self) -> float:
        """The mass parameter that is asked for.

        Raises:
          ConfigError: None or two are given, the system is unknown, or it is outside (0, 0.5].
        """
        # It imports numpy, which the help text does without.
        from jaxlab.envs.cr3bp.systems import SYSTEMS

        if (self.system is None) == (self.mu is None):
            raise ConfigError(
                "--system and --mu: give one of them, the name of a system or a mass parameter"
            )
        if self.mu is not None:
            if not 0 < self.mu <= 0.5:
                raise ConfigError(
                    f"--mu {self.mu:g}: the mass parameter is the smaller mass by the sum, "
                    "in (0, 0.5]"
                )
            return self.mu
        if self.system not in SYSTEMS:
            raise ConfigError(
                f"--system {self.system}: known are {', '.join(SYSTEMS)}; --mu takes the mass "
                "parameter of any other"
            )
        return SYSTEMS[self.system].mass_parameter

    def _check_state(self) -> None:
        count = len(self.state)
        if count not in (4, 6):
            raise ConfigError(
                f"--state: expected 6 numbers (X Y Z VX VY VZ) or, in the plane, 4 (X Y VX VY), "
                f"got {count or 'none'}"
            )
        self._check_finite("state")

    def _check_finite(self, name: str) -> None:
        value = getattr(self, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not math.isfinite(number):
                raise ConfigError(f"--{_flag(name)} {number}: expected finite numbers")

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"--{_flag(name)} {value:g}: expected a positive, finite number")


def _flag(name: str) -> str:
    """An option as it is written on the command line."""
    return name.replace("_", "-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PropagateOptions(SystemOptions):
    """Propagate an arc, ballistic or under low thrust, with its state transition matrix.

    Lengths are in distances of the primaries, times such that they turn by 2 pi in 2 pi; the
    larger primary is at x = -mu, the smaller at 1 - mu. An arc that hits a primary ends there,
    with the status "collision".

    Under low thrust (--mass, --costate, --thrust, --exhaust and --smoothing, all of them) the
    spacecraft follows the minimum-fuel law of Pontryagin's principle for its costates.
    """

    time: float | None = None
    """Span of the arc, of either sign, in units of the system."""
    stm: bool = False
    """Also the state transition matrix: 6 x 6, or 14 x 14 under low thrust (order: position,
    velocity, mass, their costates); 4 x 4 and 10 x 10 in the plane. Its error counts in the
    step size as well."""
    tolerance: float = 1e-14
    """Relative and absolute tolerance of a step, from 1e-15."""
    samples: int | None = None
    """Also the states at so many equal times: T / N, 2 T / N, ..., T."""
    collision_radius: tuple[float, float] = (1e-7, 1e-7)
    """Distances from the larger and the smaller primary at which an arc ends."""
    mass: float | None = None
    """Low thrust: mass at the start, by the mass at which --thrust holds."""
    costate: tuple[float, ...] = ()
    """Low thrust: costates of position, velocity and mass at the start: 7 numbers, 5 in the
    plane."""
    thrust: float | None = None
    """Low thrust: acceleration at full throttle and mass 1, in units of the system."""
    exhaust: float | None = None
    """Low thrust: exhaust speed, in units of the system."""
    smoothing: float | None = None
    """Low thrust: rho, the width of a switch of the throttle in the switching function."""

    def check(self) -> None:
        super().check()
        self.mass_parameter()
        self._check_state()
        if self.time is None:
            raise ConfigError(
                "--time: is missing; give the span of the arc, negative for backwards"
            )
        self._check_finite("time")
        self._check_positive("tolerance")
        if self.tolerance >= 1:
            raise ConfigError(f"--tolerance {self.tolerance:g}: expected less than 1")
        self.at_least("samples", 1)
        if self.samples is not None and self.samples > MOST_SAMPLES:
            raise ConfigError(f"--samples {self.samples}: expected at most {MOST_SAMPLES}")
        for radius in self.collision_radius:
            if not 0 <= radius < math.inf:
                raise ConfigError(
                    f"--collision-radius {radius:g}: expected finite numbers of at least 0"
                )
        self._check_thrust()

    @property
    def low_thrust(self) -> bool:
        """Whether a thruster is described."""
        return self.mass is not None

    def _check_thrust(self) -> None:
        names = ("mass", "costate", "thrust", "exhaust", "smoothing")
        missing = [f"--{name}" for name in names if getattr(self, name) in (None, ())]
        if len(missing) == len(names):
            return
        if missing:
            raise ConfigError(
                f"low thrust needs {' and '.join(missing)} as well: give all of "
                f"{', '.join(f'--{name}' for name in names)}, or none for a ballistic arc"
            )
        self._check_positive("mass", "thrust", "exhaust", "smoothing")
        expected = len(self.state) + 1
        if len(self.costate) != expected:
            raise ConfigError(
                f"--costate: expected {expected} numbers (of position, velocity and mass) with "
                f"{len(self.state)} in --state, got {len(self.costate)}"
            )
        self._check_finite("costate")
        if not any(self.costate[expected // 2 : -1]):
            raise ConfigError(
                "--costate: that of the velocity is zero, so that thrust has no direction; "
                "give one that is not"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrbitOptions(SystemOptions):
    """Correct a periodic orbit and follow its family, with multipliers and stability.

    Begin with a published orbit (--orbit) or with a guess (--system or --mu, --state, --period).
    Orbits are those that cross the xz plane at right angles: halo, Lyapunov, butterfly, distant
    retrograde and others of that kind; y, vx and vz of the start are set to zero.
    """

    orbit: str | None = None
    """A published orbit by name, such as st-dro or em-l1-halo-n; an unknown name lists all."""
    period: float | None = None
    """Guess of the period, in units of the system."""
    fixed: Literal["x", "z", "vy", "period"] = "x"
    """What the correction leaves as it is."""
    members: int | None = None
    """Also so many more orbits of the family, one after the other; needs --step."""
    step: float | None = None
    """Distance between two of them along the family, in the space of (x, z, vy, half the
    period); the way on which x grows for a positive one, the other way for a negative one."""

    def check(self) -> None:
        super().check()
        self._check_positive("period")
        if self.orbit is None:
            if self.system is None and self.mu is None and not self.state and self.period is None:
                raise ConfigError(
                    "no orbit is given: name a published one with --orbit, or give a guess with "
                    "--system, --state and --period"
                )
            self.mass_parameter()
            self._check_state()
            if self.period is None:
                raise ConfigError("--period: is missing; give a guess of the period")
        else:
            self._check_published()
        self.at_least("members", 1)
        if (self.members is None) != (self.step is None):
            given, missing = ("step", "members") if self.members is None else ("members", "step")
            raise ConfigError(f"--{given} needs --{missing} as well")
        self._check_finite("step")
        if self.step == 0:
            raise ConfigError("--step 0: expected a number other than zero")

    def _check_published(self) -> None:
        # It imports numpy, which the help text does without.
        from jaxlab.envs.cr3bp.catalogue import ORBITS

        given = [
            n for n in ("system", "mu", "state", "period") if getattr(self, n) not in (None, ())
        ]
        if given:
            raise ConfigError(
                f"--orbit and --{given[0]} contradict each other: give a published orbit or a guess"
            )
        if self.orbit not in ORBITS:
            raise ConfigError(f"--orbit {self.orbit}: known are {', '.join(ORBITS)}")
