"""Visible and hidden registers: partial traces, marginals, and orders of qubits and bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError


def visible_qubits(qubits: int, hidden: Sequence[int]) -> tuple[int, ...]:
    """Qubits that are not hidden, ascending.

    Raises:
      ConfigError: A hidden qubit does not exist or comes twice, or none is visible.
    """
    for qubit in hidden:
        if isinstance(qubit, bool) or not isinstance(qubit, int) or not 0 <= qubit < qubits:
            raise ConfigError(f"hidden qubit {qubit!r}: expected an integer from 0 to {qubits - 1}")
    if len(set(hidden)) < len(hidden):
        raise ConfigError(f"hidden qubits are {list(hidden)}, expected each once")
    visible = tuple(q for q in range(qubits) if q not in set(hidden))
    if not visible:
        raise ConfigError(f"all {qubits} qubits are hidden; expected a visible one")
    return visible


def partial_trace(matrix: Any, keep: Sequence[int]) -> Array:
    """The state of some qubits, in the order in which they are named.

    Args:
      matrix: `[2^qubits, 2^qubits]`.
      keep: Qubits that stay.
    """
    qubits = int(matrix.shape[0]).bit_length() - 1
    others = [q for q in range(qubits) if q not in set(keep)]
    order = [*keep, *others]
    tensor = jnp.asarray(matrix).reshape((2,) * (2 * qubits))
    tensor = tensor.transpose(*order, *(qubits + q for q in order))
    kept, rest = 2 ** len(keep), 2 ** len(others)
    return jnp.einsum("arbr->ab", tensor.reshape(kept, rest, kept, rest))


def marginal(probabilities: Any, keep: Sequence[int]) -> Float[Array, " states"]:
    """Probabilities of some bits, of those of all: the first named is the most significant."""
    count = jnp.shape(probabilities)[0]
    qubits = int(count).bit_length() - 1
    others = [q for q in range(qubits) if q not in set(keep)]
    tensor = jnp.asarray(probabilities).reshape((2,) * qubits)
    return tensor.transpose(*keep, *others).reshape(2 ** len(keep), -1).sum(1)


def visible_probabilities(matrix: Any, visible: Sequence[int]) -> Float[Array, " states"]:
    """Probabilities of the bits of visible qubits in a state, big-endian."""
    return marginal(jnp.real(jnp.diagonal(matrix)), visible)
