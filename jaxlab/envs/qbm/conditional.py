"""Models whose visible operators are all I or Z: one small Gibbs state per visible bit string.

The state is block diagonal, `sum_v p(v) |v><v| (x) rho_{H|v}`, so the hidden register alone is
decomposed, once per bit string, whatever couples hidden qubits with one another. The e-step is
closed: its state is `sum_v q(v) |v><v| (x) rho_{H|v}`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.qbm.evaluation import Evaluation, shannon_entropy
from jaxlab.envs.qbm.gibbs import GibbsState, spectrum
from jaxlab.envs.qbm.metrics import state_metric
from jaxlab.envs.qbm.pauli import PauliStrings, assemble, expectations
from jaxlab.envs.qbm.precision import require_complex128, require_memory
from jaxlab.envs.qbm.registers import visible_qubits


def commutes_visibly(strings: PauliStrings, hidden: Any) -> bool:
    """Whether all strings have I or Z on every visible qubit."""
    visible = visible_qubits(strings.qubits, hidden)
    return all(set(word) <= {"I", "Z"} for word in strings.restricted(visible))


@dataclasses.dataclass(frozen=True)
class ConditionalModel:
    """Structure of a model that is block diagonal in the visible bits.

    Attributes:
      strings: Terms, in the order of the parameters.
      hidden: Hidden qubits; the others are visible, in ascending order.

    Raises:
      ConfigError: A string has X or Y on a visible qubit, or hidden qubits are wrong.
    """

    strings: PauliStrings
    hidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for label, word in zip(
            self.strings.labels, self.strings.restricted(self.visible), strict=True
        ):
            if set(word) - {"I", "Z"}:
                raise ConfigError(
                    f"Pauli string {label!r} has X or Y on a visible qubit, so the visible "
                    "register does not commute: use the dense state (gibbs, dual)"
                )

    @property
    def visible(self) -> tuple[int, ...]:
        return visible_qubits(self.strings.qubits, self.hidden)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.strings)

    @functools.cached_property
    def hidden_strings(self) -> tuple[PauliStrings, np.ndarray]:
        """Distinct strings on the hidden register, and that of each term."""
        words = self.strings.restricted(self.hidden)
        distinct = tuple(dict.fromkeys(words))
        return PauliStrings(distinct), np.array([distinct.index(word) for word in words])

    def signs(self) -> Float[Array, "terms states"]:
        """Signs of the visible parts of the terms, by visible bit string."""
        words = self.strings.restricted(self.visible)
        distinct = tuple(dict.fromkeys(words))
        return PauliStrings(distinct).signs()[np.array([distinct.index(word) for word in words])]


class Blocks(NamedTuple):
    """Hidden states by visible bit string.

    Attributes:
      states: Gibbs states `[states, ...]` of the hidden register, not normalised by `psi`.
      features: Expectations of the terms given the bits.
      log_weights: `psi_v = log p~(v)`.
    """

    states: GibbsState
    features: Float[Array, "states terms"]
    log_weights: Float[Array, " states"]


def blocks(parameters: Any, model: ConditionalModel) -> Blocks:
    """Hidden states given each visible bit string.

    Raises:
      CapacityError: They take more than 24 GiB.
      PrecisionError, DeviceError: 64-bit (complex) numbers are not there.
      ConfigError: There are not as many parameters as terms.
    """
    strings, which = model.hidden_strings
    what = f"a model of {model.strings.qubits} qubits"
    (require_x64 if strings.real else require_complex128)(what)
    count = 2 ** len(model.visible)
    require_memory(count, strings.dimension, real=strings.real)
    parameters = jnp.asarray(parameters)
    if parameters.shape != (model.size,):
        raise ConfigError(
            f"parameters are {parameters.shape}, expected ({model.size},): one a term"
        )
    signs = model.signs()
    fields = jax.ops.segment_sum(parameters[:, None] * signs, which, num_segments=len(strings))

    def one(coefficients: Any) -> tuple[GibbsState, Array]:
        state = spectrum(assemble(coefficients, strings))
        return state, expectations(state.matrix, strings)

    states, hidden = jax.vmap(one)(fields.T)
    return Blocks(states, signs.T * hidden[:, which], states.log_partition)


def evaluate(parameters: Any, model: ConditionalModel, target: Any) -> Evaluation:
    """The model beside a target distribution of visible bits `[2^visible]`, big-endian."""
    target = jnp.asarray(target)
    found = blocks(parameters, model)
    if target.shape != found.log_weights.shape:
        raise ConfigError(f"target is {target.shape}, expected {found.log_weights.shape}")
    log_z = jax.nn.logsumexp(found.log_weights)
    p = jnp.exp(found.log_weights - log_z)
    # Differences first: with large parameters psi has few digits behind the point.
    divergence = target @ (log_z - found.log_weights) - shannon_entropy(target)
    return Evaluation(log_z, p @ found.features, (target - p) @ found.features, divergence)


def probabilities(parameters: Any, model: ConditionalModel) -> Float[Array, " states"]:
    """Probabilities of the visible bit strings, big-endian."""
    return jax.nn.softmax(blocks(parameters, model).log_weights)


def conditional_states(parameters: Any, model: ConditionalModel) -> Inexact[Array, "states h h"]:
    """Density matrices of the hidden register given each visible bit string."""
    return jax.vmap(lambda state: state.matrix)(blocks(parameters, model).states)


def metric(parameters: Any, model: ConditionalModel) -> Float[Array, "terms terms"]:
    """The BKM metric: covariance of the features, and the mean metric of the hidden states."""
    strings, which = model.hidden_strings
    found, signs = blocks(parameters, model), model.signs()
    weights = jax.nn.softmax(found.log_weights)
    mean = weights @ found.features
    covariance = found.features.T @ (weights[:, None] * found.features) - jnp.outer(mean, mean)
    inner = jax.vmap(lambda state: state_metric(state, strings))(found.states)
    weighted = weights[:, None, None] * inner[:, which[:, None], which[None, :]]
    return covariance + jnp.einsum("av,vab,bv->ab", signs, weighted, signs)
