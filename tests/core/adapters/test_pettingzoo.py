"""The PettingZoo view, held to PettingZoo's checker."""

import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo import ParallelEnv
from pettingzoo.test import parallel_api_test, parallel_seed_test

from jaxlab.core import probes
from jaxlab.core.adapters import to_pettingzoo
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Tree
from jaxlab.core.wrappers import TimeLimit, Wrapper

GRID = probes.CoordinationGrid()


class Leaving(Wrapper):
    """Agent i leaves after step i + 1; everyone is told the step and its own number."""

    def reset(self, key, params):
        state, timestep = self.env.reset(key, params)
        return (state, jnp.zeros((), jnp.int32)), self._told(timestep, jnp.zeros((), jnp.int32))

    def step(self, key, state, action, params):
        inner, t = state
        inner, timestep = self.env.step(key, inner, action, params)
        t = jnp.minimum(t + 1, 9)
        return (inner, t), self._told(timestep, t)

    def _told(self, timestep, t):
        number = jnp.arange(self.num_agents)
        mask = jnp.ones((self.num_agents, 5), bool).at[:, 4].set(False)
        return timestep.replace(
            obs={"where": timestep.obs, "action_mask": mask},
            terminated=t > number,
            info={"step": t, "number": number},
        )

    def observation_space(self, params):
        mask = Box(0, 1, (self.num_agents, 5), "bool")
        return Tree({"where": self.env.observation_space(params), "action_mask": mask})


@pytest.mark.parametrize(
    "inner",
    [
        TimeLimit(GRID, 6),
        probes.MatrixGame(),
        Leaving(probes.CoordinationGrid(agents=3)),
        TimeLimit(probes.CoordinationGrid(size=2, agents=1), 5),
    ],
    ids=["grid", "game", "leaving", "alone"],
)
def test_checker_of_pettingzoo_passes(inner):
    env = to_pettingzoo(inner)
    assert isinstance(env, ParallelEnv)
    parallel_api_test(env, num_cycles=20)


def test_seeds_of_pettingzoo_repeat():
    parallel_seed_test(lambda: to_pettingzoo(TimeLimit(GRID, 6)), num_cycles=20)


def test_agents_leave_when_terminated():
    env = to_pettingzoo(Leaving(probes.CoordinationGrid(agents=3)))
    obs, infos = env.reset(seed=0)
    assert obs["agent_2"]["action_mask"].dtype == np.int8
    assert infos["agent_2"] == {"step": 0, "number": 2}
    for left in (2, 1, 0):
        acting = env.agents
        obs, rewards, terminations, truncations, _ = env.step(dict.fromkeys(acting, 0))
        assert set(obs) == set(rewards) == set(terminations) == set(truncations) == set(acting)
        assert env.agents == [f"agent_{i}" for i in range(3 - left, 3)]


def test_rewards_are_those_of_the_joint_action():
    env = to_pettingzoo(probes.MatrixGame())
    env.reset(seed=0)
    _, rewards, terminations, _, _ = env.step({"agent_0": 1, "agent_1": 2})
    assert rewards == {"agent_0": 6.0, "agent_1": 6.0}
    assert terminations == {"agent_0": True, "agent_1": True}
    assert env.agents == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: to_pettingzoo(probes.RandomWalk()), "random_walk has no agent axis"),
        (lambda: to_pettingzoo(GRID, render_mode="human"), "must be None or 'rgb_array'"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
