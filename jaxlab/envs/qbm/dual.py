"""The e-step where visible operators do not commute, by its concave dual.

The state nearest to `rho = exp(H) / Z` among those with visible marginal eta_V is
`sigma = exp(H + Lambda (x) I) / Z'`, with Lambda a Hermitian matrix of the visible register,
here `sum_b lambda_b P_b` over its Pauli strings. Lambda maximises
`Tr(eta_V Lambda) - log Tr exp(H + Lambda (x) I)`, so it is a moment fit of the model with more
terms. The Petz map has another marginal unless the state and the target commute.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.qbm.gibbs import gibbs_state
from jaxlab.envs.qbm.metrics import state_metric
from jaxlab.envs.qbm.pauli import LETTERS, PauliStrings, expectations
from jaxlab.envs.qbm.registers import visible_qubits


@dataclasses.dataclass(frozen=True)
class DualModel:
    """Terms of a model, then all Pauli strings of its visible register but the identity.

    Attributes:
      strings: Terms of the model, in the order of its parameters.
      hidden: Hidden qubits; the others are visible, in ascending order.

    Raises:
      ConfigError: Hidden qubits are wrong.
    """

    strings: PauliStrings
    hidden: tuple[int, ...]

    def __post_init__(self) -> None:
        visible_qubits(self.strings.qubits, self.hidden)

    @property
    def visible(self) -> tuple[int, ...]:
        return visible_qubits(self.strings.qubits, self.hidden)

    @property
    def size(self) -> int:
        """Number of the model's own parameters."""
        return len(self.strings)

    @functools.cached_property
    def visible_strings(self) -> PauliStrings:
        """Pauli strings of the visible register alone, without the identity."""
        words = map("".join, itertools.product(LETTERS, repeat=len(self.visible)))
        return PauliStrings(tuple(words)[1:])

    @functools.cached_property
    def joint(self) -> tuple[PauliStrings, np.ndarray]:
        """Distinct strings of both, and the string of each term and each multiplier."""
        padded = []
        for word in self.visible_strings.labels:
            letters = ["I"] * self.strings.qubits
            for qubit, letter in zip(self.visible, word, strict=True):
                letters[qubit] = letter
            padded.append("".join(letters))
        words = (*self.strings.labels, *padded)
        distinct = tuple(dict.fromkeys(words))
        place = {word: n for n, word in enumerate(distinct)}
        return PauliStrings(distinct), np.array([place[word] for word in words])


def potential(point: Any, model: DualModel) -> tuple[Float[Array, ""], Float[Array, " both"]]:
    """`log Tr exp(H + Lambda (x) I)` and the moments of its state.

    Args:
      point: Parameters of the model, then the multipliers lambda.

    Returns:
      The potential; the expectations of the model's terms, then of the visible strings.

    Raises:
      CapacityError, PrecisionError, DeviceError: See `gibbs.gibbs_state`.
    """
    strings, which = model.joint
    state = gibbs_state(_combined(point, model), strings)
    return state.log_partition, expectations(state.matrix, strings)[which]


def metric(point: Any, model: DualModel) -> Float[Array, "both both"]:
    """The Hessian of the potential."""
    strings, which = model.joint
    full = state_metric(gibbs_state(_combined(point, model), strings), strings)
    return full[which[:, None], which[None, :]]


def _combined(point: Any, model: DualModel) -> Array:
    strings, which = model.joint
    return jax.ops.segment_sum(jnp.asarray(point), which, num_segments=len(strings))


def visible_moments(matrix: Any, model: DualModel) -> np.ndarray:
    """Expectations of the visible strings in a target state of the visible register.

    Args:
      matrix: Density matrix, or probabilities of the bits for a diagonal one.

    Raises:
      ConfigError: It is no density matrix of the visible register, or has no full rank: then
        no finite Lambda exists.
    """
    matrix = np.asarray(matrix)
    matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
    require_density_matrix(matrix, 2 ** len(model.visible))
    least = float(np.linalg.eigvalsh(matrix)[0])
    if least <= 0:
        raise ConfigError(
            f"the target state has an eigenvalue of {max(least, 0.0):.3g}; where visible operators "
            "do not commute the e-step needs a state of full rank: mix it with the identity"
        )
    return np.asarray(expectations(matrix.astype(np.complex128), model.visible_strings))


def require_density_matrix(matrix: np.ndarray, dimension: int) -> None:
    """Refuse what is no density matrix of a register.

    Raises:
      ConfigError: Says why not.
    """
    what = "the target state"
    if matrix.shape != (dimension, dimension):
        raise ConfigError(f"{what} is {matrix.shape}, expected ({dimension}, {dimension})")
    if not np.all(np.isfinite(matrix)):
        raise ConfigError(f"{what} has elements that are not finite")
    if np.abs(matrix - matrix.conj().T).max() > 1e-10:
        raise ConfigError(f"{what} is not Hermitian; expected its conjugate transpose to equal it")
    if abs(np.trace(matrix).real - 1) > 1e-8:
        raise ConfigError(f"{what} has trace {np.trace(matrix).real:.6g}, expected 1")
    least = float(np.linalg.eigvalsh(matrix)[0])
    if least < -1e-10:
        raise ConfigError(f"{what} has eigenvalue {least:.3g}, expected none below 0")
