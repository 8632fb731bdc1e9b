"""A hand-made automaton over tokens: a table of transitions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct


@struct.dataclass
class TableAutomaton:
    """Next state by state and token, -1 for a token that may not come: int32 `[states, vocab]`."""

    table: jax.Array

    def start(self) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def allowed(self, state: jax.Array) -> jax.Array:
        return self.table[state] >= 0

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        return jnp.maximum(self.table[state, token], 0)


def chain(*sets: list[int], vocab: int) -> TableAutomaton:
    """One token of each set in turn; after the last nothing is allowed."""
    table = np.full((len(sets) + 1, vocab), -1, np.int32)
    for state, tokens in enumerate(sets):
        table[state, tokens] = state + 1
    return TableAutomaton(table=jnp.asarray(table))
