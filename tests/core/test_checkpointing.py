"""Checkpoints: what comes back, what is refused, full disks."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from jaxlab.core import checkpointing, reporting, runfolder
from jaxlab.core.errors import CheckpointError, ConfigError
from jaxlab.core.training import run
from tests.core import probes

CONFIG = {"lanes": 3, "grid": [2, 2], "nested": {"rate": 0.5}}


def some_state(scale: float = 1.0):
    return {
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(8), 3),
        "weights": scale * jnp.arange(5.0),
        "flags": jnp.array([True, False]),
        "empty": jnp.zeros((2, 0), jnp.int32),
        "no keys": jax.random.split(jax.random.key(8), 3)[:0],
        "nothing": (None, ()),
    }


def abstract(state):
    device = SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), state)


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20):
        checkpointing.save(
            tmp_path, step, some_state(step), config=CONFIG, host={"level": step / 3}
        )
    return tmp_path


def test_state_and_host_come_back_bit_by_bit(folder):
    restored = checkpointing.restore(folder, abstract(some_state()), config=CONFIG)
    assert restored.step == 20
    assert restored.host == {"level": 20 / 3}
    chex.assert_trees_all_equal(restored.state, some_state(20))
    chex.assert_trees_all_equal_shapes_and_dtypes(restored.state, some_state(20))


def test_an_earlier_step_can_be_chosen(folder):
    restored = checkpointing.restore(folder, abstract(some_state()), step=10)
    chex.assert_trees_all_equal(restored.state, some_state(10))


def test_only_the_newest_are_kept(folder):
    checkpointing.save(folder, 30, some_state(), config=CONFIG)
    assert checkpointing.steps(folder) == [20, 30]
    assert sorted(path.name for path in folder.iterdir()) == ["20", "30"]


def test_a_document_says_what_it_is(folder):
    document = checkpointing.read_document(folder)
    assert document["schema"] == checkpointing.SCHEMA
    assert document["config"] == CONFIG
    assert document["config_hash"] == runfolder.config_hash(CONFIG)


@pytest.mark.parametrize(
    ("config", "difference"),
    [
        (CONFIG | {"lanes": 4}, "lanes: saved 3, now 4"),
        (CONFIG | {"nested": {"rate": 0.25}}, "nested.rate: saved 0.5, now 0.25"),
        (CONFIG | {"new": 1}, "new: saved absent, now 1"),
        ({"lanes": 3, "grid": [2, 2]}, "nested.rate: saved 0.5, now absent"),
    ],
)
def test_another_configuration_is_refused_with_the_difference(folder, config, difference):
    with pytest.raises(CheckpointError, match="another configuration") as caught:
        checkpointing.restore(folder, abstract(some_state()), config=config)
    assert difference in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_another_state_is_refused_with_the_leaf(folder):
    other = some_state() | {"weights": jnp.zeros(6)}
    with pytest.raises(CheckpointError, match=r"weights: saved .float32\[5\].*float32\[6\]"):
        checkpointing.restore(folder, abstract(other), config=CONFIG)


def test_another_schema_is_refused(folder, monkeypatch):
    monkeypatch.setattr(checkpointing, "SCHEMA", checkpointing.SCHEMA + 1)
    with pytest.raises(CheckpointError, match="schema version 1"):
        checkpointing.restore(folder, abstract(some_state()))


@pytest.mark.parametrize("step", [None, 15])
def test_a_missing_checkpoint_is_named(folder, step, tmp_path_factory):
    where = folder if step else tmp_path_factory.mktemp("void")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpointing.restore(where, abstract(some_state()), step=step)


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "document"])
def test_a_damaged_checkpoint_is_told_with_the_way_back(folder, damage):
    if damage == "document":
        (folder / "20" / "run" / "metadata").write_text("{")
    for path in [p for p in (folder / "20" / "state").rglob("*") if p.is_file()]:
        data = path.read_bytes()
        if damage == "truncate":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "flip":
            path.write_bytes(bytes(byte ^ 0xFF for byte in data))
        elif damage == "delete" and path.parent.name == "d":
            path.unlink()
    with pytest.raises(CheckpointError, match=r"damaged.*continue from step 10"):
        checkpointing.restore(folder, abstract(some_state()), config=CONFIG)
    shutil.rmtree(folder / "20")
    assert checkpointing.restore(folder, abstract(some_state())).step == 10


def test_an_unfinished_checkpoint_does_not_count(folder):
    shutil.copytree(folder / "20", folder / "30.orbax-checkpoint-tmp")
    assert checkpointing.latest(folder) == 20
    checkpointing.save(folder, 30, some_state(), config=CONFIG)
    assert sorted(path.name for path in folder.iterdir()) == ["20", "30"]


FILL = """
import pathlib, resource, sys
import jax
from jaxlab.core import checkpointing, errors
folder, size, limit = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    for step in range(1, 4):
        n = 10 if limit and step < 3 else size
        state = {"weights": jax.random.normal(jax.random.key(step), (n,))}
        checkpointing.save(folder, step, state, config={}, host=step)
