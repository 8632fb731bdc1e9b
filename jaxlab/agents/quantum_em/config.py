"""Options of the learners: what fixes programs, and the numbers a sweep varies.

This file imports neither jax nor flax, so that command lines can show it quickly.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from jaxlab.core.errors import ConfigError

#: Methods by name.
METHODS = {
    "em": "em, the m-step by Levenberg and Marquardt's method on the BKM Hessian",
    "em_gradient": "em, the m-step by gradient steps (Kimura et al. 2025)",
    "gradient": "gradient descent on the divergence",
    "adam": "Adam on the divergence",
    "amsgrad": "AMSGrad on the divergence",
    "natural_gradient": "steps along the BKM natural gradient, shortened by Armijo's rule",
}


@dataclasses.dataclass(frozen=True)
class EMConfig:
    """Which method trains, and when its parts end. One step of a learner is one inner one."""

    method: Literal["em", "em_gradient", "gradient", "adam", "amsgrad", "natural_gradient"] = "em"
    """Name of the method."""
    m_steps: int | None = None
    """Inner iterations of an m-step at most; None goes on until it is solved (em), or until its
    objective hardly changes (em_gradient)."""
    tolerance: float = 1e-12
    """An m-step, an e-step by its dual, or a natural gradient is solved where no moment differs
    by more from its goal; the former two also where rounding hides any progress."""
    stop: float | None = 1e-7
    """em_gradient ends an m-step, and gradient the run, where the objective changes by no more;
    that last step is taken back. None never ends."""
    most_inner: int = 100_000
    """Inner iterations after which any m-step ends."""
    l2: float = 0.0
    """Weight of `|theta|^2 / 2` in the objective. Without it an m-step may have no minimiser."""
    restarts: int = 0
    """Fresh starts of a run that has ended above `restart_above`; the best is kept."""
    restart_above: float = 1e-3
    """Divergence above which a run that has ended begins again."""
    decays: tuple[float, float] = (0.9, 0.999)
    """Of both moments of Adam and AMSGrad."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"method is {self.method!r}, expected one of {', '.join(METHODS)}")
        for name, least in (("m_steps", 1), ("most_inner", 1), ("restarts", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}, expected at least {least}")
        if not (self.tolerance > 0 and math.isfinite(self.tolerance)):
            raise ConfigError(f"tolerance is {self.tolerance}, expected a positive number")
        for name in ("stop", "l2"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise ConfigError(f"{name} is {value}, expected a number of at least 0")
        if not all(0 <= decay < 1 for decay in self.decays):
            raise ConfigError(f"decays are {self.decays}, expected numbers in [0, 1)")


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Numbers; a pytree once a learner is imported."""

    learning_rate: Any = 0.2
    """Length of gradient steps."""
    damping: Any = 1e-2
    """em: damping at the start; natural_gradient: what is added to the metric throughout."""
    width: Any = 5.0
    """Starts are uniform in [-width, width]."""
    parameters: Any = None
    """A start `[terms]`, in place of a random one."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "damping", "width"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{name} is {value}, expected a positive finite number")
