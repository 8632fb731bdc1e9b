"""Transfers followed through a family of problems: smoothing, mass parameter, thrust, start.

A problem is known to be easy at one value of a parameter and wanted at another. Transfers solved
at one value are where the search at the next one begins; steps at which too few candidates
survive are halved. All problems of a family have equal shapes, so that one program serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.objective import Objective, checked_costates
from jaxlab.envs.cr3bp.solving import Solved, solve_transfers
from jaxlab.envs.cr3bp.transfers import Transfer


class Stage(NamedTuple):
    """One value of the parameter that was gone on from.

    Attributes:
      value: Of the parameter.
      transfer: The problem there.
      solved: What became of the candidates; NaN for those lost before.
      alive: Whether a candidate is solved here and was at all values before, `[candidates]`.
    """

    value: float
    transfer: Transfer
    solved: Solved
    alive: Bool[Array, " candidates"]


class Path(NamedTuple):
    """A family that was followed.

    Attributes:
      stages: In order, those between the given values too.
      rejected: Values at which too few survived, so that the step was halved or the path ended.
      complete: Whether the last value was reached with a candidate alive.
    """

    stages: list[Stage]
    rejected: list[float]
    complete: bool

    @property
    def survivors(self) -> Float[Array, "alive unknowns"]:
        """Costates of those alive at the last stage."""
        last = self.stages[-1]
        return last.solved.costates[last.alive]


def follow(
    make: Callable[[float], Transfer],
    values: Sequence[float],
    costates: Any,
    objective: Objective | None = None,
    *,
    survival: float = 0.5,
    halvings: int = 4,
    logarithmic: bool = False,
    rounds: int = 60,
    tolerance: tuple[float, float] = (1e-4, 1e-5),
) -> Path:
    """Solve transfers at each value of a parameter, beginning at those of the value before.

    Candidates that are lost stay lost; the batch keeps its shape. Where fewer than `survival` of
    those alive are solved at the next value, the value half way is tried first. Once a given step
    has been halved `halvings` times, whoever survives goes on; where none does the path ends.

    Args:
      make: From a value to the transfer, of the same shapes for all.
      values: In the order to walk, the first where `costates` are good.
      costates: Candidates at the first value, `[candidates, d]`.
      objective: How costates are meant and arcs integrated.
      survival: Part of the candidates alive that must survive a step, in (0, 1].
      halvings: Of the step between two given values, at most; 0 for none.
      logarithmic: Halve steps in the logarithm, for parameters such as the smoothing.
      rounds: Of each solution.
      tolerance: Of each solution, of position and velocity.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A number is out of range, or `make` gives no transfers of one shape.
    """
    objective = objective or Objective()
    steps = _checked_values(values, logarithmic)
    if not 0 < survival <= 1 or not isinstance(halvings, int) or halvings < 0:
        raise ConfigError(
            f"survival {survival} must be in (0, 1], halvings {halvings} a whole number from 0"
        )
    transfer = _made(make, steps[0], None)
    costates = checked_costates(objective, costates, transfer, batch=True)
    if costates.ndim != 2:
        raise ConfigError(f"candidates are [candidates, d], got {list(costates.shape)}")

    def stage(value: float, transfer: Transfer, rows: jax.Array, alive: Any) -> Stage:
        solved = solve_transfers(rows, transfer, objective, rounds=rounds, tolerance=tolerance)
        return Stage(value, transfer, solved, solved.solved & alive)

    now = stage(steps[0], transfer, costates, jnp.isfinite(costates).all(1))
    path = Path([now], [], False)
    for goal in steps[1:]:
        ahead, halved = [goal], 0  # what is left of this step, in the order of a stack
        while ahead:
            value = ahead[-1]
            rows = jnp.where(now.alive[:, None], now.solved.costates, jnp.nan)
            new = stage(value, _made(make, value, transfer), rows, now.alive)
            survivors = int(new.alive.sum())
            if survivors < survival * int(now.alive.sum()) and halved < halvings:
                ahead.append(_middle(now.value, value, logarithmic))
                halved += 1
                path.rejected.append(value)
            elif survivors:
                path.stages.append(new)
                now = new
                ahead.pop()
            else:
                path.rejected.append(value)
                return path
    return path._replace(complete=bool(now.alive.any()))


def _middle(a: float, b: float, logarithmic: bool) -> float:
    """Half way between two values."""
    return float(np.sqrt(a) * np.sqrt(b)) if logarithmic else (a + b) / 2


def _checked_values(values: Sequence[float], logarithmic: bool) -> list[float]:
    """The values to walk through.

    Raises:
      ConfigError: They are no finite numbers, or not positive where their logarithm is taken.
    """
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"values {values!r}: expected numbers") from None
    if numbers.ndim != 1 or numbers.size == 0 or not np.isfinite(numbers).all():
        raise ConfigError(f"values {values!r}: expected a list of finite numbers")
    if logarithmic and not (numbers > 0).all():
        raise ConfigError(f"values {values!r}: expected positive numbers to halve in the logarithm")
    return numbers.tolist()


def _made(make: Callable[[float], Transfer], value: float, like: Transfer | None) -> Transfer:
    """The transfer at a value, in a form that needs no other program than the one like it.

    Raises:
      ConfigError: It is no transfer, or of other shapes.
    """
    transfer = make(value)
    if not isinstance(transfer, Transfer):
        raise ConfigError(f"make({value:g}) gave a {type(transfer).__name__}: expected a Transfer")
    transfer = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), transfer)
    if like is not None:
        for name, mine, other in zip(Transfer._fields, transfer, like, strict=True):
            shapes = [[leaf.shape for leaf in jax.tree.leaves(of)] for of in (mine, other)]
            if shapes[0] != shapes[1]:
                raise ConfigError(
                    f"make({value:g}) has a {name} of shape {shapes[0]}, the first transfer one "
                    f"of {shapes[1]}: keep shapes, so that one program serves all"
                )
    return transfer
