"""Tasks as data: scores, files, checks against the program."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError, DataError, ProgramError
from jaxlab.envs.autumn.tasks import scoring
from jaxlab.envs.autumn.tasks.reading import read_task, read_tasks, write_tasks
from jaxlab.envs.autumn.tasks.suite import packed, unpacked
from jaxlab.envs.autumn.tasks.verifying import (
    change_shows,
    plan_reaches,
    replay_masked_frames,
    require_sound,
)
from tests.envs.autumn import worlds

#: Section 2.3 of the benchmark's description: r, score.
LATE = ((1.1, 0.994), (1.25, 0.967), (1.5, 0.892), (2, 0.710), (3, 0.441), (5, 0.247))


@pytest.mark.parametrize(("ratio", "score"), LATE)
def test_late_reports_score_as_published(ratio, score):
    assert scoring.late_score(ratio) == pytest.approx(score, abs=1e-3)
    assert scoring.change_score(round(ratio * 20), 20) == scoring.late_score(ratio)


def test_reports_early_in_time_and_never():
    assert scoring.late_score(1e9) == pytest.approx(0.199, abs=1e-3)
    assert scoring.change_score(9, 10) == scoring.change_score(10, 10) == 1.0
    assert scoring.change_score(8, 10) == scoring.change_score(3, None) == 0.0
    assert scoring.change_score(8, 10, "released") == -1.0
    assert scoring.change_score(3, None, "released") == -1.0
    assert scoring.change_score(None, 10, "released") == 0.0
    with pytest.raises(ConfigError, match="count from 1"):
        scoring.change_score(0, 10)


def test_other_scores():
    assert scoring.masked_frame_score(3, 3, "released") == 1.0
    assert scoring.masked_frame_score(2, 3, "released") == -1.0
    assert scoring.masked_frame_score(2, 3) == scoring.masked_frame_score(None, 3) == 0.0
    assert (scoring.planning_score(True), scoring.planning_score(False)) == (1.0, 0.0)


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_later_report_never_scores_more(trigger, delay):
    scores = [scoring.change_score(trigger + n, trigger) for n in (0, delay, delay + 1)]
    assert 1.0 == scores[0] >= scores[1] >= scores[2] >= 0.198


@pytest.fixture
def folder(tmp_path):
    write_tasks(tmp_path, [worlds.masked_frames(), worlds.planning(), worlds.change()])
    return tmp_path


def require_equal(one, other):
    assert type(one) is type(other)
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype == np.int32
        else:
            assert a == b, field.name


def test_tasks_are_read_as_they_were_written(folder):
    tasks = read_tasks(folder)
    expected = [worlds.change(), worlds.masked_frames(), worlds.planning()]
    for one, other in zip(tasks, expected, strict=True):
        require_equal(one, other)
    manifest = json.loads((folder / "tasks.json").read_text())
    assert {"id": "cart_mfp", "program": "cart"} in manifest
    (only,) = read_tasks(folder, ["cart_planning"])
    require_equal(only, worlds.planning())


def test_packed_tasks_come_back_and_know_their_programs():
    tasks = (worlds.masked_frames(), worlds.planning(), worlds.change())
    data = json.loads(json.dumps(packed(tasks)))
    for one, other in zip(unpacked(data, lambda name: worlds.CART), tasks, strict=True):
        require_equal(one, other)
    with pytest.raises(DataError, match="'cart' is not the one"):
        unpacked(data, lambda name: worlds.CART + " ")
    with pytest.raises(DataError, match="version 7"):
        unpacked({**data, "version": 7}, lambda name: worlds.CART)


def test_tasks_hold_in_their_programs():
    found = replay_masked_frames(worlds.masked_frames())
    assert found.frames.all()
    assert found.choices.tolist() == [False, False, True, False, False, False]
    assert plan_reaches(worlds.planning()) == 8
    assert plan_reaches(worlds.planning(), worlds.rows(worlds.NOOP)) is None
    assert change_shows(worlds.change()) == 4
    assert change_shows(worlds.change(), worlds.rows(*[worlds.RIGHT] * 3)) is None
    for task in (worlds.masked_frames(), worlds.planning(), worlds.change()):
        require_sound(task)


def test_tasks_that_do_not_match_the_program_are_refused():
    task = worlds.masked_frames()
    frames = task.frames.copy()
    frames[2, 0, 0] = 5
    with pytest.raises(DataError, match="frame 2 is not what cart shows"):
        require_sound(dataclasses.replace(task, frames=frames))
    with pytest.raises(DataError, match=r"that fit are \[2\], expected \[1\]"):
        require_sound(dataclasses.replace(task, answer=1))
    short = worlds.planning().plan[:5]
    with pytest.raises(DataError, match="plan does not reach"):
        require_sound(dataclasses.replace(worlds.planning(), plan=short))
    idle = worlds.rows(worlds.NOOP)
    with pytest.raises(DataError, match="does not show the change"):
        require_sound(dataclasses.replace(worlds.change(), probe=idle))
    with pytest.raises(DataError, match="'drops' is no variable"):
        require_sound(dataclasses.replace(worlds.change(), clock="drops"))


def edited(path, edit):
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


WRONG = [
    ("prompts/cart_mfp", lambda d: d.pop("type"), "type: expected one of"),
    ("prompts/cart_mfp", lambda d: d.update(program="../cart"), "expected the name of a program"),
    ("prompts/cart_mfp", lambda d: d.update(program="kart"), "cannot be read"),
    ("prompts/cart_mfp", lambda d: d.update(observations=[]), "expected a list of at least two"),
    ("prompts/cart_mfp", lambda d: d["observations"][0].update(action={}), r"observations\[0\]"),
    ("prompts/cart_mfp", lambda d: d["observations"][2].pop("action"), r"observations\[2\]"),
    (
        "prompts/cart_mfp",
        lambda d: d["observations"][1]["action"].update(x=6),
        "action 0: the click at 6, 2 is outside",
    ),
    (
        "prompts/cart_mfp",
        lambda d: d["observations"][1].update(action={"type": "jump"}),
        "action 0: expected",
    ),
    (
        "prompts/cart_mfp",
        lambda d: d["observations"][1]["masked_grid"].pop(),
        r"observations\[1\].masked_grid: expected 6 rows of 6 integers from 0 to 39",
    ),
    (
        "prompts/cart_mfp",
        lambda d: d["observations"][1]["masked_grid"][0].__setitem__(0, 40),
        "integers from 0 to 39",
    ),
    (
        "prompts/cart_mfp",
        lambda d: d["observations"].pop(),
        None,
    ),
    (
        "prompts/cart_mfp",
        lambda d: [d["observations"].pop() for _ in range(2)],
        "the last frame: expected masked cells",
    ),
    ("prompts/cart_mfp", lambda d: d.update(choices=[]), "at least two patches"),
    ("prompts/cart_mfp", lambda d: d["choices"][1].pop(), r"choices\[1\]: expected 3 rows of 3"),
    ("prompts/cart_mfp", lambda d: d["choices"][1][0].__setitem__(0, 0), "from 1 to 39"),
    ("answers/cart_mfp", lambda d: d.update(correct_idx=6), "correct_idx: expected an integer"),
    ("answers/cart_mfp", lambda d: d.update(correct_idx=True), "correct_idx"),
    ("answers/cart_mfp", lambda d: d.update(seed=-1), "seed: expected an integer"),
    ("answers/cart_mfp", lambda d: d.update(random="dice"), "expected reference or jax"),
    ("answers/cart_mfp", lambda d: d.update(random_floor="low"), "random_floor"),
    ("answers/cart_mfp", lambda d: d.update(next_order="cart"), "next_order"),
    ("answers/cart_mfp", lambda d: d.update(capacity=-2), "capacity"),
    ("prompts/cart_planning", lambda d: d["mask"][0].__setitem__(0, 2), "mask: expected 6 rows"),
    ("prompts/cart_planning", lambda d: d.update(mask=[[0] * 6] * 6), "mask: expected a 1"),
    ("prompts/cart_planning", lambda d: d.update(mask=[[1] * 5] * 5), "mask: expected 6 rows"),
    ("prompts/cart_planning", lambda d: d["goal"][0].__setitem__(0, 0), "has no colour"),
    ("prompts/cart_planning", lambda d: d.pop("goal"), "goal: expected 6 rows"),
    ("answers/cart_planning", lambda d: d.update(optimal_actions_count=-1), "whole number"),
    ("answers/cart_planning", lambda d: d.update(plan=[["click", 1]]), "action 0: expected"),
    ("answers/cart_planning", lambda d: d.update(plan={}), "expected a list of actions"),
    ("prompts/cart_cd", lambda d: d.pop("wrong_program"), "wrong_program"),
    ("prompts/cart_cd", lambda d: d.update(wrong_program="kart"), "kart.sexp"),
    ("answers/cart_cd", lambda d: d.pop("condition"), "condition: expected an expression"),
    ("answers/cart_cd", lambda d: d.update(clock=3), "clock: expected the name"),
]


@pytest.mark.parametrize(("name", "edit", "message"), WRONG)
def test_malformed_files_are_refused_by_name(folder, name, edit, message):
    path = folder / f"{name}.json"
    edited(path, edit)
    if message is None:
        # A shorter recording is a task of its own.
        assert len(read_task(folder, path.stem).actions) == 3
        return
    with pytest.raises(DataError, match=message) as caught:
        read_task(folder, path.stem)
    assert str(folder) in str(caught.value)


def test_files_that_are_no_json_or_missing_are_refused(folder):
    path = folder / "prompts" / "cart_cd.json"
    for text in ("{", "[1]", '"text"', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(DataError, match=r"cart_cd.json"):
            read_tasks(folder)
    (folder / "answers" / "cart_mfp.json").unlink()
    with pytest.raises(DataError, match=r"answers/cart_mfp.json: cannot be read"):
        read_task(folder, "cart_mfp")
    with pytest.raises(DataError, match="expected a folder with tasks"):
        read_tasks(folder / "nowhere")


def test_programs_that_do_not_fit_are_refused(folder):
    programs = folder / "programs"
    (programs / "cart_changed.sexp").write_text(worlds.CHANGED.replace("SIZE 6", "SIZE 7"))
    with pytest.raises(DataError, match="cart_changed has a GRID_SIZE of 7, cart of 6"):
        read_task(folder, "cart_cd")
    (programs / "cart.sexp").write_text(worlds.CART.replace("SIZE 6", "SIZE 5"))
    with pytest.raises(DataError, match="expected 5 rows of 5"):
        read_task(folder, "cart_planning")
    (programs / "cart.sexp").write_text("(program")
    with pytest.raises(ProgramError, match=r"cart.sexp: line 1"):
        read_task(folder, "cart_planning")
    edited(folder / "answers" / "cart_cd.json", lambda d: d.update(condition=")"))
    (programs / "cart.sexp").write_text(worlds.CART)
    (programs / "cart_changed.sexp").write_text(worlds.CHANGED)
    with pytest.raises(ProgramError):
        read_task(folder, "cart_cd")


def test_two_programs_of_one_name_cannot_be_written(tmp_path):
    other = dataclasses.replace(worlds.WORLD, source=worlds.WALKER)
    tasks = [worlds.planning(), dataclasses.replace(worlds.planning(), world=other, id="b")]
    with pytest.raises(ConfigError, match="two different programs"):
        write_tasks(tmp_path, tasks)
