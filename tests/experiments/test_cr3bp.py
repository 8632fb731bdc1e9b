"""`python -m experiments.cr3bp`: what it prints, and what it refuses."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.cr3bp.__main__ import COMMANDS, main
from experiments.cr3bp.options import PropagateOptions
from experiments.cr3bp.propagating import names, start
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.systems import get_system, libration_points
from tests.envs.cr3bp import oracles

ROOT = pathlib.Path(__file__).parents[2]
ORACLES = {oracle.orbit: oracle for oracle in oracles.BALLISTIC}
MU = get_system("saturn-titan").mass_parameter
TITAN = ("--system", "saturn-titan")
LOW_THRUST = {
    "mass": oracles.LOW_THRUST_START[6:7],
    "costate": oracles.LOW_THRUST_START[7:],
    "thrust": [oracles.THRUSTER.acceleration],
    "exhaust": [oracles.THRUSTER.exhaust_speed],
    "smoothing": [oracles.THRUSTER.smoothing],
}


@pytest.fixture(autouse=True)
def _precision():
    """The command switches 64 bits on for the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def numbers(values):
    """Arguments with all digits."""
    return [repr(float(value)) for value in values]


def of_orbit(name, *, planar=False):
    row = published_orbit(name)
    state = row.initial()[[0, 1, 3, 4]] if planar else row.initial()
    return ["--system", row.system_name, "--state", *numbers(state)]


def thrust(*without, **changes):
    """Options of the recorded low-thrust arc."""
    given = {name: v for name, v in (LOW_THRUST | changes).items() if name not in without}
    return [text for name, v in given.items() for text in (f"--{name}", *numbers(v))]


def run_json(capsys, *argv):
    main([*argv, "--json"])
    return json.loads(capsys.readouterr().out)


