"""Sampling visible bits, and gradients from samples where sums over all bits are too long.

Spins are drawn from the exact marginal of the visible units, whose conditional probabilities are
closed. Hidden units are never sampled: their exact Bloch vectors given the spins are averaged,
since draws in one basis would be biased where hidden operators do not commute.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.qbm.bloch import spin_potentials
from jaxlab.envs.qbm.restricted import (
    RestrictedModel,
    data_moments,
    probabilities,
    spins_of,
)

#: Units whose joint states are enumerated within one block.
MOST_BLOCK = 8


def sample_states(key: Any, distribution: Any, count: int) -> Array:
    """Numbers of basis states drawn from a distribution `[states]`, `[count]` int32."""
    cumulative = jnp.cumsum(jnp.asarray(distribution))
    uniform = jax.random.uniform(key, (count,), cumulative.dtype) * cumulative[-1]
    found = jnp.searchsorted(cumulative, uniform, side="right")
    return jnp.minimum(found, len(cumulative) - 1).astype(jnp.int32)


def sample_spins(
    key: Any, parameters: Any, model: RestrictedModel, count: int
) -> Float[Array, "count visible"]:
    """Independent draws of visible spins, by sums over all visible states.

    Raises:
      CapacityError: There are more than 20 visible units.
    """
    return spins_of(sample_states(key, probabilities(parameters, model), count), model.visible)


def random_spins(key: Any, model: RestrictedModel, chains: int) -> Float[Array, "chains visible"]:
    """Starts of chains: uniform spins."""
    return jax.random.rademacher(key, (chains, model.visible), np.float64)


def gibbs_sweep(
    key: Any, spins: Any, parameters: Any, model: RestrictedModel, *, block: int = 1
) -> Float[Array, "chains visible"]:
    """Resample every visible unit once, in blocks drawn jointly given all others.

    Args:
      spins: `[chains, visible]`.
      block: Units in a block, whose `2^block` states are weighed exactly.

    Raises:
      ConfigError: The block is larger than the model, or than 8 units.
    """
    if not 1 <= block <= min(MOST_BLOCK, model.visible):
        raise ConfigError(
            f"block is {block}, expected 1 to {min(MOST_BLOCK, model.visible)} visible units"
        )
    fields = model.split(parameters)
    couplings = [
        fields.coupling[:, :, model.couplings.index(letter)] if letter in model.couplings else None
        for letter in model.fields
    ]
    spins = jnp.asarray(spins, np.float64)
    patterns = spins_of(lax.iota(np.int32, 2**block), block)
    # The last block begins earlier where blocks do not divide the units: still exact.
    starts = np.minimum(np.arange(0, model.visible, block), model.visible - block)

    def resample(carry: Any, x: Any) -> Any:
        spins, local = carry
        start, number = x
        own = lax.dynamic_slice_in_dim(spins, start, block, 1)
        squares, moved = jnp.zeros(()), []
        for phi, coupling in zip(local, couplings, strict=True):
            if coupling is None:
                moved.append(phi[:, None, :])
            else:
                rows = lax.dynamic_slice_in_dim(coupling, start, block, 0)
                moved.append((phi - own @ rows)[:, None, :] + patterns @ rows)
            squares = squares + moved[-1] ** 2
        bias = patterns @ lax.dynamic_slice_in_dim(fields.visible, start, block, 0)
        chosen = jax.random.categorical(
            jax.random.fold_in(key, number), bias + spin_potentials(jnp.moveaxis(squares, -1, 0))
        )
        spins = lax.dynamic_update_slice_in_dim(spins, patterns[chosen], start, 1)
        at = chosen[:, None, None]
        new = [
            phi if c is None else jnp.take_along_axis(m, at, axis=1)[:, 0]
            for phi, c, m in zip(local, couplings, moved, strict=True)
        ]
        return (spins, new), None

    local = [
        jnp.broadcast_to(fields.hidden[:, k], (spins.shape[0], model.hidden))
        + (0.0 if coupling is None else spins @ coupling)
        for k, coupling in enumerate(couplings)
    ]
    numbers = np.arange(len(starts), dtype=np.int32)
    (spins, _), _ = lax.scan(resample, (spins, local), (starts.astype(np.int32), numbers))
    return spins


@functools.partial(jax.jit, static_argnames=("model", "sweeps", "block"))
def persistent_contrast(
    key: Any,
    chains: Any,
    parameters: Any,
    model: RestrictedModel,
    spins: Any,
    weights: Any,
    *,
    sweeps: int = 1,
    block: int = 1,
) -> tuple[Float[Array, "chains visible"], Float[Array, " size"]]:
    """Chains moved on, and an estimate of the gradient `eta_p - eta_q` of the divergence.

    Persistent contrastive divergence (Tieleman 2008) with exact hidden expectations. Begin the
    chains with the data at every call for contrastive divergence.

    Args:
      chains: Spins of the chains `[chains, visible]`.
      spins: Data, distinct spins `[states, visible]`.
      weights: Their frequencies `[states]`.
      sweeps: Sweeps of `gibbs_sweep` before the chains are averaged.

    Returns:
      The chains, and the estimate `[size]`.
    """

    def sweep(n: Any, state: Any) -> Any:
        return gibbs_sweep(jax.random.fold_in(key, n), state, parameters, model, block=block)

    chains = lax.fori_loop(0, sweeps, sweep, jnp.asarray(chains, np.float64))
    equal = jnp.full(chains.shape[0], 1 / chains.shape[0], np.float64)
    of_model, _ = data_moments(parameters, model, chains, equal)
    of_data, _ = data_moments(parameters, model, spins, weights)
    return chains, of_model - of_data
