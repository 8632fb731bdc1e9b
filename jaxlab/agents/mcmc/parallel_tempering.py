"""Parallel tempering with non-reversible exchanges.

Exchanges are deterministic: even pairs of neighbouring temperatures at even steps, odd
pairs at odd ones. A replica that is accepted keeps moving in its direction, so round trips
do not slow down as the ladder gets finer: Okabe et al. 2001; Syed, Bouchard-Cote,
Deligiannidis & Doucet 2022, "Non-reversible parallel tempering: a scalable highly parallel
MCMC scheme". BlackJAX has no such sampler.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.mcmc import kernels, tempered
from jaxlab.agents.mcmc.adaptation import (
    DualAveraging,
    adapt_step_size,
    equalise_ladder,
    ladder_rounds,
    start_dual_averaging,
)
from jaxlab.agents.mcmc.config import Hyper, ParallelTemperingConfig
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
from jaxlab.core.learner import Learner, Metrics, last, mean, record, total

PyTree = Any


@struct.dataclass
class ParallelTemperingState:
    """Replicas at all temperatures; the last rung is the target.

    Attributes:
      key: Key of the run.
      hyper: Hyper-parameters, in the precision of the positions.
      positions: Pytree of `[rungs, chains, ...]`.
      parts: Their densities, each leaf `[rungs * chains, ...]`, rung by rung.
      betas: The ladder `[rungs]`, ascending to 1, as fractions of `hyper.beta`.
      step_size: Step at every rung.
      averaging: State of the dual averaging, each leaf `[rungs]`.
      refusal: Sum over steps of the mean refusal of each pair, `[rungs - 1]`, since the
        ladder was last set.
      refusal_steps: How many steps that are, `[]`.
      replica: Which replica stands where, `[rungs, chains]`.
      was_cold: Whether it has been at the target since it was last at the hottest rung.
      round_trips: Round trips between both ends that were completed, by chain.
      evaluations: Log densities evaluated without gradient, by rung and chain.
      gradients: Log densities evaluated with gradient, by rung and chain.
    """

    key: jax.Array
    hyper: Hyper
    positions: PyTree
    parts: Parts
    betas: Float[Array, " rungs"]
    step_size: Float[Array, " rungs"]
    averaging: DualAveraging
    refusal: Float[Array, " pairs"]
    refusal_steps: Float[Array, ""]
    replica: Int[Array, "rungs chains"]
    was_cold: Bool[Array, "rungs chains"]
    round_trips: Int[Array, " chains"]
    evaluations: Int[Array, "rungs chains"]
    gradients: Int[Array, "rungs chains"]


def make_parallel_tempering(
    log_density: LogDensity,
    config: ParallelTemperingConfig | None = None,
    *,
    initial: Initial | None = None,
    log_prior: LogDensity | None = None,
    metric: Any | MetricFunction | None = None,
    fused: Fused | None = None,
) -> Learner:
    """Build parallel tempering of `exp(log_prior(x) + beta * log_density(x))`.

    Every chain is a ladder of its own: replicas are exchanged between rungs, not between
    chains. A step moves all replicas, then offers one set of exchanges. In the warm-up the
    step size of each rung is adapted (pooled over chains) and, in its first half, the
    ladder. Records are the replicas at the target, `chain/position` `[chains, ...]`.

    Args:
      log_density: As for `make`. `log_prior + beta * log_density` must be normalisable at
        the lowest beta.
      config: Sampler, warm-up and ladder.
      initial: Positions `[chains, ...]`, from which all rungs start.
      log_prior: As for `make`; it is evaluated once more per step and should be cheap.
      metric: As for `make`; one that depends on the position is evaluated once more per step.
      fused: As for `make`.

    Returns:
      A learner; its metrics are those of `make`, and `swap_acceptance` `[rungs - 1]` (the
      mean probability of an exchange), `swaps`, `round_trips` (of all chains), `betas`.

    Raises:
      ConfigError: Something does not fit; the message says what was expected.
    """
    config = ParallelTemperingConfig() if config is None else config
    problem = Problem(log_density, initial, log_prior, metric, fused)
    check_problem(problem, config.chain.sampler)
    sampler = _ParallelTempering(config, problem)
    return Learner(sampler.init, sampler.step)


def swap_log_ratio(
    beta: Float[Array, " rungs"], log_likelihood: Float[Array, "rungs chains"]
) -> Float[Array, "pairs chains"]:
    """Log of the ratio that accepts an exchange of neighbouring replicas.

    `(beta_j - beta_i) (l_i - l_j)` for `j = i + 1`; the priors cancel.
    """
    ratio = (beta[1:] - beta[:-1])[:, None] * (log_likelihood[:-1] - log_likelihood[1:])
    return jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)


def exchange(accepted: Bool[Array, "pairs chains"]) -> Int[Array, "rungs chains"]:
    """Which rung each place takes its replica from, where no two pairs share a rung."""
    none = jnp.zeros_like(accepted[:1])
    from_above = jnp.concatenate([accepted, none]).astype(jnp.int32)
    from_below = jnp.concatenate([none, accepted]).astype(jnp.int32)
    rungs = jnp.arange(len(from_above), dtype=jnp.int32)
    return rungs[:, None] + from_above - from_below


@dataclasses.dataclass(frozen=True, eq=False)
class _ParallelTempering:
    config: ParallelTemperingConfig
    problem: Problem

    def init(self, key: jax.Array, hyper: Hyper) -> ParallelTemperingState:
        """All rungs at the same first positions."""
        run_key, start_key = jax.random.split(key)
        first, hyper = start(self.problem, start_key, hyper)
        rungs, chains = len(self.config.betas), jax.tree.leaves(first)[0].shape[0]
        positions = jax.tree.map(lambda x: jnp.broadcast_to(x, (rungs, *x.shape)), first)
        target = flatten(self.problem, first)
        gradient = self.config.chain.sampler != "random_walk"
        # All rungs share the positions, so the density is evaluated once for all.
        parts = tempered.take(
            tempered.evaluate(target, ravel(first), gradient),
            jnp.tile(jnp.arange(chains), rungs),
        )
        dtype = hyper.beta.dtype
        step_size = jnp.broadcast_to(hyper.step_size, (rungs,))
        replica = jnp.broadcast_to(jnp.arange(rungs, dtype=jnp.int32)[:, None], (rungs, chains))
        none = jnp.zeros((rungs, chains), jnp.int32)
        return ParallelTemperingState(
            key=run_key,
            hyper=hyper,
            positions=positions,
            parts=parts,
            betas=jnp.asarray(self.config.betas, dtype),
            step_size=step_size,
            averaging=start_dual_averaging(step_size),
            refusal=jnp.zeros((rungs - 1,), dtype),
            refusal_steps=jnp.zeros((), dtype),
            replica=replica,
            was_cold=replica == rungs - 1,
            round_trips=jnp.zeros((chains,), jnp.int32),
            evaluations=none,
            gradients=none,
        )

    def step(
        self, state: ParallelTemperingState, t: jax.Array
    ) -> tuple[ParallelTemperingState, Metrics]:
        """Move all replicas, then offer exchanges."""
        move_key, swap_key = jax.random.split(jax.random.fold_in(state.key, t))
        state, move = self._move(state, move_key, t)
        state, probability, accepted = self._swap(state, swap_key, t)
        state, home = _count_round_trips(state)
        state = self._adapt_ladder(state, probability, t)
        at_target = jax.tree.map(lambda x: x[-1], state.positions)
        beta = state.betas * state.hyper.beta
        log_prior, log_likelihood = (x.reshape(state.replica.shape) for x in state.parts[1:3])
        log_density = log_prior[-1] + beta[-1] * log_likelihood[-1]
        metrics = transition_metrics(move) | {
            "step_size": last(state.step_size),
            "log_density": mean(jnp.mean(log_density)),
            "log_density_max": last(jnp.max(log_density)),
            "swap_acceptance": mean(jnp.mean(probability, axis=1)),
            "swaps": total(jnp.sum(accepted, dtype=jnp.int32)),
            "round_trips": total(jnp.sum(home, dtype=jnp.int32)),
            "betas": last(beta),
        }
        if self.config.chain.record:
            chain = {"position": at_target, "log_density": log_density}
            if self.config.record_all:
                chain |= {"replicas": state.positions, "log_likelihood": log_likelihood}
            metrics["chain"] = record(chain)
        return state, metrics

    def _move(
        self, state: ParallelTemperingState, key: jax.Array, t: jax.Array
    ) -> tuple[ParallelTemperingState, kernels.Move]:
        """One transition of every replica at its temperature, as one flat batch."""
        config, shape = self.config.chain, state.replica.shape
        at_target = jax.tree.map(lambda x: x[-1], state.positions)
        target = flatten(self.problem, at_target)
        kernel = kernels.build(config, self.problem, target)
        beta = jnp.repeat(state.betas * state.hyper.beta, shape[1])
        step_size = jnp.repeat(state.step_size, shape[1])
        chains = tempered.assemble(target, state.parts, beta)
        move = kernels.advance(kernel, key, chains, step_size, beta)
        averaging, adapted = adapt_step_size(
            state.averaging,
            state.step_size,
            jnp.mean(move.acceptance.reshape(shape), axis=1),
            t,
            warmup=config.warmup,
            target=config.acceptance,
        )
        state = state.replace(
            parts=tempered.separate(target, kernel, state.parts, move, beta),
            averaging=averaging,
            step_size=adapted,
            evaluations=state.evaluations + move.evaluations.reshape(shape),
            gradients=state.gradients + move.gradients.reshape(shape),
        )
        return state, move

    def _swap(
        self, state: ParallelTemperingState, key: jax.Array, t: jax.Array
    ) -> tuple[ParallelTemperingState, Float[Array, "pairs chains"], Bool[Array, "pairs chains"]]:
        """Exchange replicas of even pairs at even `t`, of odd pairs at odd `t`.

        Returns:
          The state; the probability of an exchange for all pairs, those that were not
          offered one included; which were exchanged.
        """
        rungs, chains = state.replica.shape
        log_likelihood = state.parts.log_likelihood.reshape(rungs, chains)
        log_ratio = swap_log_ratio(state.betas * state.hyper.beta, log_likelihood)
        probability = jnp.exp(jnp.minimum(log_ratio, 0))
        offered = (jnp.arange(rungs - 1) - t) % 2 == 0
        draws = jax.random.uniform(key, probability.shape, probability.dtype)
        accepted = offered[:, None] & (draws < probability)
        source = exchange(accepted)
        flat = (source * chains + jnp.arange(chains, dtype=jnp.int32)).reshape(-1)
        parts = tempered.take(state.parts, flat)
        unravel = unraveller(jax.tree.map(lambda x: x[-1], state.positions))
        positions = jax.vmap(jax.vmap(unravel))(parts.position.reshape(rungs, chains, -1))
        state = state.replace(
            positions=positions,
            parts=parts,
            replica=jnp.take_along_axis(state.replica, source, axis=0),
            was_cold=jnp.take_along_axis(state.was_cold, source, axis=0),
        )
        return state, probability, accepted

    def _adapt_ladder(
        self, state: ParallelTemperingState, probability: jax.Array, t: jax.Array
    ) -> ParallelTemperingState:
        """Set the ladder anew after each round of the first half of the warm-up."""
        rounds = ladder_rounds(self.config.chain.warmup) if self.config.adapt_ladder else ()
        if not rounds:
            return state
        refusal = state.refusal + 1 - jnp.mean(probability, axis=1)
        steps = state.refusal_steps + 1

        def renew(_: None) -> tuple[Any, ...]:
            # The steps fitted other temperatures: adapt them again, from where they are.
            betas = equalise_ladder(state.betas, refusal / steps)
            again = start_dual_averaging(state.step_size)
            return betas, again, jnp.zeros_like(refusal), jnp.zeros_like(steps)

        def keep(_: None) -> tuple[Any, ...]:
            return state.betas, state.averaging, refusal, steps

        due = jnp.any(t + 1 == jnp.asarray(rounds, t.dtype))
        betas, averaging, refusal, steps = jax.lax.cond(due, renew, keep, None)
        return state.replace(betas=betas, averaging=averaging, refusal=refusal, refusal_steps=steps)


def _count_round_trips(
    state: ParallelTemperingState,
) -> tuple[ParallelTemperingState, Bool[Array, " chains"]]:
    """Count replicas that came back to the hottest rung from the target, and say which."""
    home = state.was_cold[0]
    was_cold = state.was_cold.at[0].set(False).at[-1].set(True)
    trips = state.round_trips + home.astype(jnp.int32)
    return state.replace(was_cold=was_cold, round_trips=trips), home
