"""`python -m experiments.qbm`: what it prints, and what it refuses."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.qbm.__main__ import COMMANDS, main
from tests.envs.qbm import oracles, reference

ROOT = pathlib.Path(__file__).parents[2]
XYZ_TERMS = ("ZII", "IZI", "IIX", "IIY", "IIZ", "ZIX", "ZIY", "ZIZ", "IZX", "IZY", "IZZ")


@pytest.fixture(autouse=True)
def _precision():
    """The command switches 64 bits on for the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def document(labels=oracles.XZ_ORDER, hidden=(2,), target=oracles.PAIR, **changes):
    coefficients = oracles.parameters(len(labels)).tolist()
    terms = [list(pair) for pair in zip(labels, coefficients, strict=True)]
    model = {"qubits": len(labels[0]), "hidden": list(hidden), "sign": 1, "terms": terms}
    return model | ({} if target is None else {"target": list(target)}) | changes


def evaluate(capsys, tmp_path, model, *argv):
    path = tmp_path / "model.json"
    path.write_text(model if isinstance(model, str) else json.dumps(model))
    main(["evaluate", "--model", str(path), "--json", *argv])
    return json.loads(capsys.readouterr().out)


def refused(capsys, tmp_path, model, *argv):
    """The one line on standard error of a command that ends with exit code 2."""
    path = tmp_path / "model.json"
    path.write_text(model if isinstance(model, str) else json.dumps(model))
    with pytest.raises(SystemExit) as end:
        main(["evaluate", "--model", str(path), *argv])
    assert end.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    return error


def test_the_recorded_machine(capsys, tmp_path):
    oracle = oracles.RESTRICTED["XZ"]
    found = evaluate(capsys, tmp_path, document(), "--em-steps", "5")
    assert set(found) == {
        *("log_partition", "probabilities", "expectations", "kl", "entropy", "purity"),
        *("metric_eigenvalues", "em_kl"),
    }
    np.testing.assert_allclose(found["log_partition"], oracle.log_partition, atol=1e-13)
    np.testing.assert_allclose(found["kl"], oracle.kl, atol=1e-13)
    np.testing.assert_allclose(found["probabilities"], oracles.XZ_PROBABILITIES, atol=1e-11)
    np.testing.assert_allclose(found["expectations"], oracles.XZ_MODEL, atol=1e-11)
    np.testing.assert_allclose(found["metric_eigenvalues"], oracles.XZ_METRIC, atol=1e-11)
    np.testing.assert_allclose(found["em_kl"], oracle.em, atol=1e-11)


def test_the_recorded_generic_state(capsys, tmp_path):
    found = evaluate(capsys, tmp_path, document(oracles.GENERIC, (), None))
    assert found["kl"] is None
    assert "em_kl" not in found
    for name, expected in (
        ("log_partition", oracles.GENERIC_LOG_PARTITION),
        ("entropy", oracles.GENERIC_ENTROPY),
        ("purity", oracles.GENERIC_PURITY),
        ("expectations", oracles.GENERIC_MODEL),
    ):
        np.testing.assert_allclose(found[name], expected, atol=1e-11)
    eigenvalues = np.array(found["metric_eigenvalues"])
    np.testing.assert_allclose(eigenvalues[[0, -1]], oracles.GENERIC_METRIC, atol=1e-11)
    assert np.all(np.diff(eigenvalues) >= 0)


def test_the_xyz_machine_against_matrix_exponentials(capsys, tmp_path):
    theta, target = oracles.parameters(11), np.array(oracles.PAIR)
    found = evaluate(capsys, tmp_path, document(XYZ_TERMS), "--em-steps", "2")
    rho = reference.state(theta, XYZ_TERMS)
    expected = {
        "log_partition": reference.log_partition(theta, XYZ_TERMS),
        "probabilities": reference.bits(rho, 2),
        "expectations": reference.moments(rho, XYZ_TERMS),
        "kl": reference.kl(target, reference.bits(rho, 2)),
        "purity": np.trace(rho @ rho).real,
        "metric_eigenvalues": np.linalg.eigvalsh(reference.bkm(theta, XYZ_TERMS)),
        "em_kl": reference.em(theta, XYZ_TERMS, 2, target, 2),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-10, err_msg=name)


def test_the_sign_negates_the_coefficients(capsys, tmp_path):
    plain = document()
    negative = plain | {"sign": -1, "terms": [[label, -c] for label, c in plain["terms"]]}
    found = evaluate(capsys, tmp_path, negative)
    expected = evaluate(capsys, tmp_path, plain)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-14, err_msg=name)


def test_hidden_qubits_in_front(capsys, tmp_path):
    turned = document([label[2] + label[:2] for label in oracles.XZ_ORDER], (0,))
    found = evaluate(capsys, tmp_path, turned, "--em-steps", "1")
    np.testing.assert_allclose(found["probabilities"], oracles.XZ_PROBABILITIES, atol=1e-11)
    np.testing.assert_allclose(found["em_kl"], oracles.RESTRICTED["XZ"].em[:1], atol=1e-11)


