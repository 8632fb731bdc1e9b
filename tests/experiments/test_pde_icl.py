"""The studies of in-context extrapolation with a tiny random checkpoint, and their mistakes."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments.pde_icl import cases
from experiments.pde_icl.__main__ import COMMANDS, main
from experiments.pde_icl.options import ContextOptions, RolloutOptions, SeriesOptions
from experiments.pde_icl.sweeping import _replaced
from jaxlab.core import runfolder
from jaxlab.core.errors import ConfigError, DataError
from jaxlab.llm import config as configs
from jaxlab.llm.decoder import Decoder, random_weights
from jaxlab.llm.language_model import LanguageModel, save
from tests.llm import checkpoints
from tests.llm.test_tokenizer import with_words


@pytest.fixture(autouse=True)
def _precision():
    """The commands switch 64 bits on for the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder with a random two-layer model whose tokeniser splits digits."""
    tokenizer = with_words("smollm", [])
    settings = checkpoints.SETTINGS["smollm2"] | {
        "vocab_size": tokenizer.vocab_size,
        "max_position_embeddings": 128,
        "num_hidden_layers": 2,
    }
    config = configs.from_huggingface(settings)
    decoder = Decoder(config, random_weights(jax.random.key(0), config, 0.5))
    return save(
        LanguageModel(decoder, tokenizer, "tiny"), tmp_path_factory.mktemp("models") / "tiny"
    )


def run(command, folder, checkpoint, *more):
    options = [] if checkpoint is None else ["--model", str(checkpoint)]
    argv = [command, "--preset", "smoke", "--run-dir", str(folder), "--no-progress"]
    main([*argv, *options, *more])
    summary = json.loads((folder / runfolder.SUMMARY).read_text())
    with np.load(folder / "arrays.npz") as data:
        arrays = dict(data)
    header = (folder / "table.csv").read_text().splitlines()[0].split(",")
    assert any(path.stat().st_size > 10_000 for path in (folder / "figures").iterdir())
    return summary, arrays, header


def test_contexts(checkpoint, tmp_path, capsys):
    summary, arrays, header = run("context", tmp_path / "run", checkpoint)
    assert arrays["tiny/rmse"].shape == (2, 2)
    assert arrays["tiny/valid"].all()
    # A random model knows nothing: its error is of the size of the field.
    assert summary["tiny"]["rmse"][0] > summary["baselines"]["persistence"][0]
    assert 0 < summary["tiny"]["entropy"][0] < np.log(1000)
    assert summary["tiny"]["speed"]["tokens_per_cpu_second"] > 0
    assert {"N_T", "forecast", "RMSE", "entropy", "valid"} <= set(header)
    table = (tmp_path / "run" / "table.csv").read_text()
    assert all(f",{name}," in table for name in ("tiny", "ftcs", "imex", "ar1", "last_token"))
    assert "one-step RMSE" in capsys.readouterr().out
    main(["context", "--resume", str(tmp_path / "run"), "--no-progress"])
    again = json.loads((tmp_path / "run" / runfolder.SUMMARY).read_text())
    assert again["tiny"] == summary["tiny"]


def test_rollouts_that_conserve(checkpoint, tmp_path):
    summary, arrays, _ = run("conservation", tmp_path / "run", checkpoint)
    assert arrays["tiny/rmse"].shape == arrays["ftcs/integral_change"].shape == (2, 2)
    assert summary["exact"]["integral_change"][0] < summary["tiny"]["integral_change"][0]
    assert np.isfinite(arrays["tiny/entropy"]).all()


def test_sampled_rollouts_under_the_free_grammar(checkpoint, tmp_path):
    """A random model hardly ever writes a row, and says so."""
    free = ("--grammar", "free", "--seeds", "1", "--steps", "1")
    _, arrays, _ = run("uncertainty", tmp_path / "run", checkpoint, *free)
    with np.load(tmp_path / "run" / "records" / "tiny.npz") as data:
        valid, tries = data["valid"], data["tries"]
    assert (valid.shape, tries.shape) == ((1, 2, 1), (1, 2, 1))
    assert (tries[~valid] == 10).all()
    assert (arrays["tiny/spread"] >= 0).all()


def test_looks_at_tokens_and_curves(checkpoint, tmp_path):
    summary, arrays, _ = run("tokens", tmp_path / "tokens", checkpoint, "--contexts", "2")
    np.testing.assert_allclose(arrays["tiny/2/pdf"].sum(-1), 1, rtol=1e-5)
    assert len(summary["tiny"]["2"]["separator"]) == 2
    summary, arrays, _ = run("curve", tmp_path / "curve", checkpoint)
    assert arrays["tiny/negative_log_prob"].shape == (2, 3, 2)
    assert np.isnan(arrays["tiny/entropy"][:, 0, 0]).all()
    assert np.isfinite(summary["tiny"]["entropy"]).all()


def test_differences_need_no_model(tmp_path):
    summary, arrays, _ = run("differences", tmp_path / "run", None)
    assert arrays["differences"].shape == (2, 4, 3)
    assert summary["largest"] == np.abs(arrays["differences"]).max()


def test_every_command_has_its_presets():
    assert len(COMMANDS) == 11
    for command in COMMANDS.values():
        assert set(command.presets) == {"smoke", "quick", "paper"}
        for changes in command.presets.values():
            command.options(**changes).check()


def test_the_context_ends_where_the_target_begins():
    with jax.enable_x64(True):
        case = cases.make_case("wave", range(2), 3, 5, 3, coefficient=0.4)
        blind = cases.make_case("wave", range(2), 3, 5, 3, coefficient=0.4, context_only=True)
        found = cases.baselines(case, 2)
    assert case.context.shape == (2, 3, 3)
    np.testing.assert_allclose(case.dt, 0.1)
    np.testing.assert_array_equal(case.values(case.context)[:, -1], found["persistence"][:, 0])
    assert (blind.context.min((1, 2)) == 150).all()
    assert (blind.context.max((1, 2)) == 850).all()
    assert case.numbers.min() == 150
    gap = np.abs(case.truth(2) - case.solution[:, 3:5]).max()
    assert gap < np.ptp(case.solution) / 700
    assert float(case.coefficients.speed) == 0.4


def test_unstable_baselines_are_not_a_number():
    with jax.enable_x64(True):
        case = cases.make_case("heat_dirichlet", range(2), 14, 2, 2, coefficient=0.09)
        found = cases.baselines(case, 1)
    assert np.isnan(found["ftcs"]).all()
    assert np.isfinite(found["btcs"]).all()


def test_rows_that_stay_malformed_have_the_error_before():
    values, valid = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True])
    assert _replaced(values, valid).tolist() == [2.0, 2.0, 2.0, 4.0]
    with pytest.raises(DataError, match="strict"):
        _replaced(values, np.zeros(4, bool))


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (SeriesOptions, {"grammar": "free"}, "needs --temperature"),
        (SeriesOptions, {"top_p": 0.0}, "--top-p"),
        (SeriesOptions, {"coefficient": -1.0}, "--coefficient"),
        (ContextOptions, {"contexts": (5, 2)}, "ascending"),
        (ContextOptions, {"contexts": (1, 2)}, "at least 2"),
        (RolloutOptions, {"total": 20}, "--rows"),
        (RolloutOptions, {"samples": 3}, "--samples"),
    ],
)
def test_mistakes_are_named(kind, changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(kind(), **changes).check()


def test_errors_of_a_run_are_one_line(checkpoint, tmp_path, capsys):
    """A context that is too long, and a checkpoint that is not there."""
    folder = str(tmp_path / "run")
    argv = ["context", "--preset", "smoke", "--no-progress", "--run-dir", folder]
    with pytest.raises(SystemExit) as end:
        main([*argv, "--model", str(checkpoint), "--contexts", "2", "40"])
    assert end.value.code == 2
    assert "holds 128" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*argv, "--model", str(tmp_path / "nowhere")])
    assert "--model" in capsys.readouterr().err
