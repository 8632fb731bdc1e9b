"""Options of the studies of Boltzmann machines; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxlab.agents.quantum_em.config import EMConfig
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions

#: Hidden operators of restricted machines.
OPERATORS = ("Z", "transverse", "XZ", "XYZ")
#: Data sets; `bars` needs an even number of visible units.
DATA = ("bernoulli", "parity", "cardinality", "random_strings", "bars")
#: Chunks of a run, so many states of each of which are kept for the curves.
CHUNKS, KEPT = 10, 40


class Studied(NamedTuple):
    """A learner that is compared.

    Attributes:
      title: In figures.
      config: Its method.
      learning_rate: Length of its gradient steps.
      newton: Whether an iteration decomposes the metric; there are `--newton-steps` of those.
    """

    title: str
    config: EMConfig
    learning_rate: float = 0.2
    newton: bool = False


#: The settings of Kimura et al. 2025 for em_gradient and gradient.
LEARNERS = {
    "em_gradient": Studied("em, gradient m-steps", EMConfig("em_gradient")),
    "gradient": Studied("gradient descent", EMConfig("gradient")),
    "adam": Studied("Adam", EMConfig("adam"), learning_rate=0.1),
    "em": Studied("em, Levenberg-Marquardt m-steps", EMConfig("em", m_steps=4), newton=True),
    "natural_gradient": Studied(
        "natural gradient", EMConfig("natural_gradient"), newton=True, learning_rate=1.0
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyOptions(RunOptions):
    """Compare em with gradient descent, Adam and natural gradient on restricted machines.

    Every learner begins at the same random starts, which are one batch. The paper is Kimura et al. 2025 (arXiv:2507.21569).
    """

    x64: bool = True
    """Compute with 64-bit floats, which Boltzmann machines need."""
    seeds: int = 20
    """Starts for every machine and data set."""
    steps: int = 10_000
    """Iterations of em_gradient (inner ones), gradient and adam."""
    newton_steps: int = 400
    """Iterations of em (four an m-step) and natural_gradient."""
    visible: tuple[int, ...] = (5,)
    """Numbers of visible units."""
    hidden: tuple[int, ...] = (3, 5)
    """Numbers of hidden units."""
    operators: tuple[str, ...] = ("transverse", "Z")
    """Hidden operators: Z (the classical machine), transverse, XZ, XYZ."""
    data: tuple[str, ...] = DATA[:4]
    """Data sets: bernoulli, parity, cardinality, random_strings, bars."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """Learners: em_gradient, gradient, adam, em, natural_gradient."""
    width: float = 5.0
    """Starts are uniform in [-width, width]."""
    samples: int = 1000
    """Bit strings drawn from the best machine of each size and data set."""

    def check(self) -> None:
        super().check()
        check_names("operators", self.operators, OPERATORS)
        check_names("data", self.data, DATA)
        check_names("learners", self.learners, tuple(LEARNERS))
        check_units("visible", self.visible, 2, 12)
        check_units("hidden", self.hidden, 1, 100)
        check_width(self.width)
        self.at_least("samples", 1)
        for name in ("steps", "newton_steps"):
            check_steps(name, getattr(self, name))
        check_data(self.data, self.visible)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpressivityOptions(RunOptions):
    """How close machines of each kind come to a data set, from the best of many starts.

    em with Levenberg-Marquardt m-steps on four visible bits: bars and stripes of 2 x 2, even
    parity, two of four. Three classical hidden units against one of XYZ, and what is between.
    """

    x64: bool = True
    """Compute with 64-bit floats, which Boltzmann machines need."""
    seeds: int = 24
    """Starts."""
    steps: int = 2000
    """Iterations of em, four an m-step."""
    width: float = 2.0
    """Starts are uniform in [-width, width]."""

    def check(self) -> None:
        super().check()
        check_width(self.width)
        check_steps("steps", self.steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariancesOptions(RunOptions):
    """Variances of the gradient at random parameters, by the number of units: barren plateaus.

    Machines of n visible and n/2 hidden units; parameters are uniform in [-width, width].
    """

    x64: bool = True
    """Compute with 64-bit floats, which Boltzmann machines need."""
    seeds: int = 10
    """Independent batches of draws, which give the intervals."""
    steps: int = 40
    """Draws of a batch."""
    visible: tuple[int, ...] = (4, 6, 8, 10, 12)
    """Numbers of visible units, even ones."""
    operators: str = "XZ"
    """Hidden operators: Z, transverse, XZ, XYZ."""
    data: tuple[str, ...] = ("parity", "cardinality")
    """Data sets: bernoulli, parity, cardinality, random_strings, bars."""
    widths: tuple[float, ...] = (1.0, 10.0)
    """Widths of the draws."""

    def check(self) -> None:
        super().check()
        check_names("operators", (self.operators,), OPERATORS)
        check_names("data", self.data, DATA)
        check_units("visible", self.visible, 2, 20)
        if len(self.visible) < 2 or any(n % 2 for n in self.visible):
            raise ConfigError(f"--visible {self.visible}: expected at least two even numbers")
        if not self.widths:
            raise ConfigError("--widths: expected at least one number")
        for width in self.widths:
            check_width(width)
        if self.steps < 2:
            raise ConfigError(f"--steps {self.steps}: expected at least 2 draws, for a variance")


def check_names(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse names that are unknown, given twice, or missing.

    Raises:
      ConfigError: Names the option and what is known.
    """
    if not given or len(set(given)) != len(given) or not set(given) <= set(known):
        raise ConfigError(
            f"--{option} {' '.join(given)}: expected different ones of {', '.join(known)}"
        )


