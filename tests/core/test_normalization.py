"""Running statistics, and the wrappers that normalise by them."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core import probes
from jaxlab.core.normalization import RunningMoments
from jaxlab.core.wrappers import (
    AutoReset,
    NormalizeObservation,
    NormalizeReward,
)
from tests.core.rolling import roll

WALK = probes.RandomWalk()
number = st.floats(-100, 100, width=32)
UPDATE = jax.jit(RunningMoments.update)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(number, min_size=2, max_size=2), min_size=1, max_size=20))
def test_running_moments_are_numpy_moments(values):
    values = np.asarray(values, np.float32)
    moments = RunningMoments.zero(jnp.zeros(2, jnp.float32))
    for value in values:
        moments = UPDATE(moments, value)
    np.testing.assert_allclose(moments.mean, values.mean(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(moments.variance, values.var(0), rtol=1e-3, atol=1e-2)
    pooled = jax.vmap(lambda x: RunningMoments.zero(x).update(x, "many"), axis_name="many")(values)
    np.testing.assert_allclose(pooled.mean[0], values.mean(0), rtol=1e-4, atol=1e-3)
    variance = jax.vmap(lambda moments: moments.variance)(pooled)
    np.testing.assert_allclose(variance[-1], values.var(0), rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(pooled.count, len(values))


def test_observations_are_standardised_and_so_is_the_final_one():
    env = NormalizeObservation(AutoReset(WALK))
    params = env.sample_params(jax.random.key(0))
    states, steps = roll(env, params, 300)
    _, raw = roll(env.env, params, 300)
    seen = np.asarray(raw.obs)
    np.testing.assert_allclose(states.moments[0].mean[-1], seen.mean(0), atol=1e-5)
    expected = (seen[-1] - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8)
    np.testing.assert_allclose(steps.obs[-1], expected, rtol=1e-3)
    final = np.asarray(raw.info["final_obs"])[-1]
    expected = (final - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8)
    np.testing.assert_allclose(steps.info["final_obs"][-1], expected, rtol=1e-3)


def test_masks_are_not_normalised_and_frozen_statistics_stay():
    bandit = AutoReset(probes.MaskedBandit())
    params = bandit.sample_params(jax.random.key(0))
    states, steps = roll(NormalizeObservation(bandit), params, 20)
    assert steps.obs["action_mask"].dtype == jnp.bool_
    assert states.moments[0].count[-1] == 21
    frozen = NormalizeObservation(bandit, update=False)
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    after, _ = frozen.step(jax.random.key(5), last, jnp.int32(0), params)
    np.testing.assert_array_equal(after.moments[0].count, last.moments[0].count)


def test_statistics_pool_over_a_named_axis():
    env = NormalizeObservation(AutoReset(WALK), axis_name="envs")
    params = WALK.sample_params(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 8)
    states, _ = jax.vmap(env.reset, (0, None), axis_name="envs")(keys, params)
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None), axis_name="envs"))
    for t in range(5):
        folded = jax.vmap(jax.random.fold_in, (0, None))(keys, t)
        states, _ = step(folded, states, jnp.zeros(8, jnp.int32), params)
    np.testing.assert_array_equal(states.moments[0].count, 48)
    mean = np.asarray(states.moments[0].mean)
    np.testing.assert_array_equal(mean, np.tile(mean[0], (8, 1)))


def test_reward_is_divided_by_the_deviation_of_the_return():
    env = NormalizeReward(AutoReset(probes.CostlyChoice()), gamma=0.9)
    params = env.sample_params(jax.random.key(0))
    states, steps = roll(env, params, 400)
    _, raw = roll(env.env, params, 400)
    # Episodes of one step: the return is the reward.
    deviation = np.asarray(raw.reward)[1:].std()
    np.testing.assert_allclose(states.moments.variance[-1], deviation**2, rtol=1e-4)
    np.testing.assert_allclose(steps.reward[-20:], raw.reward[-20:] / deviation, rtol=0.02)