except errors.CheckpointError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def fill(folder: pathlib.Path, size: int, limit: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FILL, str(folder), str(size), str(limit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def check_nothing_was_lost(folder: pathlib.Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == CheckpointError.exit_code, done.stderr
    assert done.stdout.count("\n") == 1
    assert "the disk is full: could not save step 3" in done.stdout
    assert "step 2 is intact" in done.stdout
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
    document = checkpointing.read_document(folder)
    assert (document["step"], document["host"]) == (2, 2)
    (shape,) = document["leaves"].values()
    size = int(shape.removeprefix("float32[").removesuffix("]"))
    state = {"weights": jax.random.normal(jax.random.key(2), (size,))}
    chex.assert_trees_all_equal(checkpointing.restore(folder, abstract(state)).state, state)


def test_a_file_that_may_not_grow_loses_nothing_saved_before(tmp_path):
    folder = tmp_path / "checkpoints"
    check_nothing_was_lost(folder, fill(folder, 500_000, limit=200_000))


@pytest.fixture
def small_disk(tmp_path):
    mount = shutil.which("mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    yield disk
    # What orbax left half written complains when it is collected: here, not in another test.
    gc.collect()
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_loses_nothing_saved_before_where_mounting_is_allowed(small_disk):
    folder = small_disk / "checkpoints"
    check_nothing_was_lost(folder, fill(folder, 320_000))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_on_a_full_disk_goes_on_after_room_is_made_where_mounting_is_allowed(small_disk):
    ballast = small_disk / "ballast"
    learner, hyper = probes.noisy_descent(20_000), probes.Hyper(learning_rate=1e-6)
    options = {"hyper": hyper, "steps": 16, "chunk": 2, "progress": False}
    run_dir = small_disk / "run"

    def between(state, metrics, host):
        if host["calls"] == 3 and not host["again"]:
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            ballast.write_bytes(os.urandom(free - 20_000))
        return state, host | {"calls": host["calls"] + 1}

    host = {"calls": 0, "again": False}
    with pytest.raises(CheckpointError, match="disk is full"):
        run(learner, run_dir=run_dir, between=between, host=host, **options)
    assert checkpointing.latest(run_dir / runfolder.CHECKPOINTS) == 6
    ballast.unlink()

    def count(state, metrics, host):
        return state, host | {"calls": host["calls"] + 1}

    resumed = run(learner, run_dir=run_dir, resume=True, between=count, host=host, **options)
    whole = run(learner, between=count, host=host, **options)
    chex.assert_trees_all_equal(resumed.state, whole.state)
    assert resumed.host == whole.host
    np.testing.assert_array_equal(resumed.metrics["loss"], whole.metrics["loss"])


def test_a_full_disk_is_told_when_metrics_are_written(tmp_path):
    if not pathlib.Path("/dev/full").exists():
        raise RuntimeError("this system has no /dev/full; write the test for it")
    log = reporting.MetricsLog(tmp_path)
    log.rewind(0)
    (tmp_path / runfolder.METRICS).unlink()
    (tmp_path / runfolder.METRICS).symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"the disk is full.*metrics\.jsonl"):
        log.append({"step": 1})


def test_a_whole_file_or_nothing(tmp_path):
    path = tmp_path / "summary.json"
    runfolder.write_text(path, "old")
    code = (
        "import pathlib, resource, sys\n"
        "from jaxlab.core import runfolder, errors\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "try:\n"
        "    runfolder.write_text(pathlib.Path(sys.argv[1]), 'new' * 100)\n"
        "except errors.CheckpointError as error:\n"
        "    print(error)\n"
    )
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert "the disk is full" in done.stdout
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        runfolder.write_text(tmp_path / "file" / "x" / "y.json", "{}")


def test_a_run_refuses_the_folder_of_another(tmp_path):
    options = {"hyper": probes.Hyper(), "steps": 4, "progress": False, "run_dir": tmp_path}
    run(probes.noisy_descent(), **options)
    with pytest.raises(ConfigError, match="already holds a run"):
        run(probes.noisy_descent(), **options)
    changed = [
        ({"steps": 8}, "run.steps: saved 4, now 8"),
        ({"seeds": 2}, "run.seeds: saved 1, now 2"),
        ({"hyper": probes.Hyper(noise=0.25)}, "hyper.noise: saved 0.5, now 0.25"),
        ({"config": {"x": 1}}, "config: saved null, now absent; config.x"),
    ]
    for change, difference in changed:
        with pytest.raises(CheckpointError) as caught:
            run(probes.noisy_descent(), resume=True, **(options | change))
        assert difference in str(caught.value)
    with pytest.raises(CheckpointError, match=r"weights: saved .float32\[1,4\]"):
        run(probes.noisy_descent(5), resume=True, **options)


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    options = {"hyper": probes.Hyper(), "steps": 8, "chunk": 2, "progress": False}
    whole = run(probes.noisy_descent(), run_dir=tmp_path, checkpoint_every=2, **options)
    path = tmp_path / runfolder.METRICS
    shutil.rmtree(tmp_path / runfolder.CHECKPOINTS / "8")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:20])
    again = run(
        probes.noisy_descent(), run_dir=tmp_path, checkpoint_every=2, resume=True, **options
    )
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4, 6, 8]
    chex.assert_trees_all_equal(again.state, whole.state)
    np.testing.assert_array_equal(again.records()["step"], np.arange(1, 9))


def test_damaged_metrics_are_told_on_resume(tmp_path):
    options = {"hyper": probes.Hyper(), "steps": 4, "progress": False, "run_dir": tmp_path}
    run(probes.noisy_descent(), **options)
    (tmp_path / runfolder.METRICS).write_text("nonsense\n")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl.*damaged"):
        run(probes.noisy_descent(), resume=True, **options)
