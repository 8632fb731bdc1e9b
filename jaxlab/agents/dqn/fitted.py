"""Projected and fitted value iteration with growing batches (Davidovich et al. 2025).

Iteration k draws n_k states, asks `y = min_a cost + V_k(next)` of them with the mask and exact
values at the end, and takes t_k projected gradient steps from the parameters of V_k towards y. One
step of the learner is one gradient step on a minibatch; its states are regenerated from their
numbers below n_k, so that batches grow without a change of shape.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from jaxlab.agents.dqn.approximators import Approximator
from jaxlab.agents.dqn.config import FittedConfig, FittedHyper
from jaxlab.agents.dqn.process import after_each, random_state
from jaxlab.core.learner import Learner, Metrics, last, mean, total

PyTree = Any

jax.tree_util.register_dataclass(
    FittedHyper, [field.name for field in dataclasses.fields(FittedHyper)], []
)


@struct.dataclass
class FittedState:
    """Attributes:
    key: Key of the run.
    hyper: Learning rate and radius.
    theta: Parameters that are fitted.
    target: Those of V_k.
    moments: State of the optimiser.
    """

    key: jax.Array
    hyper: FittedHyper
    theta: PyTree
    target: PyTree
    moments: PyTree


def project(theta: PyTree, radius: Any) -> PyTree:
    """The nearest parameters in the ball around zero: they are rescaled if they lie outside."""
    norm = optax.tree.norm(theta)
    scale = jnp.minimum(1.0, radius / jnp.maximum(norm, 1e-30))
    return jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), theta)


def values_after(
    process: Any, approximator: Approximator, theta: PyTree, params: PyTree, decision: PyTree
) -> jax.Array:
    """Cost of every letter and the value of what follows, infinite for illegal ones, `[actions]`.

    Values of complete strings are exact.
    """
    moved, costs = after_each(process, params, decision)

    def value(state: PyTree) -> jax.Array:
        learnt = approximator.apply(theta, params, state)
        exact = process.final_cost(params, state).astype(learnt.dtype)
        return jnp.where(process.done(params, state), exact, learnt)

    following = jax.vmap(value)(moved)
    return jnp.where(process.legal(params, decision), costs + following, jnp.inf)


def make_fitted(process: Any, approximator: Approximator, config: FittedConfig) -> Learner:
    """Build fitted value iteration.

    Args:
      process: A `jaxlab.agents.dqn.process.Process`.
      approximator: The family of values.
      config: Schedules; run the learner for `config.steps` steps.

    Returns:
      A learner; `state.theta` has the parameters. Metrics: `loss` of a gradient step,
      `residual`, the largest one of Bellman's equation in the minibatch, `norm` of parameters,
      `iteration` k and `batch` n_k.
    """
    ends = np.cumsum(config.gradient_steps)
    sizes = np.array(config.batch_sizes, np.int32)
    begins = np.concatenate([[0], ends[:-1]])
    adam = optax.scale_by_adam()

    def init(key: jax.Array, hyper: FittedHyper | None) -> FittedState:
        hyper = FittedHyper() if hyper is None else hyper
        hyper = jax.tree.map(lambda leaf: jnp.asarray(leaf, np.float32), hyper)
        run_key, theta_key = jax.random.split(key)
        theta = project(approximator.init(theta_key), hyper.radius)
        # The copy must be one, since the loop donates its state.
        target = jax.tree.map(jnp.copy, theta)
        return FittedState(run_key, hyper, theta, target, adam.init(theta))

    def loss(theta: PyTree, params: PyTree, states: PyTree, goals: Any, weights: Any) -> Any:
        values = jax.vmap(lambda p, s: approximator.apply(theta, p, s))(params, states)
        errors = jnp.where(weights, values - goals, 0.0)
        count = jnp.maximum(weights.sum(), 1)
        return jnp.square(errors).sum() / count, jnp.abs(errors).max()

    def step(state: FittedState, t: jax.Array) -> tuple[FittedState, Metrics]:
        k = jnp.minimum(jnp.searchsorted(ends, t, side="right"), len(ends) - 1)
        since = t - jnp.asarray(begins, jnp.int32)[k]
        target = jax.lax.cond(since == 0, lambda: state.theta, lambda: state.target)
        draw_key, batch_key = jax.random.split(state.key)
        numbers = jax.random.randint(
            jax.random.fold_in(draw_key, t), (config.minibatch,), 0, jnp.asarray(sizes)[k]
        )
        of_iteration = jax.random.fold_in(batch_key, k)

        def sample(number: jax.Array) -> tuple[PyTree, PyTree, jax.Array]:
            key = jax.random.fold_in(of_iteration, number)
            params, decision = random_state(process, key, config.instances, config.greedy_walks)
            costs = values_after(process, approximator, target, params, decision)
            return params, decision, jnp.min(costs).astype(np.float32)

        params, decisions, goals = jax.vmap(sample)(numbers)
        # Walks that end early have nothing to learn from: the end is exact.
        open_ = ~jax.vmap(process.done)(params, decisions)
        (value, residual), gradient = jax.value_and_grad(loss, has_aux=True)(
            state.theta, params, decisions, jnp.where(open_, goals, 0.0), open_
        )
        rate, moments = state.hyper.learning_rate, state.moments
        if config.optimizer == "pgd":
            rate = rate / jnp.sqrt(since.astype(np.float32) + 1)
        else:
            gradient, moments = adam.update(gradient, moments)
        theta = jax.tree.map(lambda p, g: (p - rate * g).astype(p.dtype), state.theta, gradient)
        theta = project(theta, state.hyper.radius)
        metrics = {
            "loss": mean(value),
            "residual": mean(residual),
            "norm": last(optax.tree.norm(theta)),
            "iteration": last(k.astype(jnp.int32)),
            "batch": last(jnp.asarray(sizes)[k]),
            "env_steps": total(jnp.float32(config.minibatch * process.num_actions)),
        }
        return state.replace(theta=theta, target=target, moments=moments), metrics

    return Learner(init, step)