def check_units(option: str, given: Sequence[int], least: int, most: int) -> None:
    """Refuse numbers of units that are missing, given twice, or out of range.

    Raises:
      ConfigError: Names the option and the range.
    """
    if not given or len(set(given)) != len(given) or not all(least <= n <= most for n in given):
        raise ConfigError(f"--{option} {given}: expected different numbers from {least} to {most}")


def check_width(width: float) -> None:
    """Refuse a width that is not positive and finite.

    Raises:
      ConfigError: It is not.
    """
    if not 0 < width < math.inf:
        raise ConfigError(f"width {width:g}: expected a positive, finite number")


def check_steps(option: str, steps: int) -> None:
    """Refuse numbers of steps that are not chunks of the same length.

    Raises:
      ConfigError: Names the option.
    """
    if steps < CHUNKS or steps % CHUNKS:
        raise ConfigError(f"--{option.replace('_', '-')} {steps}: expected a multiple of {CHUNKS}")


def check_data(data: Sequence[str], visible: Sequence[int]) -> None:
    """Refuse data sets that do not exist for a number of visible units.

    Raises:
      ConfigError: Names both.
    """
    if "bars" in data and any(n % 2 for n in visible):
        raise ConfigError(f"--data bars: expected even --visible, not {visible}")
    if "random_strings" in data and any(n * n > 2**n for n in visible):
        raise ConfigError("--data random_strings: there are no 9 strings of 3 bits")


STUDY_PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "seeds": 2,
        "steps": 40,
        "newton_steps": 20,
        "visible": (4,),
        "hidden": (2,),
        "operators": ("transverse",),
        "data": ("parity", "cardinality"),
        "learners": ("em_gradient", "gradient", "em"),
        "samples": 100,
    },
    "quick": {},
    "paper": {
        "seeds": 100,
        "steps": 500_000,
        "newton_steps": 4000,
        "visible": (5, 6, 7),
        "hidden": (3, 4, 5),
    },
}
EXPRESSIVITY_PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"seeds": 2, "steps": 20},
    "quick": {},
    "paper": {"seeds": 100, "steps": 8000},
}
VARIANCES_PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"seeds": 3, "steps": 8, "visible": (2, 4)},
    "quick": {},
    "paper": {"seeds": 100, "steps": 100, "data": ("parity", "cardinality", "bars")},
}
