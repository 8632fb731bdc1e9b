"""Chains at several inverse temperatures: prior and likelihood kept apart.

A change of beta then needs no new evaluation of the density, which may be a propagation
of a spacecraft.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.agents.mcmc.kernels import Chain, Kernel, Move
from jaxlab.agents.mcmc.target import Target


class Parts(NamedTuple):
    """Chains with the untempered parts of their density.

    Attributes:
      position: `[chains, dim]`.
      log_prior: `[chains]`.
      log_likelihood: `[chains]`, without beta.
      prior_gradient: `[chains, dim]`; `[chains, 0]` for a sampler without gradients.
      likelihood_gradient: The same for the likelihood.
    """

    position: Float[Array, "chains dim"]
    log_prior: Float[Array, " chains"]
    log_likelihood: Float[Array, " chains"]
    prior_gradient: Float[Array, "chains size"]
    likelihood_gradient: Float[Array, "chains size"]


def evaluate(target: Target, x: Float[Array, "chains dim"], gradient: bool) -> Parts:
    """Both parts of the density at new positions."""
    if gradient:
        prior, prior_gradient = jax.vmap(jax.value_and_grad(target.log_prior))(x)
        likelihood, likelihood_gradient = jax.vmap(jax.value_and_grad(target.log_likelihood))(x)
        return Parts(x, prior, likelihood, prior_gradient, likelihood_gradient)
    none = jnp.zeros((len(x), 0), x.dtype)
    return Parts(x, jax.vmap(target.log_prior)(x), jax.vmap(target.log_likelihood)(x), none, none)


def assemble(target: Target, parts: Parts, beta: Float[Array, " chains"]) -> Chain:
    """Chains at inverse temperatures; a metric that depends on them is evaluated anew."""
    factor = jnp.zeros((len(beta), 0, 0), beta.dtype)
    if target.metric is not None:
        factor = jnp.linalg.cholesky(jax.vmap(target.metric)(parts.position, beta))
    return Chain(
        position=parts.position,
        log_density=parts.log_prior + beta * parts.log_likelihood,
        gradient=parts.prior_gradient + beta[:, None] * parts.likelihood_gradient,
        factor=factor,
    )


def separate(
    target: Target, kernel: Kernel, parts: Parts, move: Move, beta: Float[Array, " chains"]
) -> Parts:
    """The parts after a move.

    BlackJAX's kernels return the tempered density only. The prior, which is cheap, is
    evaluated again, and the likelihood is what remains, divided by beta; its rounding error
    is harmless, since only products with a beta of like size are used. Chains that stay
    keep their bits.
    """
    chain = move.chain
    if kernel.has_gradient:
        prior, prior_gradient = jax.vmap(jax.value_and_grad(target.log_prior))(chain.position)
        likelihood_gradient = (chain.gradient - prior_gradient) / beta[:, None]
    else:
        prior = jax.vmap(target.log_prior)(chain.position)
        prior_gradient = likelihood_gradient = chain.gradient
    new = Parts(
        position=chain.position,
        log_prior=prior,
        log_likelihood=(chain.log_density - prior) / beta,
        prior_gradient=prior_gradient,
        likelihood_gradient=likelihood_gradient,
    )
    return select(move.moved, new, parts)


def select(condition: Array, new: Parts, old: Parts) -> Parts:
    """Chain by chain the new or the old."""

    def one(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, new, old)


def take(parts: Parts, index: Array) -> Parts:
    """The chains of an index `[chains]`."""
    return jax.tree.map(lambda leaf: leaf[index], parts)
