"""The rollout: equality with a Python loop, batches, ends of episodes."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.environment import TimeStep
from jaxlab.core.errors import ConfigError
from jaxlab.core.probes import CoordinationGrid
from jaxlab.core.rollout import keep_all, random_policy, rollout

ENV = CoordinationGrid()


@pytest.fixture(scope="module")
def params():
    return ENV.sample_params(jax.random.key(3))


@pytest.fixture(scope="module")
def act(params):
    return random_policy(ENV, params)


def test_rollout_equals_a_python_loop(params, act):
    key = jax.random.key(0)
    result = rollout(ENV, act, None, key, params, steps=5, keep=keep_all)
    key = jax.random.fold_in(key, 0)
    state, timestep = ENV.reset(jax.random.fold_in(key, 0), params)
    for t in range(1, 6):
        act_key, env_key = jax.random.split(jax.random.fold_in(key, t))
        action = act(None, timestep.obs, act_key)
        chex.assert_trees_all_equal(result.kept.action[t - 1], action)
        state, timestep = ENV.step(env_key, state, action, params)
        chex.assert_trees_all_close(result.kept.timestep.reward[t - 1], timestep.reward)
    chex.assert_trees_all_close(result.state, state)
    assert isinstance(result.timestep, TimeStep)


def test_an_environment_has_the_same_bits_in_any_batch(params, act):
    key = jax.random.key(1)
    small = rollout(ENV, act, None, key, params, steps=4, num_envs=2, keep=keep_all)
    large = rollout(ENV, act, None, key, params, steps=4, num_envs=5, keep=keep_all)
    chex.assert_trees_all_equal(small.kept.action, large.kept.action[:2])
    chex.assert_trees_all_equal(small.length, large.length[:2])
    assert not np.array_equal(large.kept.action[0], large.kept.action[1])


def test_steps_after_the_end_are_not_valid(params):
    goals, starts = params.goals, params.starts

    def stay_or_go(policy, obs, key):
        return jnp.zeros((2,), jnp.int32)

    there = params.replace(starts=goals)
    result = rollout(ENV, stay_or_go, None, jax.random.key(0), there, steps=3)
    assert starts.shape == goals.shape
    valid = np.asarray(result.kept["valid"])
    over = np.asarray(result.kept["terminated"]).all(-1)
    for t in range(1, 3):
        assert valid[t] == (not over[:t].any())
    assert int(result.length) == valid.sum()


def test_the_policy_state_reaches_the_policy(params):
    def follow(policy, obs, key):
        return policy

    wanted = jnp.array([1, 2], jnp.int32)
    result = rollout(ENV, follow, wanted, jax.random.key(0), params, steps=2, keep=keep_all)
    np.testing.assert_array_equal(result.kept.action, [[1, 2], [1, 2]])


def test_one_trace_for_all_policies_of_a_shape(params):
    @chex.assert_max_traces(n=1)
    def follow(policy, obs, key):
        return policy

    for number in range(3):
        wanted = jnp.full((2,), number, jnp.int32)
        rollout(ENV, follow, wanted, jax.random.key(number), params, steps=2)


@pytest.mark.parametrize("arguments", [{"steps": 0}, {"steps": 1, "num_envs": 0}])
def test_empty_rollouts_are_refused(params, act, arguments):
    with pytest.raises(ConfigError, match="at least 1"):
        rollout(ENV, act, None, jax.random.key(0), params, **arguments)
