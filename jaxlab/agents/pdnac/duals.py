"""Rules for the multipliers."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.agents.pdnac.config import Hyper
from jaxlab.agents.pdnac.state import Dual


def move(dual: Dual, slack: Float[Array, " m"], hyper: Hyper, rule: str) -> Dual:
    """Multipliers after an outer step, in `[0, 2 / delta]`.

    Args:
      dual: Multipliers so far.
      slack: Estimated averages of the slacks: negative where a bound is violated.
      hyper: Step sizes.
      rule: One of `config.DUALS`; all but `projected` are outside the paper.
    """
    most = 2 / hyper.slater_margin
    integral = dual.integral
    if rule == "optimistic":
        # Popov's step: the change of the slack is expected to go on.
        free = dual.multipliers - hyper.beta * (2 * slack - dual.previous)
    elif rule == "regularised":
        free = (1 - hyper.beta * hyper.pull) * dual.multipliers - hyper.beta * slack
    elif rule == "pid":
        # Stooke, Achiam and Abbeel, "Responsive safety in reinforcement learning", 2020.
        integral = jnp.clip(integral - hyper.beta * slack, 0.0, most)
        rising = jnp.maximum(dual.previous - slack, 0.0)
        free = integral - hyper.proportional * slack + hyper.derivative * rising
    else:
        free = dual.multipliers - hyper.beta * slack
    return Dual(jnp.clip(free, 0.0, most), slack, integral)
