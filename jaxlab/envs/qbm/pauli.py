"""Pauli strings as permutations of basis states with signs; no operator is ever stored.

A string such as "ZIX" acts on qubits 0, 1, 2; qubit 0 is the leftmost Kronecker factor and the
most significant bit of a basis state's number. A string maps the basis state k to
`phase * (-1)^popcount(k & parity) |k ^ flip>`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxlab.core.errors import ConfigError

LETTERS = "IXYZ"


@dataclasses.dataclass(frozen=True)
class PauliStrings:
    """Distinct Pauli strings on the same qubits; static structure, hashable.

    Attributes:
      labels: Words over I, X, Y, Z, all as long as there are qubits.

    Raises:
      ConfigError: A string is unknown, has another length, or comes twice.
    """

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.labels:
            raise ConfigError("no Pauli string is given; expected at least one")
        for label in self.labels:
            if not isinstance(label, str) or set(label) - set(LETTERS):
                raise ConfigError(
                    f"Pauli string {label!r}: expected a word over I, X, Y, Z, a letter a qubit"
                )
            if len(label) != self.qubits:
                raise ConfigError(
                    f"Pauli string {label!r} has {len(label)} letters, expected {self.qubits} as "
                    f"{self.labels[0]!r} has"
                )
        twice = [label for label, count in Counter(self.labels).items() if count > 1]
        if twice:
            raise ConfigError(f"Pauli string {twice[0]!r} is given twice; add its coefficients up")

    @property
    def qubits(self) -> int:
        return len(self.labels[0])

    @property
    def dimension(self) -> int:
        """Number of basis states."""
        return 2**self.qubits

    def __len__(self) -> int:
        return len(self.labels)

    @functools.cached_property
    def flips(self) -> np.ndarray:
        """Bits that each string flips, `[terms]` int32."""
        return self._masks("XY")

    @functools.cached_property
    def parities(self) -> np.ndarray:
        """Bits whose parity gives the sign, `[terms]` int32."""
        return self._masks("YZ")

    @functools.cached_property
    def ys(self) -> np.ndarray:
        """Number of Y in each string, `[terms]`; the phase is i to that power."""
        return np.array([label.count("Y") for label in self.labels])

    @property
    def real(self) -> bool:
        """Whether all matrices are real: an even number of Y everywhere."""
        return not np.any(self.ys % 2)

    @property
    def phases(self) -> np.ndarray:
        """`[terms]`, of the dtype of the matrices."""
        phases = np.array([1, 1j, -1, -1j])[self.ys % 4]
        return phases.real if self.real else phases

    @property
    def dtype(self) -> Any:
        return np.float64 if self.real else np.complex128

    @functools.cached_property
    def diagonals(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct flips `[groups]`, and the group of each string `[terms]`."""
        flips, groups = np.unique(self.flips, return_inverse=True)
        return flips, groups

    def _masks(self, letters: str) -> np.ndarray:
        words = ["".join("1" if c in letters else "0" for c in label) for label in self.labels]
        return np.array([int(f"0{word}", 2) for word in words], np.int32)

    def signs(self) -> Array:
        """Signs `[terms, dimension]` with which the strings act on basis states."""
        states = lax.iota(np.int32, self.dimension)
        odd = lax.population_count(states[None, :] & self.parities[:, None]) & 1
        return (1 - 2 * odd).astype(np.float64)

    def restricted(self, qubits: Iterable[int]) -> tuple[str, ...]:
        """The letters of each string on some qubits, in their order."""
        chosen = tuple(qubits)
        return tuple("".join(label[q] for q in chosen) for label in self.labels)


def assemble(coefficients: Any, strings: PauliStrings) -> Array:
    """The matrix `sum_a c_a F_a`, `[dimension, dimension]`, real where the strings are.

    Args:
      coefficients: Real, `[terms]`.
    """
    flips, groups = strings.diagonals
    weighted = (jnp.asarray(coefficients) * strings.phases)[:, None] * strings.signs()
    entries = jax.ops.segment_sum(weighted, groups, num_segments=len(flips))
    columns = jnp.broadcast_to(lax.iota(np.int32, strings.dimension), entries.shape)
    rows = columns ^ flips.astype(np.int32)[:, None]
    empty = jnp.zeros((strings.dimension,) * 2, strings.dtype)
    return empty.at[rows, columns].set(entries, unique_indices=True)


def expectations(matrix: Any, strings: PauliStrings) -> Array:
    """`Re Tr(matrix F_a)` of every string, `[terms]`.

    Args:
      matrix: `[dimension, dimension]`, a state or a Hermitian derivative of one.
    """
    flips, groups = strings.diagonals
    states = lax.iota(np.int32, strings.dimension)
    entries = jnp.asarray(matrix)[states, states ^ flips.astype(np.int32)[:, None]]
    traces = jnp.sum(strings.signs() * entries[groups], axis=1)
    return jnp.real(strings.phases * traces)


def apply(vectors: Any, flip: Any, parity: Any, phase: Any) -> Array:
    """A string, given by its masks and phase, times the columns of `vectors [dimension, n]`."""
    vectors = jnp.asarray(vectors)
    sources = lax.iota(np.int32, vectors.shape[0]) ^ flip
    odd = lax.population_count(sources & parity) & 1
    factors = phase * (1 - 2 * odd).astype(np.float64)
    return factors[:, None] * vectors[sources]


def single(qubits: int, **letters: int) -> str:
    """The string with the given letters on single qubits: `single(3, Z=0, X=2)` is "ZIX"."""
    word = ["I"] * qubits
    for letter, qubit in letters.items():
        word[qubit] = letter
    return "".join(word)
