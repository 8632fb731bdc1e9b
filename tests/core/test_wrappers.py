"""Wrappers: what they say about episodes, and what they cost."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core import probes
from jaxlab.core.assertions import primitives
from jaxlab.core.environment import Env, TimeStep, Wrapper
from jaxlab.core.errors import ConfigError
from jaxlab.core.normalization import RunningMoments
from jaxlab.core.testing import check_env
from jaxlab.core.views import Centralized, FlattenObservation, TakeTurns
from jaxlab.core.wrappers import (
    AutoReset,
    LogEpisode,
    NormalizeObservation,
    NormalizeReward,
    Pool,
    Tasks,
    TimeLimit,
    stack_tasks,
)

WALK = probes.RandomWalk()
GRID = probes.CoordinationGrid()
MODES = ("same_step", "next_step", "pool")


def roll(env: Env, params: Any, steps: int, seed: int = 0, batch: int | None = None):
    """Random actions for a number of steps; timesteps stacked on the leading axis."""
    keys = jax.random.split(jax.random.key(seed), steps + 1)
    reset, step = env.reset, env.step
    sample = env.action_space(params).sample
    if batch is not None:
        keys = jax.vmap(lambda key: jax.random.split(key, batch))(keys)
        reset, step = jax.vmap(reset, (0, None)), jax.vmap(step, (0, 0, 0, None))
        sample = jax.vmap(sample)

    def run(keys, params):
        def advance(state, key):
            state, timestep = step(key, state, sample(key), params)
            return state, (state, timestep)

        state, first = reset(keys[0], params)
        _, (states, rest) = jax.lax.scan(advance, state, keys[1:])
        join = lambda a, b: jnp.concatenate([a[None], b])  # noqa: E731
        return jax.tree.map(join, state, states), jax.tree.map(join, first, rest)

    return jax.jit(run)(keys, params)


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


@pytest.mark.parametrize("name", STACKS)
def test_wrapped_environments_conform(name):
    report = check_env(STACKS[name], steps=30, batch_steps=3)
    assert all(count > 0 for count in report.episodes.values())


def test_time_limit_truncates_and_stays_truncated():
    params = GRID.sample_params(jax.random.key(1))
    _, steps = roll(TimeLimit(GRID, 3), params, 5)
    np.testing.assert_array_equal(steps.truncated, [False, False, False, True, True, True])
    np.testing.assert_array_equal(steps.last, steps.truncated)


@pytest.mark.parametrize("mode", MODES)
def test_automatic_reset_keeps_the_final_observation(mode):
    env = AutoReset(WALK, mode)
    params = probes.RandomWalkParams(right=jnp.float32(0.5))
    if mode == "pool":
        params = env.fill_pool(jax.random.key(0), stack_tasks([params] * 2))
    _, steps = roll(env, params, 100)
    ends = np.flatnonzero(steps.last)
    assert len(ends) > 3
    middle = np.eye(5, dtype=np.float32)[2]
    final = np.asarray(steps.info["final_obs"])
    # Out of either end the walker stands on no state.
    np.testing.assert_array_equal(final[ends], np.zeros((len(ends), 5)))
    going = np.setdiff1d(np.arange(101), ends)
    np.testing.assert_array_equal(final[going], steps.obs[going])
    if mode == "next_step":
        np.testing.assert_array_equal(steps.obs[ends], np.zeros((len(ends), 5)))
        begins = np.concatenate([[0], ends + 1])
        begins = begins[begins < 101]
        np.testing.assert_array_equal(np.flatnonzero(steps.info["first"]), begins)
        np.testing.assert_array_equal(steps.obs[begins], np.tile(middle, (len(begins), 1)))
        np.testing.assert_array_equal(steps.reward[begins], 0)
    else:
        np.testing.assert_array_equal(steps.obs[ends], np.tile(middle, (len(ends), 1)))
        assert set(np.asarray(steps.reward[ends])) == {0.0, 1.0}


@pytest.mark.parametrize("mode", ["same_step", "pool"])
def test_the_first_episode_is_that_of_the_bare_environment(mode):
    env = AutoReset(WALK, mode, pool_size=1)
    params = env.sample_params(jax.random.key(0))
    task = params.tasks.params if mode == "pool" else params
    task = jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[-1:] if leaf.ndim > 1 else ()), task)
    _, bare = roll(WALK, task, 40)
    _, wrapped = roll(env, params, 40)
    end = int(np.flatnonzero(bare.last)[0])
    np.testing.assert_array_equal(bare.obs[:end], wrapped.obs[:end])
    np.testing.assert_array_equal(bare.obs[end], wrapped.info["final_obs"][end])
    np.testing.assert_array_equal(bare.reward[: end + 1], wrapped.reward[: end + 1])


@dataclasses.dataclass(frozen=True)
class Labelled(probes.Bandit):
    """Shows its own first payoff, so the task of an episode can be read."""

    def observe(self, key, params):
        return params.payoff[:1]

    def observation_space(self, params):
        return probes.Box(-jnp.inf, jnp.inf, (1,))


def labelled_tasks(weights):
    payoff = jnp.arange(len(weights), dtype=jnp.float32)
    return stack_tasks([probes.BanditParams(jnp.full((3,), x)) for x in payoff], weights)


@pytest.mark.parametrize("mode", MODES)
def test_tasks_are_drawn_by_weight_and_stay_for_the_episode(mode):
    env = AutoReset(Labelled(), mode)
    tasks = labelled_tasks([1.0, 0.0, 3.0])
    params = env.fill_pool(jax.random.key(0), tasks) if mode == "pool" else tasks
    _, steps = roll(env, params, 60, batch=64)
    began = steps.info["first"] if mode == "next_step" else jnp.ones_like(steps.last)
    shown = np.asarray(steps.obs)[np.asarray(began)].ravel()
    share = [np.mean(shown == task) for task in range(3)]
    # Three standard deviations of a share of 3/4 in some two thousand draws.
    np.testing.assert_allclose(share, [0.25, 0.0, 0.75], atol=0.03)
    acted = ~np.asarray(began) if mode == "next_step" else np.asarray(steps.last)
    seen = steps.info["final_obs"][..., 0]
    np.testing.assert_array_equal(np.asarray(steps.reward)[acted], np.asarray(seen)[acted])


def test_automatic_reset_conforms_with_tasks_for_params():
    env = AutoReset(probes.Bandit(), "next_step")

    def tasks(key):
        params = jax.vmap(env.sample_params)(jax.random.split(key, 3))
        return Tasks(params, jnp.arange(3, dtype=jnp.float32))

    report = check_env(env, sample_params=tasks, steps=12, batch_steps=3)
    assert report.episodes == {"float32": 6, "float64": 6}


def test_editing_tasks_leaves_running_episodes_alone():
    env = AutoReset(TimeLimit(Labelled(), 9))
    key = jax.random.key(0)
    state, _ = env.reset(key, labelled_tasks([0.0, 1.0]))
    edited = labelled_tasks([1.0, 0.0])
    _, timestep = env.step(key, state, jnp.int32(0), edited)
    assert timestep.reward == 1
    assert timestep.last
    assert timestep.obs[0] == 0, "the next episode is of the edited tasks"


def test_pool_draws_new_starts_each_time():
    env = AutoReset(probes.ObservationReward(), "pool", pool_size=16)
    params = env.sample_params(jax.random.key(0))
    assert isinstance(params, Pool)
    assert isinstance(params.tasks, Tasks)
    _, steps = roll(env, params, 200)
    assert 0.3 < np.mean(np.asarray(steps.obs) > 0) < 0.7


@dataclasses.dataclass(frozen=True)
class DearReset(Wrapper):
    """Sorts at reset, so that the compiled program shows where resets are computed."""

    def reset(self, key, params):
        state, timestep = self.env.reset(key, params)
        order = jnp.sort(jax.random.uniform(key, (7,), jnp.float32))
        return {"env": state, "order": order}, timestep

    def step(self, key, state, action, params):
        inner, timestep = self.env.step(key, state["env"], action, params)
        return {"env": inner, "order": state["order"]}, timestep


def outside_of_branches(jaxpr: Any):
    """Primitives that run in every step, whichever branch is taken."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        yield name
        if name in ("cond", "custom_vmap_call"):
            continue
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from outside_of_branches(inner)


