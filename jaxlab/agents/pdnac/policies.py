"""Policies and critics as functions of flat parameter vectors.

Scores are vectors of one transition each: `jax.grad` of the log-probability, or in closed form.
No Fisher matrix is ever formed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxlab.core.networks import MLP

Obs = Any
Action = Any
Features = Callable[[Obs], jax.Array]


@dataclasses.dataclass(frozen=True, eq=False)
class Policy:
    """A stochastic policy with parameters `theta [p]`.

    Attributes:
      init: Key to parameters.
      sample: `(theta, obs, key)` to an action.
      log_prob: `(theta, obs, action)` to `[]`.
      score: `(theta, obs, action)` to the gradient of `log_prob`, `[p]`.
      mode: `(theta, obs)` to the greedy action.
      row: For tables: `(theta, obs)` to `[S, A]` with the probabilities at `obs`, else zero.
      table: For tables: `theta` to probabilities `[S, A]`.
      score_bound: Largest norm of a score, where known.
    """

    init: Callable[[jax.Array], jax.Array]
    sample: Callable[[jax.Array, Obs, jax.Array], Action]
    log_prob: Callable[[jax.Array, Obs, Action], jax.Array]
    score: Callable[[jax.Array, Obs, Action], jax.Array]
    mode: Callable[[jax.Array, Obs], Action]
    row: Callable[[jax.Array, Obs], jax.Array] | None = None
    table: Callable[[jax.Array], jax.Array] | None = None
    score_bound: float | None = None


def _float() -> np.dtype:
    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))


def categorical_sample(key: jax.Array, probabilities: Float[Array, " actions"]) -> jax.Array:
    """Draw by inversion from one uniform number."""
    uniform = jax.random.uniform(key, (), probabilities.dtype)
    below = uniform * jnp.sum(probabilities) >= jnp.cumsum(probabilities)
    return jnp.minimum(jnp.sum(below, dtype=jnp.int32), len(probabilities) - 1)


def tabular(states: int, actions: int) -> Policy:
    """Softmax of a table `theta [S * A]`, at zero first: uniform.

    The Fisher matrix is singular along constants per state; directions that start at zero
    never leave its range.
    """

    def rows(theta: jax.Array) -> jax.Array:
        return theta.reshape(states, actions)

    def probabilities(theta: jax.Array, obs: jax.Array) -> jax.Array:
        return jax.nn.softmax(rows(theta)[obs])

    def placed(obs: jax.Array, row: jax.Array) -> jax.Array:
        return jax.nn.one_hot(obs, states, dtype=row.dtype)[:, None] * row

    def score(theta: jax.Array, obs: jax.Array, action: jax.Array) -> jax.Array:
        taken = jax.nn.one_hot(action, actions, dtype=theta.dtype)
        return placed(obs, taken - probabilities(theta, obs)).reshape(-1)

    return Policy(
        init=lambda key: jnp.zeros(states * actions, _float()),
        sample=lambda theta, obs, key: categorical_sample(key, probabilities(theta, obs)),
        log_prob=lambda theta, obs, action: jax.nn.log_softmax(rows(theta)[obs])[action],
        score=score,
        mode=lambda theta, obs: jnp.argmax(rows(theta)[obs]).astype(jnp.int32),
        row=lambda theta, obs: placed(obs, probabilities(theta, obs)),
        table=lambda theta: jax.nn.softmax(rows(theta)),
        score_bound=math.sqrt(2.0),
    )


def softmax_policy(
    init: Callable[[jax.Array], jax.Array],
    logits: Callable[[jax.Array, Obs], jax.Array],
    score_bound: float | None = None,
) -> Policy:
    """Softmax of `logits(theta, obs) [..., A]`: one action for each leading index."""

    def log_prob(theta: jax.Array, obs: Obs, action: jax.Array) -> jax.Array:
        table = jax.nn.log_softmax(logits(theta, obs))
        return jnp.sum(jnp.take_along_axis(table, action[..., None], -1))

    def sample(theta: jax.Array, obs: Obs, key: jax.Array) -> jax.Array:
        probabilities = jax.nn.softmax(logits(theta, obs))
        if probabilities.ndim == 1:
            return categorical_sample(key, probabilities)
        keys = jax.random.split(key, probabilities.shape[:-1])
        return jnp.vectorize(categorical_sample, signature="(),(a)->()")(keys, probabilities)

    return Policy(
        init,
        sample,
        log_prob,
        jax.grad(log_prob),
        lambda theta, obs: jnp.argmax(logits(theta, obs), -1).astype(jnp.int32),
        score_bound=score_bound,
    )


def linear(features: Features, size: int, actions: int, bound: float | None = None) -> Policy:
    """Softmax of `theta` times features.

    Args:
      features: Observation to `[size]`, or `[..., size]` for several actions by the same rule.
      size: How many features.
      actions: Choices.
      bound: Largest norm of the features.
    """
    return softmax_policy(
        lambda key: jnp.zeros(size * actions, _float()),
        lambda theta, obs: features(obs) @ theta.reshape(size, actions),
        None if bound is None else bound * math.sqrt(2.0),
    )


def neural(features: Features, size: int, actions: int, hidden: Sequence[int] = (32,)) -> Policy:
    """Softmax of a multilayer perceptron of `features(obs) [..., size]`."""
    network = MLP(actions, tuple(hidden), nn.tanh, output_scale=0.01)
    init, apply = _flat(network, size)
    return softmax_policy(init, lambda theta, obs: apply(theta, features(obs)))


def gaussian(
    features: Features,
    size: int,
    actions: int,
    hidden: Sequence[int] = (32,),
    deviation: float = 0.5,
) -> Policy:
    """Normal actions `[actions]` around the output of a perceptron; deviations are learned."""
    network = MLP(actions, tuple(hidden), nn.tanh, output_scale=0.01)
    init_mean, mean = _flat(network, size)

    def init(key: jax.Array) -> jax.Array:
        return jnp.concatenate([init_mean(key), jnp.full(actions, math.log(deviation), _float())])

    def centre(theta: jax.Array, obs: Obs) -> tuple[jax.Array, jax.Array]:
        return mean(theta[:-actions], features(obs)), theta[-actions:]

    def log_prob(theta: jax.Array, obs: Obs, action: jax.Array) -> jax.Array:
        middle, log_deviation = centre(theta, obs)
        z = (action - middle) * jnp.exp(-log_deviation)
        return jnp.sum(-0.5 * z**2 - log_deviation) - 0.5 * actions * math.log(2 * math.pi)

    def sample(theta: jax.Array, obs: Obs, key: jax.Array) -> jax.Array:
        middle, log_deviation = centre(theta, obs)
        return middle + jnp.exp(log_deviation) * jax.random.normal(key, (actions,), theta.dtype)

    return Policy(
        init, sample, log_prob, jax.grad(log_prob), lambda theta, obs: centre(theta, obs)[0]
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Critic:
    """Relative values with parameters `w [d]`.

    Attributes:
      init: Key to parameters.
      value: `(w, obs)` to `[]`.
      gradient: `(w, obs)` to `[d]`.
      feature_bound: Largest norm of a gradient, where known.
    """

    init: Callable[[jax.Array], jax.Array]
    value: Callable[[jax.Array, Obs], jax.Array]
    gradient: Callable[[jax.Array, Obs], jax.Array]
    feature_bound: float | None = None


def linear_critic(features: Features, size: int, bound: float | None = None) -> Critic:
    """Values linear in features `[size]`, at zero first, as in the paper."""
    return Critic(
        lambda key: jnp.zeros(size, _float()),
        lambda weights, obs: features(obs) @ weights,
        lambda weights, obs: features(obs),
        bound,
    )


def tabular_critic(states: int) -> Critic:
    """A value for each state."""
    return linear_critic(lambda obs: jax.nn.one_hot(obs, states, dtype=_float()), states, 1.0)


def neural_critic(features: Features, size: int, hidden: Sequence[int] = (32,)) -> Critic:
    """A multilayer perceptron of `features(obs) [size]`, trained by semi-gradients."""
    init, apply = _flat(MLP(1, tuple(hidden), nn.tanh, output_scale=0.01), size)

    def value(weights: jax.Array, obs: Obs) -> jax.Array:
        return apply(weights, features(obs))[0]

    return Critic(init, value, jax.grad(value))


def _flat(network: nn.Module, size: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A network's `init(key)` and `apply(theta, x)` with flat parameters."""
    template = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros(size, jnp.float32))
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), template)

    def init(key: jax.Array) -> jax.Array:
        return ravel_pytree(network.init(key, jnp.zeros(size, jnp.float32)))[0].astype(_float())

    def apply(theta: jax.Array, x: jax.Array) -> jax.Array:
        leaves, structure = jax.tree.flatten(zeros)
        parts = jnp.split(theta, np.cumsum([leaf.size for leaf in leaves])[:-1])
        shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        out: Any = network.apply(jax.tree.unflatten(structure, shaped), x)
        return out

    return init, apply
