"""em with every m-step solved, as one compiled program: for checks and for small models."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxlab.agents.quantum_em.config import EMConfig, Hyper
from jaxlab.agents.quantum_em.learner import EMState, make
from jaxlab.agents.quantum_em.problem import Closed, Dual
from jaxlab.core.errors import ConfigError


class EMTrace(NamedTuple):
    """What em with exact m-steps went through, by its steps.

    Attributes:
      parameters: After each step.
      divergence: With a closed e-step that after each step; with a dual one that of the e-step
        before it.
      residual: Largest gap of moments at the end of each m-step.
      fixed: Whether em stood at a fixed point.
    """

    parameters: Float[Array, "em_steps terms"]
    divergence: Float[Array, " em_steps"]
    residual: Float[Array, " em_steps"]
    fixed: Bool[Array, " em_steps"]


def em_steps(
    problem: Closed | Dual, parameters: Any, count: int, config: EMConfig | None = None
) -> EMTrace:
    """Do em steps from given parameters `[terms]`, each m-step solved to the tolerance.

    Args:
      problem: The model with its target.
      parameters: The start.
      count: em steps.
      config: `method` is em; `most_inner` bounds the iterations of an m-step.

    Warns:
      RuntimeWarning: The m-step has no finite minimiser and nothing bounds the parameters.

    Raises:
      ConfigError: The method is another one.
    """
    config = EMConfig(most_inner=1000) if config is None else config
    if config.method != "em":
        raise ConfigError(f"method {config.method!r}: exact m-steps are those of em")
    learner = make(problem, config)
    state = learner.init(jax.random.key(0), Hyper(parameters=jnp.asarray(parameters)))
    return _trace(state, learner.step, count)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _trace(state: EMState, step: Any, count: int) -> EMTrace:
    def one(state: EMState, number: Array) -> tuple[EMState, EMTrace]:
        def unfinished(state: EMState) -> Array:
            return ~state.finished & (state.em_steps <= number)

        def body(state: EMState) -> EMState:
            return step(state, jnp.zeros((), jnp.int32))[0]

        state = lax.while_loop(unfinished, body, state)
        row = EMTrace(state.parameters, state.divergence, state.memory.residual, state.finished)
        return state, row

    return lax.scan(one, state, jnp.arange(count, dtype=jnp.int32))[1]
