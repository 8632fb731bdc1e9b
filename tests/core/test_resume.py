"""Processes that are stopped and killed, and go on to the same bits."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from jaxlab.core import checkpointing, reporting, runfolder

#: Weights enough that a checkpoint takes a while to write.
SIZE = 100_000
ARGUMENTS = ["--preset", "smoke", "--steps", "24", "--chunk", "2", "--seeds", "2"]
ARGUMENTS += ["--size", str(SIZE), "--learning-rate", "1e-6", "--no-progress"]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.core.probe_run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=180)
    return process.returncode, stderr


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit, "the moment never came"
        time.sleep(0.0005)


def lines(run_dir: pathlib.Path) -> int:
    path = run_dir / runfolder.METRICS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def saving(run_dir: pathlib.Path) -> bool:
    checkpoints = run_dir / runfolder.CHECKPOINTS
    return checkpoints.is_dir() and any("tmp" in name for name in os.listdir(checkpoints))


def saved(run_dir: pathlib.Path) -> bool:
    checkpoints = run_dir / runfolder.CHECKPOINTS
    return checkpoints.is_dir() and any(name.isdigit() for name in os.listdir(checkpoints))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> pathlib.Path:
    """A run that nothing disturbed."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    code, stderr = finish(start(*ARGUMENTS, "--run-dir", str(run_dir)))
    assert code == 0, stderr
    return run_dir


def check_same_bits(run_dir: pathlib.Path, whole: pathlib.Path) -> None:
    with np.load(run_dir / "final.npz") as got, np.load(whole / "final.npz") as expected:
        assert sorted(got) == sorted(expected)
        assert got["weights"].shape == (2, SIZE)
        for name in expected:
            assert got[name].tobytes() == expected[name].tobytes(), name
    for read in (reporting.read_metrics, reporting.read_records):
        mine, theirs = read(run_dir), read(whole)
        assert sorted(mine) == sorted(theirs)
        for name in set(theirs) - {"seconds"}:
            np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


def test_killed_at_every_kind_of_moment(tmp_path, whole):
    """One run folder, killed again and again, each time at another kind of moment."""
    run_dir = tmp_path / "run"
    moments = {
        "before the first checkpoint": lambda: (run_dir / runfolder.CONFIG).exists(),
        "in the first save": lambda: saving(run_dir),
        "between chunks": lambda: lines(run_dir) >= 4 and not saving(run_dir),
        "in a later save": lambda: lines(run_dir) >= 6 and saving(run_dir),
    }
    hit = []
    for moment, condition in moments.items():
        first = not run_dir.exists()
        where = [*ARGUMENTS, "--run-dir"] if first else ["--resume"]
        process = start(*where, str(run_dir), "--pause", "0.05")
        wait_until(condition, process)
        process.send_signal(signal.SIGKILL)
        code, _ = finish(process)
        assert code == -signal.SIGKILL
        hit.append((moment, saving(run_dir), checkpointing.latest(run_dir / "checkpoints")))
    assert hit[0] == ("before the first checkpoint", False, None)
    code, stderr = finish(start("--resume", str(run_dir)))
    assert code == 0, stderr
    check_same_bits(run_dir, whole)
    assert any(during for _, during, _ in hit), "no kill hit a save"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_chunk_saves_and_says_how_to_go_on(tmp_path, whole, number):
    run_dir = tmp_path / "run"
    process = start(*ARGUMENTS, "--run-dir", str(run_dir), "--pause", "0.1")
    wait_until(lambda: lines(run_dir) >= 2, process)
    process.send_signal(number)
    code, stderr = finish(process)
    assert code == 0, stderr
    assert "Traceback" not in stderr
    step = checkpointing.latest(run_dir / runfolder.CHECKPOINTS)
    assert 4 <= step < 24
    assert f"stopped at step {step} of 24; saved in {run_dir}" in stderr
    assert f"python -m tests.core.probe_run --resume {run_dir}" in stderr
    assert not (run_dir / runfolder.SUMMARY).exists()
    code, stderr = finish(start("--resume", str(run_dir)))
    assert code == 0, stderr
    check_same_bits(run_dir, whole)


def test_resuming_a_finished_run_changes_nothing(tmp_path, whole):
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir)
    code, stderr = finish(start("--resume", str(run_dir)))
    assert code == 0, stderr
    check_same_bits(run_dir, whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "30"], "config.steps: saved 24, now 30"),
        (["--learning-rate", "1e-5"], "config.learning_rate: saved 1e-06, now 1e-05"),
        (["--x64"], "config.x64: saved false, now true"),
        (["--seed", "3"], "config.seed: saved 0, now 3"),
    ],
)
def test_another_configuration_is_one_line_and_an_exit_code(whole, arguments, message):
    code, stderr = finish(start("--resume", str(whole), *arguments))
    assert code == 2
    assert message in stderr
    assert stderr.count("\n") == 1
