"""The gymnax view: both forms of step, foreign wrappers, a foreign learner."""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rejax
from gymnax.environments import spaces
from gymnax.environments.environment import Environment
from gymnax.wrappers.purerl import LogWrapper

from jaxlab.core import probes
from jaxlab.core.adapters import to_gymnax
from jaxlab.core.errors import ConfigError
from jaxlab.core.wrappers import TimeLimit, stack_tasks

KEY = jax.random.PRNGKey(0)
GRID = probes.CoordinationGrid()


def test_six_values_tell_termination_from_truncation():
    env = to_gymnax(probes.RandomWalk(), max_steps=3)
    params = env.default_params
    obs, state = env.reset(KEY, params)
    assert isinstance(env, Environment)
    assert env.name == "random_walk"
    step = jax.jit(env.step)
    seen = []
    for t in range(60):
        obs, state, reward, terminated, truncated, info = step(
            jax.random.fold_in(KEY, t), state, 0, params
        )
        seen.append((bool(terminated), bool(truncated), float(reward)))
        final = info["final_observation"]
        if terminated or truncated:
            np.testing.assert_array_equal(obs, np.eye(5)[2])
            assert (final.sum() == 0) == bool(terminated)
        else:
            np.testing.assert_array_equal(obs, final)
    assert any(terminated for terminated, _, _ in seen)
    assert any(truncated and not terminated for terminated, truncated, _ in seen)


def test_five_values_give_done_and_the_discount():
    env = to_gymnax(probes.RandomWalk(), legacy=True, max_steps=3)
    _, state = env.reset(KEY)
    discounts = {}
    for t in range(60):
        _, state, _, done, info = env.step(jax.random.fold_in(KEY, t), state, 1)
        discounts.setdefault(bool(done), set()).add(float(info["discount"]))
    assert discounts == {False: {1.0}, True: {0.0, 1.0}}


def test_raw_and_typed_keys_give_the_same():
    env = to_gymnax(probes.ObservationReward())
    for number in range(4):
        raw, _ = env.reset(jax.random.PRNGKey(number))
        typed, _ = env.reset(jax.random.key(number))
        np.testing.assert_array_equal(raw, typed)


def test_time_limits_and_tasks_are_params_to_vary():
    bandit = probes.Bandit()
    tasks = stack_tasks([probes.BanditParams(jnp.full((3,), x)) for x in (1.0, 2.0)], [0.0, 1.0])
    env = to_gymnax(bandit, tasks)
    _, state = env.reset(KEY)
    _, _, reward, terminated, _, _ = env.step(KEY, state, 0)
    assert reward == 2
    assert terminated

    walk = to_gymnax(GRID)
    params = walk.default_params
    limits = jax.vmap(lambda n: params.replace(max_steps_in_episode=n))(jnp.arange(1, 4))
    _, states = jax.vmap(walk.reset, (None, 0))(KEY, limits)
    actions = jnp.zeros(3, jnp.int32)
    *_, truncated, _ = jax.vmap(walk.step, (None, 0, 0, 0))(KEY, states, actions, limits)
    np.testing.assert_array_equal(truncated, [True, False, False])


def test_spaces_follow_gymnax():
    flat = to_gymnax(probes.MaskedBandit())
    space = flat.observation_space(flat.default_params)
    assert isinstance(space, spaces.Box)
    assert space.shape == (4,)
    tree = to_gymnax(probes.MaskedBandit(), flatten=False)
    assert isinstance(tree.observation_space(tree.default_params), spaces.Dict)
    obs, _ = tree.reset(KEY)
    assert sorted(obs) == ["action_mask", "bias"]
    assert obs["action_mask"].dtype == jnp.bool_
    assert flat.num_actions == flat.action_space().n == 3
    turns = to_gymnax(GRID)
    assert turns.num_actions == 5
    assert turns.observation_space(turns.default_params).shape == (10,)


def test_views_built_alike_share_a_compilation():
    params = GRID.sample_params(jax.random.key(0))
    first, second = to_gymnax(GRID, params), to_gymnax(probes.CoordinationGrid(), params)
    assert first == second
    assert hash(first) == hash(second)
    assert first != to_gymnax(GRID, params, legacy=True)
    assert first != to_gymnax(GRID, GRID.sample_params(jax.random.key(0)))


def test_costs_are_in_info():
    env = to_gymnax(probes.CostlyChoice())
    _, state = env.reset(KEY)
    *_, info = env.step(KEY, state, 1)
    np.testing.assert_array_equal(info["cost"], [1])


def test_log_wrapper_of_gymnax_logs_our_episodes():
    five_values = version("gymnax").startswith("0.")
    env = LogWrapper(to_gymnax(TimeLimit(GRID, 3), legacy=five_values))
    _, state = env.reset(KEY, env.default_params)
    for t in range(6):
        *_, info = out = env.step(jax.random.fold_in(KEY, t), state, 0, env.default_params)
        state = out[1]
    # Two agents take turns: three steps are six turns, and each step costs both 0.1.
    assert info["returned_episode"]
    assert info["returned_episode_lengths"] == 6
    np.testing.assert_allclose(info["returned_episode_returns"], -0.6, rtol=1e-6)


def returns_after_ppo(env, **options):
    """Mean return at each evaluation of rejax's PPO."""
    settings = {"num_envs": 16, "num_steps": 16, "num_minibatches": 4, "num_epochs": 4}
    ppo = rejax.PPO.create(
        env=env, env_params=env.default_params, **{"learning_rate": 3e-3} | settings | options
    )
    _, (_, returns) = jax.jit(ppo.train)(KEY)
    return returns.mean(-1)


def test_rejax_learns_our_single_agent_environment():
    env = to_gymnax(probes.MatchObservation(), legacy=True)
    returns = returns_after_ppo(env, total_timesteps=8192, eval_freq=4096)
    assert returns[0] < 0.5
    np.testing.assert_allclose(returns[-1], 1.0, atol=0.05)


def test_rejax_learns_our_agents_in_turns():
    params = GRID.sample_params(jax.random.key(4))
    env = to_gymnax(TimeLimit(GRID, 12), params, legacy=True)
    returns = returns_after_ppo(
        env,
        total_timesteps=2**16,
        eval_freq=2**15,
        gamma=0.97,
        learning_rate=1e-3,
        ent_coef=0.03,
        num_steps=64,
    )
    best = 2 * GRID.optimal_return(params)
    assert returns[0] < 0
    assert returns[-1] > best - 0.2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: to_gymnax(GRID, agents="batch"), "'batch', must be 'joint' or 'turns'"),
        (lambda: to_gymnax(GRID, agents="joint"), "no counterpart among gymnax's spaces"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
