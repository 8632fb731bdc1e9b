"""The MADDPG learner: one compiled step collects decisions and updates the networks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.agents.maddpg import collection
from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig
from jaxlab.agents.maddpg.losses import Batch
from jaxlab.agents.maddpg.networks import make_actor, make_critic
from jaxlab.agents.maddpg.state import (
    MADDPGState,
    Observe,
    Reader,
    Shaping,
    Transition,
    check_neighbours,
    make_reader,
)
from jaxlab.agents.maddpg.updates import Networks, Schedule, Updater, unchanged
from jaxlab.core.autoreset import AutoReset, Tasks
from jaxlab.core.distributions import mask_logits
from jaxlab.core.environment import Env
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metrics, last
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
    shaping: Shaping | None = None,
    shaping_params: PyTree = None,
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
      shaping: A reward added to the environment's when transitions are replayed.
      shaping_params: Its arrays, kept in `state.shaping_params`; they may be replaced
        between steps.
      episode_metrics: Scalars to report of `TimeStep.info` when an episode ends.

    Returns:
      A learner whose `act(state, obs, key)` is the greedy policy `[agents]` of one
      observation. Networks and replay are float32 whatever the environment's precision.

    Raises:
      ConfigError: The environment or an option does not fit.
    """
    check_config(config)
    if shaping is not None and config.n_step > 1:
        raise ConfigError(
            f"n_step is {config.n_step}, but a shaping reward is computed for single decisions; "
            "set n_step to 1"
        )
    reader = make_reader(env, observe)
    table = check_neighbours(neighbours, reader.num_agents)
    agent = _MADDPG(
        env=LogEpisode(AutoReset(env)),
        config=config,
        reader=reader,
        updater=Updater(
            config,
            make_actor(config, reader.num_actions),
            make_critic(config, reader.num_agents, reader.num_actions, table),
        ),
        tasks=tasks,
        neighbours=table,
        # flashbax rather than a ring of our own: 1.5 against 1.1 ms for storing 32 and drawing
        # twice 256 transitions of 16 agents on two cores is little beside an update.
        replay=flashbax.make_item_buffer(
            max_length=config.buffer_size,
            min_length=1,
            sample_batch_size=config.batch_size,
            add_batches=True,
        ),
        prior=prior,
        prior_params=prior_params,
        shaping=shaping,
        shaping_params=shaping_params,
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
    for name in ("actor_hidden", "critic_hidden"):
        if any(width < 1 for width in getattr(config, name)):
            raise ConfigError(f"{name} is {getattr(config, name)}, expected widths of at least 1")
    if not config.critic_hidden:
        raise ConfigError("critic_hidden is empty, expected at least one width")
    collected = config.num_envs * config.decisions
    if config.buffer_size < collected:
        raise ConfigError(
            f"buffer_size is {config.buffer_size}, but one step collects {collected} transitions "
            "(num_envs * decisions); make it at least as large"
        )
    if config.buffer_size < config.batch_size:
        raise ConfigError(
            f"batch_size is {config.batch_size}, but the replay holds buffer_size = "
            f"{config.buffer_size} transitions; make it at least as large"
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


def _schedule(hyper: Hyper, seen: Float[Array, ""]) -> Schedule:
    """What the schedules say after `seen` joint transitions."""
    return Schedule(
        temperature=collection.linear(
            hyper.temperature_start, hyper.temperature_end, hyper.temperature_steps, seen
        ),
        prior_weight=collection.linear(
            hyper.prior_weight, jnp.zeros_like(hyper.prior_weight), hyper.prior_steps, seen
        ),
        epsilon=collection.linear(
            hyper.epsilon_start, hyper.epsilon_end, hyper.epsilon_steps, seen
        ),
    )


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
    updater: Updater
    tasks: Tasks | None
    neighbours: np.ndarray | None
    replay: Any
    prior: Callable | None
    prior_params: PyTree
    shaping: Shaping | None
    shaping_params: PyTree
    episode_metrics: Callable | None

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
        agents, features = self.reader.num_agents, self.reader.num_features
        moments_shape = (features,) if self.config.shared else (agents, features)
        return MADDPGState(
            key=run_key,
            hyper=hyper,
            networks=self.updater.init(network_key, agents, features),
            feature_moments=RunningMoments.zero(jnp.zeros(moments_shape, jnp.float32)),
            reward_moments=RunningMoments.zero(jnp.zeros((agents,), jnp.float32)),
            # flashbax begins with weakly typed counters, which would trace `step` twice.
            replay=jax.tree.map(
                lambda x: jnp.asarray(x, x.dtype),
                self.replay.init(self._blank_transition(timestep.obs)),
            ),
            env=env_state,
            obs=timestep.obs,
            tasks=tasks,
            prior_params=self.prior_params,
            shaping_params=self.shaping_params,
        )

    def _blank_transition(self, obs: PyTree) -> Transition:
        """Zeros of the shapes that are stored; `obs` are observations `[envs, ...]`."""
        agents, actions = self.reader.num_agents, self.reader.num_actions
        features = jnp.zeros((agents, self.reader.num_features), jnp.float32)
        mask = jnp.zeros((agents, actions), bool)
        scalar = jnp.zeros((agents,), jnp.float32)
        signals = None
        if self.shaping is not None:
            shape = jax.eval_shape(jax.vmap(self.shaping.observe), obs).shape[1:]
            signals = jnp.zeros((2, *shape), jnp.float32)
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
            signals=signals,
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
        return self.updater.actor.apply(state.networks.actor, features), self.reader.mask(obs)

    def act(self, state: MADDPGState, obs: PyTree, key: jax.Array) -> Int[Array, " agents"]:
        """Greedy legal actions of one observation, without noise; the key is not used."""
        logits, mask = self._policy(state, obs)
        return jnp.argmax(mask_logits(logits, mask), axis=-1).astype(jnp.int32)

    # Learning

    def step(self, state: MADDPGState, t: jax.Array) -> tuple[MADDPGState, Metrics]:
        """Collect `decisions` from every environment, then update `updates` times."""
        c, hyper = self.config, state.hyper
        collected = c.num_envs * c.decisions
        warm_up = -(-c.learning_starts // collected)
        collect_key, update_key = jax.random.split(jax.random.fold_in(state.key, t))
        schedule = _schedule(hyper, t.astype(jnp.float32) * collected)
        state, transitions, rewards, metrics = collection.collect(
            self.env,
            self.reader,
            c,
            state,
            collect_key,
            policy=lambda obs: self._policy(state, obs),
            epsilon=jnp.where(t < warm_up, 1.0, schedule.epsilon),
            mixture=self._mixture(state),
            prior=self.prior,
            shaping=self.shaping,
            episode_metrics=self._episode_values,
        )
        state = self._remember(state, transitions, rewards)

        @jax.jit  # traced once for the updates and for what is reported without them
        def learn(networks: Networks):
            first = (t - warm_up) * c.updates
            sample = functools.partial(self._sample, state)
            return self.updater.run(sample, networks, hyper, update_key, first, schedule)

        networks, learned = jax.lax.cond(t >= warm_up, learn, unchanged(learn), state.networks)
        metrics |= learned | {
            "epsilon": last(schedule.epsilon),
            "temperature": last(schedule.temperature),
            "prior_weight": last(schedule.prior_weight),
        }
        return state.replace(networks=networks), metrics

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

    def _shaped(self, state: MADDPGState, stored: Transition) -> jax.Array:
        """Rewards `[batch, agents]` with what the shaping of today adds to them."""
        if self.shaping is None:
            return stored.reward
        reward = jax.vmap(self.shaping.reward, (0, 0, None))
        added = reward(stored.signals[:, 0], stored.signals[:, 1], state.shaping_params)
        return stored.reward + added.astype(jnp.float32) @ self._mixture(state).T

    def _mixture(self, state: MADDPGState) -> jax.Array:
        return collection.reward_mixture(state.hyper, self.neighbours, self.reader.num_agents)

    def _sample(self, state: MADDPGState, key: jax.Array) -> Batch:
        """Draw a batch with normalised features and rewards, agents first."""
        stored: Transition = self.replay.sample(state.replay, key).experience
        reward, moments = self._shaped(state, stored), state.reward_moments
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
