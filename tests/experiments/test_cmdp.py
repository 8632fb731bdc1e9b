"""`python -m experiments.cmdp`: exact answers, what is refused, and the study."""

import json
import pathlib

import jax
import numpy as np
import pytest

from experiments.cmdp.__main__ import main
from experiments.cmdp.options import joined
from experiments.cmdp.study_options import PRESETS, StudyOptions
from jaxlab.core.errors import ConfigError
from jaxlab.envs.cmdp.files import write_cmdp
from jaxlab.envs.cmdp.problems import queue

KEYS = {
    *("optimum", "multipliers", "policy", "slater_margin", "mixing_time"),
    "gain_unconstrained",
}


@pytest.fixture(autouse=True)
def _precision():
    """The commands switch 64 bits on for the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def solved(capsys, *argv):
    main(["solve", *argv, "--json"])
    out, error = capsys.readouterr()
    return json.loads(out), error


def refused(capsys, *argv):
    """The one line on standard error of a command that ends with exit code 2."""
    with pytest.raises(SystemExit) as end:
        main([*argv])
    assert end.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def test_the_hashed_problem(capsys):
    found, error = solved(capsys, "--model", "P1", "--bound", "0.55")
    assert set(found) == KEYS
    assert error == ""
    np.testing.assert_allclose(found["optimum"], 0.5672007354901523, atol=1e-12)
    np.testing.assert_allclose(found["multipliers"], [0.2762296605], atol=1e-10)
    np.testing.assert_allclose(found["policy"][1], [0.2153252237, 0, 0.7846747763], atol=1e-10)
    assert found["mixing_time"] == 1


def test_several_bounds(capsys):
    found, _ = solved(capsys, "--model", "P3", "--bound", "0.5", "--bound", "0.3")
    np.testing.assert_allclose(found["optimum"], 0.375, atol=1e-12)
    np.testing.assert_allclose(found["multipliers"], [0, 1.25], atol=1e-10)
    other, _ = solved(capsys, "--model", "P3", "--bound", "0.5", "0.3")
    assert other == found


def test_a_file(capsys, tmp_path):
    path = str(tmp_path / "queue.npz")
    write_cmdp(queue(), path)
    found, _ = solved(capsys, "--model", path)
    assert found == solved(capsys, "--model", "P3")[0]


def test_tables(capsys):
    main(["solve", "--model", "P4", "--bound=0.1"])
    out = capsys.readouterr().out
    assert "1.941338000394" in out
    assert "0:0.6495934199" in out


def test_chains_that_do_not_mix(capsys, tmp_path):
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"P": [[[1, 0]], [[0, 1]]], "r": [[0.0], [1.0]]}))
    found, error = solved(capsys, "--model", str(path))
    assert found["mixing_time"] is None
    assert found["slater_margin"] is None
    assert found["optimum"] == 1
    assert "warning: the chain" in error
    assert "closed class {0}, closed class {1}" in error


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--model: is missing"),
        (["--model", "P9"], "expected P1, P2, P3, P4 or an npz or JSON file"),
        (["--model", "none.json"], "none.json: cannot be read"),
        (["--model", "P1", "--bound", "0.5", "0.5"], "2 bounds for 1 cost signals"),
        (["--model", "P3", "--bound", "0.5"], "1 bounds for 2 cost signals"),
        (["--model", "P1", "--bound", "nan"], "finite"),
        (["--model", "P1", "--bound", "0.8"], "outside the attainable range"),
        (["--model", "P3", "--bound", "0.2", "--bound", "0.5"], "no policy satisfies all bounds"),
    ],
)
def test_odd_models_are_refused(capsys, argv, message):
    assert message in refused(capsys, "solve", *argv)


def test_values_of_a_repeated_option_are_joined():
    assert joined(["a", "--bound", "1", "--json", "--bound=-2", "--bound", "3", "4"]) == [
        *("a", "--bound", "1", "-2", "3", "4", "--json"),
    ]
    assert joined(["a", "--bounds", "1"]) == ["a", "--bounds", "1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": ("rate",)}, "--parts rate: expected different ones"),
        ({"estimators": ("mlmc", "mlmc")}, "--estimators"),
        ({"horizons": (1000,)}, "at least two ascending"),
        ({"horizons": (2000, 1000)}, "at least two ascending"),
        ({"epsilon": 0.7}, "--epsilon"),
        ({"steps": 10}, "--steps"),
        ({"alpha": 0.0}, "--alpha"),
    ],
)
def test_odd_options_of_the_study_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        StudyOptions(**changes).check()


def test_presets_name_options():
    for preset in PRESETS.values():
        StudyOptions(**preset).check()


def test_the_smoke_study(capsys, tmp_path):
    folder = tmp_path / "run"
    main(["study", "--preset", "smoke", "--run-dir", str(folder), "--no-progress"])
    out = capsys.readouterr().out
    assert "slope of gap + violation" in out
    summary = json.loads((folder / "summary.json").read_text())
    arms = summary["arms"]
    assert set(arms) == {"mlmc", "batch", "known_1000", "known_4000"}
    assert arms["batch"]["transitions"] == 2000
    # A uniform policy, where all begin, is worth 0.375 of 0.567, and violates by 0.086.
    assert 0.05 < arms["batch"]["gap"]["mean"] < 0.2
    assert set(summary["slopes"]) == {"known"}
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert figures == {"estimators.png", "rates.png", "multipliers.png"}
    assert len(list((folder / "batch" / "checkpoints").iterdir())) >= 1


def test_a_study_goes_on(capsys, tmp_path):
    folder = tmp_path / "run"
    argv = ["study", "--preset", "smoke", "--no-progress", "--parts", "estimators"]
    main([*argv, "--estimators", "batch", "--run-dir", str(folder)])
    first = json.loads((folder / "summary.json").read_text())["arms"]
    (folder / "summary.json").unlink()
    for path in sorted(pathlib.Path(folder / "batch" / "checkpoints").iterdir())[1:]:
        assert path.exists()
    main(["study", "--resume", str(folder), "--no-progress"])
    assert json.loads((folder / "summary.json").read_text())["arms"] == first


def test_the_study_needs_a_constraint(capsys, tmp_path):
    path = tmp_path / "free.json"
    path.write_text(json.dumps({"P": [[[1.0]]], "r": [[0.0]]}))
    told = refused(capsys, "study", "--model", str(path), "--run-dir", str(tmp_path / "run"))
    assert "has no cost signal" in told