def command(*argv):
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "experiments.cr3bp", *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def refused(capsys, *argv):
    """The one line on standard error of a command that ends with exit code 2."""
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def test_a_process_prints_one_object():
    oracle = ORACLES["em-l1-halo-n"]  # with components such as -1.1555581216266303e-12
    done = command("propagate", *of_orbit(oracle.orbit), "--time", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    result = json.loads(done.stdout)
    assert list(result) == ["state", "jacobi", "steps", "status", "time"]
    np.testing.assert_allclose(result["state"], oracle.end, rtol=0, atol=oracle.tolerance)
    assert result["jacobi"] == pytest.approx(published_orbit(oracle.orbit).jacobi, abs=1e-11)
    assert (result["status"], result["time"]) == ("done", 3.0)
    assert result["steps"] > 10


def test_an_end_and_its_matrix_of_quadruple_precision(capsys):
    oracle = ORACLES["em-l2-halo-s-short"]
    argv = ["propagate", *of_orbit(oracle.orbit), "--time", str(oracle.time), "--stm"]
    result = run_json(capsys, *argv)
    np.testing.assert_allclose(result["state"], oracle.end, rtol=0, atol=1e-12)
    stm = np.array(result["stm"])
    assert stm.shape == (6, 6)
    np.testing.assert_allclose(np.trace(stm), oracle.trace, rtol=1e-10)
    np.testing.assert_allclose(stm[0, 0], oracle.corner, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(stm), oracle.frobenius, rtol=1e-10)
    main(argv)
    assert "End by start" in capsys.readouterr().out


def test_samples_in_the_plane_forwards_and_back(capsys):
    oracle = ORACLES["st-l2-lyapunov"]
    first = of_orbit(oracle.orbit, planar=True)
    result = run_json(capsys, "propagate", *first, "--time", "2", "--samples", "4")
    end = np.array(oracle.end)[[0, 1, 3, 4]]
    np.testing.assert_allclose(result["state"], end, rtol=0, atol=1e-12)
    trajectory = np.array(result["trajectory"])
    np.testing.assert_array_equal(trajectory[:, 0], [0.5, 1, 1.5, 2])
    np.testing.assert_array_equal(trajectory[-1, 1:], result["state"])
    back = [*TITAN, "--state", *numbers(trajectory[-1, 1:]), "--time", "-1.5", "--samples", "4"]
    result = run_json(capsys, "propagate", *back)
    assert result["time"] == -1.5
    np.testing.assert_allclose(result["state"], trajectory[0, 1:], rtol=0, atol=1e-11)


def test_low_thrust_of_quadruple_precision(capsys):
    state = numbers(oracles.LOW_THRUST_START[:6])
    argv = [
        *("propagate", "--mu", repr(oracles.LOW_THRUST_MU), "--state", *state, *thrust()),
        *("--time", "10", "--samples", "2"),
    ]
    result = run_json(capsys, *argv)
    assert set(result) == {
        *("state", "costate", "hamiltonian", "steps", "status", "time", "trajectory")
    }
    end = oracles.LOW_THRUST_ENDS[10.0]
    np.testing.assert_allclose(result["state"], end[:7], rtol=0, atol=1e-11)
    np.testing.assert_allclose(result["costate"], end[7:], rtol=0, atol=1e-11)
    assert result["hamiltonian"] == pytest.approx(oracles.LOW_THRUST_HAMILTONIAN, abs=1e-11)
    half = result["trajectory"][0]
    np.testing.assert_allclose(half, [5, *oracles.LOW_THRUST_ENDS[5.0]], rtol=0, atol=1e-11)
    main(argv)
    out = capsys.readouterr().out
    assert out.startswith("complete, at t = 10 of 10\n")
    for words in ("Hamiltonian", "costate of vz", "costate of m", "On the way"):
        assert words in out


def test_the_order_of_low_thrust_in_the_plane():
    options = PropagateOptions(
        **{"state": (1, 2, 3, 4), "mass": 5, "costate": (6, 7, 8, 9, 10), "thrust": 1.0},
        **{"exhaust": 1.0, "smoothing": 1.0, "mu": 0.1, "time": 1.0},
    )
    options.check()
    np.testing.assert_array_equal(start(options), np.arange(1.0, 11))
    assert names(options) == ["x", "y", "vx", "vy", "m"] + [
        f"costate of {name}" for name in ("x", "y", "vx", "vy", "m")
    ]


def test_a_collision_is_reported(capsys):
    """From rest beside Titan, as seen from outside the turning frame."""
    state = numbers([1 - MU + 1e-4, 0, 0, -1e-4])
    arguments = [*TITAN, "--state", *state, "--time", "3", "--samples", "4"]
    result = run_json(capsys, "propagate", *arguments)
    assert result["status"] == "collision"
    # Free fall of two bodies: pi / 2 sqrt(r^3 / 2 mu).
    assert result["time"] == pytest.approx(np.pi / 2 * np.sqrt(1e-12 / 2 / MU), rel=1e-3)
    assert result["trajectory"] == []
    main(["propagate", *arguments])
    assert "collision with the smaller primary, at t = " in capsys.readouterr().out


@pytest.fixture(scope="module")
def family():
    """A published orbit from a guess that is off, and the next of its family."""
    row = published_orbit("st-dro-small")
    state = row.initial() + np.array([0, 0, 0, 1e-6, 1e-5, 0])
    return row, [
        *("orbit", *TITAN, "--state", *numbers(state), "--period", str(row.period + 1e-5)),
        *("--members", "2", "--step", "2e-3"),
    ]


def test_an_orbit_and_its_family(family, capsys):
    row, argv = family
    result = run_json(capsys, *argv)
    assert result["period"] == pytest.approx(row.period, abs=1e-10)
    np.testing.assert_allclose(result["state"], row.initial(), rtol=0, atol=1e-11)
    assert result["mu"] == row.system.mass_parameter
    assert len(result["family"]) == 2
    for member in (result, *result["family"]):
        assert member["closure"] < 1e-9
        values = np.array(member["multipliers"])
        assert values.shape == (6, 2)
        np.testing.assert_allclose(np.hypot(*values.T), 1, atol=1e-3)  # a stable orbit
        assert member["stability_index"] == pytest.approx(1, abs=1e-5)
    x = [member["state"][0] for member in (result, *result["family"])]
    assert x[0] < x[1] < x[2]
    assert len(result["family"][0]) == len(result) - 1
    main(argv)
    out = capsys.readouterr().out
    for words in ("multiplier 6", "closure", "Family", f"{x[2]:.10g}"):
        assert words in out


def test_a_negative_step_goes_the_other_way(family, capsys):
    result = run_json(capsys, *family[1][:-1], "-2e-3")
    x = [member["state"][0] for member in (result, *result["family"])]
    assert x[0] > x[1] > x[2]


def test_a_published_orbit_by_name(family, capsys):
    row = published_orbit("st-dro")
    result = run_json(capsys, "orbit", "--orbit", "st-dro", *family[1][-4:])
    assert result["period"] == pytest.approx(row.period, abs=1e-10)
    assert result["jacobi"] == pytest.approx(row.jacobi, abs=1e-11)


@pytest.mark.parametrize(
    ("x", "z", "vy", "period", "words"),
    [
        (1.2, 0.5, -0.9, 12, "closer guess, or fix another"),
        (0.5, 0.1, 0.1, 0.05, "a period of "),
        (float(libration_points(MU)[0, 0]), 0, 0, 2, "a libration point, which is no orbit"),
    ],
)
def test_guesses_that_lead_nowhere(x, z, vy, period, words, capsys):
    state = numbers([x, 0, z, 0, vy, 0])
    assert words in refused(capsys, "orbit", *TITAN, "--state", *state, "--period", str(period))


def test_help_is_enough():
    for argv, expected in (
        (["--help"], list(COMMANDS)),
        (["propagate", "--help"], ["--state", "--mu", "--stm", "--costate", "--samples"]),
        (["orbit", "--help"], ["--orbit", "--period", "--members", "--step", "--fixed"]),
    ):
        before = os.times().children_user
        done = command(*argv)
        assert done.returncode == 0
        assert os.times().children_user - before < 2.0
        assert all(word in done.stdout for word in expected)


def test_options_import_nothing_heavy():
    code = (
        "import sys, experiments.cr3bp.__main__ as m\n"
        "from jaxlab.core.cli import parse\n"
        "argv = '--system sun-earth --state 1 2 3 4 --time -3'.split()\n"
        "parse('cr3bp', m.PropagateOptions, None, argv)\n"
        "parse('cr3bp', m.OrbitOptions, None, ['--orbit', 'st-dro'])\n"
        "print([n for n in ('jax', 'flax', 'matplotlib', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr


def test_exit_code_of_a_process():
    done = command("propagate", "--mu", "0.7", "--state", *PLANAR[3:], "--time", "1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: --mu 0.7: the mass parameter is the smaller mass by the sum, in (0, 0.5]\n"
    )


PLANAR = [*TITAN, "--state", "-0.8", "0", "0", "-0.3"]
ARC = [*PLANAR, "--time", "1"]
FIVE = numbers([0.02, -0.05, 0.06, 0.07, -1])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["fly"], "'fly' is no command"),
        (["propagate"], "--system and --mu: give one"),
        (["propagate", *ARC, "--mu", "0.1"], "--system and --mu: give one"),
        (["propagate", "--system", "pluto"], "--system pluto: known are earth-moon, saturn-titan"),
        (["propagate", "--mu", "nan"], "--mu nan"),
        (["propagate", "--mu", "0"], "in (0, 0.5]"),
        (["propagate", *TITAN], "--state: expected 6 numbers"),
        (["propagate", *PLANAR, "0"], "got 5"),
        (["propagate", *TITAN, "--state", "1", "0", "0", "nan"], "--state nan: expected finite"),
        (["propagate", *TITAN, "--state", "1", "0", "0", "-inf"], "--state -inf"),
        (["propagate", *PLANAR], "--time: is missing"),
        (["propagate", *PLANAR, "--time", "inf"], "--time inf"),
        (["propagate", *ARC, "--tolerance", "nan"], "--tolerance nan: expected a positive"),
        (["propagate", *ARC, "--tolerance", "2"], "--tolerance 2: expected less than 1"),
        (["propagate", *ARC, "--tolerance", "1e-17"], "use at least 1e-15"),
        (["propagate", *ARC, "--samples", "0"], "--samples 0"),
        (["propagate", *ARC, "--samples", "1e9"], "expected at most 100000"),
        (["propagate", *ARC, "--collision-radius", "-1", "0"], "--collision-radius -1"),
        (["propagate", *ARC, *thrust("exhaust", costate=FIVE)], "needs --exhaust as well"),
        (["propagate", *ARC, "--thrust", "1"], "--mass and --costate and --exhaust and --smoo"),
        (["propagate", *ARC, *thrust()], "--costate: expected 5 numbers"),
        (["propagate", *ARC, *thrust(costate=FIVE, mass=[0])], "--mass 0: expected a positive"),
        (["propagate", *ARC, *thrust(costate=FIVE, smoothing=[-1])], "--smoothing -1"),
        (["propagate", *ARC, *thrust(costate=[1, 1, 0, 0, 1])], "thrust has no direction"),
        (["propagate", *ARC, *thrust(costate=[1, 1, np.inf, 0, 1])], "--costate inf"),
        (["propagate", *TITAN, "--state", *numbers([-MU, 0, 1, 0]), "--time", "1"], "the larger"),
        (["propagate", *TITAN, "--state", "1e200", "0", "1", "0", "--time", "1"], "too far out"),
        (["orbit"], "no orbit is given"),
        (["orbit", "--orbit", "st-none"], "--orbit st-none: known are em-l1-halo-n"),
        (["orbit", "--orbit", "st-dro", "--period", "3"], "--orbit and --period contradict"),
        (["orbit", *PLANAR], "--period: is missing"),
        (["orbit", *PLANAR, "--period", "-1"], "--period -1: expected a positive"),
        (["orbit", "--orbit", "st-dro", "--members", "2"], "--members needs --step as well"),
        (["orbit", "--orbit", "st-dro", "--step", "0.1"], "--step needs --members as well"),
        (["orbit", "--orbit", "st-dro", "--members", "2", "--step", "0"], "--step 0"),
        (["orbit", "--orbit", "st-dro", "--devices", "abacus"], "unknown kind 'abacus'"),
    ],
)
def test_wrong_input_is_one_line(argv, words, capsys):
    assert words in refused(capsys, *argv)
