"""Losses of MADDPG with discrete actions.

Every array has the agent axis first, then the batch. Losses come per agent, `[agents]`:
where parameters are shared the caller takes their mean, where they are stacked their sum,
so that an agent's gradient does not depend on how many there are.

Sources: Lowe et al. 2017 (MADDPG), Fujimoto et al. 2018 (twin critics, delayed actors),
Jang et al. 2017 (straight-through Gumbel-softmax).
"""

from __future__ import annotations

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from jaxlab.core.distributions import (
    centre_logits,
    mask_logits,
    masked_categorical,
    straight_through_gumbel_softmax,
)

Values = Callable[..., Float[Array, "critics agents batch"]]


@struct.dataclass
class Batch:
    """Transitions as the losses take them; `next_*` lies up to `n_step` decisions ahead.

    Attributes:
      features, next_features: `[agents, batch, features]`.
      mask, next_mask: Legal actions, `[agents, batch, actions]`.
      actions: Executed actions, one-hot, `[agents, batch, actions]`.
      reward: Discounted sum of rewards, `[agents, batch]`.
      discount: Discount of the value of `next_features`; zero where terminated,
        not where truncated. `[agents, batch]`.
      prior: Logits of the prior policy, `[agents, batch, actions]`, or None.
    """

    features: jax.Array
    next_features: jax.Array
    mask: jax.Array
    next_mask: jax.Array
    actions: jax.Array
    reward: jax.Array
    discount: jax.Array
    prior: jax.Array | None


def greedy_actions(
    logits: Float[Array, "*batch actions"], mask: Bool[Array, "*batch actions"]
) -> Float[Array, "*batch actions"]:
    """One-hot best legal action, without noise."""
    best = jnp.argmax(mask_logits(logits, mask), axis=-1)
    return jax.nn.one_hot(best, logits.shape[-1], dtype=logits.dtype)


def critic_target(
    target_values: Values, next_logits: Float[Array, "agents batch actions"], batch: Batch
) -> Float[Array, "agents batch"]:
    """Bootstrapped value: greedy target actions, the smallest of the target critics."""
    chex.assert_rank([next_logits, batch.reward, batch.discount], [3, 2, 2])
    actions = greedy_actions(next_logits, batch.next_mask)
    value = jnp.min(target_values(batch.next_features, actions), axis=0)
    return jax.lax.stop_gradient(batch.reward + batch.discount * value)


def critic_loss(
    values: Values, target: Float[Array, "agents batch"], batch: Batch
) -> tuple[Float[Array, " agents"], dict[str, jax.Array]]:
    """Mean squared temporal-difference error, summed over the critics."""
    chex.assert_rank([target, batch.actions], [2, 3])
    value = values(batch.features, batch.actions)
    error = value - target
    loss = jnp.sum(jnp.mean(jnp.square(error), axis=-1), axis=0)
    return loss, {"q_mean": jnp.mean(value), "td_error": jnp.mean(jnp.abs(error))}


def straight_through_value(
    key: jax.Array,
    values: Values,
    logits: Float[Array, "agents batch actions"],
    batch: Batch,
    temperature: jax.Array,
    others_from_policy: bool,
) -> Float[Array, "agents batch"]:
    """First critic at each agent's own Gumbel-softmax sample.

    The gradient of agent i's value reaches agent i's logits alone: the others' actions
    are those of the replay, or detached samples of the current policies.
    """
    own = straight_through_gumbel_softmax(key, logits, batch.mask, temperature)
    others = jax.lax.stop_gradient(own) if others_from_policy else batch.actions
    return values(batch.features, others, own)[0]


def expected_value(
    key: jax.Array,
    values: Values,
    logits: Float[Array, "agents batch actions"],
    batch: Batch,
    others_from_policy: bool,
) -> Float[Array, "agents batch"]:
    """Mean of the first critic over each agent's own policy, the others' actions fixed.

    The gradient is exact where the Gumbel-softmax gradient is biased and noisy (the
    all-action form of the policy gradient); it costs one pass of the critic's upper layers per action.
    """
    policy = masked_categorical(logits, batch.mask)
    others = batch.actions
    if others_from_policy:
        sample = policy.sample(seed=key)
        others = jax.nn.one_hot(sample, logits.shape[-1], dtype=logits.dtype)

    def value_of(action: Float[Array, " actions"]) -> Float[Array, "agents batch"]:
        return values(batch.features, others, jnp.broadcast_to(action, others.shape))[0]

    each = jax.vmap(value_of, out_axes=-1)(jnp.eye(logits.shape[-1], dtype=logits.dtype))
    return jnp.sum(policy.probs * jax.lax.stop_gradient(each), axis=-1)


def regularisation(
    logits: Float[Array, "agents batch actions"],
    batch: Batch,
    *,
    logit_penalty: jax.Array,
    entropy_bonus: jax.Array,
    prior_weight: jax.Array,
    prior_bound: jax.Array,
) -> tuple[Float[Array, " agents"], dict[str, jax.Array]]:
    """Terms of the actor loss that do not know the critic; illegal actions do not count."""
    chex.assert_rank(logits, 3)
    legal = jnp.maximum(jnp.sum(batch.mask, axis=(1, 2)), 1).astype(logits.dtype)
    square = jnp.sum(jnp.where(batch.mask, jnp.square(logits), 0), axis=(1, 2)) / legal
    # In 32 bits the entropy of a saturated policy may come out as -1e-7.
    entropy = jnp.mean(masked_categorical(logits, batch.mask).entropy(), axis=-1)
    loss = logit_penalty * square - entropy_bonus * entropy
    metrics = {"entropy": jnp.mean(entropy), "logit_norm": jnp.sqrt(jnp.mean(square))}
    if batch.prior is not None:
        prior = centre_logits(batch.prior, batch.mask)
        prior = jnp.clip(prior, -prior_bound, prior_bound)
        distance = jnp.square(centre_logits(logits, batch.mask) - prior)
        distance = jnp.sum(jnp.where(batch.mask, distance, 0), axis=(1, 2)) / legal
        loss = loss + prior_weight * distance
        metrics["prior_distance"] = jnp.mean(distance)
    return loss, metrics
