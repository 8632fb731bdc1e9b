"""Sequential Monte Carlo from the prior to the target by adaptive tempering."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from blackjax.smc import ess, resampling, solver
from flax import struct
from jaxtyping import Array, Bool, Float

from jaxlab.agents.mcmc import kernels, tempered
from jaxlab.agents.mcmc.config import Hyper, SMCConfig
from jaxlab.agents.mcmc.learner import transition_metrics
from jaxlab.agents.mcmc.target import (
    Fused,
    Initial,
    LogDensity,
    MetricFunction,
    Problem,
    check_problem,
    flatten,
    ravel,
    start,
    unraveller,
)
from jaxlab.agents.mcmc.tempered import Parts
from jaxlab.core.learner import Learner, Metrics, last, mean, record

PyTree = Any


@struct.dataclass
class SMCState:
    """Equally weighted particles at one inverse temperature.

    Attributes:
      key: Key of the run.
      hyper: Hyper-parameters, in the precision of the positions.
      positions: Pytree of `[particles, ...]`.
      parts: Their densities, each leaf `[particles, ...]`.
      beta: Inverse temperature `[]`, from 0 to `hyper.beta`.
      step_size: Step of all particles, `[]`.
      log_evidence: Log of the ratio of normalising constants at `beta` and at 0, `[]`.
      done: Whether `beta` has reached `hyper.beta`.
    """

    key: jax.Array
    hyper: Hyper
    positions: PyTree
    parts: Parts
    beta: Float[Array, ""]
    step_size: Float[Array, ""]
    log_evidence: Float[Array, ""]
    done: Bool[Array, ""]


def make_smc(
    log_density: LogDensity,
    config: SMCConfig | None = None,
    *,
    initial: Initial | None = None,
    log_prior: LogDensity | None = None,
    metric: Any | MetricFunction | None = None,
    fused: Fused | None = None,
) -> Learner:
    """Build SMC to `exp(log_prior(x) + beta * log_density(x))`, from beta 0 to `Hyper.beta`.

    A learner's step is one temperature: beta grows until the reweighted particles have the
    effective size asked for, they are resampled, and each makes `moves` transitions, while
    the common step size follows their mean acceptance. Once `state.done`, the step is frozen
    and further steps are plain chains at the target. Del Moral, Doucet & Jasra 2006,
    "Sequential Monte Carlo samplers"; adaptive tempering after Jasra et al. 2011.

    BlackJAX gives the solver of the effective size and the resampling. Its `tempered_smc`
    evaluates the density of all particles again at each temperature and fixes the step, so
    the rest is our own.

    Args:
      log_density: As for `make`.
      config: Sampler, moves per temperature, effective size.
      initial: Draws `[particles, ...]` from the prior. Particles from another source (a
        diffusion model) do as a start, but then the evidence means nothing, and the moves
        alone must make up for the difference.
      log_prior: As for `make`; flat by default.
      metric: As for `make`.
      fused: As for `make`.

    Returns:
      A learner; its metrics are those of `make`, and `beta`, `ess` (the effective share
      after reweighting), `survivors` (share of particles with offspring), `log_evidence`,
      `done`.

    Raises:
      ConfigError: Something does not fit; the message says what was expected.
    """
    config = SMCConfig() if config is None else config
    problem = Problem(log_density, initial, log_prior, metric, fused)
    check_problem(problem, config.chain.sampler)
    sampler = _SMC(config, problem)
    return Learner(sampler.init, sampler.step)


@dataclasses.dataclass(frozen=True, eq=False)
class _SMC:
    config: SMCConfig
    problem: Problem

    def init(self, key: jax.Array, hyper: Hyper) -> SMCState:
        """Particles at beta 0."""
        run_key, start_key = jax.random.split(key)
        positions, hyper = start(self.problem, start_key, hyper)
        target = flatten(self.problem, positions)
        gradient = self.config.chain.sampler != "random_walk"
        zero = jnp.zeros_like(hyper.beta)
        return SMCState(
            key=run_key,
            hyper=hyper,
            positions=positions,
            parts=tempered.evaluate(target, ravel(positions), gradient),
            beta=zero,
            step_size=hyper.step_size,
            log_evidence=zero,
            done=jnp.zeros((), bool),
        )

    def step(self, state: SMCState, t: jax.Array) -> tuple[SMCState, Metrics]:
        """One temperature."""
        resample_key, move_key = jax.random.split(jax.random.fold_in(state.key, t))
        target = flatten(self.problem, state.positions)
        particles = len(state.parts.log_likelihood)
        beta, log_weights = self._next_beta(state)
        # The maximum is finite, or no particle would have any weight.
        log_mean = jax.nn.logsumexp(log_weights) - jnp.log(particles).astype(beta.dtype)
        share = jnp.exp(ess.log_ess(log_weights)) / particles
        same = jnp.arange(particles)
        drawn = resampling.systematic(resample_key, jax.nn.softmax(log_weights), particles)
        # With equal weights rounding could still lose a particle.
        ancestors = jnp.where(state.done, same, drawn)
        survivors = jnp.zeros(particles, bool).at[ancestors].set(True)
        parts, step_size, move = self._move(
            target, tempered.take(state.parts, ancestors), state, beta, move_key
        )
        state = state.replace(
            positions=jax.vmap(unraveller(state.positions))(parts.position),
            parts=parts,
            beta=beta,
            step_size=step_size,
            log_evidence=state.log_evidence + log_mean,
            done=state.done | (beta >= state.hyper.beta),
        )
        log_density = parts.log_prior + beta * parts.log_likelihood
        metrics = transition_metrics(move) | {
            "step_size": last(step_size),
            "log_density": mean(jnp.mean(log_density)),
            "log_density_max": last(jnp.max(log_density)),
            "beta": last(beta),
            "ess": last(share.astype(beta.dtype)),
            "survivors": last(jnp.mean(survivors.astype(beta.dtype))),
            "log_evidence": last(state.log_evidence),
            "done": last(state.done),
        }
        if self.config.chain.record:
            metrics["chain"] = record({"position": state.positions, "log_density": log_density})
        return state, metrics

    def _next_beta(self, state: SMCState) -> tuple[Float[Array, ""], Float[Array, " particles"]]:
        """The next inverse temperature, and the log weights of the way to it."""
        likelihood, zero = state.parts.log_likelihood, jnp.zeros_like(state.beta)
        rest = state.hyper.beta - state.beta
        # A bracket of [0, 1], whatever the scale of beta; BlackJAX's solver mixes in numbers of
        # the default precision.
        scaled = (rest * likelihood).astype(jnp.result_type(float))
        part = ess.ess_solver(
            *(lambda scaled: scaled, scaled, self.config.target_ess),
            *(jnp.ones((), scaled.dtype), solver.dichotomy),
        )
        part = jnp.clip(part.astype(rest.dtype), 0, 1)
        # The end is to be met in bits: `state.beta + rest` may miss it by one.
        beta = jnp.where(part >= 1, state.hyper.beta, state.beta + part * rest)
        delta = beta - state.beta
        return beta, jnp.where(delta > 0, delta * likelihood, zero)

    def _move(
        self,
        target: Any,
        parts: Parts,
        state: SMCState,
        beta: Float[Array, ""],
        key: jax.Array,
    ) -> tuple[Parts, Float[Array, ""], kernels.Move]:
        """All moves at one temperature; the returned move adds them up."""
        config = self.config.chain
        kernel = kernels.build(config, self.problem, target)
        betas = jnp.broadcast_to(beta, parts.log_prior.shape)

        def one(carry: tuple[Parts, jax.Array], number: jax.Array) -> tuple[Any, Any]:
            parts, step_size = carry
            chains = tempered.assemble(target, parts, betas)
            steps = jnp.broadcast_to(step_size, betas.shape)
            move = kernels.advance(kernel, jax.random.fold_in(key, number), chains, steps, betas)
            parts = tempered.separate(target, kernel, parts, move, betas)
            # Robbins & Monro; many particles make the mean precise, so the gain is constant.
            error = jnp.mean(move.acceptance) - config.acceptance
            adapted = step_size * jnp.exp(error)
            return (parts, jnp.where(state.done, step_size, adapted)), move._replace(chain=None)

        (parts, step_size), moves = jax.lax.scan(
            one, (parts, state.step_size), jnp.arange(self.config.moves)
        )
        return (
            parts,
            step_size,
            moves._replace(
                acceptance=jnp.mean(moves.acceptance, axis=0),
                moved=jnp.any(moves.moved, axis=0),
                divergent=jnp.any(moves.divergent, axis=0),
                evaluations=jnp.sum(moves.evaluations, axis=0, dtype=jnp.int32),
                gradients=jnp.sum(moves.gradients, axis=0, dtype=jnp.int32),
            ),
        )
