"""Levenberg and Marquardt's damping for convex fits of moments (Nocedal & Wright 2006, ch. 4)."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

#: Shares of the promised decrease above which damping shrinks, and below which it grows.
GOOD, POOR = 0.75, 0.25
#: Factors of the damping after a good step, a poor one, and one that is refused.
SHRINK, GROW, REFUSED = 0.1, 4.0, 10.0
#: Damping stays within these.
LEAST, MOST = 1e-14, 1e12
#: Changes of the objective by less, relative to it, are rounding.
ROUNDING = 32 * 2.2e-16


class Trial(NamedTuple):
    """A step that is tried.

    Attributes:
      before, after: The objective.
      promised: Decrease of its quadratic model.
      gap_before, gap_after: Largest components of its gradient.
    """

    before: Float[Array, ""]
    after: Float[Array, ""]
    promised: Float[Array, ""]
    gap_before: Float[Array, ""]
    gap_after: Float[Array, ""]


def judge(trial: Trial, damping: Array) -> tuple[Bool[Array, ""], Float[Array, ""]]:
    """Whether a step is taken, and the next damping; what is not a number is refused.

    Close to the solution the objective no longer tells two points apart; there a smaller
    gradient decides.
    """
    decrease = trial.before - trial.after
    noise = ROUNDING * (1 + jnp.abs(trial.before))
    blind = (jnp.abs(decrease) <= noise) & (trial.promised <= noise)
    accepted = jnp.where(blind, trial.gap_after < trial.gap_before, decrease > 0)
    share = jnp.where(blind, 1.0, decrease / jnp.where(trial.promised > 0, trial.promised, 1.0))
    factor = jnp.where(share > GOOD, SHRINK, jnp.where(share < POOR, GROW, 1.0))
    damping = damping * jnp.where(accepted, factor, REFUSED)
    return accepted, jnp.clip(damping, LEAST, MOST)
