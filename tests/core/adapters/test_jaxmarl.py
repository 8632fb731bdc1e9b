"""The JaxMARL view: its interface, its wrappers, and a learner of a JaxMARL checkout."""

import importlib.util
import os
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxmarl.environments import spaces
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper

from jaxlab.core import probes
from jaxlab.core.adapters import to_jaxmarl
from jaxlab.core.environment import Env
from jaxlab.core.errors import ConfigError
from jaxlab.core.wrappers import TimeLimit, Wrapper, stack_tasks

KEY = jax.random.PRNGKey(0)
GRID = probes.CoordinationGrid()


class Masked(Wrapper):
    """Gives observations a mask: agent i may not take action i. Info of three shapes."""

    def reset(self, key, params):
        state, timestep = self.env.reset(key, params)
        return state, self._masked(timestep)

    def step(self, key, state, action, params):
        state, timestep = self.env.step(key, state, action, params)
        return state, self._masked(timestep)

    def _masked(self, timestep):
        mask = jnp.arange(5) != jnp.arange(self.num_agents)[:, None]
        info = {"one": jnp.ones(()), "each": jnp.arange(2.0), "wide": jnp.ones((2, 7))}
        return timestep.replace(
            obs={"features": timestep.obs, "action_mask": mask}, info=dict(timestep.info) | info
        )

    def observation_space(self, params):
        mask = probes.Box(0, 1, (2, 5), "bool")
        features = self.env.observation_space(params)
        return probes.Tree({"action_mask": mask, "features": features})


def sampled(env, key):
    keys = jax.random.split(key, env.num_agents)
    return {a: env.action_space(a).sample(k) for a, k in zip(env.agents, keys, strict=True)}


@pytest.mark.parametrize(
    "inner",
    [
        GRID,
        TimeLimit(GRID, 3),
        probes.MatrixGame(),
        Masked(GRID),
        probes.CoordinationGrid(size=2, agents=1),
    ],
    ids=lambda env: f"{type(env).__name__}-{env.num_agents}",
)
def test_interface(inner):
    env = to_jaxmarl(inner)
    assert isinstance(env, MultiAgentEnv)
    assert env.agents == [f"agent_{i}" for i in range(inner.num_agents)]
    obs, state = jax.jit(env.reset)(KEY)
    step = jax.jit(env.step)
    for t in range(8):
        key = jax.random.fold_in(KEY, t)
        legal = env.get_avail_actions(state)
        new_obs, state, rewards, dones, info = step(key, state, sampled(env, key))
        assert set(obs) == set(new_obs) == set(rewards) == set(legal) == set(env.agents)
        assert set(dones) == {*env.agents, "__all__"}
        for agent in env.agents:
            space = env.observation_space(agent)
            assert isinstance(space, spaces.Box)
            assert new_obs[agent].shape == obs[agent].shape == space.shape
            assert bool(space.contains(new_obs[agent]))
            assert rewards[agent].shape == dones[agent].shape == ()
            assert dones[agent].dtype == jnp.bool_
            assert legal[agent].shape == (env.action_space(agent).n,)
        np.testing.assert_array_equal(
            jnp.stack(list(env.get_obs(state).values())), jnp.stack(list(new_obs.values()))
        )
        assert all(value.shape == (env.num_agents,) for value in info.values())
        obs = new_obs
    assert env.agent_classes == {"agent": env.agents}


def test_masks_and_info_reach_the_agents():
    env = to_jaxmarl(Masked(GRID))
    obs, state = env.reset(KEY)
    legal = env.get_avail_actions(state)
    np.testing.assert_array_equal(legal["agent_1"], [1, 0, 1, 1, 1])
    np.testing.assert_array_equal(obs["agent_1"][:5], legal["agent_1"])
    *_, info = env.step(KEY, state, sampled(env, KEY))
    assert sorted(info) == ["each", "one"]
    np.testing.assert_array_equal(info["each"], [0, 1])


def test_an_episode_that_ends_begins_anew():
    env = to_jaxmarl(TimeLimit(GRID, 2))
    first, state = env.reset(KEY)
    stay = {agent: jnp.int32(0) for agent in env.agents}
    move = {agent: jnp.int32(2) for agent in env.agents}
    obs, state, _, dones, _ = env.step(KEY, state, move)
    assert not dones["__all__"]
    given = state
    obs, state, _, dones, _ = env.step(KEY, state, stay)
    assert all(bool(done) for done in dones.values())
    np.testing.assert_array_equal(obs["agent_0"], first["agent_0"])
    # Into a state of the caller's choice, if one is given.
    obs, *_ = env.step(KEY, given, stay, given)
    np.testing.assert_array_equal(obs["agent_0"], env.get_obs(given)["agent_0"])


