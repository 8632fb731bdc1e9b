"""`python -m experiments.autumn tasks`, and language models that take the tasks."""

import json

import pytest

from experiments.autumn.__main__ import main
from experiments.autumn.language_agent import LanguageAgent
from jaxlab.envs.autumn.tasks.protocol import Limits, Session, run_session
from jaxlab.envs.autumn.tasks.reading import read_tasks
from jaxlab.envs.autumn.tasks.verifying import require_sound
from jaxlab.shaping.architects.language_model import LocalModel
from jaxlab.shaping.react import RecordedModel
from tests.envs.autumn import worlds


def test_tasks_are_made_for_a_program_of_ones_own(tmp_path, capsys):
    program, out = tmp_path / "cart.sexp", tmp_path / "tasks"
    program.write_text(worlds.CART)
    main(["tasks", "--program", str(program), "--seed", "1", "--out", str(out)])
    tasks = read_tasks(out)
    assert [task.family for task in tasks] == [
        "change_detection",
        "masked_frame_prediction",
        "planning",
    ]
    for task in tasks:
        require_sound(task)
    assert len(json.loads((out / "tasks.json").read_text())) == 3
    assert "cart_mfp: masked_frame_prediction, random agent 0.167" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out: is missing"),
        (["--out", "x", "--seed", "-1"], "--seed -1"),
        (["--out", "x", "--program", "p", "--only", "ants"], "--only"),
        (["--out", "x", "--pack", "p"], "--pack"),
        (["--out", "x", "--program", "nowhere.sexp"], "nowhere.sexp: the program cannot be read"),
        (["--out", "x", "--seed", "1", "--only", "nowhere"], "'nowhere' is not in the suite"),
    ],
)
def test_wrong_options_are_named(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["tasks", *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def told(action):
    return json.dumps({"thought": "let us see", "scratchpad": "", "action": action})


def test_a_language_model_takes_a_task_and_its_records_repeat_it():
    plan = ["right", "right", "click 4 0", *["noop"] * 5]
    script = [told(action) for action in ("left", "fly", "go-to-test", *plan)]
    records = []
    model = LocalModel(lambda conversations, schema, seeds: [script.pop(0)], "tiny")
    agent = LanguageAgent(model, watch=records.append, seed=2)
    limits = Limits(interaction=5, total=30)
    result = run_session(Session(worlds.planning(), limits=limits), agent)
    assert (result.score, agent.fallbacks) == (1.0, 0)
    assert "'fly' is no action that is offered" in records[1]["problem"]
    assert "Goal:" in records[-1]["messages"][1]["content"]
    again = LanguageAgent(RecordedModel(records), seed=2)
    assert run_session(Session(worlds.planning(), limits=limits), again) == result


def test_a_model_that_says_nothing_gets_to_the_end():
    model = LocalModel(lambda conversations, schema, seeds: ["hm"] * len(conversations), "mute")
    agent = LanguageAgent(model, repairs=0)
    result = run_session(Session(worlds.masked_frames(), limits=Limits(2, 20)), agent)
    assert result.acts == agent.fallbacks == 7
    assert result.verdict.choice == 0
