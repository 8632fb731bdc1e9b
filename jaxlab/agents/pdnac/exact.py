"""The primal-dual natural gradient with exact advantages: the oracle of the sampled one.

For a softmax table the natural gradient of an average is its advantages, so
`theta += alpha (A_r + sum_i lambda_i A_i)` and `lambda = clip(lambda - beta J, 0, 2 / delta)`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from jaxlab.agents.pdnac import duals
from jaxlab.agents.pdnac.config import DUALS, Hyper, check_numbers, hyper_arrays
from jaxlab.agents.pdnac.state import Dual
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metrics, last, record

#: A policy `[S, A]` to averages `[1 + m]` and advantages `[1 + m, S, A]` of reward and slacks.
Advantages = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


@struct.dataclass
class ExactState:
    """One run.

    Attributes:
      hyper: Hyper-parameters.
      theta: Logits.
      dual: Multipliers.
      gains: Sum of the averages of all policies so far, reward and slacks.
      outer: Policies so far.
    """

    hyper: Hyper
    theta: Float[Array, "states actions"]
    dual: Dual
    gains: Float[Array, " g"]
    outer: Float[Array, ""]


def make_exact(
    advantages: Advantages,
    shape: tuple[int, int],
    hyper: Hyper | None = None,
    *,
    dual: str = "projected",
) -> Learner:
    """Build the exact method for a table of `shape` (states, actions).

    Args:
      advantages: Evaluates a policy exactly.
      shape: States and actions.
      hyper: `alpha`, `beta`, `slater_margin` (and those of remedies).
      dual: One of `config.DUALS`.

    Returns:
      A learner; metrics `gains [1 + m]` and `multipliers` of the policy before the step, their
      record `trajectory`, and `average_gains`, over all policies so far.

    Raises:
      ConfigError: A number is out of range.
    """
    if dual not in DUALS:
        raise ConfigError(f"dual is {dual!r}, expected one of {', '.join(DUALS)}")
    defaults = hyper or Hyper()
    check_numbers(defaults)

    def init(key: jax.Array, hyper: Hyper | None) -> ExactState:
        numbers = hyper_arrays(defaults if hyper is None else hyper)
        dtype = numbers.alpha.dtype
        theta = jnp.zeros(shape, dtype)
        signals = jax.eval_shape(advantages, theta)[0].shape[0]
        none = jnp.zeros(signals - 1, dtype)
        zero = jnp.zeros((), dtype)
        return ExactState(numbers, theta, Dual(none, none, none), jnp.zeros(signals, dtype), zero)

    def step(state: ExactState, t: jax.Array) -> tuple[ExactState, Metrics]:
        gains, advantage = advantages(jax.nn.softmax(state.theta))
        weights = jnp.concatenate([jnp.ones_like(gains[:1]), state.dual.multipliers])
        new = ExactState(
            state.hyper,
            state.theta + state.hyper.alpha * jnp.tensordot(weights, advantage, 1),
            duals.move(state.dual, gains[1:], state.hyper, dual),
            state.gains + gains,
            state.outer + 1,
        )
        before = {"gains": gains, "multipliers": state.dual.multipliers}
        return new, {
            **{name: last(value) for name, value in before.items()},
            "average_gains": last(new.gains / new.outer),
            "trajectory": record(before),
        }

    return Learner(init, step, lambda state, obs, key: jnp.argmax(state.theta[obs]))