def test_em_where_operators_do_not_commute(capsys, tmp_path):
    model = document(oracles.PAIR_TERMS, (1,), oracles.PAIR_TARGET)
    found = evaluate(capsys, tmp_path, model, "--em-steps", "1")
    np.testing.assert_allclose(found["em_kl"], [0], atol=1e-12)
    visible = document(oracles.PAIR_TERMS, (), (0.4, 0.3, 0.2, 0.1))
    found = evaluate(capsys, tmp_path, visible, "--em-steps", "1")
    # All diagonal terms are there but the identity, so any distribution is reached.
    np.testing.assert_allclose(found["em_kl"], [0], atol=1e-12)


def test_blocks_and_the_whole_matrix_agree(capsys, tmp_path):
    labels = ("ZIII", "IZII", "ZZXI", "IIXY", "IZZZ", "ZIIY")
    found = evaluate(capsys, tmp_path, document(labels, (2, 3)))
    # One more term that vanishes, but does not commute: then the whole matrix is decomposed.
    more = document(labels, (2, 3))
    more["terms"].append(["XIII", 0.0])
    whole = evaluate(capsys, tmp_path, more)
    for name in ("log_partition", "probabilities", "kl", "entropy", "purity"):
        np.testing.assert_allclose(found[name], whole[name], atol=1e-13, err_msg=name)
    np.testing.assert_allclose(found["expectations"], whole["expectations"][:6], atol=1e-13)


def test_small_probabilities_keep_their_digits(capsys, tmp_path):
    model = {"qubits": 2, "hidden": [1], "terms": [["ZI", 40.0], ["ZX", 1.0]], "target": [0, 1]}
    found = evaluate(capsys, tmp_path, model)
    # p(1) = 1 / (1 + exp(80)).
    np.testing.assert_allclose(found["kl"], np.log1p(np.exp(80)), rtol=1e-14)


def test_unbounded_m_steps_are_told(capsys, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document(target=(0.5, 0.5, 0, 0))))
    main(["evaluate", "--model", str(path), "--json", "--em-steps", "1"])
    out, error = capsys.readouterr()
    assert "no finite minimiser: 1 ZII is constant" in error
    assert json.loads(out)["em_kl"][0] < json.loads(out)["kl"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": [0.4, 0.1, 0.1, 0.5]}, "sum to 1.1"),
        ({"target": [0.5, 0.5]}, "2 probabilities, expected 4"),
        ({"target": []}, "list of probabilities"),
        ({"target": [float("nan"), 0.5, 0.25, 0.25]}, "is NaN"),
        ({"target": [1.5, -0.5, 0, 0]}, "at least 0"),
        ({"terms": [["ZII", 0.1], ["ZII", 0.2]]}, "'ZII' is given twice"),
        ({"terms": [["ZIQ", 0.1]]}, "over I, X, Y, Z"),
        ({"terms": [["ZI", 0.1]]}, "Pauli string of 3 letters"),
        ({"terms": [["ZII", float("nan")]]}, "finite number"),
        ({"terms": [["ZII", [0.1, 0.2]]]}, "not be Hermitian"),
        ({"terms": []}, "at least one"),
        ({"terms": ["ZII"]}, "expected a pair"),
        ({"hidden": [3]}, "from 0 to 2"),
        ({"hidden": [0, 1, 2]}, "all 3 qubits are hidden"),
        ({"hidden": 2}, "list of qubits"),
        ({"sign": 2}, "sign is 2"),
        ({"qubits": 0}, "positive integer"),
        ({"beta": 1}, "'beta' is unknown"),
        ({"qubits": 13, "terms": [["Z" * 13, 0.1]]}, "13 qubits would take about 4 GiB"),
        ({"qubits": 30, "terms": [["Y" * 29 + "Z", 0.1]]}, "30 qubits would take about"),
    ],
)
def test_bad_models_are_named(capsys, tmp_path, changes, message):
    error = refused(capsys, tmp_path, document() | changes)
    assert "model.json" in error
    assert message in error


def test_bad_commands_are_named(capsys, tmp_path):
    assert "is no JSON" in refused(capsys, tmp_path, "{")
    assert "expected an object" in refused(capsys, tmp_path, "[]")
    model = document()
    del model["terms"]
    assert "'terms' is missing" in refused(capsys, tmp_path, model)
    assert "has no target" in refused(capsys, tmp_path, document(target=None), "--em-steps", "1")
    assert "em-steps" in refused(capsys, tmp_path, document(), "--em-steps", "-1")
    for argv, message in (
        (["evaluate"], "--model: is missing"),
        (["evaluate", "--model", str(tmp_path / "absent.json")], "cannot be read"),
        (["train-it"], "'train-it' is no command"),
    ):
        with pytest.raises(SystemExit) as end:
            main(argv)
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_tables_for_people(capsys, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document()))
    main(["evaluate", "--model", str(path), "--em-steps", "1"])
    out = capsys.readouterr().out
    for text in ("2.53079785927", "ZIX", "0.383366704147", "0.163133524246"):
        assert text in out


def test_help_is_quick_and_complete(capsys):
    main(["--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "experiments.qbm", "evaluate", "--help"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0
    assert "--em-steps" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "jax" not in imported
