"""Levenberg and Marquardt's damping for convex fits of moments (Nocedal & Wright 2006, ch. 4)."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

#: Shares of the promised decrease above which damping shrinks, and below which it grows.
GOOD, POOR = 0.75, 0.25
#: Factors of the damping after a good step, a poor one, and one that is refused.
SHRINK, GROW, REFUSED = 0.1, 4.0, 10.0
#: Damping after a fit has stalled.
START = 1e-2
#: Damping stays within these.
LEAST, MOST = 1e-14, 1e12
#: With this damping steps are short: if even they gain nothing that can be seen, none will.
HOPELESS = 1e2
#: Changes of the objective by less, relative to its parts, are rounding.
ROUNDING = 32 * 2.2e-16


class Trial(NamedTuple):
    """A step that is tried.

    Attributes:
      decrease: Of the objective.
      scale: Size of what it is a difference of, which sets the rounding.
      promised: Decrease of its quadratic model.
      gap_before, gap_after: Largest components of its gradient.
    """

    decrease: Float[Array, ""]
    scale: Float[Array, ""]
    promised: Float[Array, ""]
    gap_before: Float[Array, ""]
    gap_after: Float[Array, ""]


class Verdict(NamedTuple):
    """What becomes of a step.

    Attributes:
      accepted: Whether it is taken; what is not a number is refused.
      damping: The next damping.
      stalled: Whether rounding leaves nothing to gain.
    """

    accepted: Bool[Array, ""]
    damping: Float[Array, ""]
    stalled: Bool[Array, ""]


def judge(trial: Trial, damping: Array) -> Verdict:
    """Judge a step by how much of its promise it keeps.

    Close to the solution the objective no longer tells two points apart; there a smaller
    gradient decides.
    """
    decrease, noise = trial.decrease, ROUNDING * (1 + jnp.abs(trial.scale))
    blind = (jnp.abs(decrease) <= noise) & (trial.promised <= noise)
    accepted = jnp.where(blind, trial.gap_after < trial.gap_before, decrease > 0)
    share = jnp.where(blind, 1.0, decrease / jnp.where(trial.promised > 0, trial.promised, 1.0))
    factor = jnp.where(share > GOOD, SHRINK, jnp.where(share < POOR, GROW, 1.0))
    stalled = blind & ~accepted & (damping >= HOPELESS)
    damping = damping * jnp.where(accepted, factor, REFUSED)
    # Where one fit stalled the next one begins with short steps no more.
    return Verdict(accepted, jnp.where(stalled, START, jnp.clip(damping, LEAST, MOST)), stalled)
