"""The MADDPG learner: one compiled step collects decisions and updates the networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxlab.agents.maddpg import collection, losses
from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig
from jaxlab.agents.maddpg.losses import Batch
from jaxlab.agents.maddpg.networks import Actor, Critic, make_actor, make_critic
from jaxlab.agents.maddpg.state import (
    MADDPGState,
    Networks,
    Observe,
    Reader,
    Transition,
    check_neighbours,
    make_reader,
)
from jaxlab.core.autoreset import AutoReset, Tasks
from jaxlab.core.distributions import mask_logits
from jaxlab.core.environment import Env
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metric, Metrics, last, mean
from jaxlab.core.normalization import RunningMoments
from jaxlab.core.wrappers import LogEpisode

PyTree = Any

#: Normalised features are clipped to this many deviations.
FEATURE_BOUND = 5.0
#: Least variance that a feature or reward is divided by.
LEAST_VARIANCE = 1e-4


def make(
    env: Env,
    config: MADDPGConfig,
    *,
    observe: Observe | None = None,
    tasks: Tasks | None = None,
    neighbours: Any = None,
    prior: Callable[..., Float[Array, "agents actions"]] | None = None,
    prior_params: PyTree = None,
    episode_metrics: Callable[[Mapping[str, PyTree]], Mapping[str, Array]] | None = None,
) -> Learner:
    """Build MADDPG for an environment with several agents and discrete actions.

    Args:
      env: Environment without automatic reset; its episodes must end (`TimeLimit`).
      config: Shapes and switches.
      observe: Features `[agents, features]` of one observation; by default all leaves
        but `action_mask`, flattened.
      tasks: Tasks that episodes draw from; by default `config.num_tasks` samples of the
        environment. `state.tasks` may be replaced between steps.
      neighbours: `[agents, slots]` indices, -1 for none: the view of critics with
        `critic_input="neighbourhood"`, and whose rewards `neighbour_reward` shares.
      prior: Prior policy logits `[agents, actions]` of one observation; called as
        `prior(obs)`, or as `prior(obs, prior_params)` where `prior_params` are given.
      prior_params: Arrays of the prior, kept in `state.prior_params`.
      episode_metrics: Scalars to report of `TimeStep.info` when an episode ends.

    Returns:
      A learner whose `act(state, obs, key)` is the greedy policy `[agents]` of one
      observation. Networks and replay are float32 whatever the environment's precision.

    Raises:
      ConfigError: The environment or an option does not fit.
    """
    check_config(config)
    reader = make_reader(env, observe)
    table = check_neighbours(neighbours, reader.num_agents)
    agent = _MADDPG(
        env=LogEpisode(AutoReset(env)),
        config=config,
        reader=reader,
        actor=make_actor(config, reader.num_actions),
        critic=make_critic(config, reader.num_agents, reader.num_actions, table),
        tasks=tasks,
        neighbours=table,
        prior=prior,
        prior_params=prior_params,
        episode_metrics=episode_metrics,
    )
    return Learner(agent.init, agent.step, agent.act)


def check_config(config: MADDPGConfig) -> None:
    """Refuse sizes that cannot work.

    Raises:
      ConfigError: A size below one, or a replay smaller than what one step collects.
    """
    sizes = ("num_envs", "decisions", "updates", "batch_size", "buffer_size", "num_tasks")
    for name in (*sizes, "actor_period", "target_period", "n_step"):
        if getattr(config, name) < 1:
            raise ConfigError(f"{name} is {getattr(config, name)}, expected at least 1")
    if not config.critic_hidden:
        raise ConfigError("critic_hidden is empty, expected at least one width")
    collected = config.num_envs * config.decisions
    if config.buffer_size < collected:
        raise ConfigError(
            f"buffer_size is {config.buffer_size}, but one step collects {collected} transitions "
            "(num_envs * decisions); make it at least as large"
        )
    choices = {
        "critic_input": ("joint", "neighbourhood", "local"),
        "other_actions": ("buffer", "policy"),
        "actor_gradient": ("straight_through", "expected"),
        "normalise_rewards": ("none", "scale", "standardise"),
    }
    for name, allowed in choices.items():
        if getattr(config, name) not in allowed:
            raise ConfigError(
                f"{name} is {getattr(config, name)!r}, expected one of {', '.join(allowed)}"
            )


def _stacked(function: Callable, depth: int) -> Callable:
    """Map a function over `depth` leading axes of stacked networks."""
    for _ in range(depth):
        function = jax.vmap(function)
    return function


def _optimiser(learning_rate: Any, max_gradient_norm: Any) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate))


def _apply(
    optimiser: optax.GradientTransformation,
    grads: PyTree,
    state: PyTree,
    params: PyTree,
    depth: int,
) -> tuple[PyTree, PyTree]:
    """One step of stacked networks, each clipped by its own norm; parameters and state."""
    updates, state = _stacked(optimiser.update, depth)(grads, state)
    return optax.apply_updates(params, updates), state


def _pool(moments: RunningMoments, samples: Float[Array, " samples *shape"]) -> RunningMoments:
    """Take in samples along the first axis."""
    update = jax.vmap(
        lambda sample: moments.update(sample, "samples"), out_axes=None, axis_name="samples"
    )
    return update(samples)


@dataclasses.dataclass(frozen=True, eq=False)
class _MADDPG:
    env: Env
    config: MADDPGConfig
    reader: Reader
    actor: Actor
    critic: Critic
    tasks: Tasks | None
    neighbours: np.ndarray | None
    prior: Callable | None
    prior_params: PyTree
    episode_metrics: Callable | None

    def __post_init__(self) -> None:
        c = self.config
        # flashbax rather than a ring of our own: 1.5 against 1.1 ms for storing 32 and drawing
        # twice 256 transitions of 16 agents on two cores is little beside an update.
        replay = flashbax.make_item_buffer(
            max_length=c.buffer_size,
            min_length=1,
            sample_batch_size=c.batch_size,
            add_batches=True,
        )
        object.__setattr__(self, "replay", replay)

    # Beginning

    def init(self, key: jax.Array, hyper: Hyper) -> MADDPGState:
        """Networks, an empty replay, and environments at the start of their first episodes."""
        hyper = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), hyper)
        run_key, network_key, task_key, env_key = jax.random.split(key, 4)
        tasks = self.tasks
        if tasks is None:
            keys = jax.random.split(task_key, self.config.num_tasks)
            params = jax.vmap(self.env.sample_params)(keys)
            tasks = Tasks(params, jnp.ones((self.config.num_tasks,), jnp.float32))
        env_keys = jax.vmap(jax.random.fold_in, (None, 0))(
            env_key, jnp.arange(self.config.num_envs)
        )
        env_state, timestep = jax.vmap(self.env.reset, (0, None))(env_keys, tasks)
        networks = self._init_networks(network_key)
        agents, features = self.reader.num_agents, self.reader.num_features
        moments_shape = (features,) if self.config.shared else (agents, features)
        optimiser = _optimiser(1.0, 1.0)
        return MADDPGState(
            key=run_key,
            hyper=hyper,
            networks=networks,
            actor_optimiser=_stacked(optimiser.init, self._actor_depth)(networks.actor),
            critic_optimiser=_stacked(optimiser.init, self._critic_depth)(networks.critic),
            feature_moments=RunningMoments.zero(jnp.zeros(moments_shape, jnp.float32)),
            reward_moments=RunningMoments.zero(jnp.zeros((agents,), jnp.float32)),
            replay=self.replay.init(self._blank_transition()),
            env=env_state,
            obs=timestep.obs,
            tasks=tasks,
            prior_params=self.prior_params,
        )

    @property
    def _actor_depth(self) -> int:
        return 0 if self.config.shared else 1

    @property
    def _critic_depth(self) -> int:
        return 1 + self._actor_depth

    def _init_networks(self, key: jax.Array) -> Networks:
        agents, actions = self.reader.num_agents, self.reader.num_actions
        features = jnp.zeros((agents, 1, self.reader.num_features), jnp.float32)
        joint = jnp.zeros((agents, 1, actions), jnp.float32)
        actor_key, critic_key = jax.random.split(key)
        actor = self.actor.init(actor_key, features)
        critics = jax.random.split(critic_key, 2 if self.config.twin else 1)
        critic = jax.vmap(lambda k: self.critic.init(k, features, joint))(critics)
        # The targets are copies: run() donates the state, and one array cannot be donated twice.
        return Networks(actor, critic, *jax.tree.map(jnp.copy, (actor, critic)))

    def _blank_transition(self) -> Transition:
        agents, actions = self.reader.num_agents, self.reader.num_actions
        features = jnp.zeros((agents, self.reader.num_features), jnp.float32)
        mask = jnp.zeros((agents, actions), bool)
        scalar = jnp.zeros((agents,), jnp.float32)
        return Transition(
            features=features,
            next_features=features,
            mask=mask,
            next_mask=mask,
            action=jnp.zeros((agents,), jnp.int32),
            reward=scalar,
            weight=scalar,
            discount=scalar,
            prior=None if self.prior is None else mask.astype(jnp.float32),
        )

    # Acting

    def _normalise(self, state: MADDPGState, features: jax.Array) -> jax.Array:
        """Features `[*batch, agents, features]` as the networks take them."""
        if not self.config.normalise_observations:
            return features
        scaled = state.feature_moments.standardize(features, LEAST_VARIANCE)
        return jnp.clip(scaled, -FEATURE_BOUND, FEATURE_BOUND)

    def _policy(self, state: MADDPGState, obs: PyTree) -> tuple[jax.Array, jax.Array]:
        """Logits and mask `[agents, actions]` of one observation."""
        features = self._normalise(state, self.reader.features(obs))
        return self.actor.apply(state.networks.actor, features), self.reader.mask(obs)

    def act(self, state: MADDPGState, obs: PyTree, key: jax.Array) -> Int[Array, " agents"]:
        """Greedy legal actions of one observation, without noise; the key is not used."""
        logits, mask = self._policy(state, obs)
        return jnp.argmax(mask_logits(logits, mask), axis=-1).astype(jnp.int32)

    # Learning

    def step(self, state: MADDPGState, t: jax.Array) -> tuple[MADDPGState, Metrics]:
        """Collect `decisions` from every environment, then update `updates` times."""
        c, hyper = self.config, state.hyper
        warm_up = -(-c.learning_starts // (c.num_envs * c.decisions))
        transitions_seen = t.astype(jnp.float32) * (c.num_envs * c.decisions)
        collect_key, update_key = jax.random.split(jax.random.fold_in(state.key, t))
        epsilon = collection.linear(
            hyper.epsilon_start, hyper.epsilon_end, hyper.epsilon_steps, transitions_seen
        )
        state, transitions, rewards, metrics = collection.collect(
            self.env,
            self.reader,
            c,
            state,
            collect_key,
            policy=lambda obs: self._policy(state, obs),
            epsilon=jnp.where(t < warm_up, 1.0, epsilon),
            mixture=collection.reward_mixture(hyper, self.neighbours, self.reader.num_agents),
            prior=self.prior,
            episode_metrics=self._episode_values,
        )
        state = self._remember(state, transitions, rewards)
        state, learned = self._update_all(state, update_key, t, warm_up, transitions_seen)
        return state, {**metrics, **learned}

    def _episode_values(self, info: Mapping[str, PyTree]) -> dict[str, jax.Array]:
        values = {
            "episode_return": jnp.mean(info["episode_return"]),
            "episode_length": info["episode_length"],
        }
        return values | dict(self.episode_metrics(info) if self.episode_metrics else {})

    def _remember(
        self, state: MADDPGState, transitions: Transition, rewards: jax.Array
    ) -> MADDPGState:
        """Store transitions `[time, envs, ...]` and take them into the running moments."""
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions)
        samples = flat.features.reshape(-1, *state.feature_moments.mean.shape)
        return state.replace(
            replay=self.replay.add(state.replay, flat),
            feature_moments=_pool(state.feature_moments, samples),
            reward_moments=_pool(state.reward_moments, rewards.reshape(-1, rewards.shape[-1])),
        )

    def _update_all(
        self,
        state: MADDPGState,
        key: jax.Array,
        t: jax.Array,
        warm_up: int,
        transitions_seen: jax.Array,
    ) -> tuple[MADDPGState, dict[str, Metric]]:
        """All updates of one step, or none during the warm-up."""
        c, hyper = self.config, state.hyper
        temperature = collection.linear(
            hyper.temperature_start,
            hyper.temperature_end,
            hyper.temperature_steps,
            transitions_seen,
        )
        prior_weight = collection.linear(
            hyper.prior_weight,
            jnp.zeros_like(hyper.prior_weight),
            hyper.prior_steps,
            transitions_seen,
        )
        learned = (state.networks, state.actor_optimiser, state.critic_optimiser)

        def update(learned, j):
            index = (t - warm_up) * c.updates + j
            return self._update(
                state, learned, jax.random.fold_in(key, j), index, temperature, prior_weight
            )

        def updates(learned):
            return jax.lax.scan(update, learned, jnp.arange(c.updates))

        def nothing(learned):
            shapes = jax.eval_shape(updates, learned)[1]
            return learned, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        learned, (values, weights) = jax.lax.cond(t >= warm_up, updates, nothing, learned)
        state = state.replace(
            networks=learned[0], actor_optimiser=learned[1], critic_optimiser=learned[2]
        )
        metrics = {}
        for name, value in values.items():
            weight = jnp.sum(weights[name])
            average = jnp.sum(value * weights[name]) / jnp.maximum(weight, 1)
            metrics[name] = mean(average, weight)
        return state, metrics | {
            "temperature": last(temperature),
            "prior_weight": last(prior_weight),
        }

    def _sample(self, state: MADDPGState, key: jax.Array) -> Batch:
        """Draw a batch with normalised features and rewards, agents first."""
        stored: Transition = self.replay.sample(state.replay, key).experience
        reward, moments = stored.reward, state.reward_moments
        if self.config.normalise_rewards == "standardise":
            reward = reward - moments.mean * stored.weight
        if self.config.normalise_rewards != "none":
            reward = reward * jax.lax.rsqrt(moments.variance + LEAST_VARIANCE)
        batch = Batch(
            features=self._normalise(state, stored.features),
            next_features=self._normalise(state, stored.next_features),
            mask=stored.mask,
            next_mask=stored.next_mask,
            actions=jax.nn.one_hot(stored.action, self.reader.num_actions, dtype=jnp.float32),
            reward=reward,
            discount=stored.discount,
            prior=stored.prior,
        )
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), batch)

    def _values(self, critic: PyTree) -> losses.Values:
        """Critics `[critics, agents, batch]` with given parameters."""
        return lambda *inputs: jax.vmap(lambda p: self.critic.apply(p, *inputs))(critic)

    def _total(self, per_agent: Float[Array, " agents"]) -> Float[Array, ""]:
        return jnp.mean(per_agent) if self.config.shared else jnp.sum(per_agent)

    def _update(self, state, learned, key, index, temperature, prior_weight):
        """One critic update and, in their turns, one of the actors and of the targets."""
        c, hyper = self.config, state.hyper
        networks, actor_optimiser, critic_optimiser = learned
        sample_key, actor_key = jax.random.split(key)
        batch = self._sample(state, sample_key)
        next_logits = self.actor.apply(networks.target_actor, batch.next_features)
        target = losses.critic_target(self._values(networks.target_critic), next_logits, batch)

        def critic_objective(critic):
            loss, aux = losses.critic_loss(self._values(critic), target, batch)
            return self._total(loss), aux | {"critic_loss": jnp.mean(loss)}

        grads, critic_metrics = jax.grad(critic_objective, has_aux=True)(networks.critic)
        critic, critic_optimiser = _apply(
            _optimiser(hyper.critic_learning_rate, hyper.max_gradient_norm),
            grads,
            critic_optimiser,
            networks.critic,
            self._critic_depth,
        )
        networks = networks.replace(critic=critic)

        def actor_step(operand):
            actor, optimiser = operand
            objective = lambda actor: self._actor_objective(  # noqa: E731
                actor, critic, hyper, batch, actor_key, temperature, prior_weight
            )
            grads, aux = jax.grad(objective, has_aux=True)(actor)
            adam = _optimiser(hyper.actor_learning_rate, hyper.max_gradient_norm)
            return _apply(adam, grads, optimiser, actor, self._actor_depth), aux

        def no_step(operand):
            shapes = jax.eval_shape(actor_step, operand)[1]
            return operand, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        due = index % c.actor_period == 0
        (actor, actor_optimiser), actor_metrics = jax.lax.cond(
            due, actor_step, no_step, (networks.actor, actor_optimiser)
        )
        networks = networks.replace(actor=actor)
        networks = jax.lax.cond(
            index % c.target_period == 0,
            lambda n: self._move_targets(n, hyper.tau),
            lambda n: n,
            networks,
        )
        values = critic_metrics | actor_metrics
        weights = dict.fromkeys(critic_metrics, jnp.ones((), jnp.float32))
        weights |= dict.fromkeys(actor_metrics, due.astype(jnp.float32))
        return (networks, actor_optimiser, critic_optimiser), (values, weights)

    def _actor_objective(self, actor, critic, hyper, batch, key, temperature, prior_weight):
        logits = self.actor.apply(actor, batch.features)
        # The actor climbs the first critic alone.
        values = self._values(jax.tree.map(lambda x: x[:1], critic))
        others = self.config.other_actions == "policy"
        if self.config.actor_gradient == "expected":
            value = losses.expected_value(key, values, logits, batch, others)
        else:
            value = losses.straight_through_value(key, values, logits, batch, temperature, others)
        penalty, metrics = losses.regularisation(
            logits,
            batch,
            logit_penalty=hyper.logit_penalty,
            entropy_bonus=hyper.entropy_bonus,
            prior_weight=prior_weight,
            prior_bound=hyper.prior_bound,
        )
        loss = penalty - jnp.mean(value, axis=-1)
        return self._total(loss), metrics | {"actor_loss": jnp.mean(loss)}

    def _move_targets(self, networks: Networks, tau: jax.Array) -> Networks:
        move = lambda new, old: optax.incremental_update(new, old, tau)  # noqa: E731
        return networks.replace(
            target_actor=move(networks.actor, networks.target_actor),
            target_critic=move(networks.critic, networks.target_critic),
        )
