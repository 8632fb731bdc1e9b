"""Options of the samplers: what fixes shapes and programs, and the numbers a sweep varies.

This file imports neither jax nor flax, so that command lines can show it quickly.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, Literal

from jaxlab.core.errors import ConfigError

#: Samplers by name, with the acceptance at which they are efficient: Roberts, Gelman & Gilks
#: 1997 (random walk), Roberts & Rosenthal 1998 (MALA), Livingstone & Zanella 2022 (Barker),
#: Beskos et al. 2013 (HMC), Hoffman & Gelman 2014 (NUTS, whose acceptance is a mean over
#: its trajectory).
SAMPLERS = {
    "random_walk": 0.234,
    "mala": 0.574,
    "preconditioned_mala": 0.574,
    "barker": 0.4,
    "hmc": 0.651,
    "nuts": 0.8,
}


def _at_least(config: Any, **least: int) -> None:
    for name, bound in least.items():
        if getattr(config, name) < bound:
            raise ConfigError(f"{name} is {getattr(config, name)}, expected at least {bound}")


def _positive(name: str, value: Any) -> None:
    """Refuse numbers of the host that are not positive; traced ones cannot be looked at.

    Raises:
      ConfigError: Names the hyper-parameter.
    """
    import numpy as np

    if not isinstance(value, int | float | np.ndarray | np.generic):
        return
    values = np.asarray(value)
    if values.dtype.kind in "iuf" and not np.all(np.isfinite(values) & (values > 0)):
        raise ConfigError(f"{name} is {value}, expected a positive finite number")


@dataclasses.dataclass(frozen=True)
class MCMCConfig:
    """Which sampler moves the chains, and for how long its steps are adapted."""

    sampler: Literal["random_walk", "mala", "preconditioned_mala", "barker", "hmc", "nuts"] = "mala"
    """Name of the transition."""
    warmup: int = 500
    """Learner steps in which step sizes are adapted; frozen afterwards. 0 keeps the given one."""
    target_acceptance: float | None = None
    """Mean acceptance that the adaptation aims at; None takes the sampler's optimum."""
    leapfrog_steps: int = 10
    """Leapfrog steps of an HMC trajectory."""
    max_doublings: int = 8
    """NUTS doubles its trajectory at most so many times."""
    record: bool = True
    """Record positions and log densities of the chains (every `thin` steps of `run`)."""

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise ConfigError(f"sampler is {self.sampler!r}, expected one of {', '.join(SAMPLERS)}")
        _at_least(self, warmup=0, leapfrog_steps=1, max_doublings=1)
        if self.target_acceptance is not None and not 0 < self.target_acceptance < 1:
            raise ConfigError(
                f"target_acceptance is {self.target_acceptance}, expected a number between 0 "
                "and 1, or None for the sampler's optimum"
            )

    @property
    def acceptance(self) -> float:
        """The acceptance aimed at."""
        return SAMPLERS[self.sampler] if self.target_acceptance is None else self.target_acceptance


@dataclasses.dataclass(frozen=True)
class ParallelTemperingConfig:
    """Replicas at several inverse temperatures that exchange their positions."""

    chain: MCMCConfig = MCMCConfig()
    """How replicas move between exchanges, and how long the warm-up is."""
    betas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    """Inverse temperatures, ascending, as fractions of `Hyper.beta`; the last is 1."""
    adapt_ladder: bool = True
    """Move the inner temperatures in the first half of the warm-up until all exchanges are
    refused equally often."""
    record_all: bool = False
    """Record all replicas, not only those at the target's temperature."""

    def __post_init__(self) -> None:
        betas = self.betas
        if len(betas) < 2:
            raise ConfigError(f"betas is {betas}, expected at least two inverse temperatures")
        if not all(math.isfinite(beta) and 0 < beta <= 1 for beta in betas):
            raise ConfigError(f"betas is {betas}, expected numbers in (0, 1]")
        if any(low >= high for low, high in itertools.pairwise(betas)):
            raise ConfigError(f"betas is {betas}, expected an ascending ladder")
        if betas[-1] != 1:
            raise ConfigError(
                f"betas is {betas}, expected 1 at the end (the target itself); scale the target "
                "by Hyper.beta"
            )


@dataclasses.dataclass(frozen=True)
class SMCConfig:
    """Particles carried from the prior to the target by adaptive tempering."""

    chain: MCMCConfig = MCMCConfig()
    """How particles move at each temperature; its warm-up is not used."""
    moves: int = 5
    """Moves of every particle per temperature."""
    target_ess: float = 0.5
    """Effective share of the particles after reweighting, which sets the next temperature."""

    def __post_init__(self) -> None:
        _at_least(self, moves=1)
        if not 0 < self.target_ess < 1:
            raise ConfigError(
                f"target_ess is {self.target_ess}, expected a share of the particles between 0 "
                "and 1"
            )


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Numbers; a pytree once a learner is imported."""

    step_size: Any = 0.1
    """Step size at the start: h of `x + h g + sqrt(2 h) noise` for both MALAs; the noise's
    deviation for random walk and Barker; the leapfrog step for HMC and NUTS."""
    beta: Any = 1.0
    """Inverse temperature: the target is `log_prior + beta * log_density`."""
    positions: Any = None
    """Positions at the start, a pytree of `[chains, ...]`, in place of `make`'s `initial`."""

    def __post_init__(self) -> None:
        _positive("step_size", self.step_size)
        _positive("beta", self.beta)
