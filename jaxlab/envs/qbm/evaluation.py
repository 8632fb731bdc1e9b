"""What a learner asks of a model and a target at one parameter vector."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Evaluation(NamedTuple):
    """A model with natural parameters theta beside a target.

    Attributes:
      log_partition: The potential psi.
      moments: Expectations `eta_p` of the terms in the model, the gradient of psi.
      gap: `eta_q - eta_p`, the negative gradient of the divergence. `eta_q` are expectations in
        the e-step's state, the nearest to the model of those whose visible marginal is the
        target.
      divergence: `KL(q || p)` of visible bits, which is also the divergence of that state from
        the model.
    """

    log_partition: Float[Array, "*batch"]
    moments: Float[Array, "*batch terms"]
    gap: Float[Array, "*batch terms"]
    divergence: Float[Array, "*batch"]

    @property
    def target_moments(self) -> Float[Array, "*batch terms"]:
        """`eta_q`, expectations in the e-step's state."""
        return self.moments + self.gap


def shannon_entropy(probabilities: Any) -> Float[Array, ""]:
    """`-sum q log q` in nats."""
    probabilities = jnp.asarray(probabilities)
    positive = jnp.where(probabilities > 0, probabilities, 1.0)
    return -jnp.sum(probabilities * jnp.log(positive))


def relative_entropy_of_bits(target: Any, probabilities: Any) -> Float[Array, ""]:
    """`KL(q || p)` in nats; infinite where p is zero and q is not."""
    return jnp.sum(jax.scipy.special.rel_entr(jnp.asarray(target), jnp.asarray(probabilities)))


def total_variation(target: Any, probabilities: Any) -> Float[Array, ""]:
    """Half the sum of absolute differences of two distributions."""
    return 0.5 * jnp.sum(jnp.abs(jnp.asarray(target) - jnp.asarray(probabilities)))
