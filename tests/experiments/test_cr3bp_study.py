"""The study of samplers on low-thrust transfers, from the command line to its figures."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.cr3bp import study_figures, study_report
from experiments.cr3bp.__main__ import main
from experiments.cr3bp.instance import costs, density_with_metric, draw_costates, instance
from experiments.cr3bp.study import Study
from experiments.cr3bp.study_options import PRESETS, StudyOptions
from jaxlab.core import runfolder
from jaxlab.core.errors import ConfigError


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The folder of a finished smoke run."""
    folder = tmp_path_factory.mktemp("study") / "run"
    main(["study", "--preset", "smoke", "--run-dir", str(folder), "--no-progress"])
    return folder


def test_smoke_leaves_a_run_folder(smoke):
    summary = json.loads((smoke / runfolder.SUMMARY).read_text())
    samplers = ("random_walk", "preconditioned_mala", "barker")
    names = {f"{model}_{name}" for model in ("base", "tuned") for name in samplers}
    assert set(summary["chains"]) == names
    for name, told in summary["chains"].items():
        assert 0 < told["acceptance"] < 1
        assert told["cpu_seconds_per_iteration"] > 0
        assert len(told["close_at_equal_iterations"]["by_seed"]) == 2
        assert set(told["ends"]) == {"raw", "solved"}
        basins = told["basins"]
        assert basins["count"] >= len(basins["largest"]) >= 1
        assert 0 <= basins["chains_that_stay"] <= 1
        # A random walk has no gradients to count by.
        assert (basins["ess_per_gradient"] is None) == name.endswith("random_walk")
        assert 0 <= basins["ess"] < np.inf
        assert name in summary["hypervolume"]
    assert set(summary["samples"]) == {"base", "tuned"}
    for name in ("objective", "traces", "front"):
        assert (smoke / runfolder.FIGURES / f"{name}.png").stat().st_size > 10_000
    assert "experiment: cr3bp study" in (smoke / runfolder.CONFIG).read_text()


def test_a_finished_study_is_reported_again(smoke, capsys):
    first = json.loads((smoke / runfolder.SUMMARY).read_text())
    main(["study", "--resume", str(smoke), "--no-progress"])
    second = json.loads((smoke / runfolder.SUMMARY).read_text())
    assert second["samples"] == first["samples"]
    assert second["chains"] == first["chains"]
    assert "Fresh samples of the models" in capsys.readouterr().out


def test_both_transfers_share_all_but_the_mass_ratio():
    options = StudyOptions(**PRESETS["smoke"])
    related, asked = (instance(options, related) for related in (True, False))
    assert related.condition < asked.condition
    np.testing.assert_allclose(related.transfer.target[0, 0], asked.transfer.target[0, 0])
    assert related.transfer.thruster == asked.transfer.thruster
    assert related.transfer.target.shape == asked.transfer.target.shape


def test_costs_of_any_number_are_those_of_each():
    options = StudyOptions(**PRESETS["smoke"])
    transfer = instance(options, False).transfer
    x = np.asarray(draw_costates(jax.random.key(0), 6)).reshape(2, 3, 4)
    many = costs(x, transfer)
    assert many.value.shape == (2, 3)
    np.testing.assert_allclose(costs(x[1, 2], transfer).value, many.value[1, 2], rtol=1e-9)


def chains(step, gap, position=None, times=None):
    """Chains as the report has them, at 0.1 CPU-seconds and four gradients a step."""
    return study_report.Chains(step, gap, gap, position, times, 0.1, 0.5, 4.0)


