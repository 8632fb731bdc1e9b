"""Monotone metrics of Gibbs states: Bogoliubov-Kubo-Mori, Wigner-Yanase, Bures.

A monotone metric weighs the elements of the derivative of a state in its eigenbasis:
`g_ab = sum_kl c(p_k, p_l) Re[(d_a rho)_kl conj((d_b rho)_kl)]` (Petz 1996). All agree with the
Fisher metric for commuting states; Bures <= Wigner-Yanase <= Bogoliubov-Kubo-Mori.
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.qbm.gibbs import GibbsState, divided_differences, gibbs_state
from jaxlab.envs.qbm.pauli import PauliStrings, apply, expectations

Kind = Literal["bkm", "wigner_yanase", "bures"]
#: Bytes of the matrices that are worked on at once.
_WORKSPACE = 2**26


def metric_kernel(state: GibbsState, kind: str = "bkm") -> Float[Array, "dimension dimension"]:
    """Weights of the elements `A_kl conj(B_kl)` of two operators in the eigenbasis.

    Raises:
      ConfigError: The kind is unknown.
    """
    differences = divided_differences(state)
    if kind == "bkm":
        return differences
    p, q = state.populations[:, None], state.populations[None, :]
    # Divided by their larger one first: both may be too small to be squared.
    larger = jnp.maximum(p, q)
    share = jnp.where(larger > 0, jnp.minimum(p, q) / jnp.where(larger > 0, larger, 1.0), 1.0)
    scaled = jnp.where(larger > 0, differences / jnp.where(larger > 0, larger, 1.0), 0.0)
    if kind == "bures":
        return larger * scaled**2 * 2 / (1 + share)
    if kind == "wigner_yanase":
        return larger * scaled**2 * 4 / (1 + jnp.sqrt(share)) ** 2
    raise ConfigError(f"metric {kind!r}: expected bkm, wigner_yanase or bures")


def state_metric(
    state: GibbsState, strings: PauliStrings, kind: str = "bkm"
) -> Float[Array, "terms terms"]:
    """A monotone metric at a Gibbs state, in the coordinates of its natural parameters.

    Three products of matrices for each string, and no more than a few matrices at a time.
    """
    vectors, kernel = state.vectors, metric_kernel(state, kind)
    adjoint, populations = vectors.conj().T, state.populations

    def row(masks: Any) -> Array:
        operator = adjoint @ apply(vectors, *masks)
        # Centred: all monotone metrics have c(p, p) p = 1, so that the mean drops out of both.
        mean = jnp.sum(populations * jnp.real(jnp.diagonal(operator)))
        centred = operator - mean * jnp.eye(len(populations), dtype=operator.dtype)
        weighted = vectors @ (kernel * centred) @ adjoint
        return expectations(weighted, strings)

    masks = (
        jnp.asarray(strings.flips, jnp.int32),
        jnp.asarray(strings.parities, jnp.int32),
        jnp.asarray(strings.phases),
    )
    size = strings.dimension**2 * jnp.dtype(strings.dtype).itemsize
    at_once = max(1, min(len(strings), _WORKSPACE // size))
    # The first factor is centred, so the mean of the second adds nothing.
    rows = lax.map(row, masks, batch_size=at_once)
    return (rows + rows.T) / 2


def metric(
    parameters: Any, strings: PauliStrings, kind: str = "bkm"
) -> Float[Array, "terms terms"]:
    """A monotone metric at the Gibbs state of natural parameters `[terms]`.

    The BKM metric is the Hessian of `log_partition`.

    Raises:
      CapacityError, PrecisionError, DeviceError, ConfigError: See `gibbs.gibbs_state`.
    """
    return state_metric(gibbs_state(parameters, strings), strings, kind)
