"""The three released tasks of `ice`; the same checks on the project's own are in `test_tasks`."""

import numpy as np
import pytest

from jaxlab.envs.autumn.tasks.protocol import Act, Limits, Session
from jaxlab.envs.autumn.tasks.reading import read_task
from jaxlab.envs.autumn.tasks.scoring import change_score
from jaxlab.envs.autumn.tasks.verifying import plan_reaches, replay_masked_frames
from tests.envs.autumn import worlds

TEST_ONLY = Limits(0, 201)


@pytest.fixture(scope="module")
def task(shared_data):
    return lambda name: read_task(shared_data("autumn/ice_tasks"), name)


def test_the_recorded_frames_are_replayed_and_choice_3_alone_fits(task):
    recorded = task("ice_mfp")
    assert (recorded.frames.shape, recorded.choices.shape) == ((73, 16, 16), (6, 5, 7))
    assert (recorded.frames == 0).sum(axis=(1, 2)).tolist() == [0] * 67 + [35] * 6
    found = replay_masked_frames(recorded)
    assert found.frames.all()
    assert np.flatnonzero(found.choices).tolist() == [3] == [recorded.answer]


def test_the_goal_is_reached_with_seven_actions(task):
    planning = task("ice_planning")
    assert planning.mask.all()
    assert planning.optimal_actions == 8
    # Three drops from above the second column spread to its sides; then night freezes them.
    plan = worlds.rows(
        *[worlds.LEFT] * 3,
        *[worlds.DOWN, worlds.NOOP, worlds.NOOP] * 3,
        *[worlds.NOOP] * 18,
        worlds.click(15, 15),
    )
    assert plan_reaches(planning, plan) == len(plan) == 31
    assert (plan[:, 0] > 0).sum() == 7
    assert plan_reaches(planning, plan[:-1]) is None
    session = Session(planning, mode="released", limits=TEST_ONLY)
    for kind, x, y in plan.tolist():
        session.act(Act(("noop", "left", "right", "up", "down", "click")[kind], x, y))
    assert session.result.score == 1.0


@pytest.mark.parametrize(("delay", "score"), [(0, 1.0), (1, 0.967), (2, 0.892), (4, 0.710)])
def test_a_change_is_scored_by_the_time_of_the_report(task, delay, score):
    session = Session(task("ice_cd"), mode="released", limits=TEST_ONLY)
    # After two clicks drops are of the wrong kind, and the third frame is the first to show it.
    for kind in ("click", "click", "down"):
        session.act(Act(kind))
    for kind in (*["noop"] * delay, "found", "submit"):
        session.act(Act(kind))
    verdict = session.result.verdict
    assert (verdict.trigger, verdict.reported) == (4, 4 + delay)
    assert session.result.score == change_score(4 + delay, 4) == pytest.approx(score, abs=2e-3)


def test_an_early_report_of_the_change_costs_a_point_as_released(task):
    for mode, score in (("released", -1.0), ("fixed", 0.0)):
        session = Session(task("ice_cd"), mode=mode, limits=TEST_ONLY)
        for kind in ("noop", "noop", "noop", "found", "submit"):
            session.act(Act(kind))
        assert session.result.score == score
