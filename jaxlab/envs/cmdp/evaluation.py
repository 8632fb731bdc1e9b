"""What a policy is worth: gains, biases, advantages, by one linear solve; compiled.

For a chain with one closed class the matrix `I - P + 1 1^T` is invertible; it gives the
stationary distribution and, for each signal, the bias of the Poisson equation (Puterman,
"Markov decision processes", 1994, chapter 8).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array, Float

from jaxlab.envs.cmdp.model import CMDP


@struct.dataclass
class Evaluation:
    """Averages under a policy; the first signal is the reward, the others the costs.

    Attributes:
      gains: Long-run averages.
      stationary: Distribution of states.
      bias: Relative values, of stationary mean zero.
      advantages: Of each action.
    """

    gains: Float[Array, " one_and_signals"]
    stationary: Float[Array, " states"]
    bias: Float[Array, "one_and_signals states"]
    advantages: Float[Array, "one_and_signals states actions"]


def evaluate(problem: CMDP, policy: Any) -> Evaluation:
    """Evaluate a policy `[S, A]` whose chain has one closed class.

    Follows the dtype of its inputs; gradients and `vmap` over problems and policies work.
    """
    signals = jnp.concatenate([jnp.asarray(problem.reward)[None], jnp.asarray(problem.costs)])
    matrix = policy_chain(problem.transitions, policy)
    factors = lu_factor(jnp.eye(len(matrix), dtype=matrix.dtype) - matrix + 1)
    ones = jnp.ones(len(matrix), matrix.dtype)
    stationary = lu_solve(factors, ones, trans=1)
    means = jnp.einsum("sa,gsa->gs", policy, signals)
    gains = means @ stationary
    bias = lu_solve(factors, (means - gains[:, None]).T).T
    bias = bias - (bias @ stationary)[:, None]
    ahead = jnp.einsum("sat,gt->gsa", problem.transitions, bias)
    advantages = signals - gains[:, None, None] + ahead - bias[:, :, None]
    return Evaluation(gains, stationary, bias, advantages)


def policy_chain(transitions: Any, policy: Any) -> jax.Array:
    """Transition matrix `[S, S]` of a policy `[S, A]`."""
    return jnp.einsum("sa,sat->st", policy, transitions)


def slack_gains(problem: CMDP, gains: Any) -> Any:
    """From the gains of an evaluation to those of the slacks `[m]`: negative where violated."""
    return problem.senses * (gains[..., 1:] - problem.bounds)
