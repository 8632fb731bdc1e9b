"""Sessions: what is offered, what is seen, what is scored."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.protocol import Act, Limits, Observation, Session, run_session
from jaxlab.envs.autumn.tasks.transcript import (
    Transcript,
    act_text,
    instructions,
    observation_json,
    observation_text,
    parse_act,
)
from tests.envs.autumn import worlds

SHORT = Limits(interaction=3, total=40)
TEST = Act("go_to_test")


def acts(*kinds):
    return [kind if isinstance(kind, Act) else Act(kind) for kind in kinds]


class Script:
    """An agent that does what it is told."""

    def __init__(self, *kinds):
        self.acts = acts(*kinds)
        self.seen = []

    def begin(self, observation):
        self.left = list(self.acts)

    def act(self, observation):
        self.seen.append(observation)
        return self.left.pop(0)


def play(task, *kinds, **options):
    agent = Script(*kinds)
    return run_session(Session(task, **options), agent), agent.seen


def colours(frame):
    return {COLOURS[n] for n in np.unique(frame)}


def test_exploration_answers_and_resets():
    session = Session(worlds.planning(), limits=SHORT)
    first = session.observation
    assert (first.phase, first.acts, first.remaining) == ("interaction", 0, 40)
    assert first.offered == (*ACTIONS, "reset", "go_to_test", "quit")
    assert first.goal is first.mask is first.choices is None
    assert colours(first.frame) == {"black", "red"}
    moved = session.act(Act("right"))
    assert moved.frame[5, 1] == COLOURS.index("red")
    again = session.act(Act("reset"))
    np.testing.assert_array_equal(again.frame, first.frame)
    # The interaction is over after so many acts, and the test begins by itself.
    assert session.act(Act("noop")).phase == "test"
    assert session.observation.goal is not None


def test_an_agent_sees_nothing_of_world_and_answer():
    names = {field.name for field in dataclasses.fields(Observation)}
    assert not names & {"world", "task", "state", "seed", "answer", "source", "condition"}
    seen = Session(worlds.masked_frames(), limits=Limits(0, 40)).observation
    for field in dataclasses.fields(Observation):
        value = getattr(seen, field.name)
        assert value is None or isinstance(value, (str, int, tuple, np.ndarray)), field.name


def test_frames_are_stacked_as_the_program_shows_them():
    session = Session(worlds.planning(), stack_frames=True)
    seen = session.act(Act("click", 2, 2))
    assert seen.frames.shape == (8, 6, 6)
    assert seen.number == 8
    assert all(seen.frames[n, n, 2] == COLOURS.index("blue") for n in range(6))
    assert len(session.act(Act("reset")).frames) == 1


def test_a_plan_is_rewarded_when_the_goal_is_reached():
    plan = [Act(ACTIONS[kind], x, y) for kind, x, y in worlds.planning().plan.tolist()]
    result, seen = play(worlds.planning(), "left", TEST, *plan, limits=SHORT)
    assert (result.score, result.verdict.reached) == (1.0, True)
    assert (result.acts, result.interaction, result.resets) == (10, 2, 0)
    assert seen[-1].offered == (*ACTIONS, "quit")
    result, _ = play(worlds.planning(), *["noop"] * 12, limits=Limits(3, 12))
    assert (result.score, result.acts) == (0.0, 12)


def test_a_patch_is_chosen_at_the_last_frame():
    task = worlds.masked_frames()
    steps = ["step"] * 4
    right, seen = play(task, TEST, *steps, "rewind", *steps, Act("choose_option", 2))
    assert right.score == 1.0
    assert [o.number for o in seen[1:]] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert seen[2].recorded == Act("click", 3, 2)
    assert seen[1].recorded is None
    assert (seen[5].offered, seen[4].offered) == (
        ("rewind", "choose_option", "quit"),
        ("step", "quit"),
    )
    np.testing.assert_array_equal(seen[5].frame, task.frames[-1])
    for mode, score in (("fixed", 0.0), ("released", -1.0)):
        wrong, _ = play(task, TEST, *steps, Act("choose_option", 1), mode=mode)
        assert (wrong.score, wrong.verdict.choice) == (score, 1)
    left, _ = play(task, TEST, "step", "quit", mode="released")
    assert left.score == 0.0


@pytest.mark.parametrize("mode", ["released", "fixed"])
def test_a_change_reported_at_once_scores_1(mode):
    # Frame 4 is the first that the old rules do not show.
    result, seen = play(worlds.change(), TEST, *["right"] * 4, "found", "submit", mode=mode)
    assert (result.score, result.verdict.trigger, result.verdict.reported) == (1.0, 5, 5)
    assert ["found" in o.offered for o in seen[1:6]] == [False, False, False, True, True]
    assert seen[-1].offered == ("choose_frame", "submit", "quit")


def test_put_right_the_chosen_frame_is_scored():
    late = [TEST, *["right"] * 9, "found", Act("choose_frame", 4), "submit"]
    result, _ = play(worlds.change(), *late)
    assert (result.score, result.verdict.reported) == (1.0, 5)
    result, _ = play(worlds.change(), *late, mode="released")
    assert result.verdict.reported == 11
    assert 0.6 < result.score < 0.8
    result, _ = play(worlds.change(), *late[:-3], "found", "submit")
    assert result.verdict.reported == 10
    assert result.score == pytest.approx(0.710, abs=1e-3)


def test_what_counts_is_that_the_change_is_seen():
    # By the condition the rule has changed; nothing of it shows while the cart stands.
    early = [TEST, *["noop"] * 4, "found", "submit"]
    assert play(worlds.change(), *early)[0].verdict.trigger is None
    assert play(worlds.change(), *early, mode="released")[0].score == 1.0
    early = [TEST, *["noop"] * 3, "found", "submit"]
    assert play(worlds.change(), *early)[0].score == 0.0
    # The condition comes true in the act after the report.
    assert play(worlds.change(), *early, mode="released")[0].score == -1.0


def test_a_changed_world_may_be_reset_and_time_goes_on():
    steps = [TEST, *["right"] * 3, "reset", *["right"] * 4, "found", "submit"]
    result, seen = play(worlds.change(), *steps)
    np.testing.assert_array_equal(seen[5].frame, seen[1].frame)
    assert (result.score, result.verdict.trigger) == (1.0, 9)


def test_acts_that_are_not_offered_change_nothing():
    session = Session(worlds.change(), limits=SHORT)
    for act, message in (
        (Act("found"), "'found' is not offered in the interaction"),
        (Act("click", 6, 0), "the click at 6, 0 is outside the grid"),
        (Act("click", 0, -1), "outside the grid"),
    ):
        with pytest.raises(ConfigError, match=message):
            session.act(act)
    assert session.observation.acts == 0
    for act in acts(TEST, *["noop"] * 3, "found"):
        session.act(act)
    with pytest.raises(ConfigError, match="frame 4 is not there; expected 0 to 3"):
        session.act(Act("choose_frame", 4))
    with pytest.raises(ConfigError, match="'left' is not offered in the change_detection test"):
        session.act(Act("left"))
    session.act(Act("quit"))
    with pytest.raises(ConfigError, match="the session is over"):
        session.act(Act("noop"))
    with pytest.raises(ConfigError, match="interaction < total"):
        Limits(5, 5)


def test_a_fresh_seed_at_each_reset_if_asked_for():
    world = dataclasses.replace(worlds.WORLD, name="walker", source=worlds.WALKER)
    task = dataclasses.replace(
        worlds.planning(),
        world=world,
        goal=np.ones((5, 5), np.int32),
        mask=np.eye(5, dtype=np.int32),
    )

    def walks(**options):
        session = Session(task, **options)
        found = []
        for _ in range(4):
            found.append([session.act(Act("noop")).frame.tolist() for _ in range(8)])
            session.act(Act("reset"))
        return [json.dumps(walk) for walk in found]

    assert len(set(walks())) == 1
    assert len(set(walks(fresh_seeds=True))) > 1


KINDS = (*ACTIONS, "reset", "go_to_test", "quit", "step", "rewind", "choose_option", "found")
KINDS += ("choose_frame", "submit")


@given(st.sampled_from(KINDS), st.integers(0, 25), st.integers(0, 25))
def test_acts_are_read_as_they_are_written(kind, x, y):
    numbers = {"click": (x, y), "choose_option": (x, 0), "choose_frame": (x, 0)}
    act = Act(kind, *numbers.get(kind, (0, 0)))
    assert parse_act(act_text(act), KINDS) == act
    assert parse_act(f' "{act_text(act).upper()}" ', KINDS) == act
    others = [other for other in KINDS if other != kind]
    with pytest.raises(ConfigError, match="is no action that is offered"):
        parse_act(act_text(act), others)


@given(st.text(max_size=40))
def test_any_text_is_an_act_or_refused(text):
    try:
        act = parse_act(text, KINDS)
    except ConfigError:
        return
    assert act.kind in KINDS


def test_other_ways_to_write_a_click():
    for text in ("click 3 4", "click(3, 4)", "Click 3,4", "click (3, 4)."):
        assert parse_act(text, ACTIONS) == Act("click", 3, 4)


def test_observations_in_words_and_as_json():
    transcript = Transcript()
    task = worlds.masked_frames()
    agent = Script("right", TEST, *["step"] * 4, Act("choose_option", 2))
    result = run_session(Session(task), agent, transcript.watch)
    data = json.loads(json.dumps(transcript.json(result)))
    assert data["score"] == 1.0
    assert [turn["action"] for turn in data["turns"]][:2] == ["right", "go-to-test"]
    assert data["turns"][3]["recorded_action"] == "click 3 2"
    assert data["turns"][-1]["grids"][0][1][2:5] == ["masked"] * 3
    assert data["turns"][0] == {**observation_json(agent.seen[0]), "action": "right"}
    words = observation_text(agent.seen[-1])
    assert 'Option 2:\n["black", "black", "black"]' in words
    assert words.endswith("Actions: rewind, choose_option_k, quit")
    assert "Frame 4:" in words
    plan = Session(worlds.planning(), limits=Limits(0, 5)).observation
    assert "Goal:" in observation_text(plan)
    assert "Mask:" not in observation_text(plan)
    assert all("reward" in instructions(task.family) for task in (task, worlds.change()))