def test_tasks_are_drawn_per_episode():
    game = probes.MatrixGame()
    payoff = [probes.MatrixGameParams(jnp.full((3, 3), x)) for x in (1.0, 2.0)]
    env = to_jaxmarl(game, stack_tasks(payoff))
    paid = []
    step = jax.jit(env.step)
    _, state = env.reset(KEY)
    for t in range(20):
        _, state, rewards, _, _ = step(jax.random.fold_in(KEY, t), state, sampled(env, KEY))
        paid.append(float(rewards["agent_0"]))
    assert set(paid) == {1.0, 2.0}


def test_log_wrapper_logs_returns():
    env = LogWrapper(to_jaxmarl(TimeLimit(GRID, 3)))
    keys = jax.random.split(KEY, 4)
    _, state = jax.vmap(env.reset)(keys)
    stay = {agent: jnp.zeros(4, jnp.int32) for agent in env.agents}
    for _ in range(3):
        *_, info = out = jax.vmap(env.step)(keys, state, stay)
        state = out[1]
    assert info["returned_episode"].all()
    np.testing.assert_allclose(info["returned_episode_returns"], -0.3 * np.ones((4, 2)), rtol=1e-6)
    np.testing.assert_array_equal(info["returned_episode_lengths"], 3 * np.ones((4, 2)))


def test_rollout_manager_of_the_value_learners():
    env = CTRolloutManager(to_jaxmarl(TimeLimit(GRID, 3)), batch_size=4)
    obs, state = env.batch_reset(KEY)
    for t in range(4):
        key = jax.random.fold_in(KEY, t)
        actions = {a: env.batch_sample(key, a) for a in env.agents}
        obs, state, rewards, dones, _ = env.batch_step(key, state, actions)
        np.testing.assert_allclose(
            rewards["__all__"], rewards["agent_0"] + rewards["agent_1"], rtol=1e-6
        )
        np.testing.assert_array_equal(dones["__all__"], np.full(4, t == 2))
    assert obs["agent_0"].shape == (4, 10 + 2)
    assert obs["__all__"].shape == (4, 20)


def test_an_agent_axis_is_needed():
    with pytest.raises(ConfigError, match="random_walk has no agent axis"):
        to_jaxmarl(probes.RandomWalk())


CHECKOUT = os.environ.get("JAXMARL_CHECKOUT")


def learner_of(checkout: str, monkeypatch, env: Env) -> types.ModuleType:
    """JaxMARL's feed-forward independent PPO, as it stands in a checkout, on `env`.

    Its learners are scripts outside the package that log to and are configured by
    services this test does without: empty modules take their place.
    """
    quiet = {
        "wandb": {"log": lambda metric: None},
        "hydra": {"main": lambda **options: lambda function: function},
        "omegaconf": {"OmegaConf": None},
    }
    for name, members in quiet.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("jaxmarl.make", lambda name, **options: env)
    path = Path(checkout) / "baselines" / "IPPO" / "ippo_ff_mpe.py"
    spec = importlib.util.spec_from_file_location("ippo_ff_mpe", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.skipif(
    CHECKOUT is None,
    reason="JaxMARL's learners are not in its package: JAXMARL_CHECKOUT names no checkout",
)
def test_independent_ppo_of_a_jaxmarl_checkout_learns(monkeypatch):
    params = GRID.sample_params(jax.random.key(4))
    env = to_jaxmarl(TimeLimit(GRID, 12), params)
    config = {
        "ENV_NAME": "", "ENV_KWARGS": {}, "LR": 2.5e-3, "ANNEAL_LR": True, "GAMMA": 0.99,
        "NUM_ENVS": 16, "NUM_STEPS": 32, "TOTAL_TIMESTEPS": 50_000, "UPDATE_EPOCHS": 4,
        "NUM_MINIBATCHES": 4, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01,
        "VF_COEF": 0.5, "MAX_GRAD_NORM": 0.5, "ACTIVATION": "tanh",
    }  # fmt: skip
    script = learner_of(CHECKOUT, monkeypatch, env)
    metrics = jax.jit(script.make_train(config))(KEY)["metrics"]
    # The script counts each reward once per agent.
    returns = metrics["returned_episode_returns"] / env.num_agents
    assert returns[:3].mean() < 0
    assert returns[-1] > GRID.optimal_return(params) - 0.1
