"""`python -m experiments.autumn`: what it writes, and what it refuses."""

import json

import numpy as np
import pytest
from PIL import Image

from experiments.autumn.__main__ import COMMANDS, main
from tests.envs.autumn.traces import GOLDEN, recorded


def test_help_lists_the_commands(capsys):
    main(["--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    with pytest.raises(SystemExit):
        main(["fly"])


def test_replay_writes_the_layout_of_a_recorded_trace(tmp_path, capsys):
    trace = recorded("objects")
    out = tmp_path / "out.json"
    program, actions = GOLDEN / "objects.sexp", GOLDEN / "objects.json"
    main(
        [
            "replay",
            "--program",
            str(program),
            "--actions",
            str(actions),
            "--seed",
            "7",
            "--out",
            str(out),
        ]
    )
    result = json.loads(out.read_text())
    for name in ("frames", "cells", "palette", "variables", "background", "grid_size", "actions"):
        assert result[name] == trace[name]
    assert result["error"] is None
    assert "may grow" in capsys.readouterr().err


def test_replay_says_where_a_program_fails(tmp_path, capsys):
    actions, out = tmp_path / "actions.json", tmp_path / "out.json"
    actions.write_text('[["noop"], ["left"], ["right"]]')
    main(
        [
            "replay",
            "--program",
            str(GOLDEN / "errors.sexp"),
            "--actions",
            str(actions),
            "--out",
            str(out),
        ]
    )
    result = json.loads(out.read_text())
    assert len(result["frames"]) == 3
    assert "head of an empty list" in result["error"]
    assert "fails in step 3" in capsys.readouterr().out


def test_gif_draws_a_run(tmp_path):
    actions, out = tmp_path / "actions.json", tmp_path / "run.gif"
    actions.write_text(json.dumps([["click", 1, 1], {"type": "left"}, "noop"]))
    program = str(GOLDEN / "objects.sexp")
    main(
        [
            "gif",
            "--program",
            program,
            "--actions",
            str(actions),
            "--out",
            str(out),
            "--scale",
            "4",
            "--random",
            "jax",
        ]
    )
    with Image.open(out) as gif:
        assert gif.size == (32, 32)
        assert np.asarray(gif.convert("RGB")).any()


@pytest.mark.parametrize(
    ("program", "actions", "message"),
    [
        ("(program (= GRID_SIZE 4)", "[]", "line 1, column 1: this parenthesis is not closed"),
        ("(program (= GRID_SIZE 4) (on left (fly 1)))", "[]", "'fly' is not defined"),
        ("(program (= a 1))", "[]", "sets no GRID_SIZE"),
        (None, "[]", "the program cannot be read"),
        ("(program (= GRID_SIZE 4))", '[["click", 4, 0]]', "outside the grid"),
        ("(program (= GRID_SIZE 4))", '[["jump"]]', "action 0: expected [KIND]"),
        ("(program (= GRID_SIZE 4))", "{}", "expected a list of actions"),
        ("(program (= GRID_SIZE 4))", "[", "the actions cannot be read"),
    ],
)
def test_bad_input_is_refused(program, actions, message, tmp_path, capsys):
    (tmp_path / "actions.json").write_text(actions)
    if program is not None:
        (tmp_path / "program.sexp").write_text(program)
    with pytest.raises(SystemExit) as ended:
        main(
            [
                *("replay", "--program", str(tmp_path / "program.sexp")),
                *("--actions", str(tmp_path / "actions.json"), "--out", str(tmp_path / "out.json")),
            ]
        )
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_options_are_checked(tmp_path, capsys):
    for argv, message in (
        (["--actions", "a", "--out", "b"], "--program: is missing"),
        (["--program", "p", "--actions", "a", "--out", "b", "--seed", "-1"], "--seed -1"),
    ):
        with pytest.raises(SystemExit):
            main(["replay", *argv])
        assert message in capsys.readouterr().err
