"""The tasks that the library ships."""

from collections import Counter

import pytest

from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.syntax import parse
from jaxlab.envs.autumn.tasks.formats import FAMILIES, MASKED
from jaxlab.envs.autumn.tasks.reading import grid_size, mask_rectangle
from jaxlab.envs.autumn.tasks.suite import load_tasks
from jaxlab.envs.autumn.tasks.verifying import require_sound


@pytest.fixture(scope="module")
def tasks():
    """The tasks by family; a program that was edited since is refused by its hash."""
    shipped = load_tasks()
    return {family: [task for task in shipped if task.family == family] for family in FAMILIES}


def test_each_program_has_a_task_of_each_family(tasks):
    shipped = [task for group in tasks.values() for task in group]
    counts = Counter(task.world.name for task in shipped)
    assert set(counts) <= set(suite.programs())
    assert set(counts.values()) == {3}
    assert {len(group) for group in tasks.values()} == {len(counts)}
    assert len({task.id for task in shipped}) == len(shipped)
    for task in shipped:
        assert task.world.source == suite.source(task.world.name)
        assert task.world.capacity == suite.describe(task.world.name).capacity
        assert -1 <= task.floor <= 1


def test_masks_hide_one_of_six_patches(tasks):
    for task in tasks["masked_frame_prediction"]:
        size = grid_size(parse(task.world.source), task.world)
        assert task.frames.shape == (len(task.actions) + 1, size, size)
        rows, columns = mask_rectangle(task.frames[-1])
        assert task.choices.shape[1:] == task.frames[-1, rows, columns].shape
        assert len({choice.tobytes() for choice in task.choices}) == 6
        assert (task.choices != MASKED).all()


def test_goals_ask_for_something_that_a_short_plan_does(tasks):
    for task in tasks["planning"]:
        assert 0 < task.optimal_actions == (task.plan[:, 0] > 0).sum() <= 16
        assert task.mask.any()
        assert (task.goal != MASKED).all()


def test_changed_programs_edit_one_rule(tasks):
    for task in tasks["change_detection"]:
        assert task.clock in task.changed.source
        assert task.clock not in task.world.source
        assert len(task.probe) > 2
        assert task.changed.seed == task.world.seed


@pytest.mark.parametrize("family", FAMILIES)
def test_tasks_hold_in_their_programs(family, tasks):
    """The one with the shortest program; all of them are checked as they are made."""
    require_sound(min(tasks[family], key=lambda task: len(task.world.source)))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_tasks_hold_in_their_programs(family, tasks):
    for task in tasks[family]:
        require_sound(task)
