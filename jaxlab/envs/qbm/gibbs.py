"""Dense Gibbs states `exp(sum_a theta_a F_a) / Z` by eigendecomposition.

Derivatives are analytic: the derivative of a state in the direction of an operator A is
`V (K * (V^dagger A V)) V^dagger - rho Tr(rho A)` with the divided differences K of the
exponential. They are given to `jax.grad` and `jax.hessian` as custom rules, so that the
decomposition itself, whose derivative fails where levels meet, is never differentiated.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.qbm.pauli import PauliStrings, assemble, expectations
from jaxlab.envs.qbm.precision import require_complex128, require_dense


class GibbsState(NamedTuple):
    """A Gibbs state by its spectrum.

    Attributes:
      levels: Eigenvalues of the exponent, ascending.
      vectors: Its eigenvectors, in columns; real where all strings are.
      log_partition: `log Tr exp(exponent)`, the potential psi.
    """

    levels: Float[Array, " dimension"]
    vectors: Inexact[Array, "dimension dimension"]
    log_partition: Float[Array, ""]

    @property
    def populations(self) -> Float[Array, " dimension"]:
        """Eigenvalues of the state."""
        return jnp.exp(self.levels - self.log_partition)

    @property
    def matrix(self) -> Inexact[Array, "dimension dimension"]:
        """The density matrix."""
        return (self.vectors * self.populations) @ self.vectors.conj().T


@jax.custom_jvp
def _eigh(matrix: Any) -> tuple[Array, Array]:
    vectors, levels = jax.lax.linalg.eigh(matrix, symmetrize_input=False)
    return levels, vectors


@_eigh.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise ConfigError(
        "the eigenvectors of a Gibbs state are not differentiated, since that fails where levels "
        "meet: differentiate log_partition (twice at most), density_matrix, moments or entropy "
        "of its parameters (once)"
    )


def spectrum(exponent: Any) -> GibbsState:
    """The Gibbs state of a Hermitian matrix `[dimension, dimension]`."""
    levels, vectors = _eigh(exponent)
    # Shifted by the largest, which is the last: no overflow for any exponent.
    top = levels[-1]
    return GibbsState(levels, vectors, top + jnp.log(jnp.sum(jnp.exp(levels - top))))


def gibbs_state(parameters: Any, strings: PauliStrings) -> GibbsState:
    """The Gibbs state of natural parameters `[terms]`.

    Raises:
      CapacityError: It has more than 12 qubits, which take 2 GiB with a metric and minutes to
        decompose, or the states of a batch more than 24 GiB; see `precision.require_dense`.
      PrecisionError, DeviceError: 64-bit (complex) numbers are not there.
      ConfigError: There are not as many parameters as strings.
    """
    require_strings(parameters, strings)
    return spectrum(assemble(parameters, strings))


def require_strings(parameters: Any, strings: PauliStrings) -> None:
    """The checks of `gibbs_state`, which raises what this raises."""
    what = f"a Gibbs state of {strings.qubits} qubits"
    (require_x64 if strings.real else require_complex128)(what)
    require_dense(strings.qubits, real=strings.real)
    if jnp.shape(parameters) != (len(strings),):
        raise ConfigError(
            f"parameters are {jnp.shape(parameters)}, expected ({len(strings)},): one a string"
        )


def divided_differences(state: GibbsState) -> Float[Array, "dimension dimension"]:
    """`K_kl = (p_k - p_l) / (w_k - w_l)`, and p_k where levels meet; without cancellation."""
    gap = jnp.abs(state.levels[:, None] - state.levels[None, :])
    larger = jnp.maximum(state.populations[:, None], state.populations[None, :])
    met = gap == 0
    return larger * jnp.where(met, 1.0, -jnp.expm1(-gap) / jnp.where(met, 1.0, gap))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def density_matrix(parameters: Any, strings: PauliStrings) -> Inexact[Array, "rows rows"]:
    """The density matrix of natural parameters `[terms]`; differentiable once.

    Raises:
      CapacityError, PrecisionError, DeviceError, ConfigError: See `gibbs_state`.
    """
    return gibbs_state(parameters, strings).matrix


@density_matrix.defjvp
def _density_matrix_jvp(strings: PauliStrings, primals: Any, tangents: Any) -> Any:
    state = gibbs_state(primals[0], strings)
    matrix = state.matrix
    # The trace of the tangent's operator with the state, as its moments times the tangent.
    drift = expectations(matrix, strings) @ tangents[0]
    vectors = state.vectors
    direction = vectors.conj().T @ assemble(tangents[0], strings) @ vectors
    change = vectors @ (divided_differences(state) * direction) @ vectors.conj().T
    return matrix, change - drift * matrix


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def log_partition(parameters: Any, strings: PauliStrings) -> Float[Array, ""]:
    """The potential `psi = log Tr exp(sum_a theta_a F_a)`; its gradient are the moments, its
    Hessian is the BKM metric. Differentiable twice.

    Raises:
      CapacityError, PrecisionError, DeviceError, ConfigError: See `gibbs_state`.
    """
    return gibbs_state(parameters, strings).log_partition


@log_partition.defjvp
def _log_partition_jvp(strings: PauliStrings, primals: Any, tangents: Any) -> Any:
    return log_partition(primals[0], strings), moments(primals[0], strings) @ tangents[0]


def moments(parameters: Any, strings: PauliStrings) -> Float[Array, " terms"]:
    """Expectations `eta_a = Tr(rho F_a)` in the Gibbs state; differentiable once."""
    return expectations(density_matrix(parameters, strings), strings)


def entropy(parameters: Any, strings: PauliStrings) -> Float[Array, ""]:
    """Von Neumann entropy of the Gibbs state, in nats: `psi - theta . eta`."""
    return log_partition(parameters, strings) - jnp.asarray(parameters) @ moments(
        parameters, strings
    )


def purity(parameters: Any, strings: PauliStrings) -> Float[Array, ""]:
    """`Tr rho^2` of the Gibbs state."""
    return jnp.sum(jnp.abs(density_matrix(parameters, strings)) ** 2)


def gibbs_relative_entropy(first: Any, second: Any, strings: PauliStrings) -> Float[Array, ""]:
    """`D(rho_first || rho_second)` of two Gibbs states of the same strings, in nats."""
    first, second = jnp.asarray(first), jnp.asarray(second)
    potential = log_partition(second, strings) - log_partition(first, strings)
    return potential + (first - second) @ moments(first, strings)


def relative_entropy(matrix: Any, parameters: Any, strings: PauliStrings) -> Float[Array, ""]:
    """`D(matrix || rho)` of a density matrix from the Gibbs state of parameters, in nats."""
    cross = log_partition(parameters, strings) - expectations(matrix, strings) @ jnp.asarray(
        parameters
    )
    return cross - von_neumann_entropy(matrix)


@jax.custom_jvp
def von_neumann_entropy(matrix: Any) -> Float[Array, ""]:
    """`-Tr(rho log rho)` of a density matrix `[dimension, dimension]`, in nats."""
    populations = jnp.linalg.eigvalsh(matrix)
    return -jnp.sum(jax.scipy.special.xlogy(populations, jnp.maximum(populations, _TINY)))


@von_neumann_entropy.defjvp
def _von_neumann_entropy_jvp(primals: Any, tangents: Any) -> Any:
    populations, vectors = _eigh(primals[0])
    logarithm = (vectors * jnp.log(jnp.maximum(populations, _TINY))) @ vectors.conj().T
    change = -jnp.sum(jnp.real((logarithm + jnp.eye(len(populations))) * tangents[0].T))
    return von_neumann_entropy(primals[0]), change


#: Populations below this are those of a kernel.
_TINY = 1e-300
