"""One device and eight give the same: random numbers and integers exactly, floats to 1e-6."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxlab.core.errors import DeviceError
from jaxlab.core.placement import place
from jaxlab.core.training import run
from tests.core import probes

#: Runs what is to be compared on the devices of its first argument, into a file.
PROGRAM = """
import sys
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from jaxlab.core import devices, reporting
devices.setup(sys.argv[1])
from jaxlab.core.training import run
from tests.core import probes

kept = {}
def keep(name, result):
    assert len(jax.tree.leaves(result.state)[0].sharding.device_set) == int(sys.argv[3]), name
    kept[name] = devices.fetch(result.state)
    kept[name + " metrics"] = {k: v for k, v in result.metrics.items() if k != "seconds"}
    kept[name + " records"] = result.records()

run_quietly = lambda *args, **kwargs: run(*args, steps=10, chunk=5, progress=False, **kwargs)
keep("seeds", run_quietly(probes.noisy_descent(), hyper=probes.Hyper(), seeds=8))
keep("pairs", run_quietly(probes.noisy_descent(), hyper=probes.Hyper(), seeds=16))
sharding = probes.crowd_sharding(P("env"))
keep("batch", run_quietly(probes.crowd(16), hyper=probes.Hyper(), sharding=sharding))
keep("both", run_quietly(probes.crowd(16), hyper=probes.Hyper(), seeds=2, sharding=sharding))
np.savez(sys.argv[2], **reporting.flatten_records(kept))
"""


def outcome(folder: pathlib.Path, count: int) -> dict[str, np.ndarray]:
    path = folder / f"{count}.npz"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"cpu:{count}", str(path), str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    with np.load(path) as data:
        return dict(data)


def test_eight_devices_agree_with_one_over_ten_updates(tmp_path):
    one, eight = outcome(tmp_path, 1), outcome(tmp_path, 8)
    assert sorted(one) == sorted(eight)
    floats = 0
    for name in one:
        assert one[name].dtype == eight[name].dtype, name
        if one[name].dtype.kind == "f":
            floats += one[name].size
            np.testing.assert_allclose(eight[name], one[name], rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(eight[name], one[name], err_msg=name)
    # Noise is stored as drawn: those bits are the generator's alone.
    for name in ("batch/noise", "both/noise"):
        assert one[name].tobytes() == eight[name].tobytes(), name
    assert floats > 500


def test_one_device_needs_no_mesh():
    placement = place(4)
    assert placement.mesh is None
    assert not placement.note


PLACES = """
from jaxlab.core import devices, errors
devices.setup("cpu:4")
from jaxlab.core.placement import place
for seeds in (1, 2, 3, 4, 6, 8):
    placement = place(seeds)
    print(seeds, 1 if placement.mesh is None else placement.mesh.size, placement.by_seed)
print(place(3, devices.make_mesh()).note)
try:
    place(6, sharding="seeds")
except errors.DeviceError as error:
    print(error)
"""


def test_as_many_devices_as_divide_the_seeds():
    done = subprocess.run(
        [sys.executable, "-c", PLACES], capture_output=True, text=True, check=True, timeout=120
    )
    *lines, note, error = done.stdout.splitlines()
    assert lines == ["1 1 False", "2 2 True", "3 1 False", "4 4 True", "6 2 True", "8 4 True"]
    assert note == "3 seeds do not divide over 4 devices: each device runs all"
    assert error.startswith("6 seeds do not divide over 4 devices; choose a multiple of 4")


@pytest.mark.parametrize(
    ("sharding", "message"),
    [
        (probes.State(P(), P(), P("env", None), P(), P()), "'weights'.*more axes"),
        ({"weights": P("env")}, "not a prefix"),
    ],
)
def test_shardings_that_do_not_fit_are_named(sharding, message):
    with pytest.raises(DeviceError, match=message):
        run(
            probes.noisy_descent(),
            steps=2,
            hyper=probes.Hyper(),
            sharding=sharding,
            progress=False,
        )


def test_one_spec_serves_a_whole_subtree():
    sharding = probes.State(P(), P(), P("env"), P("env"), None)
    result = run(
        probes.noisy_descent(), steps=2, hyper=probes.Hyper(), sharding=sharding, progress=False
    )
    assert result.state.weights.sharding.spec == P(None, "env")
    assert result.state.hyper.noise.sharding.spec == P(None)
