"""Updates of MADDPG's networks from a sampled batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float

from jaxlab.agents.maddpg import losses
from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig
from jaxlab.agents.maddpg.losses import Batch
from jaxlab.agents.maddpg.networks import Actor, Critic
from jaxlab.core.learner import Metric, mean

PyTree = Any


@struct.dataclass
class Networks:
    """Parameters and their optimisers.

    Critics have a leading axis of one or two; where parameters are not shared there is
    an axis of agents (after the critics').
    """

    actor: PyTree
    critic: PyTree
    target_actor: PyTree
    target_critic: PyTree
    actor_optimiser: PyTree
    critic_optimiser: PyTree


@struct.dataclass
class Schedule:
    """What the schedules say at one step.

    Attributes:
      temperature: Of the Gumbel-softmax.
      prior_weight: Of the distance to the prior in the actors' loss.
      epsilon: Probability of a uniformly random action.
    """

    temperature: Float[Array, ""]
    prior_weight: Float[Array, ""]
    epsilon: Float[Array, ""]


def _optimiser(learning_rate: Any, max_gradient_norm: Any) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate))


def _mapped(function: Callable, axes: int) -> Callable:
    """Map a function over leading axes of stacked networks, so each is clipped by itself."""
    for _ in range(axes):
        function = jax.vmap(function)
    return function


@dataclasses.dataclass(frozen=True)
class Updater:
    """One critic update and, in their turns, one of the actors and of the targets."""

    config: MADDPGConfig
    actor: Actor
    critic: Critic

    @property
    def _actor_axes(self) -> int:
        return 0 if self.config.shared else 1

    @property
    def _critic_axes(self) -> int:
        return 1 + self._actor_axes

    def init(self, key: jax.Array, num_agents: int, num_features: int) -> Networks:
        """Random networks, and targets equal to them."""
        features = jnp.zeros((num_agents, 1, num_features), jnp.float32)
        joint = jnp.zeros((num_agents, 1, self.actor.num_actions), jnp.float32)
        actor_key, critic_key = jax.random.split(key)
        actor = self.actor.init(actor_key, features)
        keys = jax.random.split(critic_key, 2 if self.config.twin else 1)
        critic = jax.vmap(lambda k: self.critic.init(k, features, joint))(keys)
        optimiser = _optimiser(1.0, 1.0)
        return Networks(
            actor=actor,
            critic=critic,
            # Copies, since a state that is donated may not hold one buffer twice.
            target_actor=jax.tree.map(jnp.copy, actor),
            target_critic=jax.tree.map(jnp.copy, critic),
            actor_optimiser=_mapped(optimiser.init, self._actor_axes)(actor),
            critic_optimiser=_mapped(optimiser.init, self._critic_axes)(critic),
        )

    def run(
        self,
        sample: Callable[[jax.Array], Batch],
        networks: Networks,
        hyper: Hyper,
        key: jax.Array,
        first: jax.Array,
        schedule: Schedule,
    ) -> tuple[Networks, dict[str, Metric]]:
        """Take `config.updates` updates, of which the first has the index `first`."""

        def update(networks: Networks, number: jax.Array):
            sample_key, actor_key = jax.random.split(jax.random.fold_in(key, number))
            batch, index = sample(sample_key), first + number
            networks, values = self._critic_step(networks, hyper, batch)
            weights = jax.tree.map(jnp.ones_like, values)

            @jax.jit  # traced once for the step and for what is reported without it
            def actor_step(networks: Networks):
                return self._actor_step(networks, hyper, batch, actor_key, schedule)

            due = index % self.config.actor_period == 0
            networks, actor_values = jax.lax.cond(due, actor_step, unchanged(actor_step), networks)
            weights |= jax.tree.map(lambda x: due.astype(x.dtype), actor_values)
            networks = jax.lax.cond(
                index % self.config.target_period == 0,
                lambda networks: _move_targets(networks, hyper.tau),
                lambda networks: networks,
                networks,
            )
            return networks, (values | actor_values, weights)

        networks, (values, weights) = jax.lax.scan(
            update, networks, jnp.arange(self.config.updates)
        )
        return networks, {
            name: mean(
                jnp.sum(value * weights[name]) / jnp.maximum(jnp.sum(weights[name]), 1),
                jnp.sum(weights[name]),
            )
            for name, value in values.items()
        }

    def _values(self, critic: PyTree) -> losses.Values:
        """Critics `[critics, agents, batch]` with given parameters."""
        return lambda *inputs: jax.vmap(lambda p: self.critic.apply(p, *inputs))(critic)

    def _total(self, per_agent: Float[Array, " agents"]) -> Float[Array, ""]:
        return jnp.mean(per_agent) if self.config.shared else jnp.sum(per_agent)

    def _critic_step(self, networks: Networks, hyper: Hyper, batch: Batch):
        next_logits = self.actor.apply(networks.target_actor, batch.next_features)
        target = losses.critic_target(self._values(networks.target_critic), next_logits, batch)

        def objective(critic: PyTree):
            loss, metrics = losses.critic_loss(self._values(critic), target, batch)
            return self._total(loss), metrics | {"critic_loss": jnp.mean(loss)}

        grads, metrics = jax.grad(objective, has_aux=True)(networks.critic)
        optimiser = _optimiser(hyper.critic_learning_rate, hyper.max_gradient_norm)
        change, state = _mapped(optimiser.update, self._critic_axes)(
            grads, networks.critic_optimiser
        )
        critic = optax.apply_updates(networks.critic, change)
        return networks.replace(critic=critic, critic_optimiser=state), metrics

    def _actor_step(
        self, networks: Networks, hyper: Hyper, batch: Batch, key: jax.Array, schedule: Schedule
    ):
        # The actors climb the first critic alone.
        values = self._values(jax.tree.map(lambda x: x[:1], networks.critic))

        def objective(actor: PyTree):
            logits = self.actor.apply(actor, batch.features)
            others = self.config.other_actions == "policy"
            if self.config.actor_gradient == "expected":
                value = losses.expected_value(key, values, logits, batch, others)
            else:
                value = losses.straight_through_value(
                    key, values, logits, batch, schedule.temperature, others
                )
            penalty, metrics = losses.regularisation(
                logits,
                batch,
                logit_penalty=hyper.logit_penalty,
                entropy_bonus=hyper.entropy_bonus,
                prior_weight=schedule.prior_weight,
                prior_bound=hyper.prior_bound,
            )
            loss = penalty - jnp.mean(value, axis=-1)
            return self._total(loss), metrics | {"actor_loss": jnp.mean(loss)}

        grads, metrics = jax.grad(objective, has_aux=True)(networks.actor)
        optimiser = _optimiser(hyper.actor_learning_rate, hyper.max_gradient_norm)
        change, state = _mapped(optimiser.update, self._actor_axes)(grads, networks.actor_optimiser)
        actor = optax.apply_updates(networks.actor, change)
        return networks.replace(actor=actor, actor_optimiser=state), metrics


def unchanged(step: Callable[[PyTree], tuple[PyTree, PyTree]]) -> Callable:
    """The branch that leaves the operand of `step` as it is and reports zeros."""

    def skip(operand: PyTree) -> tuple[PyTree, PyTree]:
        reported = jax.eval_shape(step, operand)[1]
        return operand, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), reported)

    return skip


def _move_targets(networks: Networks, tau: jax.Array) -> Networks:
    return networks.replace(
        target_actor=optax.incremental_update(networks.actor, networks.target_actor, tau),
        target_critic=optax.incremental_update(networks.critic, networks.target_critic, tau),
    )
