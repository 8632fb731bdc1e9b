"""Two real processes on loopback give what one process gives."""

from __future__ import annotations

import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

from jaxlab.core import checkpointing, reporting, runfolder

ARGUMENTS = ["--preset", "smoke", "--seeds", "4", "--no-progress"]


def start(run_dir: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.core.probe_run", *ARGUMENTS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_pair(run_dir: pathlib.Path, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    address = f"127.0.0.1:{free_port()}"
    shared = ["--devices", "cpu:2", "--distributed", "--coordinator", address]
    processes = [
        start(run_dir, *arguments, *shared, "--num-processes", "2", "--process-id", str(number))
        for number in (0, 1)
    ]
    try:
        done = []
        for process in processes:
            stdout, stderr = process.communicate(timeout=240)
            done.append(
                subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
            )
        return done
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> pathlib.Path:
    run_dir = tmp_path_factory.mktemp("single") / "run"
    process = start(run_dir, "--run-dir", str(run_dir))
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    return run_dir


def check_same_result(run_dir: pathlib.Path, single: pathlib.Path) -> None:
    with np.load(run_dir / "final.npz") as got, np.load(single / "final.npz") as expected:
        assert sorted(got) == sorted(expected)
        for name in expected:
            if expected[name].dtype.kind == "f":
                np.testing.assert_allclose(got[name], expected[name], atol=1e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(got[name], expected[name], err_msg=name)
    mine, theirs = reporting.read_metrics(run_dir), reporting.read_metrics(single)
    for name in set(theirs) - {"seconds"}:
        np.testing.assert_allclose(mine[name], theirs[name], atol=1e-5, err_msg=name)
    records = reporting.read_records(run_dir)["weights"]
    np.testing.assert_allclose(records, reporting.read_records(single)["weights"], atol=1e-6)


def forget_the_end(run_dir: pathlib.Path) -> None:
    shutil.rmtree(run_dir / runfolder.CHECKPOINTS / "40")
    (run_dir / "final.npz").unlink()


def test_two_processes_give_the_single_process_result(tmp_path, single):
    run_dir = tmp_path / "run"
    pair = run_pair(run_dir, "--run-dir", str(run_dir))
    for done in pair:
        assert done.returncode == 0, done.stderr
    check_same_result(run_dir, single)
    # The first process alone speaks.
    assert "norm" in pair[0].stdout
    assert "norm" not in pair[1].stdout
    assert checkpointing.steps(run_dir / runfolder.CHECKPOINTS) == [30, 40]

    # A checkpoint of two processes goes on in one.
    forget_the_end(run_dir)
    process = start(run_dir, "--resume", str(run_dir))
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    check_same_result(run_dir, single)


def test_a_pair_resumes_what_one_process_began(tmp_path, single):
    run_dir = tmp_path / "run"
    shutil.copytree(single, run_dir)
    forget_the_end(run_dir)
    for done in run_pair(run_dir, "--resume", str(run_dir)):
        assert done.returncode == 0, done.stderr
    check_same_result(run_dir, single)


def test_a_process_without_a_coordinator_is_told_what_to_give(tmp_path):
    process = start(tmp_path / "run", "--distributed", "--run-dir", str(tmp_path / "run"))
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 2
    assert "--coordinator HOST:PORT" in stderr
    assert stderr.count("\n") == 1