@pytest.mark.parametrize("maps", [0, 1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_resets_stay_under_a_condition_however_mapped(mode, maps):
    env = AutoReset(DearReset(WALK), mode, pool_size=2)
    params = env.sample_params(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 6).reshape((6, 1, 1)[: maps or 1])[
        : 6 if maps else 1
    ]
    keys = keys.reshape((2, 3)[:maps]) if maps == 2 else keys.reshape((6,)[:maps])
    reset, step = env.reset, env.step
    for _ in range(maps):
        reset = jax.vmap(reset, (0, None))
        step = jax.vmap(step, (0, 0, 0, None))
    states, _ = reset(keys, params)
    actions = jnp.zeros(keys.shape, jnp.int32)
    jaxpr = jax.make_jaxpr(step)(keys, states, actions, params).jaxpr
    assert "cond" in outside_of_branches(jaxpr)
    assert "sort" not in outside_of_branches(jaxpr)
    assert ("sort" in primitives(jaxpr)) == (mode != "pool")


def test_condition_reduces_over_nested_maps():
    env = AutoReset(WALK)
    params = env.sample_params(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 12).reshape(3, 4)
    once = jax.vmap(jax.vmap(env.reset, (0, None)), (0, None))
    step = jax.jit(jax.vmap(jax.vmap(env.step, (0, 0, 0, None)), (0, 0, 0, None)))
    states, _ = once(keys, params)
    actions = jnp.zeros((3, 4), jnp.int32)
    alone = jax.jit(env.step)
    ended = 0
    for t in range(12):
        step_keys = jax.vmap(jax.vmap(lambda k, t=t: jax.random.fold_in(k, t)))(keys)
        new, timesteps = step(step_keys, states, actions, params)
        ended += int(timesteps.last.sum())
        for i, j in itertools.product(range(3), range(4)):
            one = jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], states)
            _, expected = alone(step_keys[i, j], one, actions[i, j], params)
            np.testing.assert_array_equal(timesteps.obs[i, j], expected.obs)
            np.testing.assert_array_equal(timesteps.reward[i, j], expected.reward)
        states = new
    assert ended > 0


@pytest.mark.parametrize("mode", MODES)
def test_automatic_reset_works_inside_shard_map(mode):
    env = AutoReset(TimeLimit(GRID, 2), mode, pool_size=2)
    params = env.sample_params(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 4)
    states, _ = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    step = jax.vmap(env.step, (0, 0, 0, None))
    mesh = jax.make_mesh((1,), ("env",), axis_types=(jax.sharding.AxisType.Auto,))
    split, whole = jax.sharding.PartitionSpec("env"), jax.sharding.PartitionSpec()
    sharded = jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=(split, split, split, whole), out_specs=split)
    )
    actions = jnp.zeros((4, 2), jnp.int32)
    for _ in range(3):
        expected = jax.jit(step)(keys, states, actions, params)
        states, timesteps = sharded(keys, states, actions, params)
        jax.tree.map(np.testing.assert_array_equal, (states, timesteps), expected)


def test_gradients_pass_through_automatic_reset():
    env = AutoReset(probes.Bandit())

    def total(payoff):
        params = probes.BanditParams(payoff)
        _, steps = roll(env, params, 10, batch=3)
        return steps.reward.sum()

    count = jax.grad(total)(jnp.ones(3))
    assert count.sum() == 30
    assert jnp.all(count > 0)


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
