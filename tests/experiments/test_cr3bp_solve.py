"""`python -m experiments.cr3bp solve`: transfers that hold, and what is said where there is none."""

import csv
import json

import jax
import numpy as np
import pytest

from experiments.cr3bp import solving
from experiments.cr3bp.__main__ import main
from experiments.cr3bp.solve_options import SolveOptions
from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.systems import get_system

SYSTEM = get_system("saturn-titan")
#: A strong thruster and a start close by, so that one step of random search is enough.
EASY = ("--thrust", "20", "--radius", "0.9", "--duration", "3", "12", "--draws", "2048")


@pytest.fixture(autouse=True)
def _precision():
    """The command switches 64 bits on for the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return tmp_path_factory.mktemp("solve")


@pytest.fixture(scope="module")
def found(files):
    """What the command prints of an easy transfer; its files are in `files`."""
    before = jax.config.jax_enable_x64
    text = files / "answer.json"
    kinds = ("csv", "npz", "oem", "png")
    paths = [word for kind in kinds for word in (f"--{kind}", str(files / f"flown.{kind}"))]
    with pytest.MonkeyPatch.context() as patch, open(text, "w") as stream:
        patch.setattr("sys.stdout", stream)
        try:
            main(["solve", *EASY, *paths, "--json"])
        finally:
            jax.config.update("jax_enable_x64", before)
    return json.loads(text.read_text())


def test_a_transfer_is_found(found):
    assert found["converged"] is True
    assert found["gap_position"] <= 1e-4
    assert found["gap_velocity"] <= 1e-5
    assert 1 <= found["solved"] <= found["candidates"] == 64
    assert found["draws"] == 2048
    assert found["mu"] == SYSTEM.mass_parameter
    assert 3 <= found["time_of_flight"] <= 12
    days = found["time_of_flight"] * SYSTEM.time_s / 86_400
    assert found["time_of_flight_days"] == pytest.approx(days)
    assert found["propellant"] == pytest.approx(1 - found["final_state"][4], abs=1e-12)
    assert found["propellant_kg"] == pytest.approx(25_000 * found["propellant"])
    assert np.linalg.norm(found["start_state"][:2]) == pytest.approx(0.9, abs=1e-3)
    assert found["start_state"][4] == 1
    assert found["costate"][4] == -1
    # The front: quicker ones burn more, and the answer is no worse than all of them.
    times, burnt = (
        np.array([row[key] for row in found["front"]]) for key in ("time_of_flight", "propellant")
    )
    assert (np.diff(times) > 0).all()
    assert (np.diff(burnt) < 0).all()
    cost = 1e-2 * burnt + 1e-4 * times
    own = 1e-2 * found["propellant"] + 1e-4 * found["time_of_flight"]
    assert own == pytest.approx(cost.min(), abs=1e-9)


def test_it_holds_when_it_is_flown_again(found, capsys):
    """By the command that propagates, to the tightest tolerance, and on the published orbit."""
    words = {
        "mu": [found["mu"]],
        "state": found["start_state"][:4],
        "mass": found["start_state"][4:],
        "costate": found["costate"],
        "time": [found["time_of_flight"]],
        **{
            k: [v] for k, v in zip(("thrust", "exhaust", "smoothing"), thruster(found), strict=True)
        },
    }
    argv = [w for name, v in words.items() for w in (f"--{name}", *map(repr, v))]
    main(["propagate", *argv, "--json"])
    flown = json.loads(capsys.readouterr().out)
    assert flown["status"] == "done"
    np.testing.assert_allclose(flown["state"], found["final_state"], rtol=0, atol=1e-8)
    row = published_orbit("st-dro")
    start = row.initial()[[0, 1, 3, 4]]
    argv = ["--state", *map(repr, map(float, start)), "--time", repr(found["phase_time"])]
    main(["propagate", "--system", "saturn-titan", *argv, "--json"])
    there = np.array(json.loads(capsys.readouterr().out)["state"])
    gap = np.array(flown["state"][:4]) - there
    assert np.linalg.norm(gap[:2]) < 1e-4
    assert np.linalg.norm(gap[2:]) < 1e-5


def thruster(found):
    return [found["thruster"][k] for k in ("acceleration", "exhaust_speed", "smoothing")]


def test_its_files_hold_the_same(found, files):
    saved = np.load(files / "flown.npz")
    assert saved["time"][-1] == pytest.approx(found["time_of_flight"], rel=1e-12)
    np.testing.assert_allclose(saved["state"][-1, :5], found["final_state"], rtol=1e-12)
    with open(files / "flown.csv") as stream:
        rows = list(csv.reader(line for line in stream if not line.startswith("#")))
    assert len(rows) == 1 + solving.POINTS
    assert (files / "flown.oem").read_text().startswith("CCSDS_OEM_VERS")
    assert (files / "flown.png").stat().st_size > 10_000


def test_nothing_found_is_said_and_has_an_exit_code(found, capsys):
    """One round from the same candidates solves none; the answer is the closest."""
    with pytest.raises(SystemExit) as end:
        main(["solve", *EASY, "--rounds", "1", "--json"])
    assert end.value.code == 2
    out, error = capsys.readouterr()
    told = json.loads(out)
    assert told["converged"] is False
    assert told["solved"] == 0
    assert told["front"] == []
    assert max(told["gap_position"] / 1e-4, told["gap_velocity"] / 1e-5) > 1
    assert error.startswith("error: none of 64 candidates was solved (the closest misses by ")
    assert error.count("\n") == 1


def test_a_related_transfer_is_followed(found, capsys):
    """From less smoothing to more, at the programs that are compiled already."""
    main(["solve", *EASY, "--homotopy", "smoothing", "--begin", "1.2", "--stages", "2"])
    out = capsys.readouterr().out
    assert "candidates are solved" in out
    assert "On the way" in out
    assert "Not beaten in both" in out


def test_values_of_a_homotopy_end_at_what_is_asked_for():
    """Nothing is compiled: the transfers themselves are not made."""
    mu = SYSTEM.mass_parameter
    for options, ends in (
        (SolveOptions(), (mu, mu)),
        (SolveOptions(homotopy="mu"), (get_system("jupiter-europa").mass_parameter, mu)),
        (SolveOptions(homotopy="mu", begin=1e-4), (1e-4, mu)),
        (SolveOptions(homotopy="radius", radius=0.8), (0.9, 0.8)),
    ):
        options.check()
        values = solving.family(options)[1]
        assert (values[0], values[-1]) == pytest.approx(ends, rel=1e-12)
        assert len(values) == (1 if options.homotopy is None else 6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "st-none"}, "--target st-none: known are em-l1-halo-n"),
        ({"target_state": (1.0, 0, 0, 0)}, "--target-period: is missing"),
        ({"target_period": 1.0}, "--target-state: is missing"),
        ({"target_state": (1.0, 0, 0, 0), "target_period": 1.0}, "needs --system or --mu"),
        ({"state": (1.0, 0, 0, 0), "radius": 0.9}, "--state and --radius contradict"),
        ({"state": (1.0, 0)}, "--state: expected 6 numbers"),
        ({"radius": -1.0}, "--radius -1: expected a positive"),
        ({"specific_impulse": 0.0}, "--specific-impulse 0: expected a positive"),
        ({"acceleration": 0.01}, "--exhaust: is missing"),
        ({"mu": 0.1}, "of which no units are known"),
        ({"mu": 0.7, "acceleration": 0.01, "exhaust": 10.0}, r"in \(0, 0.5\]"),
        ({"duration": (3.0, 2.0)}, "shortest < longest"),
        ({"weights": (-1.0, 0.0)}, "--weights"),
        ({"tolerance": (0.0, 1.0)}, "--tolerance"),
        ({"candidates": 4096}, "--candidates 4096: expected at most"),
        ({"draws": 0}, "--draws 0"),
        ({"begin": 2.0}, "--begin: needs --homotopy"),
        ({"homotopy": "radius", "state": (1.0, 0, 0, 0)}, "needs a start of --radius"),
        ({"homotopy": "mu", "begin": 0.6}, "--begin 0.6: a mass parameter"),
        ({"homotopy": "mu", "stages": 1}, "--stages 1"),
    ],
)
def test_mistakes_are_named(given, message):
    with pytest.raises(ConfigError, match=message):
        SolveOptions(**given).check()


def test_files_are_not_replaced_and_need_units(tmp_path):
    there = tmp_path / "a.csv"
    there.write_text("kept")
    with pytest.raises(ConfigError, match="exists; choose another, or give --overwrite"):
        SolveOptions(csv=there).check()
    SolveOptions(csv=there, overwrite=True).check()
    with pytest.raises(ConfigError, match="there is no folder"):
        SolveOptions(png=tmp_path / "none" / "a.png").check()
    with pytest.raises(ConfigError, match="need the units of a --system"):
        SolveOptions(oem=there, mu=0.1, acceleration=0.01, exhaust=1.0, overwrite=True).check()
