"""Descent along gradients that are estimated from persistent chains."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from jaxlab.agents.quantum_em.config import EMConfig, Hyper
from jaxlab.agents.quantum_em.problem import Sampled
from jaxlab.agents.quantum_em.rules import transformation
from jaxlab.agents.quantum_em.starting import Initial, start
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metrics, maximum, mean

PyTree = Any


@struct.dataclass
class ContrastiveState:
    """One run.

    Attributes:
      key: Key of the run.
      hyper: Hyper-parameters.
      parameters: Where the method is.
      chains: Samples of the model.
      memory: Moments of the gradient.
    """

    key: jax.Array
    hyper: Hyper
    parameters: Float[Array, " terms"]
    chains: PyTree
    memory: PyTree


def make_contrastive(
    problem: Sampled, config: EMConfig, *, initial: Initial | None = None
) -> Learner:
    """Build a learner by persistent contrastive divergence.

    Args:
      problem: Chains and the gradient from them.
      config: Its method is gradient, adam or amsgrad.
      initial: Start by key; see `learner.make`.

    Returns:
      A learner; metrics are `gradient_norm` and `largest_parameter`. The divergence itself is
      not known.

    Raises:
      ConfigError: The method is another one.
    """
    if config.method not in ("gradient", "adam", "amsgrad"):
        raise ConfigError(
            f"method {config.method!r}: from samples the methods are gradient, adam and amsgrad"
        )
    transform = transformation(config)

    def init(key: jax.Array, hyper: Hyper | None) -> ContrastiveState:
        run_key, start_key, chain_key = jax.random.split(key, 3)
        hyper, parameters = start(start_key, hyper, problem.size, initial)
        memory = transform.init(parameters)
        return ContrastiveState(run_key, hyper, parameters, problem.start(chain_key), memory)

    def step(state: ContrastiveState, t: jax.Array) -> tuple[ContrastiveState, Metrics]:
        key = jax.random.fold_in(state.key, t)
        chains, gradient = problem.gradient(key, state.chains, state.parameters)
        gradient = gradient + config.l2 * state.parameters
        direction, memory = transform.update(gradient, state.memory, state.parameters)
        parameters = state.parameters - state.hyper.learning_rate * direction
        metrics = {
            "gradient_norm": mean(jnp.linalg.norm(gradient)),
            "largest_parameter": maximum(jnp.max(jnp.abs(parameters))),
        }
        return dataclasses.replace(
            state, parameters=parameters, chains=chains, memory=memory
        ), metrics

    return Learner(init, step)