def test_basins_are_judged_one_by_one():
    """Two chains in either of two basins, which together would look bad, and one between them."""
    rng = np.random.default_rng(0)
    draws = 400
    position = rng.normal(size=(1, draws, 5, 4)) + 100 * np.array([0, 0, 1, 1, 0])[:, None]
    times = rng.normal(scale=0.05, size=(1, draws, 5, 2))
    times[..., 0] += 10 + 3 * np.array([0, 0, 1, 1, 0])
    times[0, draws // 2 :, 4, 0] += 3
    # Around the end of the target's period, which is one place.
    times[..., 1] = np.mod(times[..., 1], 5.0)
    told = study_report.basins(
        chains(np.arange(1, draws + 1), times[..., 0], position, times), 0, 5.0
    )
    assert told["count"] == 2
    assert told["chains_that_stay"] == pytest.approx(0.8)
    assert told["changes"] == 1
    assert told["rhat_below_1.01"] == 1
    assert told["ess"] == pytest.approx(4 * draws, rel=0.3)
    assert told["ess_per_cpu_second"] == pytest.approx(told["ess"] / (0.1 * draws))
    assert told["ess_per_gradient"] == pytest.approx(told["ess"] / (4 * draws))
    assert [basin["chains"] for basin in told["largest"]] == [2, 2]
    assert sum(basin["share"] for basin in told["largest"]) == pytest.approx(1)


def test_the_metric_comes_with_the_density():
    options = StudyOptions(**PRESETS["smoke"])
    transfer = instance(options, False).transfer
    x = 0.1 * np.asarray(draw_costates(jax.random.key(1), 1))
    beta = 100.0
    value, gradient, metric = density_with_metric(transfer)(x[0], np.float64(beta))
    cost = costs(x, transfer)
    np.testing.assert_allclose(value, -cost.value[0], rtol=1e-9)
    assert gradient.shape == (4,)
    # Positive definite, as the samplers need it, and never flatter than the prior.
    assert np.linalg.eigvalsh(metric).min() >= (1 - 1e-9) / 0.3**2


def test_shares_count_what_comes_after_adaptation_and_within_the_budget():
    gap = np.array([[[9.0, 9.0], [0.5, 2.0], [0.5, 0.5], [2.0, 2.0]]])
    of = chains(np.array([2, 4, 6, 8]), gap)
    assert study_report.share(of, 2, 6, 1.0) == pytest.approx([0.75])
    assert study_report.share(of, 2, 8, 1.0) == pytest.approx([0.5])
    assert np.isnan(study_report.share(of, 2, 3, 1.0)).all()


def test_fronts_against_hand_counted_areas():
    found = SimpleNamespace(
        propellant=np.array([1.0, 2.0, 2.0, 0.1]),
        time=np.array([2.0, 1.0, 2.0, 0.1]),
        solved=np.array([True, True, True, False]),
    )
    told = study_report.fronts({"tuned_mala": found})
    assert told["front"] == [[2.0, 1.0], [1.0, 2.0]]
    assert told["reference"] == pytest.approx([2.2, 2.2])
    assert told["hypervolume"]["tuned_mala"] == pytest.approx(1.2 * 0.2 + 0.2 * 1.2 - 0.2 * 0.2)


def test_a_transfer_is_drawn_and_written(tmp_path):
    options = StudyOptions(**PRESETS["smoke"], run_dir=tmp_path)
    study = Study(options, instance(options, True), instance(options, False))
    found = SimpleNamespace(
        costates=np.array([[[0.01, -0.02, 0.05, 0.06]]]),
        time=np.array([[6.0]]),
        propellant=np.array([[0.01]]),
        solved=np.array([[True]]),
    )
    study_figures.draw_front(tmp_path, {"tuned_mala": found})
    costates, time = study_figures.best({"tuned_mala": found})
    study_figures.draw_transfer(study, costates, time)
    for name in ("front", "transfer", "throttle"):
        assert (tmp_path / runfolder.FIGURES / f"{name}.png").stat().st_size > 10_000
    saved = np.load(tmp_path / "transfer.npz")
    assert (tmp_path / "transfer.csv").exists()
    assert (tmp_path / "transfer.oem").read_text().startswith("CCSDS_OEM_VERS")
    assert len(saved["time"]) == study_figures.POINTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samplers": ("mala", "mala")}, "samplers"),
        ({"samplers": ("gibbs",)}, "random_walk, mala, preconditioned_mala, barker, hmc, nuts"),
        ({"steps": 9}, "multiple of 4"),
        ({"duration": (4.0, 2.0)}, "shortest < longest"),
        ({"beta": 0.0}, "beta"),
        ({"chains": 10_000}, "samples"),
        ({"weights": (-1.0, 0.0)}, "weights"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        StudyOptions(**change).check()
