"""The one rollout: an environment and a policy under `lax.scan`, batched by `vmap`.

Calling `env.step` from Python pays the launch of a program for every step; `rollout`
compiles the whole episode, and thousands of copies of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.errors import ConfigError

PyTree = Any

#: `(policy state, observation, key) -> action`, the form of `Learner.act`.
Act = Callable[[PyTree, PyTree, jax.Array], PyTree]


@struct.dataclass
class Transition:
    """One step of an environment.

    Attributes:
      state: State before the step.
      obs: Observation before the step.
      action: Action taken.
      timestep: What the step returned; `timestep.obs` is the next observation.
      valid: False once the episode was over before the step, `[]`, bool.
    """

    state: PyTree
    obs: PyTree
    action: PyTree
    timestep: TimeStep
    valid: Bool[Array, "*batch"]


@struct.dataclass
class Rollout:
    """What a rollout leaves; batched rollouts have a leading axis `[num_envs]`.

    Attributes:
      state: State after the last step.
      timestep: Time step after the last step.
      length: Steps until the episode was over, or all, `[]`, int32.
      kept: What `keep` made of every transition, stacked `[steps, ...]`.
    """

    state: PyTree
    timestep: TimeStep
    length: Int[Array, "*batch"]
    kept: PyTree


def keep_outcome(transition: Transition) -> PyTree:
    """Keep reward, cost and the flags of each step, not the states and observations."""
    timestep = transition.timestep
    return {
        "reward": timestep.reward,
        "cost": timestep.cost,
        "terminated": timestep.terminated,
        "truncated": timestep.truncated,
        "valid": transition.valid,
    }


def keep_all(transition: Transition) -> Transition:
    """Keep every transition whole."""
    return transition


@functools.partial(jax.jit, static_argnames=("env", "act", "steps", "num_envs", "keep"))
def rollout(
    env: Env,
    act: Act,
    policy: PyTree,
    key: jax.Array,
    params: PyTree,
    *,
    steps: int,
    num_envs: int | None = None,
    keep: Callable[[Transition], PyTree] = keep_outcome,
) -> Rollout:
    """Run an environment under a policy, compiled as a whole.

    Random numbers are counters: environment `i` at step `t` has the same bits whatever
    the batch. An episode that ends stays ended (`valid` is False from there on) unless
    the environment resets itself.

    Args:
      env: The environment (static).
      act: The policy, `(policy, obs, key) -> action` (static: pass the same function
        again, or each new one compiles anew).
      policy: State of the policy, any pytree.
      key: Typed key.
      params: The task of the environment.
      steps: Steps to take.
      num_envs: Copies of the environment under the same task; None runs one, without a
        batch axis. For different tasks vmap this function.
      keep: What to stack of each transition (static).

    Raises:
      ConfigError: `steps` or `num_envs` is below one.
    """
    if steps < 1:
        raise ConfigError(f"steps = {steps}: expected at least 1")
    if num_envs is not None and num_envs < 1:
        raise ConfigError(f"num_envs = {num_envs}: expected at least 1")

    def one(env_id: jax.Array) -> Rollout:
        return _episode(env, act, policy, jax.random.fold_in(key, env_id), params, steps, keep)

    if num_envs is None:
        return one(jnp.uint32(0))
    return jax.vmap(one)(jnp.arange(num_envs, dtype=jnp.uint32))


def _episode(
    env: Env,
    act: Act,
    policy: PyTree,
    key: jax.Array,
    params: PyTree,
    steps: int,
    keep: Callable[[Transition], PyTree],
) -> Rollout:
    def step(carry: PyTree, t: jax.Array) -> tuple[PyTree, PyTree]:
        state, timestep, over, length = carry
        act_key, env_key = jax.random.split(jax.random.fold_in(key, t))
        action = act(policy, timestep.obs, act_key)
        new_state, new_timestep = env.step(env_key, state, action, params)
        transition = Transition(state, timestep.obs, action, new_timestep, ~over)
        length = length + (~over).astype(jnp.int32)
        return (new_state, new_timestep, over | new_timestep.last, length), keep(transition)

    # Counter 0 is the reset's.
    state, timestep = env.reset(jax.random.fold_in(key, 0), params)
    carry = (state, timestep, timestep.last, jnp.int32(0))
    (state, timestep, _, length), kept = jax.lax.scan(
        step, carry, jnp.arange(1, steps + 1, dtype=jnp.uint32)
    )
    return Rollout(state, timestep, length, kept)


def random_policy(env: Env, params: PyTree) -> Act:
    """A policy that draws from the action space and ignores its state."""
    space = env.action_space(params)

    def act(policy: PyTree, obs: PyTree, key: jax.Array) -> PyTree:
        return space.sample(key)

    return act
