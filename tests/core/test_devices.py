"""Devices: what is asked for is what runs, or an error that lists what is there."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys

import pytest

from jaxlab.core import devices
from jaxlab.core.devices import DeviceRequest, parse_devices
from jaxlab.core.errors import DeviceError

REPORT = """
import sys
from jaxlab.core import devices, errors
try:
    devices.setup(*sys.argv[1:2], x64="x64" in sys.argv)
except errors.JaxlabError as error:
    print(type(error).__name__, error)
    sys.exit(error.exit_code)
import jax, jax.numpy as jnp
print(jax.default_backend(), len(devices.visible()), jnp.ones(()).dtype)
print(jax.config.jax_compilation_cache_dir)
print(devices.make_mesh().shape['env'], devices.make_mesh().axis_types)
"""


def report(*arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    variables = os.environ | environment
    return subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={name: value for name, value in variables.items() if value is not None},
    )


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("cpu", DeviceRequest("cpu")),
        (" GPU:2", DeviceRequest("gpu", 2)),
        ("tpu:16", DeviceRequest("tpu", 16)),
    ],
)
def test_requests_are_parsed(text, request_):
    assert parse_devices(text) == request_


@pytest.mark.parametrize("text", ["cpu:", "cpu:0", "cpu:-1", "cpu:1.5", "cpu:two", "gpu:1:2"])
def test_wrong_counts_are_refused(text):
    with pytest.raises(DeviceError, match="count of at least 1"):
        parse_devices(text)


@pytest.mark.parametrize("text", ["", "quantum", "cuda", "cpu,gpu", ":3"])
def test_an_unknown_kind_is_refused(text):
    with pytest.raises(DeviceError, match=r"expected one of cpu, gpu, tpu.* has: .*cpu \(1\)"):
        parse_devices(text)


def test_an_unknown_kind_lists_what_is_there():
    done = report("quantum")
    assert done.returncode == 2, done.stderr
    assert "This machine has: cpu (1)" in done.stdout
    assert done.stdout.count("\n") == 1


def test_cpu_count_simulates_devices():
    done = report("cpu:3")
    assert done.stdout.splitlines()[0] == "cpu 3 float32", done.stdout + done.stderr
    assert done.stdout.splitlines()[2] == "3 (Auto,)"


@pytest.mark.parametrize("kind", ["gpu", "tpu"])
def test_an_absent_kind_lists_what_is_there(kind):
    if kind in devices.present():
        pytest.fail(f"this machine has a {kind}; nothing to refuse")
    done = report(kind)
    assert done.returncode == 2, done.stderr
    assert f"--devices {kind}: no such device here" in done.stdout
    assert "This machine has: cpu" in done.stdout
    assert done.stdout.count("\n") == 1


def test_without_the_flag_the_environment_holds():
    done = report(JAX_NUM_CPU_DEVICES="2", JAX_ENABLE_X64="1")
    assert done.stdout.splitlines()[0] == "cpu 2 float64", done.stdout + done.stderr


def test_an_absent_platform_of_the_environment_is_an_error():
    done = report(JAX_PLATFORMS="tpu")
    assert done.returncode == 2, done.stderr
    assert "JAX_PLATFORMS=tpu: no such device here" in done.stdout


def test_the_flag_overrides_the_environment():
    done = report("cpu", JAX_PLATFORMS="tpu")
    assert done.stdout.startswith("cpu 1"), done.stdout + done.stderr


def test_x64_is_switched_on():
    assert report("cpu", "x64").stdout.startswith("cpu 1 float64")


def test_the_compilation_cache_is_the_users_own(tmp_path):
    done = report("cpu", JAX_COMPILATION_CACHE_DIR=None, XDG_CACHE_HOME=str(tmp_path))
    folder = pathlib.Path(done.stdout.splitlines()[1])
    assert folder.is_relative_to(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(folder.iterdir()), "nothing was cached"


def test_a_cache_that_cannot_be_made_does_no_harm(tmp_path):
    (tmp_path / "file").write_text("")
    cache = str(tmp_path / "file")
    done = report("cpu", JAX_COMPILATION_CACHE_DIR=None, XDG_CACHE_HOME=cache)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == "None"


def test_a_mesh_larger_than_the_machine_is_refused():
    count = len(devices.visible())
    for wrong in (0, count + 1):
        with pytest.raises(DeviceError, match=f"{count} are visible"):
            devices.make_mesh(wrong)


def test_a_process_alone_agrees_with_itself():
    assert devices.agree(True)
    assert not devices.agree(False)
    assert devices.share_text("tëxt") == "tëxt"
    assert devices.is_primary()
