"""Independent chains of one sampler as a learner."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.agents.mcmc import kernels
from jaxlab.agents.mcmc.adaptation import DualAveraging, adapt_step_size, start_dual_averaging
from jaxlab.agents.mcmc.config import Hyper, MCMCConfig
from jaxlab.agents.mcmc.kernels import Chain, Move
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
from jaxlab.core.learner import Learner, Metric, Metrics, last, mean, record, total

PyTree = Any


@struct.dataclass
class MCMCState:
    """Chains and how they step.

    Attributes:
      key: Key of the run.
      hyper: Hyper-parameters, in the precision of the positions.
      positions: Pytree of `[chains, ...]`.
      log_density: `log_prior + beta * log_density` at the positions.
      gradient: Its gradient `[chains, dim]`; `[chains, 0]` for a random walk.
      factor: Cholesky factors `[chains, dim, dim]` of the local metric; `[chains, 0, 0]`
        without one.
      step_size: Step of every chain.
      averaging: State of the dual averaging, each leaf `[chains]`.
      evaluations: Log densities evaluated without gradient, by chain.
      gradients: Log densities evaluated with gradient, by chain.
    """

    key: jax.Array
    hyper: Hyper
    positions: PyTree
    log_density: Float[Array, " chains"]
    gradient: Float[Array, "chains size"]
    factor: Float[Array, "chains rows rows"]
    step_size: Float[Array, " chains"]
    averaging: DualAveraging
    evaluations: Int[Array, " chains"]
    gradients: Int[Array, " chains"]


def make(
    log_density: LogDensity,
    config: MCMCConfig | None = None,
    *,
    initial: Initial | None = None,
    log_prior: LogDensity | None = None,
    metric: Any | MetricFunction | None = None,
    fused: Fused | None = None,
) -> Learner:
    """Build a sampler of `exp(log_prior(x) + beta * log_density(x))`.

    A learner's step is one transition of every chain. Step sizes are adapted chain by chain
    while `t < config.warmup` and frozen afterwards. Records are the positions, as
    `chain/position`, and their log densities.

    Args:
      log_density: Log density `[]` of one position, a pytree of floating-point arrays; up to
        a constant. It is differentiated in reverse mode, once per batch of chains.
      config: The sampler and its warm-up.
      initial: Positions `[chains, ...]`, or a function from a key to them;
        `Hyper.positions` comes before it.
      log_prior: What beta does not multiply; zero by default.
      metric: Symmetric positive definite matrix `[dim, dim]`, or diagonal `[dim]`, like the
        precision of the target. Constant, for any sampler; or for `preconditioned_mala` a
        function `(position, beta) -> [dim, dim]`.
      fused: `(position, beta) -> (log_density, its gradient [dim], metric)` for
        `preconditioned_mala`, where one computation yields all three; it takes the place of
        `log_density` and `metric` in the transitions.

    Returns:
      A learner; metrics are `acceptance`, `moved` (share of chains), `step_size` and
      `log_density` (means over chains), `log_density_max`, `divergences`, `evaluations`,
      `gradients` (of all chains), `gradient_batches` (rounds of the slowest chain: under
      `vmap` all chains of NUTS wait for the longest trajectory).

    Raises:
      ConfigError: Something does not fit; the message says what was expected.
    """
    config = MCMCConfig() if config is None else config
    problem = Problem(log_density, initial, log_prior, metric, fused)
    check_problem(problem, config.sampler)
    sampler = _Sampler(config, problem)
    return Learner(sampler.init, sampler.step)


@dataclasses.dataclass(frozen=True, eq=False)
class _Sampler:
    config: MCMCConfig
    problem: Problem

    def init(self, key: jax.Array, hyper: Hyper) -> MCMCState:
        """Chains at their first positions."""
        run_key, start_key = jax.random.split(key)
        positions, hyper = start(self.problem, start_key, hyper)
        kernel = kernels.build(self.config, self.problem, flatten(self.problem, positions))
        x = ravel(positions)
        chains = jax.vmap(kernel.init)(x, jnp.broadcast_to(hyper.beta, x.shape[:1]))
        step_size = jnp.broadcast_to(hyper.step_size, x.shape[:1])
        none = jnp.zeros(x.shape[:1], jnp.int32)
        return MCMCState(
            key=run_key,
            hyper=hyper,
            positions=positions,
            log_density=chains.log_density,
            gradient=chains.gradient,
            factor=chains.factor,
            step_size=step_size,
            averaging=start_dual_averaging(step_size),
            evaluations=none,
            gradients=none,
        )

    def step(self, state: MCMCState, t: jax.Array) -> tuple[MCMCState, Metrics]:
        """One transition of every chain."""
        kernel = kernels.build(self.config, self.problem, flatten(self.problem, state.positions))
        chains = Chain(ravel(state.positions), state.log_density, state.gradient, state.factor)
        beta = jnp.broadcast_to(state.hyper.beta, state.step_size.shape)
        key = jax.random.fold_in(state.key, t)
        move = kernels.advance(kernel, key, chains, state.step_size, beta)
        averaging, step_size = adapt_step_size(
            state.averaging,
            state.step_size,
            move.acceptance,
            t,
            warmup=self.config.warmup,
            target=self.config.acceptance,
        )
        chains = move.chain
        new = state.replace(
            positions=jax.vmap(unraveller(state.positions))(chains.position),
            log_density=chains.log_density,
            gradient=chains.gradient,
            factor=chains.factor,
            step_size=step_size,
            averaging=averaging,
            evaluations=state.evaluations + move.evaluations,
            gradients=state.gradients + move.gradients,
        )
        metrics = transition_metrics(move) | {
            "step_size": last(jnp.mean(state.step_size)),
            "log_density": mean(jnp.mean(chains.log_density)),
            "log_density_max": last(jnp.max(chains.log_density)),
        }
        if self.config.record:
            metrics["chain"] = record({"position": new.positions, "log_density": new.log_density})
        return new, metrics


def transition_metrics(move: Move) -> dict[str, Metric]:
    """Metrics of one transition of a batch of chains."""
    return {
        "acceptance": mean(jnp.mean(move.acceptance)),
        "moved": mean(jnp.mean(move.moved.astype(move.acceptance.dtype))),
        "divergences": total(jnp.sum(move.divergent, dtype=jnp.int32)),
        "evaluations": total(jnp.sum(move.evaluations, dtype=jnp.int32)),
        "gradients": total(jnp.sum(move.gradients, dtype=jnp.int32)),
        "gradient_batches": total(jnp.max(move.gradients)),
    }
