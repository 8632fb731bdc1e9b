"""Tasks made for a program: what is drawn is solvable, and the same for the same key."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError, DataError, ProgramError
from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.syntax import parse
from jaxlab.envs.autumn.tasks.formats import FAMILIES, MASKED, World
from jaxlab.envs.autumn.tasks.generation.making import make_tasks, world_key
from jaxlab.envs.autumn.tasks.generation.masked_frames import masked_frame_task
from jaxlab.envs.autumn.tasks.generation.mutations import changed_source, mutations
from jaxlab.envs.autumn.tasks.generation.planning import planning_task
from jaxlab.envs.autumn.tasks.generation.rollouts import (
    LANES,
    Rollouts,
    curious,
    draws,
    given,
    idle,
    spread,
    uniform,
)
from jaxlab.envs.autumn.tasks.running import RunningWorld
from jaxlab.envs.autumn.tasks.verifying import frames_of
from tests.envs.autumn import worlds

WALKER = World(name="walker", source=worlds.WALKER, random="jax")
SEEDS = np.arange(LANES, dtype=np.uint32)


@pytest.fixture(scope="module")
def rollouts():
    return {world.name: Rollouts(world) for world in (worlds.WORLD, WALKER)}


@pytest.fixture(scope="module")
def made():
    """Three tasks each for a world that is certain and one that is not."""
    return {w.name: make_tasks(w, world_key(w.name, 0)) for w in (worlds.WORLD, WALKER)}


def test_runs_side_by_side_are_those_of_single_worlds(rollouts):
    batch = rollouts["walker"]
    run = batch.run(batch.begin(SEEDS), SEEDS, 20, curious(worlds.WALKER))
    assert run.frames.shape == (LANES, 20, 5, 5)
    assert not run.failed.any()
    for lane in (0, 7):
        single = RunningWorld(dataclasses.replace(WALKER, seed=lane))
        for action, frame in zip(run.actions[lane], run.frames[lane], strict=True):
            single.step(action)
            np.testing.assert_array_equal(single.frame, frame)
        frames = frames_of(dataclasses.replace(WALKER, seed=lane), run.actions[lane])
        np.testing.assert_array_equal(frames[1:], run.frames[lane])


def test_runs_go_on_from_where_they_stand(rollouts):
    batch = rollouts["walker"]
    whole = batch.run(batch.begin(SEEDS), SEEDS, 20, curious(worlds.WALKER))
    first = batch.run(batch.begin(SEEDS), SEEDS, 9, given(), actions=whole.actions[:, :9])
    rest = batch.run(first.lanes, SEEDS, 11, given(), start=9, actions=whole.actions[:, 9:])
    np.testing.assert_array_equal(rest.frames, whole.frames[:, 9:])
    one = spread(first.lanes, 3, LANES)
    same = np.full(LANES, 3, np.uint32)
    again = batch.run(one, same, 11, given(), start=9, actions=whole.actions[3, 9:])
    assert (again.frames == whole.frames[3, 9:]).all()


def test_policies_draw_what_they_say(rollouts):
    batch = rollouts["cart"]
    start = batch.begin(SEEDS)
    assert not batch.run(start, SEEDS, 8, idle()).actions.any()
    kinds = batch.run(start, SEEDS, 64, uniform()).actions[:, :, 0]
    shares = np.bincount(kinds.reshape(-1), minlength=6) / kinds.size
    np.testing.assert_allclose(shares, 1 / 6, atol=0.03)
    run = batch.run(start, SEEDS, 64, curious(worlds.CART))
    kinds = np.bincount(run.actions[:, :, 0].reshape(-1), minlength=6)
    assert kinds[3] == kinds[4] == 0 < min(kinds[[0, 1, 2, 5]])
    clicks = run.actions[:, 0][run.actions[:, 0, 0] == 5]
    assert (clicks[:, 1:] == [0, 5]).all(axis=1).mean() > 0.4
    assert draws(worlds.WALKER)
    assert not draws(worlds.CART)


@pytest.mark.parametrize("name", ["cart", "walker"])
def test_masked_frames_hide_what_changes_and_differ_inside_the_mask(made, name):
    task = made[name][0]
    hidden = (task.frames == MASKED).any(axis=(1, 2))
    assert hidden[-1]
    assert not hidden[:33].any()
    assert len({choice.tobytes() for choice in task.choices}) == 6
    assert task.floor == pytest.approx(1 / 6)
    frames = frames_of(task.world, task.actions)
    rows, columns = np.nonzero(task.frames[-1] == MASKED)
    box = (slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
    last_seen = int(hidden.argmax()) - 1
    np.testing.assert_array_equal(task.choices[task.answer], frames[-1][box])
    assert (frames[last_seen][box] != frames[-1][box]).any()


@pytest.mark.parametrize("name", ["cart", "walker"])
def test_goals_are_reached_by_the_plan_and_not_by_waiting(made, rollouts, name):
    task = made[name][1]
    batch = rollouts[name]
    seeds = np.full(LANES, task.world.seed, np.uint32)
    start = batch.begin(seeds)
    waits = batch.run(start, seeds, 201, idle())
    assert not task.reached(waits.frames).any()
    assert not task.reached(batch.first_frames(start)).any()
    acts = batch.run(start, seeds, len(task.plan), given(), actions=task.plan)
    assert task.reached(acts.frames[:, -1]).all()
    assert task.optimal_actions == (task.plan[:, 0] > 0).sum() > 0
    assert 0 <= task.floor < 1
    if name == "walker":
        # What the walker does is not asked for: the plan holds whatever is drawn.
        others = batch.run(batch.begin(SEEDS), SEEDS, len(task.plan), given(), actions=task.plan)
        assert task.reached(others.frames[:, -1]).mean() > 0.95


@pytest.mark.parametrize("name", ["cart", "walker"])
def test_a_change_is_not_there_before_it_shows(made, name):
    task = made[name][2]
    world = RunningWorld(task.changed, clock=task.clock)
    for number, action in enumerate(task.probe, 1):
        world.step(action)
        assert world.differs == (number == len(task.probe))
    assert len(task.probe) > 2
    assert 0 <= task.floor < 0.5
    if name == "cart":
        before = frames_of(task.world, task.probe)
        after = frames_of(task.changed, task.probe)
        assert (before[:-1] == after[:-1]).all()
        assert (before[-1] != after[-1]).any()


def test_the_same_key_makes_the_same_tasks(rollouts):
    def texts(key):
        task = masked_frame_task(worlds.WORLD, key, rollouts=rollouts["cart"])
        plan = planning_task(worlds.WORLD, key, rollouts=rollouts["cart"])
        return task.frames.tobytes() + task.choices.tobytes() + plan.goal.tobytes()

    keys = jax.random.split(jax.random.key(3))
    assert texts(keys[0]) == texts(keys[0]) != texts(keys[1])


def test_changed_programs_are_the_old_ones_until_the_clock_has_run():
    found = mutations(worlds.CART)
    kinds = {mutation.kind for mutation in found}
    assert {"constant", "direction", "comparison", "effect", "event", "rule"} <= kinds
    compiled = 0
    for mutation in found:
        for counted, after in (("steps", 4), ("clicks", 1)):
            source, clock, condition = changed_source(worlds.CART, mutation, counted, after)
            assert mutation.replacement in source
            try:
                changed = CompiledProgram(parse(source), condition=condition)
            except ProgramError:
                continue
            compiled += 1
            assert clock == "changeClock"
            assert changed.grid_size == 6
    assert compiled >= len(found)


def test_a_clock_gets_a_name_of_its_own():
    source = worlds.CART.replace("drops", "changeClock")
    text, clock, condition = changed_source(source, mutations(source)[0], "steps", 5)
    assert clock not in source
    assert (clock in text, condition) == (True, f">= {clock} 5")
    commented = worlds.CART.rstrip().removesuffix(")") + "; the end\n) ; done"
    text, _, _ = changed_source(commented, mutations(commented)[0], "arrows", 5)
    CompiledProgram(parse(text))


def test_programs_in_which_nothing_happens_have_no_tasks():
    still = World(
        name="still",
        source='(program (= GRID_SIZE 4) (object A (Cell 0 0 "red")) (: a A)'
        " (= a (initnext (A (Position 1 1)) (prev a))))",
        random="jax",
    )
    for family in FAMILIES:
        with pytest.raises(DataError, match="still: no "):
            make_tasks(still, jax.random.key(0), (family,))
    with pytest.raises(ConfigError, match="family 'chess' is unknown"):
        make_tasks(still, jax.random.key(0), ("chess",))
