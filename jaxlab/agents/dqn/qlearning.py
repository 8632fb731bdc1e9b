"""Deep Q-learning on graphs: masked, double, n-step, with target copies and replay.

After Mnih et al. 2015 and Khalil et al. 2017 (S2V-DQN). Actions are vertices. An instance is kept
in the replay as the key it was drawn with and drawn again when it is needed, so that a transition
costs the memory of two states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from jaxlab.agents.dqn.config import DQNConfig, Hyper
from jaxlab.agents.dqn.networks import make_network
from jaxlab.core.environment import action_mask
from jaxlab.core.learner import Learner, Metrics, last, mean, total

PyTree = Any
#: From an instance and a state of the environment to what networks take.
View = Callable[[PyTree, PyTree], Any]

jax.tree_util.register_dataclass(Hyper, [field.name for field in dataclasses.fields(Hyper)], [])


@struct.dataclass
class Episode:
    """One environment under way.

    Attributes:
      instance: Data of the key that the instance is drawn with.
      state: Of the environment.
      mask: Legal actions, `[actions]`.
      over: Whether the episode is over; it rests for `n_step - 1` steps then, so that the last
        transitions have their sums.
      rest: Steps since it is over.
      total: Rewards so far.
      states, actions, rewards, masks: Of the last `n_step` steps, the latest last.
      length: Steps so far.
    """

    instance: jax.Array
    state: PyTree
    mask: jax.Array
    over: jax.Array
    rest: jax.Array
    total: jax.Array
    states: PyTree
    actions: jax.Array
    rewards: jax.Array
    length: jax.Array


@struct.dataclass
class DQNState:
    """Attributes:
    key: Key of the run.
    hyper: Numbers.
    theta: Parameters of the network.
    target: The copy.
    moments: Of Adam.
    episodes: `[num_envs, ...]`.
    replay: Transitions.
    """

    key: jax.Array
    hyper: Hyper
    theta: PyTree
    target: PyTree
    moments: PyTree
    episodes: Episode
    replay: PyTree


def make(env: Any, view: View, config: DQNConfig) -> Learner:
    """Build deep Q-learning.

    Args:
      env: An environment whose actions are the vertices of its view, with `action_mask` in its
        observations. Episodes must end.
      view: See `View`.
      config: Shapes and switches.

    Returns:
      A learner. Metrics: `loss`, `return` of episodes that ended, `epsilon`.
    """
    agent = _DQN(env, view, config)
    return Learner(agent.init, agent.step)


def action_values(env: Any, view: View, config: DQNConfig) -> Callable[..., jax.Array]:
    """A function `(theta, params, state)` to the values of actions, `[actions]`."""
    network = make_network(config)
    return lambda theta, params, state: network.apply(theta, view(params, state))


class _DQN:
    def __init__(self, env: Any, view: View, config: DQNConfig):
        self.env, self.view, self.config = env, view, config
        self.network = make_network(config)
        self.values = action_values(env, view, config)
        self.adam = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())
        self.buffer = flashbax.make_item_buffer(
            max_length=config.buffer_size,
            min_length=1,
            sample_batch_size=config.batch_size,
            add_batches=True,
        )

    def init(self, key: jax.Array, hyper: Hyper | None) -> DQNState:
        hyper = Hyper() if hyper is None else hyper
        hyper = jax.tree.map(lambda leaf: jnp.asarray(leaf, np.float32), hyper)
        run_key, theta_key, env_key = jax.random.split(key, 3)
        keys = jax.random.split(env_key, self.config.num_envs)
        episodes = jax.vmap(self._begin)(keys)
        one = jax.tree.map(lambda leaf: leaf[0], episodes)
        theta = self.network.init(theta_key, self.view(self._instance(one.instance), one.state))
        item = self._transition(one, one.state, one.mask, one.over)
        # flashbax begins with weakly typed counters, which would trace `step` twice.
        replay = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), self.buffer.init(item))
        target = jax.tree.map(jnp.copy, theta)
        return DQNState(run_key, hyper, theta, target, self.adam.init(theta), episodes, replay)

    def _instance(self, data: jax.Array) -> PyTree:
        return self.env.sample_params(jax.random.wrap_key_data(data))

    def _begin(self, key: jax.Array) -> Episode:
        instance_key, reset_key = jax.random.split(key)
        params = self.env.sample_params(instance_key)
        state, timestep = self.env.reset(reset_key, params)
        n = self.config.n_step
        zero = jnp.zeros((), jnp.int32)
        return Episode(
            jax.random.key_data(instance_key),
            state,
            action_mask(timestep.obs),
            timestep.last,
            zero,
            jnp.zeros((), np.float32),
            jax.tree.map(lambda leaf: jnp.stack([leaf] * n), state),
            jnp.zeros((n,), jnp.int32),
            jnp.zeros((n,), np.float32),
            zero,
        )

    def _transition(self, episode: Episode, state: Any, mask: Any, over: Any) -> dict[str, Any]:
        """What is kept of the last `n_step` steps."""
        return {
            "instance": episode.instance,
            "state": jax.tree.map(lambda leaf: leaf[0], episode.states),
            "action": episode.actions[0],
            "rewards": episode.rewards,
            "next": state,
            "mask": mask,
            "over": over,
            "valid": episode.length >= self.config.n_step,
        }

    def _act(self, theta: PyTree, episode: Episode, key: jax.Array, epsilon: Any) -> tuple:
        """One step of one environment: the episode after it, and a transition."""
        draw_key, noise_key, env_key, begin_key = jax.random.split(key, 4)
        params = self._instance(episode.instance)
        values = self.values(theta, params, episode.state)
        noise = jax.random.uniform(noise_key, values.shape, np.float32)
        explore = jax.random.uniform(draw_key, (), np.float32) < epsilon
        score = jnp.where(explore, noise, values)
        action = jnp.argmax(jnp.where(episode.mask, score, -jnp.inf)).astype(jnp.int32)
        state, timestep = self.env.step(env_key, episode.state, action, params)
        reward = jnp.where(episode.over, 0, timestep.reward).astype(np.float32)

        def push(window: jax.Array, new: jax.Array) -> jax.Array:
            return jnp.concatenate([window[1:], new[None]])

        moved = episode.replace(
            state=state,
            mask=action_mask(timestep.obs),
            over=timestep.last,
            rest=episode.rest + episode.over.astype(jnp.int32),
            total=episode.total + reward,
            states=jax.tree.map(push, episode.states, episode.state),
            actions=push(episode.actions, action),
            rewards=push(episode.rewards, reward),
            length=episode.length + 1,
        )
        item = self._transition(moved, state, moved.mask, moved.over)
        ended = moved.over & (moved.rest >= self.config.n_step - 1)
        fresh = self._begin(begin_key)
        kept = jax.tree.map(lambda a, b: jnp.where(ended, a, b), fresh, moved)
        return kept, item, moved.total, ended

    def _goal(self, state: DQNState, theta: PyTree, item: Any) -> jax.Array:
        """The sum of rewards and the value of the state behind them."""
        params = self._instance(item["instance"])
        worth = self.values(state.target, params, item["next"])
        choose = self.values(theta, params, item["next"]) if self.config.double else worth
        best = jnp.argmax(jnp.where(item["mask"], choose, -jnp.inf))
        gammas = state.hyper.gamma ** jnp.arange(self.config.n_step, dtype=np.float32)
        onward = jnp.where(item["over"], 0.0, worth[best])
        return (gammas * item["rewards"]).sum() + gammas[-1] * state.hyper.gamma * onward

    def _loss(self, theta: PyTree, items: Any, goals: jax.Array) -> jax.Array:
        def value(item: Any) -> jax.Array:
            params = self._instance(item["instance"])
            return self.values(theta, params, item["state"])[item["action"]]

        errors = optax.huber_loss(jax.vmap(value)(items), goals)
        valid = items["valid"]
        return jnp.where(valid, errors, 0).sum() / jnp.maximum(valid.sum(), 1)

    def _update(self, state: DQNState, key: jax.Array) -> tuple[DQNState, jax.Array]:
        items = self.buffer.sample(state.replay, key).experience
        goals = jax.vmap(lambda item: self._goal(state, state.theta, item))(items)
        loss, gradient = jax.value_and_grad(self._loss)(state.theta, items, goals)
        updates, moments = self.adam.update(gradient, state.moments)
        rate = state.hyper.learning_rate
        theta = jax.tree.map(lambda p, u: (p - rate * u).astype(p.dtype), state.theta, updates)
        return state.replace(theta=theta, moments=moments), loss

    def step(self, state: DQNState, t: jax.Array) -> tuple[DQNState, Metrics]:
        config = self.config
        act_key, update_key = jax.random.split(jax.random.fold_in(state.key, t))
        done = jnp.minimum(t / config.exploration_steps, 1.0).astype(np.float32)
        epsilon = 1 + done * (state.hyper.epsilon - 1)
        keys = jax.random.split(act_key, config.num_envs)
        episodes, items, returns, ended = jax.vmap(
            lambda episode, key: self._act(state.theta, episode, key, epsilon)
        )(state.episodes, keys)
        state = state.replace(episodes=episodes, replay=self.buffer.add(state.replay, items))

        def learn() -> tuple[DQNState, jax.Array]:
            update_keys = jax.random.split(update_key, config.updates)
            new, losses = jax.lax.scan(self._update, state, update_keys)
            return new, losses.mean()

        def wait() -> tuple[DQNState, jax.Array]:
            return state, jnp.zeros((), np.float32)

        state, loss = jax.lax.cond(t >= config.warmup, learn, wait)
        target = jax.lax.cond(
            t % config.target_period == 0, lambda: state.theta, lambda: state.target
        )
        metrics = {
            "loss": mean(loss, (t >= config.warmup).astype(np.float32)),
            "return": mean(
                jnp.where(ended, returns, 0).sum() / jnp.maximum(ended.sum(), 1),
                ended.sum().astype(np.float32),
            ),
            "epsilon": last(epsilon),
            "env_steps": total(jnp.float32(config.num_envs)),
        }
        return state.replace(target=target), metrics
