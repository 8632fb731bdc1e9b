"""Collecting decisions from a batch of environments inside the compiled step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig
from jaxlab.agents.maddpg.state import MADDPGState, Reader, Shaping, Transition
from jaxlab.core.distributions import perturbed_argmax
from jaxlab.core.environment import Env
from jaxlab.core.learner import Metric, mean, total

PyTree = Any
EpisodeMetrics = Callable[[Mapping[str, PyTree]], Mapping[str, Float[Array, ""]]]
Policy = Callable[[PyTree], tuple[Float[Array, "agents actions"], Bool[Array, "agents actions"]]]


def linear(start: jax.Array, end: jax.Array, steps: jax.Array, now: jax.Array) -> jax.Array:
    """Straight line from `start` to `end` over `steps`, constant afterwards."""
    return start + (end - start) * jnp.clip(now / jnp.maximum(steps, 1), 0, 1)


def explore(
    key: jax.Array,
    logits: Float[Array, "agents actions"],
    mask: Bool[Array, "agents actions"],
    epsilon: jax.Array,
    noise_scale: jax.Array,
) -> Int[Array, " agents"]:
    """Noisy policy action; with probability `epsilon`, agent by agent, a uniform legal one."""
    choice_key, noise_key = jax.random.split(key)
    uniform = jax.random.bernoulli(choice_key, epsilon, logits.shape[:1])[:, None]
    scale = jnp.where(uniform, jnp.ones_like(noise_scale), noise_scale)
    return perturbed_argmax(noise_key, jnp.where(uniform, 0, logits), mask, scale)


def reward_mixture(hyper: Hyper, neighbours: np.ndarray | None, agents: int) -> jax.Array:
    """Matrix `[agents, agents]` that turns rewards into what each agent maximises.

    An agent without neighbours gets its own reward in their place.
    """
    own = np.eye(agents, dtype=np.float32)
    nearby = own
    if neighbours is not None and neighbours.shape[1]:
        nearby = np.stack([own[row[row >= 0]].sum(0) for row in neighbours])
        count = nearby.sum(axis=1, keepdims=True)
        nearby = np.where(count > 0, nearby / np.maximum(count, 1), own)
    team, near = hyper.team_reward, hyper.neighbour_reward
    return (1 - team - near) * own + near * nearby + team / agents


def sum_n_steps(transitions: Transition, last: Bool[Array, "time envs"], n_step: int) -> Transition:
    """Replace one-step transitions `[time, envs, ...]` by sums over up to `n_step` rewards.

    A window ends with its episode and with the collected stretch, so windows at the end
    of the stretch are shorter; each transition carries its own discount.
    """
    time = last.shape[0]
    result, running = transitions, ~last
    for ahead in range(1, min(n_step, time)):

        def later(x: jax.Array, ahead: int = ahead) -> jax.Array:
            return jnp.concatenate([x[ahead:], jnp.zeros_like(x[:ahead])])

        inside = running & (jnp.arange(time) < time - ahead)[:, None]
        following = jax.tree.map(later, transitions)

        def extend(old: jax.Array, new: jax.Array, inside: jax.Array = inside) -> jax.Array:
            return jnp.where(inside.reshape(*inside.shape, *(1,) * (old.ndim - 2)), new, old)

        longer = result.replace(
            next_features=following.next_features,
            next_mask=following.next_mask,
            reward=result.reward + result.discount * following.reward,
            weight=result.weight + result.discount,
            discount=result.discount * following.discount,
        )
        result = jax.tree.map(extend, result, longer)
        running = inside & ~later(last)
    return result


def collect(
    env: Env,
    reader: Reader,
    config: MADDPGConfig,
    state: MADDPGState,
    key: jax.Array,
    *,
    policy: Policy,
    epsilon: jax.Array,
    mixture: Float[Array, "agents agents"],
    prior: Callable[..., Float[Array, "agents actions"]] | None,
    shaping: Shaping | None,
    episode_metrics: EpisodeMetrics,
) -> tuple[MADDPGState, Transition, Float[Array, "time envs agents"], dict[str, Metric]]:
    """Take `config.decisions` decisions in every environment.

    Args:
      env: Environment that resets by itself and logs episodes, and takes `Tasks`.
      policy: Logits and mask for one observation.
      mixture: Matrix applied to rewards.

    Returns:
      State with the environments advanced; transitions `[time, envs, ...]`; the mixed
      rewards of single decisions; metrics of the episodes that ended.
    """

    def prior_logits(obs: PyTree) -> jax.Array | None:
        if prior is None:
            return None
        args = (obs,) if state.prior_params is None else (obs, state.prior_params)
        return prior(*args).astype(jnp.float32)

    def signals(obs: PyTree, final_obs: PyTree) -> jax.Array | None:
        if shaping is None:
            return None
        return jnp.stack([shaping.observe(obs), shaping.observe(final_obs)]).astype(jnp.float32)

    def decide(key: jax.Array, env_state: PyTree, obs: PyTree):
        action_key, step_key = jax.random.split(key)
        logits, mask = policy(obs)
        action = explore(action_key, logits, mask, epsilon, state.hyper.noise_scale)
        env_state, timestep = env.step(step_key, env_state, action, state.tasks)
        final_obs = timestep.info["final_obs"]
        transition = Transition(
            features=reader.features(obs),
            next_features=reader.features(final_obs),
            mask=mask,
            next_mask=reader.mask(final_obs),
            action=action,
            reward=mixture @ timestep.reward.astype(jnp.float32),
            weight=jnp.ones((reader.num_agents,), jnp.float32),
            # A time limit says nothing about the value of where it fell: bootstrap there.
            discount=jnp.where(timestep.terminated, 0, state.hyper.gamma),
            prior=prior_logits(obs),
            signals=signals(obs, final_obs),
        )
        ended = {name: x.astype(jnp.float32) for name, x in episode_metrics(timestep.info).items()}
        log = (timestep.info["episode_ended"], ended)
        return env_state, timestep.obs, transition, timestep.last, log

    def advance(carry: tuple[PyTree, PyTree], decision: jax.Array):
        decision_key = jax.random.fold_in(key, decision)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(decision_key, jnp.arange(config.num_envs))
        env_state, obs, transition, last, log = jax.vmap(decide)(keys, *carry)
        return (env_state, obs), (transition, last, log)

    carry, (transitions, last, (ended, values)) = jax.lax.scan(
        advance, (state.env, state.obs), jnp.arange(config.decisions)
    )
    rewards = transitions.reward
    transitions = sum_n_steps(transitions, last, config.n_step)
    weight = jnp.sum(ended, dtype=jnp.float32)
    metrics = {
        # `where` and not a product: a value of a running episode may be NaN.
        name: mean(jnp.sum(jnp.where(ended, value, 0)) / jnp.maximum(weight, 1), weight)
        for name, value in values.items()
    }
    metrics["env_steps"] = total(jnp.asarray(config.decisions * config.num_envs, jnp.int32))
    return state.replace(env=carry[0], obs=carry[1]), transitions, rewards, metrics
