"""Estimates of an inner update's direction as weighted sums over transitions.

Multilevel Monte Carlo (Blanchet and Glynn 2015; Dorfman and Levy 2022 for Markov chains): with
a geometric level Q the estimate is `v^0 + 2^Q (v^Q - v^(Q-1))`, `v^j` being the mean over the
first `2^j` batches, and `v^0` alone where `2^Q` exceeds `t_max`. Written as one sum over
transitions, each has the weight `[first batch] + 1 - 2 [first half]` over the batch size, so a
state machine needs one accumulator.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxlab.agents.pdnac.config import PDNACConfig


def draw_level(key: jax.Array, config: PDNACConfig) -> jax.Array:
    """A level `[]`, int32: geometric from 1 on, 0 where it is cut off or there are none."""
    if config.estimator != "mlmc":
        return jnp.zeros((), jnp.int32)
    # Leading zeros of random bits are geometric.
    bits = jax.random.bits(key, (), jnp.uint32)
    level = jax.lax.clz(bits).astype(jnp.int32) + 1
    return jnp.where(level <= config.levels, level, 0)


def length(level: jax.Array, config: PDNACConfig) -> jax.Array:
    """Transitions of an update of a level, `[]`, int32."""
    return jnp.left_shift(jnp.full((), config.batch, jnp.int32), level)


def weight(number: jax.Array, level: jax.Array, config: PDNACConfig, dtype: Any) -> jax.Array:
    """Weight `[]` of transition `number` of an update, counted from zero."""
    count = length(level, config)
    first = (number < config.batch).astype(jnp.int32)
    half = jnp.where(2 * number < count, -1, 1)
    share = first + jnp.where(level > 0, half, 0)
    return share.astype(dtype) / config.batch
