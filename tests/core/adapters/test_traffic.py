"""Every adapter on signal control: many agents, padded observations, action masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rejax
from gymnasium.utils.env_checker import check_env as check_gymnasium
from jumanji.testing.env_not_smoke import check_env_does_not_smoke
from pettingzoo.test import parallel_api_test
from rejax.evaluate import evaluate

from jaxlab.core import adapters
from jaxlab.core.wrappers import TimeLimit
from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.trips import draw_demand

DECISIONS = 20
KEY = jax.random.PRNGKey(0)


@functools.cache
def signal_control():
    """Two junctions, three minutes of dense demand, a decision each ten seconds."""
    net = grid_roadnet(1, 2, row_distance=150.0, column_distance=100.0)
    flow = draw_demand(net, 0, trips=150, duration=180)
    env = make_environment(net, flow, duration=10.0 * DECISIONS)
    return TimeLimit(env, DECISIONS), env.nominal_params()


def test_checker_of_jumanji_passes():
    check_env_does_not_smoke(adapters.to_jumanji(*signal_control()))


@pytest.mark.filterwarnings(
    "ignore:.*maximum value is infinity:UserWarning",
    "ignore:.*Not able to test alternative render modes:UserWarning",
)
def test_checker_of_gymnasium_passes():
    check_gymnasium(adapters.to_gymnasium(*signal_control()))


def test_checker_of_pettingzoo_passes():
    parallel_api_test(adapters.to_pettingzoo(*signal_control()), num_cycles=DECISIONS)


def test_vector_of_gymnasium_steps():
    env, params = signal_control()
    vector = adapters.to_gymnasium_vector(env, 3, params)
    obs, _ = vector.reset(seed=0)
    assert obs["action_mask"].shape == (3, 2, 8)
    for _ in range(3):
        obs, reward, *_ = vector.step(vector.action_space.sample())
        assert vector.observation_space.contains(obs)
    assert (reward <= 0).all()


def test_jaxmarl_sees_flat_observations_and_masks():
    env = adapters.to_jaxmarl(*signal_control())
    obs, state = jax.jit(env.reset)(KEY)
    legal = env.get_avail_actions(state)["agent_1"]
    actions = {agent: jnp.argmax(legal).astype(jnp.int32) for agent in env.agents}
    _, _, rewards, dones, info = jax.jit(env.step)(KEY, state, actions)
    assert obs["agent_0"].ndim == 1
    assert legal.shape == (env.action_space("agent_1").n,)
    assert sorted(rewards) == env.agents
    assert not dones["__all__"]
    assert info["average_travel_time"].shape == (2,)


# The foreign learner runs on probes in test_gymnax.py, quickly.
@pytest.mark.slow
def test_rejax_shortens_queues():
    env = adapters.to_gymnax(*signal_control(), legacy=True)

    def callback(ppo, state, key):
        act = ppo.make_act(state)
        return evaluate(act, key, env, env.default_params, 16, 2 * DECISIONS)

    ppo = rejax.PPO.create(
        env=env,
        env_params=env.default_params,
        num_envs=16,
        num_steps=4 * DECISIONS,
        num_minibatches=4,
        num_epochs=4,
        learning_rate=3e-3,
        gamma=0.98,
        normalize_observations=True,
        normalize_rewards=True,
        total_timesteps=30 * 16 * 4 * DECISIONS,
        eval_freq=30 * 16 * 4 * DECISIONS,
    ).replace(eval_callback=callback)
    _, (lengths, returns) = jax.jit(ppo.train)(KEY)
    np.testing.assert_array_equal(lengths, 2 * DECISIONS)
    # A policy that does not learn stays within a tenth of where it began.
    before, after = returns.mean(-1)
    assert after > 0.8 * before
