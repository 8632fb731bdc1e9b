"""One transition of one chain, by the name of its sampler.

All kernels but one are BlackJAX's. A constant metric G = L L^T is a change of coordinates,
z = L^T x, in which the kernels run with the identity: random walk proposals get the
covariance G^-1, HMC and NUTS the mass matrix G. BlackJAX's MALA has a scalar step and no
metric, so for one that depends on the position the kernel is our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import barker, hmc, mala, nuts, random_walk
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.mcmc.config import MCMCConfig
from jaxlab.agents.mcmc.target import Problem, Target


class Chain(NamedTuple):
    """A position and what is known of the density there.

    Attributes:
      position: `[dim]`.
      log_density: Log density at the chain's inverse temperature.
      gradient: Its gradient `[dim]`; `[0]` for a sampler without gradients.
      factor: Cholesky factor `[dim, dim]` of the local metric; `[0, 0]` without one.
    """

    position: Float[Array, "*chains dim"]
    log_density: Float[Array, "*chains"]
    gradient: Float[Array, "*chains size"]
    factor: Float[Array, "*chains rows rows"]


class Move(NamedTuple):
    """A chain after a transition.

    Attributes:
      chain: Where it stands.
      acceptance: Probability with which the proposal was accepted (NUTS: the mean over the
        trajectory).
      moved: Whether it left its place.
      divergent: Whether the energy error of HMC or NUTS grew beyond 1000.
      evaluations: Log densities evaluated without a gradient.
      gradients: Log densities evaluated with their gradient.
    """

    chain: Chain
    acceptance: Float[Array, "*chains"]
    moved: Bool[Array, "*chains"]
    divergent: Bool[Array, "*chains"]
    evaluations: Int[Array, "*chains"]
    gradients: Int[Array, "*chains"]


class Kernel(NamedTuple):
    """A sampler's functions of single chains.

    Attributes:
      init: `(position [dim], beta []) -> Chain`.
      step: `(key, Chain, step_size [], beta []) -> Move`.
      has_gradient: Whether a chain carries its gradient.
    """

    init: Callable[[jax.Array, jax.Array], Chain]
    step: Callable[[jax.Array, Chain, jax.Array, jax.Array], Move]
    has_gradient: bool


#: `(key, (position, log density, gradient), log density function, step size)
#: -> ((position, log density, gradient), acceptance, divergent, gradients)`.
_Transition = Callable[..., tuple[tuple[Any, Any, Any], Any, Any, Any]]


def build(config: MCMCConfig, problem: Problem, target: Target) -> Kernel:
    """The kernel of a configuration."""
    has_gradient = config.sampler != "random_walk"
    if problem.local_metric:
        return Kernel(_start_with_metric(target), simplified_manifold_mala(target), True)
    matrix = problem.constant_metric
    factor = None if matrix is None else np.linalg.cholesky(matrix)
    step = _in_coordinates(target, factor, _TRANSITIONS[config.sampler](config))
    return Kernel(_start(target, has_gradient), step, has_gradient)


def advance(
    kernel: Kernel,
    key: jax.Array,
    chains: Chain,
    step_size: Float[Array, " chains"],
    beta: Float[Array, " chains"],
) -> Move:
    """One transition of every chain of a batch; chain i draws from `fold_in(key, i)`.

    The log density is called under a single `vmap`, so one with a batching rule of its
    own (`jax.custom_batching.custom_vmap`) is handed the whole batch at once.
    """
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(step_size)))
    return jax.vmap(kernel.step)(keys, chains, step_size, beta)


# Beginning


def _start(target: Target, has_gradient: bool) -> Callable[[jax.Array, jax.Array], Chain]:
    def init(x: jax.Array, beta: jax.Array) -> Chain:
        none = jnp.zeros((0, 0), x.dtype)
        if not has_gradient:
            return Chain(x, target.tempered(x, beta), jnp.zeros((0,), x.dtype), none)
        value, gradient = jax.value_and_grad(target.tempered)(x, beta)
        return Chain(x, value, gradient, none)

    return init


def _start_with_metric(target: Target) -> Callable[[jax.Array, jax.Array], Chain]:
    def init(x: jax.Array, beta: jax.Array) -> Chain:
        if target.fused is None:
            assert target.metric is not None
            value, gradient = jax.value_and_grad(target.tempered)(x, beta)
            metric = target.metric(x, beta)
        else:
            prior, prior_gradient = jax.value_and_grad(target.log_prior)(x)
            likelihood, likelihood_gradient, metric = target.fused(x, beta)
            value = prior + beta * likelihood
            gradient = prior_gradient + beta * likelihood_gradient
        return Chain(x, value, gradient, jnp.linalg.cholesky(metric))

    return init


# BlackJAX's kernels


def _random_walk(config: MCMCConfig) -> _Transition:
    kernel = random_walk.build_additive_step()

    def transition(key, state, log_density, step_size):
        position, value, gradient = state
        step = random_walk.normal(step_size)
        new, info = kernel(key, random_walk.RWState(position, value), log_density, step)
        return (*new, gradient), info.acceptance_rate, False, 0

    return transition


def _mala(config: MCMCConfig) -> _Transition:
    # `blackjax.mala(log_density, step_size)` fixes one step; the kernel takes it per chain.
    kernel = mala.build_kernel()

    def transition(key, state, log_density, step_size):
        new, info = kernel(key, mala.MALAState(*state), log_density, step_size)
        return new, info.acceptance_rate, False, 1

    return transition


def _barker(config: MCMCConfig) -> _Transition:
    kernel = barker.build_kernel()

    def transition(key, state, log_density, step_size):
        identity = jnp.ones_like(state[0])
        new, info = kernel(key, barker.BarkerState(*state), log_density, step_size, identity)
        return new, info.acceptance_rate, False, 1

    return transition


def _hmc(config: MCMCConfig) -> _Transition:
    kernel = hmc.build_kernel()

    def transition(key, state, log_density, step_size):
        new, info = kernel(
            *(key, hmc.HMCState(*state), log_density, step_size, jnp.ones_like(state[0])),
            config.leapfrog_steps,
        )
        return new, info.acceptance_rate, info.is_divergent, config.leapfrog_steps

    return transition


def _nuts(config: MCMCConfig) -> _Transition:
    kernel = nuts.build_kernel()

    def transition(key, state, log_density, step_size):
        new, info = kernel(
            *(key, hmc.HMCState(*state), log_density, step_size, jnp.ones_like(state[0])),
            config.max_doublings,
        )
        return new, info.acceptance_rate, info.is_divergent, info.num_integration_steps

    return transition


_TRANSITIONS: dict[str, Callable[[MCMCConfig], _Transition]] = {
    "random_walk": _random_walk,
    "mala": _mala,
    # With a constant metric: MALA in its coordinates.
    "preconditioned_mala": _mala,
    "barker": _barker,
    "hmc": _hmc,
    "nuts": _nuts,
}


def _in_coordinates(
    target: Target, factor: np.ndarray | None, transition: _Transition
) -> Callable[[jax.Array, Chain, jax.Array, jax.Array], Move]:
    """A transition in the coordinates z = L^T x, or in x itself where L is None."""

    def step(key: jax.Array, chain: Chain, step_size: jax.Array, beta: jax.Array) -> Move:
        dtype, has_gradient = chain.position.dtype, bool(chain.gradient.size)
        lower = None if factor is None else jnp.asarray(factor, dtype)
        # BlackJAX mixes in numbers of the default precision: where positions are narrower
        # than that, it is given wider ones. The density keeps its own.
        wide = jnp.result_type(float)

        def leave(z: jax.Array) -> jax.Array:
            z = z.astype(dtype)
            return z if lower is None else solve_triangular(lower.T, z, lower=False)

        def log_density(z: jax.Array) -> jax.Array:
            return target.tempered(leave(z), beta).astype(wide)

        z, gradient = chain.position, chain.gradient
        if lower is not None:
            z = lower.T @ z
            gradient = solve_triangular(lower, gradient, lower=True) if has_gradient else gradient
        state = (z.astype(wide), chain.log_density.astype(wide), gradient.astype(wide))
        new, acceptance, divergent, gradients = transition(
            key, state, log_density, step_size.astype(wide)
        )
        moved = jnp.any(new[0] != state[0])
        position, value, gradient = (leaf.astype(dtype) for leaf in new)
        if lower is not None:
            # The way to z and back is not exact; a chain that stays keeps its bits.
            position = jnp.where(moved, leave(position), chain.position)
            if has_gradient:
                gradient = jnp.where(moved, lower @ gradient, chain.gradient)
        return Move(
            chain=Chain(position, value, gradient, chain.factor),
            acceptance=_probability(acceptance, dtype),
            moved=moved,
            divergent=jnp.asarray(divergent, bool),
            evaluations=jnp.asarray(0 if has_gradient else 1, jnp.int32),
            gradients=jnp.asarray(gradients, jnp.int32),
        )

    return step


def _probability(acceptance: Any, dtype: Any) -> Float[Array, ""]:
    """An acceptance rate, zero where it is NaN.

    BlackJAX's Barker gives NaN where the density is not finite; it rejects there, but one
    NaN would stay in the step size for ever.
    """
    return jnp.nan_to_num(jnp.asarray(acceptance, dtype), nan=0.0)


# Our own


def simplified_manifold_mala(
    target: Target,
) -> Callable[[jax.Array, Chain, jax.Array, jax.Array], Move]:
    """MALA with a metric that depends on the position, without the metric's derivatives.

    Proposal `y ~ N(x + h G(x)^-1 grad, 2 h G(x)^-1)`, accepted with both proposal
    densities, log determinants included: Girolami & Calderhead 2011, "Riemann manifold
    Langevin and Hamiltonian Monte Carlo methods", their simplified MMALA with h = eps^2 / 2.
    The accept step makes it exact for any metric.
    """
    evaluate = _start_with_metric(target)

    def log_proposal(to: Chain, start: Chain, step_size: jax.Array) -> jax.Array:
        """Log density of proposing `to` from `start`, but for a constant."""
        lower = start.factor
        drift = step_size * _solve(lower, start.gradient)
        scaled = lower.T @ (to.position - start.position - drift)
        half_log_determinant = jnp.sum(jnp.log(jnp.diagonal(lower)))
        return half_log_determinant - jnp.sum(scaled**2) / (4 * step_size)

    def step(key: jax.Array, chain: Chain, step_size: jax.Array, beta: jax.Array) -> Move:
        # The same keys as BlackJAX's MALA, so that both draw the same numbers.
        noise_key, accept_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, chain.position.shape, chain.position.dtype)
        drift = step_size * _solve(chain.factor, chain.gradient)
        spread = jnp.sqrt(2 * step_size) * solve_triangular(chain.factor.T, noise, lower=False)
        proposal = evaluate(chain.position + drift + spread, beta)
        log_ratio = (
            proposal.log_density
            - chain.log_density
            + log_proposal(chain, proposal, step_size)
            - log_proposal(proposal, chain, step_size)
        )
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        acceptance = jnp.exp(jnp.minimum(log_ratio, 0))
        accepted = jax.random.bernoulli(accept_key, acceptance)
        new = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), proposal, chain)
        return Move(
            chain=new,
            acceptance=acceptance,
            moved=accepted,
            divergent=jnp.zeros((), bool),
            evaluations=jnp.zeros((), jnp.int32),
            gradients=jnp.ones((), jnp.int32),
        )

    return step


def _solve(lower: Float[Array, "dim dim"], vector: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """`G^-1 v` by the Cholesky factor of G."""
    inner = solve_triangular(lower, vector, lower=True)
    return solve_triangular(lower.T, inner, lower=False)
