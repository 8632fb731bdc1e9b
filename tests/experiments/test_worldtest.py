"""`python -m experiments.worldtest`: what it writes, how it goes on, what it refuses."""

import json

import numpy as np
import pytest
from PIL import Image

from experiments.worldtest import report, sessions
from experiments.worldtest.__main__ import main
from experiments.worldtest.published import PUBLISHED
from experiments.worldtest.simulators import simulator_of
from jaxlab.core.errors import CheckpointError, Interrupted
from jaxlab.envs.autumn.tasks.protocol import Act, Limits
from jaxlab.envs.autumn.tasks.reading import write_tasks
from tests.experiments.worldtest_tasks import BLACK, RED, SIZE, tasks

PLANNER = (
    ("beam", 4),
    ("branches", 21),
    ("pool", 64),
    ("iterations", 8),
    ("exploring", 3),
    ("particles", 8),
)
SMALL = [part for name, value in PLANNER for part in (f"--planner.{name}", str(value))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tasks")
    write_tasks(path, tasks())
    return path


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    main(
        [
            *("--preset", "smoke", "--tasks", str(folder), "--run-dir", str(run_dir)),
            *("--agents", "random", "simulator", *SMALL),
        ]
    )
    return run_dir


def test_the_simulator_agent_passes_all_three_tests(finished):
    summary = json.loads((finished / "summary.json").read_text())
    told = summary["agents"]["simulator"]
    assert {name: of["mean"] for name, of in told["families"].items()} == {
        "masked_frame_prediction": 1,
        "planning": 1,
        "change_detection": 1,
    }
    assert told["all"]["tasks"] == 3
    assert told["environments"]["dot"]["planning"] == 1
    assert summary["agents"]["random"]["all"]["tasks"] == 3
    assert summary["published"]["human"]["all"] == 0.935
    assert summary["mode"] == "fixed"


def test_it_leaves_sessions_transcripts_and_figures(finished):
    rows = sessions.read_sessions(finished)
    # Two sessions of the random agent and one of the other on each task.
    assert len(rows) == 9
    assert {row["family"] for row in rows} == set(report.SHORT)
    for name in ("families", "environments"):
        assert (finished / "figures" / f"{name}.png").stat().st_size > 5000
    with Image.open(finished / "figures" / "plan.gif") as plan:
        # The world, a gap of one place and the goal, ten pixels a place.
        assert plan.size == (10 * (2 * SIZE + 1), 10 * SIZE)
        assert plan.n_frames > 1
    planned = json.loads(
        (finished / "transcripts" / "simulator" / "dot-planning-0.json").read_text()
    )
    assert planned["transcript"][0] == ["interaction", "go_to_test"]
    assert planned["transcript"][-1][0] == "test"
    assert planned["score"] == 1
    assert planned["acts"] == len(planned["transcript"])


def test_it_goes_on_where_it_stopped(finished, capsys):
    path = finished / sessions.SESSIONS
    lines = path.read_text().splitlines(keepends=True)
    random_lines = [line for line in lines if '"random"' in line]
    kept = [line for line in lines if line not in random_lines[-2:]]
    path.write_text("".join(kept) + random_lines[-1][:40])
    main(["--resume", str(finished)])
    again = path.read_text().splitlines(keepends=True)
    assert again[: len(kept)] == kept
    assert len(again) == len(lines)
    scores = [
        {(r["agent"], r["task"], r["seed"]): r["score"] for r in map(json.loads, of)}
        for of in (lines, again)
    ]
    assert scores[0] == scores[1]
    assert "published: human" in capsys.readouterr().out


def test_a_report_can_be_had_again(finished, capsys):
    (finished / "summary.json").unlink()
    main(["--evaluate", str(finished)])
    assert json.loads((finished / "summary.json").read_text())["agents"]["simulator"]
    assert "dot" in capsys.readouterr().out


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / sessions.SESSIONS).write_text('{"agent"\n{"agent": 1}\n')
    with pytest.raises(CheckpointError, match="line 1"):
        sessions.read_sessions(tmp_path)


def test_a_signal_ends_after_the_session_that_is_on(tmp_path):
    import os
    import signal

    class Quitter:
        def begin(self, observation):
            os.kill(os.getpid(), signal.SIGTERM)

        def act(self, observation):
            return Act("quit")

    jobs = sessions.jobs_of(tasks()[:1], ["quitter"], {"quitter": 3})
    held = {"mode": "fixed", "limits": Limits(), "progress": False}
    with pytest.raises(Interrupted, match="after 1 of 3"):
        sessions.hold(jobs, lambda *_: Quitter(), tmp_path, **held)
    assert len(sessions.read_sessions(tmp_path)) == 1


def test_scores_are_means_over_tasks_of_means_over_sessions():
    rows = [
        {"agent": "a", "task": task, "environment": "e", "family": "planning", "score": score}
        | {"acts": 1, "cpu_seconds": 0.0}
        for task, score in [("one", 0.0), ("one", 1.0), ("two", 1.0)]
    ]
    assert report.task_scores(rows, "a").tolist() == [0.5, 1.0]
    told = report.summarise(rows, ["a"], ["planning"])["a"]
    assert told["all"]["mean"] == 0.75
    assert told["all"]["low"] <= 0.75 <= told["all"]["high"]
    assert told["environments"]["e"]["planning"] == 0.75


def test_floors_are_means_of_the_tasks_that_were_taken():
    rows = [{"task": "one", "family": "planning"}, {"task": "two", "family": "planning"}] * 2
    floors = {"one": 0.2, "two": 0.4, "three": 1.0}
    means = report.mean_floors(rows, floors, ["planning", "change_detection"])
    assert means["planning"] == pytest.approx(0.3)
    assert means["change_detection"] is None


def test_published_means_agree_with_their_parts():
    for row in PUBLISHED.values():
        assert abs(np.mean([pair[0] for pair in row[:3]]) - row.all) < 8e-3


def test_the_simulator_shows_the_table_of_colours():
    import jax

    simulator = simulator_of(tasks()[0].world.compiled())
    state = simulator.init(jax.random.key(0), np.int32(0))
    assert sorted(np.unique(simulator.frame(state)).tolist()) == sorted({BLACK, RED})
    assert len(simulator.actions) == 5 + SIZE**2
    assert simulator.places[:5].tolist() == [-1] * 5
    # A click on column 1 of row 3.
    assert simulator.actions[5 + 3 * SIZE + 1].tolist() == [5, 1, 3]
    assert simulator.places[5 + 3 * SIZE + 1] == 3 * SIZE + 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tasks", "nowhere"], "nowhere"),
        (["--total", "20"], "--total"),
        (["--planner.beam", "3"], "beam"),
        (["--agents", "random", "random"], "--agents"),
    ],
)
def test_options_out_of_range_are_refused(arguments, said, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main([*arguments, "--run-dir", str(tmp_path / "run")])
    assert said in capsys.readouterr().err


def test_unknown_environments_are_refused_and_leave_no_folder(folder, tmp_path, capsys):
    run_dir = tmp_path / "run"
    with pytest.raises(SystemExit):
        main(
            [
                *("--preset", "smoke", "--tasks", str(folder), "--run-dir", str(run_dir)),
                *("--environments", "moon"),
            ]
        )
    assert "expected some of dot" in capsys.readouterr().err
    assert not run_dir.exists()
