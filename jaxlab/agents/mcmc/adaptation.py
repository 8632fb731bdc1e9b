"""Adaptation in the warm-up: step sizes by dual averaging, a ladder by equal refusals."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import (
    DualAveragingAdaptationState,
    dual_averaging_adaptation,
)
from jaxtyping import Array, Float

#: State of dual averaging, each leaf `[chains]`.
DualAveraging = DualAveragingAdaptationState


def start_dual_averaging(step_size: Float[Array, " chains"]) -> DualAveraging:
    """State of the dual averaging of every chain, in the precision of the step sizes."""
    init = dual_averaging_adaptation(target=0.5)[0]
    # BlackJAX counts in integers and weakly typed zeros; a power of an integer has the default
    # precision and not that of the steps.
    return jax.tree.map(
        lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, step_size.dtype), step_size.shape),
        init(step_size),
    )


def adapt_step_size(
    averaging: DualAveraging,
    step_size: Float[Array, " chains"],
    acceptance: Float[Array, " chains"],
    t: jax.Array,
    *,
    warmup: int,
    target: float,
) -> tuple[DualAveraging, Float[Array, " chains"]]:
    """Step sizes of the next transition.

    Until `warmup` transitions are done each chain follows its own dual averaging (Hoffman &
    Gelman 2014, section 3.2, by BlackJAX); the last of them freezes the averaged step.

    Args:
      averaging: State, each leaf `[chains]`.
      acceptance: Acceptance probabilities of transition `t`.
      t: Counter of the learner, `[]`, so that the branch stays one when seeds are mapped.
    """
    _, update, final = dual_averaging_adaptation(target)

    def adapt(averaging: DualAveraging) -> tuple[DualAveraging, jax.Array]:
        new = jax.tree.map(
            lambda leaf, old: leaf.astype(old.dtype), update(averaging, acceptance), averaging
        )
        step = jnp.where(t + 1 == warmup, final(new), jnp.exp(new.log_step_size))
        return new, step.astype(step_size.dtype)

    if warmup == 0:
        return averaging, step_size
    return jax.lax.cond(t < warmup, adapt, lambda same: (same, step_size), averaging)


def ladder_rounds(warmup: int) -> tuple[int, ...]:
    """Numbers of steps after which a ladder is set anew: doubling, in the first half.

    Rounds of doubling length, as in Syed et al. 2022 (see `equalise_ladder`).
    """
    rounds = (warmup // 2**k for k in range(int(math.log2(max(warmup, 1))), 0, -1))
    # Refusals of fewer steps than this are mostly noise.
    return tuple(steps for steps in rounds if steps >= 16)


def equalise_ladder(
    betas: Float[Array, " rungs"], refusal: Float[Array, " pairs"]
) -> Float[Array, " rungs"]:
    """Inverse temperatures between which exchanges would be refused equally often.

    The refusals add up to the communication barrier as a function of beta, which is
    interpolated, here linearly in log beta, and divided evenly: Syed, Bouchard-Cote,
    Deligiannidis & Doucet 2022, "Non-reversible parallel tempering: a scalable highly
    parallel MCMC scheme", section 5. Both ends stay.

    Args:
      betas: The ladder `[rungs]`, ascending and positive.
      refusal: Mean probability `[rungs - 1]` that neighbours do not exchange.
    """
    # A pair that never refuses still needs some width, or two rungs would coincide.
    width = jnp.clip(refusal, 1e-3, 1)
    barrier = jnp.concatenate([jnp.zeros((1,), betas.dtype), jnp.cumsum(width)])
    even = jnp.linspace(0, 1, len(betas), dtype=betas.dtype) * barrier[-1]
    inner = jnp.exp(jnp.interp(even, barrier, jnp.log(betas)))
    return jnp.concatenate([betas[:1], inner[1:-1], betas[-1:]])
