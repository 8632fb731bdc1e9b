"""The studies of Boltzmann machines, from the command line to their figures."""

import json

import jax
import numpy as np
import pytest

from experiments.qbm import expressivity, grid, study, variances
from experiments.qbm.__main__ import main
from experiments.qbm.study_options import (
    LEARNERS,
    STUDY_PRESETS,
    ExpressivityOptions,
    StudyOptions,
    VariancesOptions,
)
from jaxlab.core import runfolder
from jaxlab.core.errors import ConfigError
from jaxlab.core.stages import run_stages
from jaxlab.envs.qbm import datasets, restricted
from jaxlab.envs.qbm.restricted import RestrictedModel

MODEL = RestrictedModel(4, 2, "transverse")


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def run(*argv):
    main([*argv, "--no-progress"])


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The folder of a finished smoke run."""
    folder = tmp_path_factory.mktemp("study") / "run"
    run("study", "--preset", "smoke", "--run-dir", str(folder))
    return folder


def test_smoke_leaves_a_run_folder(smoke):
    summary = json.loads((smoke / runfolder.SUMMARY).read_text())
    preset = STUDY_PRESETS["smoke"]
    assert [case["data"] for case in summary["cases"]] == list(preset["data"])
    for case in summary["cases"]:
        assert (case["operators"], case["visible"], case["hidden"]) == ("transverse", 4, 2)
        assert case["m_step_unbounded"] is None
        assert tuple(case["learners"]) == preset["learners"]
        for name, told in case["learners"].items():
            assert 0 <= told["best"] <= told["mean"]["low"] <= told["mean"]["high"]
            assert told["cpu_seconds"] > 0
            newton = LEARNERS[name].newton
            assert told["curve"]["step"][-1] == preset["newton_steps" if newton else "steps"]
            assert ("less_gradient" in told) == (name != "gradient")
    for kind in ("iterations", "seconds", "samples"):
        path = smoke / runfolder.FIGURES / f"{kind}_transverse_4x2.png"
        assert path.stat().st_size > 10_000
    for name in ("em", "em_gradient", "gradient"):
        assert (smoke / f"transverse_4x2_{name}" / runfolder.CHECKPOINTS).is_dir()


def test_samples_are_bit_strings_that_can_be_read(smoke):
    told = json.loads((smoke / runfolder.SUMMARY).read_text())["samples"]
    for name in ("parity", "cardinality"):
        found = datasets.read_bit_strings(smoke / "samples" / f"transverse_4x2_{name}.txt")
        of = told[f"transverse_4x2_{name}"]
        assert of["count"] == STUDY_PRESETS["smoke"]["samples"]
        target = grid.targets_of([name], 4)[0]
        frequencies = datasets.distribution(*found)
        np.testing.assert_allclose(of["share_on_data"], frequencies[target > 0].sum())
        # With a hundred draws on sixteen states.
        distance = abs(of["total_variation_of_samples"] - of["total_variation_of_model"])
        assert distance < 0.35


def test_a_finished_study_is_reported_again(smoke, capsys):
    first = json.loads((smoke / runfolder.SUMMARY).read_text())
    run("study", "--resume", str(smoke))
    second = json.loads((smoke / runfolder.SUMMARY).read_text())
    assert second["cases"] == first["cases"]
    assert second["samples"] == first["samples"]
    out = capsys.readouterr().out
    assert "At the end, all starts" in out
    assert "Samples of the best machine" in out


def test_data_sets_in_one_batch_are_those_alone():
    """Every row is gradient descent on its own target from its own start, written out."""
    data, seeds, steps = ("parity", "cardinality"), 2, 40
    one = grid.stage(
        "gradient", MODEL, LEARNERS["gradient"], data, steps, seed=3, seeds=seeds, width=5.0
    )
    result = run_stages([one], seed=3, progress=False)["gradient"]
    found = grid.trained(result, data)
    begin = grid.starts(MODEL, 3, seeds, 5.0)
    for name in data:
        target = grid.targets_of([name], 4)[0]
        for seed in range(seeds):
            theta = begin[seed]
            for _ in range(steps):
                theta = theta + 0.2 * np.asarray(_evaluate(theta, target).gap)
            expected = float(_evaluate(theta, target).divergence)
            np.testing.assert_allclose(found[name].last[seed], expected, rtol=1e-9)
        assert found[name].curve.shape == (steps, seeds)
        np.testing.assert_array_equal(found[name].curve[-1], found[name].last)
        np.testing.assert_array_equal(found[name].iterations, steps)
        best = _evaluate(found[name].best, target).divergence
        np.testing.assert_allclose(best, found[name].best_divergence, rtol=1e-9)


_evaluate = jax.jit(lambda theta, target: restricted.evaluate(theta, MODEL, target))


def test_a_start_depends_on_its_seed_alone():
    many, one = grid.starts(MODEL, 5, 3, 2.0), grid.starts(MODEL, 6, 1, 2.0)
    np.testing.assert_array_equal(many[1], one[0])
    assert np.all(np.abs(many) <= 2)
    assert np.all(many[0] != many[1])


def test_curves_are_thinned_to_their_ends():
    step = np.arange(1, 1001)
    chosen = study.log_spaced(step, 4)
    np.testing.assert_array_equal(step[chosen], [1, 10, 100, 1000])


def test_variances_against_gradients_drawn_by_hand(tmp_path, capsys):
    folder = tmp_path / "run"
    run("variances", "--preset", "smoke", "--data", "parity", "--run-dir", str(folder))
    summary = json.loads((folder / runfolder.SUMMARY).read_text())
    options = VariancesOptions(seeds=3, steps=8, visible=(2, 4), data=("parity",))
    assert len(summary["variances"]) == len(options.visible) * 2 * len(options.widths)
    assert "Slope of log variance" in capsys.readouterr().out
    assert (folder / runfolder.FIGURES / "variances.png").stat().st_size > 10_000
    # Two units and one of XZ: the gradient by fields of visible units is eta_p - eta_q of Z.
    model = RestrictedModel(2, 1, "XZ")
    rng, target = np.random.default_rng(0), datasets.parity(2)
    slope = jax.jit(jax.vmap(lambda theta: -restricted.evaluate(theta, model, target).gap))
    drawn = np.asarray(slope(rng.uniform(-10, 10, (4000, model.size))))
    expected = drawn[:, :2].var(0).mean()
    row = next(
        row["variance"]
        for row in summary["variances"]
        if (row["visible"], row["part"], row["width"]) == (2, "fields", 10.0)
    )
    # Three batches of eight draws; five standard errors of a variance of bounded numbers.
    assert abs(row["estimate"] - expected) < 5 * expected * np.sqrt(2 / 24)


def test_variances_fall_with_a_plateau_and_rise_without():
    options = VariancesOptions(
        seeds=2, steps=3, visible=(2, 4), data=("parity",), widths=(1.0,), operators="XZ"
    )

    class Fake:
        def __init__(self, scale):
            self.scale = scale

        def records(self):
            spread = np.array([-1.0, 0.0, 1.0])[:, None, None] * np.sqrt(self.scale)
            return {f"gradient/{part}": np.ones((3, 2, 5)) * spread for part in variances.PARTS}

    found = variances.slopes(options, {"XZ_2": Fake(1.0), "XZ_4": Fake(np.exp(-3.0))})
    for row in found:
        np.testing.assert_allclose(row["slope"]["estimate"], -1.5)


@pytest.mark.slow
def test_expressivity_finds_the_floors(tmp_path):
    folder = tmp_path / "run"
    run("expressivity", "--seeds", "24", "--steps", "600", "--run-dir", str(folder))
    told = json.loads((folder / runfolder.SUMMARY).read_text())["machines"]
    assert len(told) == len(expressivity.KINDS) * len(expressivity.DATA)
    best = {(row["operators"], row["hidden"], row["data"]): row["best"] for row in told}
    assert best["Z", 3, "all_bars"] < 1e-3
    assert best["XYZ", 1, "cardinality"] < 1e-3
    np.testing.assert_allclose(best["Z", 1, "cardinality"], 0.811, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        (StudyOptions, {"learners": ("em", "em")}, "learners"),
        (StudyOptions, {"learners": ("newton",)}, "em_gradient, gradient, adam"),
        (StudyOptions, {"operators": ("YZ",)}, "transverse"),
        (StudyOptions, {"data": ("digits",)}, "bernoulli, parity"),
        (StudyOptions, {"data": ("bars",)}, "even --visible"),
        (StudyOptions, {"visible": (3,)}, "9 strings of 3 bits"),
        (StudyOptions, {"visible": (13,)}, "from 2 to 12"),
        (StudyOptions, {"hidden": ()}, "hidden"),
        (StudyOptions, {"steps": 55}, "multiple of 10"),
        (StudyOptions, {"newton_steps": 5}, "--newton-steps 5"),
        (StudyOptions, {"width": 0.0}, "positive, finite"),
        (ExpressivityOptions, {"steps": 11}, "multiple of 10"),
        (ExpressivityOptions, {"width": float("nan")}, "positive, finite"),
        (VariancesOptions, {"visible": (4,)}, "at least two even"),
        (VariancesOptions, {"visible": (4, 5)}, "at least two even"),
        (VariancesOptions, {"widths": ()}, "at least one"),
        (VariancesOptions, {"steps": 1}, "at least 2 draws"),
        (VariancesOptions, {"operators": "ZX"}, "operators"),
    ],
)
def test_mistakes_are_named(options, change, message):
    with pytest.raises(ConfigError, match=message):
        options(**change).check()
