"""Families of values of states: tables, linear ones, networks on features or graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.networks import MLP

PyTree = Any
#: From an instance and a decision state to features `[size]`.
Features = Callable[[PyTree, PyTree], jax.Array]


class Approximator(NamedTuple):
    """A family of values.

    Attributes:
      init: From a key to parameters.
      apply: From parameters, an instance and a decision state to its value `[]`.
    """

    init: Callable[[jax.Array], PyTree]
    apply: Callable[[PyTree, PyTree, PyTree], jax.Array]


def tabular(encode: Features, count: int) -> Approximator:
    """A number for each code of states; for one instance, or values that all instances share."""
    return Approximator(
        lambda key: jnp.zeros((count,), np.float32),
        lambda theta, params, decision: theta[encode(params, decision)],
    )


def linear(features: Features, size: int, *, base: int | None = None) -> Approximator:
    """`theta @ features`, begun at zero.

    Args:
      features: The embedding.
      size: Features.
      base: A feature that is added as it is: a lower bound, say.
    """

    def apply(theta: jax.Array, params: PyTree, decision: PyTree) -> jax.Array:
        phi = features(params, decision).astype(np.float32)
        return phi @ theta + (0.0 if base is None else phi[base])

    return Approximator(lambda key: jnp.zeros((size,), np.float32), apply)


def perceptron(
    features: Features, size: int, *, hidden: tuple[int, ...] = (64, 64), base: int | None = None
) -> Approximator:
    """A small network on features and a linear part; begun at zero, or at the feature `base`."""
    network = MLP(1, hidden, nn.tanh, output_scale=1e-2)

    def init(key: jax.Array) -> PyTree:
        blank = jnp.zeros((size,), np.float32)
        return {"network": network.init(key, blank), "linear": blank}

    def apply(theta: PyTree, params: PyTree, decision: PyTree) -> jax.Array:
        phi = features(params, decision).astype(np.float32)
        value = network.apply(theta["network"], phi)[0] + phi @ theta["linear"]
        return value + (0.0 if base is None else phi[base])

    return Approximator(init, apply)


def graph_network(view: Callable[[PyTree, PyTree], Any], network: nn.Module, example: Any) -> Any:
    """A pooled network on states as graphs.

    Args:
      view: From an instance and a decision state to what the network takes.
      network: With one value for all vertices.
      example: A view, for shapes.
    """
    return Approximator(
        lambda key: network.init(key, example),
        lambda theta, params, decision: network.apply(theta, view(params, decision)),
    )
