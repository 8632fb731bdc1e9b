"""Options and numbers of the primal-dual natural actor-critic."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from flax import struct

from jaxlab.core.errors import ConfigError

#: How an inner update estimates its direction: by multilevel Monte Carlo, by a batch of fixed
#: size, or from one transition.
ESTIMATORS = ("mlmc", "batch", "sample")
#: How the multipliers move. All but the first are remedies for cycling that are outside the
#: paper: an optimistic step, a pull to zero, or a controller with three terms.
DUALS = ("projected", "optimistic", "regularised", "pid")
#: Where the policy moves: along the Lagrangian, or (switching, as in CRPO) along the reward while
#: all constraints hold by estimate, else along the one violated most.
METHODS = ("primal_dual", "switching")


@dataclasses.dataclass(frozen=True)
class PDNACConfig:
    """Shapes and switches.

    Attributes:
      estimator: One of `ESTIMATORS`.
      critic_steps: Inner updates of the critic in an outer step, `H` of the paper.
      npg_steps: Inner updates of the natural gradient.
      batch: Transitions of a fixed batch; of the first level of multilevel Monte Carlo.
      t_max: Largest factor, a power of two, by which a level multiplies the batch; levels
        beyond are cut off to the first term, which leaves a bias of order `1 / t_max`.
      reset: Start critic and direction at zero in every outer step, as in the paper; otherwise
        where the last one ended.
      dual: One of `DUALS`.
      method: One of `METHODS`.
      evaluate_every: Transitions between two evaluations, where `make` is given one.
      keep_random_iterate: Keep a uniformly random one of all policies so far.
    """

    estimator: str = "mlmc"
    critic_steps: int = 50
    npg_steps: int = 50
    batch: int = 1
    t_max: int = 1024
    reset: bool = False
    dual: str = "projected"
    method: str = "primal_dual"
    evaluate_every: int = 1000
    keep_random_iterate: bool = True

    def __post_init__(self) -> None:
        for field, known in (("estimator", ESTIMATORS), ("dual", DUALS), ("method", METHODS)):
            if getattr(self, field) not in known:
                raise ConfigError(
                    f"{field} is {getattr(self, field)!r}, expected one of {', '.join(known)}"
                )
        for field in ("critic_steps", "npg_steps", "batch", "t_max", "evaluate_every"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} is {getattr(self, field)}, expected at least 1")
        if self.t_max & (self.t_max - 1) or self.t_max > 2**24:
            raise ConfigError(f"t_max is {self.t_max}, expected a power of two of at most 2^24")
        if self.estimator == "sample" and self.batch != 1:
            raise ConfigError(f"batch is {self.batch}: the estimator 'sample' takes one transition")

    @property
    def levels(self) -> int:
        """Highest level of multilevel Monte Carlo, `J`; 0 without it."""
        return self.t_max.bit_length() - 1 if self.estimator == "mlmc" else 0

    @property
    def expected_samples(self) -> float:
        """Transitions of an inner update on average: `J + 2^-J` batches."""
        levels = self.levels
        return self.batch * (levels + 2.0**-levels)

    @property
    def outer_samples(self) -> float:
        """Transitions of an outer step on average."""
        return (self.critic_steps + self.npg_steps) * self.expected_samples


@struct.dataclass
class Hyper:
    """Numbers that a sweep may vary, each `[]`.

    Attributes:
      alpha: Step of the policy.
      beta: Step of the multipliers.
      gamma_critic: Step of the critic.
      gamma_npg: Step of the natural gradient's direction.
      gain_weight: `c_gamma`: how much faster averages are tracked than relative values.
      slater_margin: `delta`: multipliers stay below `2 / delta`.
      tolerance: Violation that switching puts up with.
      pull: Of regularised multipliers, to zero.
      proportional, derivative: Of the controller's other terms.
    """

    alpha: Any = 0.3
    beta: Any = 0.03
    gamma_critic: Any = 0.02
    gamma_npg: Any = 0.02
    gain_weight: Any = 1.0
    slater_margin: Any = 0.1
    tolerance: Any = 0.0
    pull: Any = 0.1
    proportional: Any = 1.0
    derivative: Any = 1.0


def hyper_arrays(hyper: Hyper | None) -> Hyper:
    """The numbers as arrays of the active precision; defaults for None."""
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype), hyper or Hyper())


def check_numbers(hyper: Hyper) -> None:
    """Refuse numbers that no run can have; leaves may be arrays of a sweep.

    Raises:
      ConfigError: Names the number.
    """
    for field in dataclasses.fields(hyper):
        values = np.asarray(getattr(hyper, field.name), float)
        positive = field.name in ("slater_margin", "gain_weight")
        least = math.ulp(0.0) if positive else 0.0
        if not (np.all(np.isfinite(values)) and np.all(values >= least)):
            expected = "positive" if positive else "not negative"
            why = "; without a Slater point multipliers have no bound" * (
                field.name == "slater_margin"
            )
            raise ConfigError(f"{field.name} is {values.tolist()}, expected {expected}{why}")
