"""Options of the study of sampled primal-dual methods; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions

#: What is studied.
PARTS = ("estimators", "rates", "baselines", "remedies", "problems", "instances", "cartpole")
#: Estimators by name: inner steps, batch, largest level, reset, and inner step size.
ESTIMATORS = ("mlmc", "mlmc_batch", "mlmc_reset", "batch", "sample")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyOptions(RunOptions):
    """Gap and violation of the primal-dual natural actor-critic against exact answers.

    Estimators are compared at equal numbers of transitions, rates are fitted over horizons with
    and without a known mixing time, and baselines, remedies for cycling multipliers, other
    problems, random instances and a continuous task follow.
    """

    x64: bool = True
    """Compute with 64-bit floats, which exact answers need."""
    seeds: int = 16
    """Number of seeds, run as one batch."""
    steps: int = 100_000
    """Transitions of each run but those of the rates."""
    model: str = "P1"
    """What estimators, rates, baselines and remedies are tried on: P1 to P4 or a file."""
    bound: tuple[float, ...] = ()
    """Bounds of the model's signals; repeat the option or give several numbers."""
    parts: tuple[str, ...] = PARTS
    """What is studied: estimators, rates, baselines, remedies, problems, instances, cartpole."""
    estimators: tuple[str, ...] = ESTIMATORS
    """Estimators compared: mlmc, mlmc_batch, mlmc_reset, batch, sample."""
    horizons: tuple[int, ...] = (10_000, 30_000, 100_000)
    """Transitions over which rates are fitted, ascending."""
    alpha: float = 0.3
    """Step of the policy at a million transitions; rates scale it with one over the root."""
    beta: float = 0.05
    """Step of the multipliers, likewise."""
    epsilon: float = 0.25
    """Without a known mixing time an outer step has as many inner ones as the horizon to this
    power."""
    unknown_horizon: int = 1_000_000
    """Longest horizon that is also run without a known mixing time."""

    def check(self) -> None:
        super().check()
        for name, known in (("parts", PARTS), ("estimators", ESTIMATORS)):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given) or not set(given) <= set(known):
                raise ConfigError(
                    f"--{name} {' '.join(given)}: expected different ones of {', '.join(known)}"
                )
        rising = all(a < b for a, b in zip(self.horizons, self.horizons[1:], strict=False))
        if len(self.horizons) < 2 or self.horizons[0] < 100 or not rising:
            raise ConfigError(
                f"--horizons {' '.join(map(str, self.horizons))}: expected at least two ascending "
                "numbers of at least 100"
            )
        if self.horizons[-1] >= 2**31:
            raise ConfigError("--horizons: expected fewer than 2^31 transitions")
        if self.steps < 1000:
            raise ConfigError(f"--steps {self.steps}: expected at least 1000")
        if not 0 < self.epsilon < 0.5:
            raise ConfigError(f"--epsilon {self.epsilon}: expected a number between 0 and 1/2")
        for name in ("alpha", "beta"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"--{name} {getattr(self, name)}: expected a positive number")
        for bound in self.bound:
            if not math.isfinite(bound):
                raise ConfigError(f"--bound {bound}: expected a finite number")


PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "seeds": 2,
        "steps": 2000,
        "parts": ("estimators", "rates"),
        "estimators": ("mlmc", "batch"),
        "horizons": (1000, 4000),
        "unknown_horizon": 0,
    },
    "quick": {"seeds": 8},
    "paper": {
        "steps": 1_000_000,
        "horizons": (10_000, 100_000, 1_000_000, 10_000_000),
    },
}
