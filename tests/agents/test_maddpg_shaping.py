"""Rewards that are added at replay: exact values, and old transitions under a new reward."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import maddpg
from jaxlab.agents.maddpg.config import Hyper
from jaxlab.core.errors import ConfigError
from jaxlab.core.wrappers import TimeLimit
from tests.agents.test_maddpg import SMALL, Dial

#: Weight of what is before and after a decision.
Weights = tuple[float, float]


def difference(before, after, params):
    """A weighted difference of the first signal, `[agents]`."""
    return params[1] * after[:, 0] - params[0] * before[:, 0]


@functools.cache
def shaped():
    learner = maddpg.make(
        TimeLimit(Dial(), 5),
        SMALL,
        shaping=maddpg.Shaping(maddpg.flatten_observation, difference),
        shaping_params=jnp.zeros(2, jnp.float32),
    )
    state = jax.jit(learner.init)(jax.random.key(0), Hyper(team_reward=0.5))
    step = jax.jit(learner.step)
    for t in range(4):
        state, _ = step(state, jnp.int32(t))
    assert step._cache_size() == 1
    return learner, state


def drawn(state, weights: Weights):
    """A batch drawn from the replay under given weights, and the transitions themselves."""
    agent = shaped()[0].step.__self__
    state = state.replace(shaping_params=jnp.array(weights, jnp.float32))
    key = jax.random.key(7)
    return agent._sample(state, key), agent.replay.sample(state.replay, key).experience


@pytest.mark.parametrize("weights", [(0.0, 0.0), (1.0, 0.0), (0.5, 2.0)])
def test_replayed_rewards_hold_what_the_shaping_of_today_adds(weights):
    _, state = shaped()
    batch, raw = drawn(state, weights)
    # Features are what `flatten_observation` gives, so they are the signals as well.
    before, after = np.asarray(raw.features)[..., 0], np.asarray(raw.next_features)[..., 0]
    np.testing.assert_array_equal(raw.signals[:, 0, :, 0], before)
    np.testing.assert_array_equal(raw.signals[:, 1, :, 0], after)
    added = weights[1] * after - weights[0] * before
    # Half of what an agent gets is the mean over both agents.
    mixed = 0.5 * added + 0.5 * added.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.asarray(state.reward_moments.variance) + 1e-4)
    expected = (np.asarray(raw.reward) + mixed) / deviation
    np.testing.assert_allclose(batch.reward, expected.T, rtol=1e-4, atol=1e-4)
    assert np.ptp(added) > 0 or not any(weights)


def test_the_moments_and_the_replay_know_the_environments_reward_alone():
    learner, state = shaped()
    state = state.replace(shaping_params=jnp.array([100.0, -100.0], jnp.float32))
    after, _ = jax.jit(learner.step)(state, jnp.int32(4))
    plain, _ = jax.jit(learner.step)(shaped()[1], jnp.int32(4))
    np.testing.assert_array_equal(after.reward_moments.variance, plain.reward_moments.variance)
    np.testing.assert_array_equal(after.replay.experience.reward, plain.replay.experience.reward)
    same = jax.tree.map(
        lambda a, b: bool(jnp.array_equal(a, b)), after.networks.critic, plain.networks.critic
    )
    assert not all(jax.tree.leaves(same))


def test_sums_over_several_decisions_are_refused():
    with pytest.raises(ConfigError, match="n_step is 3"):
        maddpg.make(
            TimeLimit(Dial(), 5),
            dataclasses.replace(SMALL, n_step=3),
            shaping=maddpg.Shaping(maddpg.flatten_observation, difference),
        )
