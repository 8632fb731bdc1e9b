"""Automatic reset: what it says about episodes, tasks, and what it costs."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import probes
from jaxlab.core.assertions import primitives
from jaxlab.core.environment import Wrapper
from jaxlab.core.testing import check_env
from jaxlab.core.wrappers import (
    AutoReset,
    Pool,
    Tasks,
    TimeLimit,
    stack_tasks,
)
from tests.core.rolling import Labelled, labelled_tasks, roll

WALK = probes.RandomWalk()
GRID = probes.CoordinationGrid()
MODES = ("same_step", "next_step", "pool")


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

    report = check_env(env, sample_params=tasks, steps=12, batch_steps=3, precisions=("float64",))
    assert report.episodes == {"float64": 6}


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
