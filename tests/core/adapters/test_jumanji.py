"""The Jumanji view and its inverse, held to Jumanji's checks and to ours."""

import functools

import jax
import jax.numpy as jnp
import jumanji
import numpy as np
import pytest
from jumanji import specs
from jumanji.testing.env_not_smoke import (
    check_env_does_not_smoke,
    check_env_specs_does_not_smoke,
)
from jumanji.testing.fakes import FakeEnvironment, FakeMultiEnvironment
from jumanji.types import StepType
from jumanji.wrappers import VmapAutoResetWrapper

from jaxlab.core import probes
from jaxlab.core.adapters import from_jumanji, to_jumanji
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Tree
from jaxlab.core.testing import check_env
from jaxlab.core.wrappers import AutoReset, TimeLimit, stack_tasks

GRID = probes.CoordinationGrid()
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    "inner",
    [probes.RandomWalk(), probes.MaskedBandit(), probes.CostlyChoice(), TimeLimit(GRID, 9)],
    ids=lambda env: env.name,
)
def test_checks_of_jumanji_pass(inner):
    env = to_jumanji(inner)
    check_env_specs_does_not_smoke(env)
    check_env_does_not_smoke(env)
    reward = jax.eval_shape(env.reset, KEY)[1].reward
    assert env.reward_spec.shape == env.discount_spec.shape == reward.shape


def test_observations_that_are_trees_become_named_tuples():
    env = to_jumanji(probes.MaskedBandit())
    _, timestep = env.reset(jax.random.PRNGKey(3))
    assert timestep.observation._fields == ("action_mask", "bias")
    env.observation_spec.validate(timestep.observation)
    assert isinstance(env.action_spec, specs.DiscreteArray)
    assert isinstance(to_jumanji(GRID).action_spec, specs.MultiDiscreteArray)


def test_discount_tells_termination_from_truncation():
    env = to_jumanji(TimeLimit(probes.RandomWalk(), 4))
    step = jax.jit(env.step)
    ends = set()
    for seed in range(12):
        state, timestep = env.reset(jax.random.PRNGKey(seed))
        assert timestep.step_type == StepType.FIRST
        while not timestep.last():
            state, timestep = step(state, jnp.int32(0))
        ends.add(float(timestep.discount))
        assert (timestep.discount == 0) == (timestep.observation.sum() == 0)
    assert ends == {0.0, 1.0}


def test_tasks_are_drawn_at_reset():
    tasks = stack_tasks([probes.BanditParams(jnp.full((3,), x)) for x in (1.0, 2.0)])
    env = to_jumanji(probes.Bandit(), tasks)

    @jax.jit
    def paid(key):
        state, _ = env.reset(key)
        return env.step(state, jnp.int32(0))[1].reward

    assert {float(paid(jax.random.PRNGKey(seed))) for seed in range(10)} == {1.0, 2.0}


def test_automatic_reset_of_jumanji_runs_our_batch():
    env = VmapAutoResetWrapper(to_jumanji(TimeLimit(GRID, 3)))
    state, _ = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), 5))
    step = jax.jit(env.step)
    for t in range(1, 7):
        state, timestep = step(state, jnp.zeros((5, 2), jnp.int32))
        np.testing.assert_array_equal(timestep.last(), np.full(5, t % 3 == 0))
        np.testing.assert_array_equal(timestep.discount, np.ones((5, 2)))


@functools.cache
def minesweeper():
    return jumanji.make("Minesweeper-v0")


def few_agents():
    return FakeMultiEnvironment(num_agents=2, observation_shape=(2, 3), num_action_values=4)


@pytest.mark.parametrize(
    ("make", "agents"),
    [(FakeEnvironment, None), (few_agents, 2), (minesweeper, None)],
    ids=["single", "several", "joint mask"],
)
def test_jumanji_environments_conform(make, agents):
    env = from_jumanji(make())
    assert env.num_agents == agents
    report = check_env(env, steps=40, batch=2, batch_steps=2, eager_steps=1)
    assert report.episodes["float32"] > 0


def test_spaces_of_jumanji_environments():
    snake = from_jumanji(jumanji.make("Snake-v1", num_rows=4, num_cols=4))
    params = snake.sample_params(KEY)
    assert snake.action_space(params) == Discrete(4)
    observed = snake.observation_space(params)
    assert isinstance(observed, Tree)
    assert observed["action_mask"] == Box(0, 1, (4,), "bool")
    assert observed["grid"].shape == (4, 4, 5)
    mines = from_jumanji(minesweeper())
    assert mines.action_space(params) == Discrete(100)
    assert mines.observation_space(params)["action_mask"].shape == (100,)


def test_joint_actions_are_the_products():
    ours, theirs = from_jumanji(minesweeper()), minesweeper()
    state, _ = ours.reset(KEY, ours.sample_params(KEY))
    inner, _ = theirs.reset(KEY)
    _, timestep = ours.step(KEY, state, jnp.int32(37), ours.sample_params(KEY))
    _, expected = theirs.step(inner, jnp.array([3, 7], jnp.int32))
    np.testing.assert_array_equal(timestep.obs["board"], expected.observation.board)
    assert not timestep.obs["action_mask"][37]


def test_there_and_back_again_is_the_same_environment():
    params = GRID.sample_params(KEY)
    back = from_jumanji(to_jumanji(TimeLimit(GRID, 6), params))
    assert back.num_agents == 2
    state, _ = TimeLimit(GRID, 6).reset(KEY, params)
    there, _ = back.reset(KEY, back.sample_params(KEY))
    step, back_step = jax.jit(TimeLimit(GRID, 6).step), jax.jit(back.step)
    for t in range(6):
        action = jax.random.randint(jax.random.key(t), (2,), 0, 5, jnp.int32)
        state, first = step(KEY, state, action, params)
        there, second = back_step(KEY, there, action, back.sample_params(KEY))
        for field in ("obs", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
    assert second.last


def test_our_wrappers_go_around_theirs():
    env = AutoReset(from_jumanji(FakeEnvironment(time_limit=3)))
    params = env.sample_params(KEY)
    state, _ = env.reset(KEY, params)
    for t in range(1, 7):
        state, timestep = env.step(KEY, state, jnp.zeros(2), params)
        assert bool(timestep.last) == (t % 3 == 0)
        assert timestep.info["final_obs"] == (t - 1) % 3 + 1


class Unequal(FakeEnvironment):
    """Several agents' worth of actions with different numbers of choices and odd masks."""

    @functools.cached_property
    def action_spec(self):
        return specs.MultiDiscreteArray(jnp.array([2, 3], jnp.int32))

    @functools.cached_property
    def observation_spec(self):
        return specs.Spec(dict, "seen", action_mask=specs.Array((7,), bool))


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="RandomWalk is no jumanji Environment"):
        from_jumanji(probes.RandomWalk())
    with pytest.raises(ConfigError, match=r"actions of \[2, 3\] choices and a mask of shape"):
        from_jumanji(Unequal())
