"""Wrappers: what they say about episodes, and what they cost."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import probes
from jaxlab.core.environment import TimeStep, Wrapper
from jaxlab.core.errors import ConfigError
from jaxlab.core.testing import check_env
from jaxlab.core.views import Centralized, FlattenObservation, TakeTurns
from jaxlab.core.wrappers import (
    AutoReset,
    LogEpisode,
    NormalizeObservation,
    NormalizeReward,
    TimeLimit,
    stack_tasks,
)
from tests.core.rolling import labelled_tasks, roll

WALK = probes.RandomWalk()
GRID = probes.CoordinationGrid()
MODES = ("same_step", "next_step", "pool")
# A leaf whose dtype was left to JAX shows itself in 64 bit; a check compiles some ninety programs.
PRECISIONS = ("float64", pytest.param("float32", marks=pytest.mark.slow))


STACKS = {
    "log": LogEpisode(TimeLimit(GRID, 3)),
    "next step": AutoReset(probes.MaskedBandit(), "next_step"),
    "pool": AutoReset(WALK, "pool", pool_size=8),
    "log of next step": LogEpisode(AutoReset(probes.CostlyChoice(), "next_step")),
    "normalised": NormalizeObservation(AutoReset(probes.MaskedBandit())),
    "all": LogEpisode(NormalizeReward(NormalizeObservation(AutoReset(TimeLimit(GRID, 3))))),
    "centralised": Centralized(TimeLimit(GRID, 3)),
    "turns": TakeTurns(TimeLimit(GRID, 3)),
    "flat": FlattenObservation(AutoReset(probes.MaskedBandit())),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", STACKS)
def test_wrapped_environments_conform(name, precision):
    report = check_env(STACKS[name], steps=30, batch_steps=3, precisions=(precision,))
    assert all(count > 0 for count in report.episodes.values())


def test_time_limit_truncates_and_stays_truncated():
    params = GRID.sample_params(jax.random.key(1))
    _, steps = roll(TimeLimit(GRID, 3), params, 5)
    np.testing.assert_array_equal(steps.truncated, [False, False, False, True, True, True])
    np.testing.assert_array_equal(steps.last, steps.truncated)


@pytest.mark.parametrize("mode", MODES)
def test_log_outside_automatic_reset_adds_up_whole_episodes(mode):
    env = LogEpisode(AutoReset(TimeLimit(probes.CostlyChoice(), 5), mode, pool_size=2))
    params = env.sample_params(jax.random.key(0))
    _, steps = roll(env, params, 30, batch=4)
    ended = np.asarray(steps.info["episode_ended"])
    np.testing.assert_array_equal(ended, steps.last)
    np.testing.assert_array_equal(np.asarray(steps.info["episode_length"])[ended], 1)
    np.testing.assert_array_equal(
        np.asarray(steps.info["episode_return"])[ended], np.asarray(steps.reward)[ended]
    )
    np.testing.assert_array_equal(
        np.asarray(steps.info["episode_cost"])[ended], np.asarray(steps.cost)[ended]
    )
    assert steps.info["episode_cost"].shape == (31, 4, 1)


@pytest.mark.parametrize("outside", [True, False])
def test_log_gives_return_and_length_of_long_episodes(outside):
    inner = TimeLimit(GRID, 7)
    env = LogEpisode(AutoReset(inner)) if outside else AutoReset(LogEpisode(inner))
    params = GRID.sample_params(jax.random.key(3))
    _, steps = roll(env, params, 40)
    ends = np.flatnonzero(steps.last)
    assert len(ends) >= 5
    for begin, end in itertools.pairwise([0, *ends]):
        rewards = np.asarray(steps.reward)[begin + 1 : end + 1]
        assert steps.info["episode_length"][end] == end - begin
        np.testing.assert_allclose(
            steps.info["episode_return"][end], rewards.sum(0), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_array_equal(steps.info["episode_ended"][begin + 1 : end], False)
        assert steps.info["episode_ended"][end]


def test_log_of_an_absorbing_environment_ends_once():
    _, steps = roll(LogEpisode(TimeLimit(GRID, 3)), GRID.sample_params(jax.random.key(1)), 6)
    np.testing.assert_array_equal(np.flatnonzero(steps.info["episode_ended"]), [3])
    np.testing.assert_array_equal(steps.info["episode_length"][3:], 3)
    np.testing.assert_allclose(steps.info["episode_return"][3:], -0.3, rtol=1e-6)


def test_turns_collect_a_round_and_pay_the_sum():
    env = TakeTurns(probes.MatrixGame())
    params = env.sample_params(jax.random.key(0))
    key = jax.random.key(1)
    state, timestep = env.reset(key, params)
    np.testing.assert_array_equal(timestep.obs, [1, 0])
    state, timestep = env.step(key, state, jnp.int32(1), params)
    np.testing.assert_array_equal(timestep.obs, [0, 1])
    assert timestep.reward == 0
    assert not timestep.last
    state, timestep = env.step(key, state, jnp.int32(2), params)
    assert timestep.reward == 12
    assert timestep.terminated
    assert env.num_agents is None
    assert env.action_space(params).shape == ()


def test_centralised_reward_is_the_sum():
    env = Centralized(probes.MatrixGame())
    params = env.sample_params(jax.random.key(0))
    state, _ = env.reset(jax.random.key(1), params)
    _, timestep = env.step(jax.random.key(1), state, jnp.array([0, 0], jnp.int32), params)
    assert timestep.reward == 22
    assert timestep.reward.shape == timestep.terminated.shape == ()


@dataclasses.dataclass(frozen=True)
class Picture(Wrapper):
    """Draws the payoff of its task, wrapped environments hand it the right state and params."""

    def reset(self, key, params):
        return self.env.reset(key, params)

    def step(self, key, state, action, params):
        return self.env.step(key, state, action, params)

    def render(self, state, params):
        assert isinstance(state, probes.ProbeState)
        return np.full((2, 2, 3), int(params.payoff[0]), np.uint8)


@pytest.mark.parametrize("mode", MODES)
def test_render_goes_through_wrappers(mode):
    env = NormalizeReward(LogEpisode(AutoReset(TimeLimit(Picture(probes.Bandit()), 3), mode)))
    tasks = labelled_tasks([0.0, 1.0])
    if mode == "pool":
        inner = env.env.env
        tasks = inner.fill_pool(jax.random.key(0), tasks)
    state, _ = env.reset(jax.random.key(0), tasks)
    picture = env.render(state, tasks)
    assert picture.shape == (2, 2, 3)
    assert picture.max() == 1
    assert env.unwrapped == probes.Bandit()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeLimit(WALK, 0), "max_steps is 0, must be at least 1"),
        (lambda: AutoReset(WALK, "never"), "'never', must be one of same_step, next_step, pool"),
        (lambda: AutoReset(WALK, "pool", pool_size=0), "pool_size is 0"),
        (lambda: AutoReset(AutoReset(WALK)), "already resets by itself"),
        (lambda: AutoReset(TimeLimit(NormalizeReward(WALK), 3)), "wrap it around AutoReset"),
        (lambda: NormalizeObservation(WALK, clip=0.0), "clip is 0.0, must be positive"),
        (lambda: Centralized(WALK), "a single agent already"),
        (lambda: TakeTurns(WALK), "a single agent already"),
        (lambda: TakeTurns(AutoReset(GRID)), "AutoReset around TakeTurns"),
        (lambda: stack_tasks([]), "no params"),
        (lambda: labelled_tasks([1.0, -1.0]), "non-negative"),
        (lambda: labelled_tasks([0.0, 0.0]), "not all zero"),
        (lambda: stack_tasks([probes.NoParams()], [1.0, 2.0]), "1 params but weights of shape"),
        (
            lambda: AutoReset(WALK, "pool").reset(
                jax.random.key(0), WALK.sample_params(jax.random.key(0))
            ),
            "takes a Pool",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_wrapped_equal_environments_are_equal():
    assert AutoReset(TimeLimit(WALK, 3)) == AutoReset(TimeLimit(probes.RandomWalk(), 3))
    assert hash(AutoReset(WALK)) != hash(AutoReset(WALK, "next_step"))
    assert TimeLimit(GRID, 3).name == "coordination_grid"
    assert isinstance(
        AutoReset(GRID).reset(jax.random.key(0), GRID.sample_params(jax.random.key(0)))[1], TimeStep
    )
