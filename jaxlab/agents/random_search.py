"""Random search: independent draws, of which the best are kept.

The plainest of global searches, and where chains begin that know nothing better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metrics, last, total

#: From a key and a number of draws to positions `[draws, dim]`.
Draw = Callable[[jax.Array, int], jax.Array]


@dataclasses.dataclass(frozen=True)
class RandomSearchConfig:
    """How many are drawn and kept."""

    draws: int = 2048
    """Positions drawn and valued in a step."""
    keep: int = 256
    """How many of all that were drawn are kept."""

    def __post_init__(self) -> None:
        if not 1 <= self.keep <= self.draws:
            raise ConfigError(
                f"keep is {self.keep}, expected at least 1 and at most the {self.draws} draws of "
                "a step"
            )


@struct.dataclass
class RandomSearchState:
    """The best so far.

    Attributes:
      key: Key of the run.
      positions: The best, in ascending order of their values, `[keep, dim]`.
      values: What they cost, `[keep]`; infinite before the first step.
    """

    key: jax.Array
    positions: Float[Array, "keep dim"]
    values: Float[Array, " keep"]


def make(
    cost: Callable[[jax.Array], jax.Array], draw: Draw, config: RandomSearchConfig | None = None
) -> Learner:
    """Build a search for positions of low cost.

    Args:
      cost: From positions `[draws, dim]` to costs `[draws]`, to be small; NaN counts as infinite.
      draw: Draws positions.
      config: How many.

    Returns:
      A learner; metrics are the `best` cost, the `worst_kept` and the number of `evaluations`.

    Raises:
      ConfigError: The configuration is out of range, or shapes do not fit.
    """
    config = config or RandomSearchConfig()
    shape = jax.eval_shape(lambda: draw(jax.random.key(0), config.draws))
    if shape.ndim != 2 or shape.shape[0] != config.draws:
        raise ConfigError(
            f"draw gives positions of shape {shape.shape}, expected [{config.draws}, dim]"
        )
    values = jax.eval_shape(cost, shape)
    if values.shape != (config.draws,):
        raise ConfigError(f"cost has shape {values.shape}, expected [{config.draws}]")

    def init(key: jax.Array, hyper: object) -> RandomSearchState:
        return RandomSearchState(
            key,
            jnp.zeros((config.keep, shape.shape[1]), shape.dtype),
            jnp.full(config.keep, jnp.inf, values.dtype),
        )

    def step(state: RandomSearchState, t: jax.Array) -> tuple[RandomSearchState, Metrics]:
        new = draw(jax.random.fold_in(state.key, t), config.draws)
        found = cost(new)
        found = jnp.where(jnp.isnan(found), jnp.inf, found)
        values = jnp.concatenate([state.values, found])
        positions = jnp.concatenate([state.positions, new])
        _, best = jax.lax.top_k(-values, config.keep)
        state = state.replace(positions=positions[best], values=values[best])
        return state, {
            "best": last(state.values[0]),
            "worst_kept": last(state.values[-1]),
            "evaluations": total(jnp.asarray(config.draws, jnp.int32)),
        }

    return Learner(init, step)
