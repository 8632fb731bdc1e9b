"""The Gymnasium views, held to Gymnasium's checker and wrappers."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from jaxlab.core import probes
from jaxlab.core.adapters import to_gymnasium, to_gymnasium_vector
from jaxlab.core.errors import ConfigError
from jaxlab.core.wrappers import TimeLimit, Wrapper, stack_tasks

GRID = probes.CoordinationGrid()
#: What the checker says of environments that are not registered, and of constant boxes.
ADVICE = [
    "ignore:.*Not able to test alternative render modes:UserWarning",
    "ignore:.*maximum and minimum values are equal:UserWarning",
]


@pytest.mark.filterwarnings(*ADVICE)
@pytest.mark.parametrize("agents", ["joint", "turns"])
@pytest.mark.parametrize(
    "inner",
    [probes.RandomWalk(), probes.MaskedBandit(), TimeLimit(GRID, 5), probes.CostlyChoice()],
    ids=lambda env: env.name,
)
def test_checker_of_gymnasium_passes(inner, agents):
    check_env(to_gymnasium(inner, agents=agents))


def walked(seed):
    """Everything a random walk tells in thirty steps."""
    env = to_gymnasium(probes.RandomWalk())
    told = [*env.reset(seed=seed)[0]]
    for _ in range(30):
        obs, reward, terminated, truncated, _ = env.step(0)
        told += [*obs, reward, terminated, truncated]
        if terminated or truncated:
            told += [*env.reset()[0]]
    return [float(value) for value in told]


def test_seed_makes_all_that_follows_the_same():
    assert walked(7) == walked(7)
    assert walked(7) != walked(8)


def test_values_are_of_the_host():
    env = to_gymnasium(probes.MaskedBandit())
    obs, _ = env.reset(seed=0)
    assert isinstance(obs, dict)
    assert obs["action_mask"].dtype == np.int8
    action = env.action_space.sample(mask=obs["action_mask"])
    obs, reward, terminated, truncated, _ = env.step(action)
    assert reward == action
    assert type(terminated) is type(truncated) is bool
    *_, info = run_once(to_gymnasium(probes.CostlyChoice()), 1)
    np.testing.assert_array_equal(info["cost"], [1])


def run_once(env, action):
    env.reset(seed=0)
    return env.step(action)


def test_joint_view_decides_for_all():
    env = to_gymnasium(probes.MatrixGame())
    assert env.action_space == gymnasium.spaces.MultiDiscrete([3, 3], dtype=np.int32)
    assert run_once(env, np.array([0, 0]))[1] == 22


def test_tasks_are_drawn_at_reset():
    tasks = stack_tasks([probes.BanditParams(jnp.full((3,), x)) for x in (1.0, 2.0)])
    env = to_gymnasium(probes.Bandit(), tasks)
    env.reset(seed=0)
    paid = set()
    for _ in range(10):
        paid.add(env.step(0)[1])
        env.reset()
    assert paid == {1.0, 2.0}


class Picture(Wrapper):
    """Draws the payoff of the first arm."""

    def reset(self, key, params):
        return self.env.reset(key, params)

    def step(self, key, state, action, params):
        return self.env.step(key, state, action, params)

    def render(self, state, params):
        return np.full((4, 4, 3), int(params.payoff[0]), np.uint8)


@pytest.mark.filterwarnings(*ADVICE)
def test_pictures():
    tasks = stack_tasks([probes.BanditParams(jnp.full((3,), 7.0))])
    env = to_gymnasium(Picture(probes.Bandit()), tasks, render_mode="rgb_array")
    check_env(env)
    env.reset()
    assert env.render().max() == 7
    assert to_gymnasium(Picture(probes.Bandit())).render() is None


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_vector_resets_as_its_mode_says(mode):
    env = to_gymnasium_vector(TimeLimit(GRID, 3), 4, mode=mode)
    assert env.metadata["autoreset_mode"] == AutoresetMode[mode.upper()]
    first, _ = env.reset(seed=1)
    moved, stayed = np.full((4, 2), 2), np.zeros((4, 2))
    assert env.action_space.contains(moved.astype(np.int32))
    for action in (moved, stayed, stayed):
        obs, reward, terminated, truncated, infos = env.step(action)
        assert env.observation_space.contains(obs)
    assert truncated.all()
    assert not terminated.any()
    if mode == "same_step":
        np.testing.assert_array_equal(obs, first)
        assert infos["_final_obs"].all()
        assert not np.array_equal(infos["final_obs"], first)
    else:
        assert "final_obs" not in infos
        assert not np.array_equal(obs, first)
        obs, reward, _, truncated, _ = env.step(moved)
        np.testing.assert_array_equal(obs, first)
        np.testing.assert_array_equal(reward, 0)
        assert not truncated.any()


def test_vector_agrees_with_gymnasiums_own_vector():
    params = GRID.sample_params(jax.random.key(2))
    inner = TimeLimit(GRID, 3)
    ours = RecordEpisodeStatistics(to_gymnasium_vector(inner, 3, params))
    theirs = RecordEpisodeStatistics(SyncVectorEnv([lambda: to_gymnasium(inner, params)] * 3))
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    for a, b in zip(ours.reset(seed=0)[:1], theirs.reset(seed=0)[:1], strict=True):
        np.testing.assert_array_equal(a, b)
    generator = np.random.default_rng(0)
    for _ in range(9):
        action = generator.integers(0, 5, (3, 2))
        *told, infos = ours.step(action)
        *expected, expected_infos = theirs.step(action)
        for a, b in zip(told, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        assert ("episode" in infos) == ("episode" in expected_infos)
        if "episode" in infos:
            np.testing.assert_allclose(
                infos["episode"]["r"], expected_infos["episode"]["r"], rtol=1e-6
            )
            np.testing.assert_array_equal(infos["episode"]["l"], expected_infos["episode"]["l"])


def test_vector_of_one_and_infos_with_masks():
    env = to_gymnasium_vector(probes.CostlyChoice(), 1)
    env.reset(seed=0)
    *_, infos = env.step(np.array([1]))
    np.testing.assert_array_equal(infos["cost"], [[1]])
    np.testing.assert_array_equal(infos["_cost"], [True])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: to_gymnasium(GRID, agents="batch"), "'batch', must be 'joint' or 'turns'"),
        (lambda: to_gymnasium(GRID, render_mode="human"), "'human', must be None or 'rgb_array'"),
        (lambda: to_gymnasium_vector(GRID, 2, mode="pool"), "'pool', must be 'next_step' or"),
        (lambda: to_gymnasium_vector(GRID, 0), "num_envs is 0, must be at least 1"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
