"""Options of the command that finds a transfer; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Literal

from experiments.cr3bp.options import SystemOptions
from jaxlab.core.errors import ConfigError

#: Draws of random search in a step, and so the least there are.
DRAWS = 2048


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveOptions(SystemOptions):
    """Find low-thrust transfers from a state to a periodic orbit.

    Initial costates are drawn at random, those of least cost J* are candidates, and each is solved
    by Levenberg-Marquardt steps for costates and both times. The answer is the solved transfer of
    least cost, integrated once more to a finer tolerance; the front of propellant and time of
    all that were solved stands behind it. Without options it is the transfer of the study, in the
    plane: from a circular orbit about Saturn to a distant retrograde orbit about Titan.

    With --homotopy the search is for a related transfer (--begin is its thrust, mass parameter,
    radius or smoothing), whose solutions are followed to the one that is asked for.
    """

    radius: float | None = None
    """Radius of a direct circular orbit about the larger primary from which the transfer begins,
    opposite the smaller one, in distances of the primaries; --state gives any other start. By
    default 0.85."""
    target: str = "st-dro"
    """The target orbit: a published one by name, corrected where --system or --mu is another."""
    target_state: tuple[float, ...] = ()
    """Instead of --target a state on the target orbit, 4 or 6 numbers; needs --target-period."""
    target_period: float | None = None
    """Period of the orbit of --target-state."""
    thrust: float = 6.0
    """Newton, at full throttle."""
    mass: float = 25_000.0
    """Mass of the spacecraft at the start (kg)."""
    specific_impulse: float = 7365.0
    """Seconds."""
    acceleration: float | None = None
    """Acceleration at full throttle and at the start in units of the system, in the place of
    --thrust and --mass; with --exhaust, and needed with --mu, of which no units are known."""
    exhaust: float | None = None
    """Exhaust speed in units of the system, in the place of --specific-impulse."""
    smoothing: float = 1e-2
    """rho, the width of a switch of the throttle in the switching function."""
    duration: tuple[float, float] = (5.0, 30.0)
    """Shortest and longest time of flight, in units of the system."""
    weights: tuple[float, float] = (1e-2, 1e-4)
    """kappa1 of the burnt part of the mass and kappa2 of the time of flight in J."""
    prior: Literal["costates", "controls"] = "costates"
    """What is drawn: normal costates of log-uniform deviation, or the thrust's direction, its rate,
    the switching function and its rate, evenly (adjoint control transformation)."""
    draws: int = 16_384
    """Draws of each seed, of which the best become candidates; rounded up to a multiple of 2048."""
    candidates: int = 64
    """Candidates of each seed that are solved."""
    rounds: int = 60
    """Steps of Levenberg-Marquardt."""
    tolerance: tuple[float, float] = (1e-4, 1e-5)
    """Gaps in position and velocity that a transfer may leave, in units of the system."""
    seed: int = 0
    """The first of the consecutive seeds."""
    seeds: int = 1
    """Number of seeds, searched at once."""
    homotopy: Literal["thrust", "mu", "radius", "smoothing"] | None = None
    """Search for a related transfer and follow it in this parameter."""
    begin: float | None = None
    """Value of that parameter where the search is: for thrust and smoothing a multiple of what is
    asked for, for radius and mu the value itself. By default 0.9, 3, the mass parameter of Jupiter
    and Europa, and half way from the radius asked for to that of the smaller primary."""
    stages: int = 6
    """Values of the parameter from there to what is asked for; steps that lose more than half of
    the candidates are halved."""
    csv: pathlib.Path | None = None
    """Write the answer's trajectory as a table, with mass and costates."""
    npz: pathlib.Path | None = None
    """Write it as arrays."""
    oem: pathlib.Path | None = None
    """Write it as a CCSDS ephemeris; needs a system by name."""
    png: pathlib.Path | None = None
    """Draw it: turning frame, one that does not turn, throttle and primer vector."""
    epoch: str = "2030-01-01T00:00:00"
    """Date of departure in the ephemeris, which the problem leaves open."""
    overwrite: bool = False
    """Replace files that exist."""

    def check(self) -> None:
        super().check()
        self._check_target()
        if self.system is not None or self.mu is not None:
            self.mass_parameter()
        elif self.target_state:
            raise ConfigError("--target-state: needs --system or --mu as well")
        self._check_start()
        self._check_thruster()
        self._check_positive("smoothing")
        if not 0 < self.duration[0] < self.duration[1] < math.inf:
            raise ConfigError(f"--duration {self.duration}: expected 0 < shortest < longest")
        if not all(0 <= weight < math.inf for weight in self.weights):
            raise ConfigError(f"--weights {self.weights}: expected numbers of at least 0")
        if not all(0 < gap < math.inf for gap in self.tolerance):
            raise ConfigError(f"--tolerance {self.tolerance}: expected two positive numbers")
        for name in ("draws", "candidates", "rounds", "seeds"):
            self.at_least(name, 1)
        self.at_least("seed", 0)
        if self.candidates > min(self.draws, DRAWS):
            raise ConfigError(
                f"--candidates {self.candidates}: expected at most --draws {self.draws}, and "
                f"at most {DRAWS}"
            )
        self._check_homotopy()
        self._check_files()

    def _check_target(self) -> None:
        if self.target_state and self.target_period is None:
            raise ConfigError("--target-period: is missing; give the period of --target-state")
        if self.target_period is not None and not self.target_state:
            raise ConfigError("--target-state: is missing; give a state on the target orbit")
        if self.target_state:
            self._check_finite("target_state")
            self._check_positive("target_period")
            if len(self.target_state) not in (4, 6):
                raise ConfigError(
                    f"--target-state: expected 6 numbers or, in the plane, 4, got "
                    f"{len(self.target_state)}"
                )
            return
        # It imports numpy, which the help text does without.
        from jaxlab.envs.cr3bp.catalogue import ORBITS

        if self.target not in ORBITS:
            raise ConfigError(f"--target {self.target}: known are {', '.join(ORBITS)}")

    def _check_start(self) -> None:
        if self.state and self.radius is not None:
            raise ConfigError("--state and --radius contradict each other: give one of them")
        if self.state:
            self._check_state()
        self._check_positive("radius")

    def _check_thruster(self) -> None:
        self._check_positive("thrust", "mass", "specific_impulse", "acceleration", "exhaust")
        if (self.acceleration is None) != (self.exhaust is None):
            missing = "exhaust" if self.exhaust is None else "acceleration"
            raise ConfigError(f"--{missing}: is missing; --acceleration and --exhaust go together")
        if self.mu is not None and self.acceleration is None:
            raise ConfigError(
                "--acceleration and --exhaust: are needed with --mu, of which no units are known"
            )

    def _check_homotopy(self) -> None:
        self.at_least("stages", 2)
        if self.homotopy is None:
            if self.begin is not None:
                raise ConfigError("--begin: needs --homotopy as well")
            return
        self._check_positive("begin")
        if self.homotopy == "radius" and self.state:
            raise ConfigError("--homotopy radius: needs a start of --radius, not of --state")
        if self.homotopy == "mu":
            if self.target_state:
                raise ConfigError(
                    "--homotopy mu: needs --target, a published orbit, which is corrected on the way"
                )
            if self.begin is not None and not self.begin <= 0.5:
                raise ConfigError(f"--begin {self.begin:g}: a mass parameter is in (0, 0.5]")

    def _check_files(self) -> None:
        if self.mu is not None and not (self.csv is self.npz is self.oem is None):
            raise ConfigError("--csv, --npz and --oem: need the units of a --system, not --mu")
        for name in ("csv", "npz", "oem", "png"):
            path = getattr(self, name)
            if path is None:
                continue
            if not path.parent.is_dir():
                raise ConfigError(f"--{name} {path}: there is no folder {path.parent}")
            if path.exists() and not self.overwrite:
                raise ConfigError(f"--{name} {path}: exists; choose another, or give --overwrite")
