"""Importing the library is cheap and starts no backend."""

from __future__ import annotations

import pkgutil
import resource
import subprocess
import sys

import pytest

import jaxlab.core


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


def core_modules() -> list[str]:
    found = pkgutil.iter_modules(jaxlab.core.__path__, "jaxlab.core.")
    return sorted(module.name for module in found if not module.name.endswith(".adapters"))


def test_import_is_cheap():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run_python("import jaxlab")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 2.0


def test_core_modules_start_no_backend():
    """Only before the backend starts can the number of CPU devices be chosen."""
    code = "\n".join(
        [
            *(f"import {name}" for name in core_modules()),
            "import jax",
            "jax.config.update('jax_num_cpu_devices', 2)",
            "assert len(jax.devices()) == 2",
        ]
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["cli", "options", "devices", "runfolder", "errors"])
def test_light_modules_import_neither_jax_nor_flax(module):
    code = (
        f"import sys, jaxlab.core.{module}\n"
        "heavy = {'jax', 'jaxlib', 'flax', 'numpy', 'orbax', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_a_backend_that_runs_already_is_reported():
    done = run_python(
        "import jax; jax.devices()\n"
        "from jaxlab.core import devices, errors\n"
        "try:\n"
        "    devices.setup('cpu:2')\n"
        "except errors.DeviceError as error:\n"
        "    print(error)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "already running" in done.stdout
