"""What the learners need of a model and its target, as functions of natural parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Values(NamedTuple):
    """A model beside its target.

    Attributes:
      log_partition: The potential psi.
      moments: Expectations in the model, the gradient of psi.
      gap: Expectations in the e-step's state less those in the model: the negative gradient of
        the divergence.
      divergence: Of that state from the model.
    """

    log_partition: Float[Array, ""]
    moments: Float[Array, " terms"]
    gap: Float[Array, " terms"]
    divergence: Float[Array, ""]


class Closed(NamedTuple):
    """A model whose e-step is closed: visible operators commute, or nothing is hidden.

    Attributes:
      size: Number of parameters.
      evaluate: From parameters `[size]` to the four items of `Values`.
      metric: From parameters to the Hessian of psi `[size, size]`; em and natural_gradient
        need it.
      unbounded: Why an m-step may have no finite minimiser; None where it has one.
    """

    size: int
    evaluate: Callable[[Any], tuple[Any, Any, Any, Any]]
    metric: Callable[[Any], Any] | None = None
    unbounded: str | None = None


class Dual(NamedTuple):
    """A model whose e-step is the dual problem `max_l goal . l - psi(theta, l)`.

    Attributes:
      size: Number of parameters.
      potential: From parameters and multipliers in one vector to the joint potential
        `psi(theta, l)` and its gradient.
      metric: From the same vector to the Hessian of the potential.
      goal: Moments of the target that the multipliers belong to.
      unbounded: See `Closed`.
    """

    size: int
    potential: Callable[[Any], tuple[Any, Any]]
    metric: Callable[[Any], Any]
    goal: Any
    unbounded: str | None = None


class Sampled(NamedTuple):
    """A model whose gradients are estimated from chains.

    Attributes:
      size: Number of parameters.
      start: From a key to chains, any pytree.
      gradient: `(key, chains, parameters) -> (chains, gradient)` of the divergence.
    """

    size: int
    start: Callable[[Any], Any]
    gradient: Callable[[Any, Any, Any], tuple[Any, Any]]


def ascend(parameters: Any, gap: Any, learning_rate: Any) -> Array:
    """A step of gradient descent on the divergence, whose gradient is `-gap`."""
    return parameters + learning_rate * gap


def damped_solution(matrix: Any, damping: Any, gap: Any) -> Float[Array, " terms"]:
    """`(matrix + damping I)^-1 gap`; NaN where that is not positive."""
    damped = matrix + damping * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(damped), True), gap)
