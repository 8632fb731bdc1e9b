"""Files of decision processes: what is read, and what is refused."""

import json

import numpy as np
import pytest

from jaxlab.core.errors import DataError, ScenarioError
from jaxlab.envs.cmdp.files import read_cmdp, write_cmdp
from jaxlab.envs.cmdp.model import cmdp
from jaxlab.envs.cmdp.problems import hashed, inventory, queue, riverswim


def document(**changes):
    fields = {
        "P": [[[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [0.0, 1.0]]],
        "r": [[0.0, 1.0], [1, 0]],
        "c": [[[0.0, 1.0], [0.5, 0.5]]],
        "sense": [">="],
        "b": [0.25],
    }
    return {key: value for key, value in (fields | changes).items() if value is not None}


def written(tmp_path, content):
    path = tmp_path / "model.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("model", [hashed(), riverswim(), queue(), inventory()])
def test_npz_files_come_back(tmp_path, model):
    write_cmdp(model, tmp_path / "model.npz")
    found = read_cmdp(tmp_path / "model.npz")
    assert found.minimise == model.minimise
    for name in ("reward", "costs", "senses", "bounds"):
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name))
    np.testing.assert_allclose(found.transitions, model.transitions, atol=1e-16)


def test_json_files_are_read(tmp_path):
    found = read_cmdp(written(tmp_path, document(objective="minimise")))
    assert found.minimise
    np.testing.assert_array_equal(found.reward, [[0, -1], [-1, 0]])
    np.testing.assert_array_equal(found.slacks, [[[-0.25, 0.75], [0.25, 0.25]]])
    free = read_cmdp(written(tmp_path, document(c=None, sense=None, b=None)))
    assert free.signals == 0


def test_sums_of_32_bits_are_mended(tmp_path):
    table = np.full((3, 1, 3), 1 / 3, np.float32)
    np.savez(tmp_path / "model.npz", P=table, r=np.zeros((3, 1)))
    np.testing.assert_allclose(read_cmdp(tmp_path / "model.npz").transitions.sum(-1), 1, atol=1e-15)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"P": [[[0.5, 0.4], [1, 0]], [[0, 1], [0, 1]]]}, r"P\[0, 0, :\] sums to 0\.9"),
        ({"P": [[[1.5, -0.5], [1, 0]], [[0, 1], [0, 1]]]}, r"P\[0, 0, 1\] is -0\.5"),
        ({"P": [[1.0]]}, r"shape \[1, 1\], expected \[S, A, S\]"),
        ({"P": [[[1.0], [0.5, 0.5]]]}, "P: expected a full array"),
        ({"r": [[0.0, 1.0]]}, r"r has shape \[1, 2\], expected \[S, A\] = \[2, 2\]"),
        ({"r": [[0.0, "x"], [0, 0]]}, "r: expected a full array of real numbers"),
        ({"r": [[0.0, float("nan")], [0, 0]]}, r"r\[0, 1\] is nan"),
        ({"c": [[0.0, 1.0], [0.5, 0.5]]}, r"expected \[m, S, A\]"),
        ({"sense": [">"]}, r"sense\[0\] is '>', expected '>=' or '<='"),
        ({"sense": ">="}, "sense: expected a list"),
        ({"sense": [">=", "<="]}, "2 entries for 1 cost signals"),
        ({"b": [0.1, 0.2]}, "2 bounds for 1 cost signals"),
        ({"b": None}, "key 'b' is missing"),
        ({"q": 1}, "key 'q' is unknown"),
        ({"objective": "both"}, "maximise or minimise"),
    ],
)
def test_malformed_processes_are_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        read_cmdp(written(tmp_path, document(**changes)))


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_cmdp(tmp_path / "none.json")
    with pytest.raises(DataError, match="npz archive"):
        read_cmdp(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(DataError, match="npz archive"):
        read_cmdp(tmp_path / "text.npz")
    with pytest.raises(DataError, match="is no JSON"):
        read_cmdp(written(tmp_path, "{"))
    with pytest.raises(DataError, match="expected an object"):
        read_cmdp(written(tmp_path, "[]"))


def test_bounds_are_replaced():
    assert hashed().with_bounds([0.6]).bounds.tolist() == [0.6]
    with pytest.raises(ScenarioError, match="2 bounds for 1 cost signals"):
        hashed().with_bounds([0.6, 0.7])
    with pytest.raises(ScenarioError, match="finite"):
        hashed().with_bounds([float("inf")])


def test_problems_with_odd_sizes_are_refused():
    for build in (lambda: riverswim(1), lambda: queue(0), lambda: inventory(0)):
        with pytest.raises(ScenarioError, match="at least"):
            build()
    with pytest.raises(ScenarioError, match="probability"):
        riverswim(restart=1.5)
    with pytest.raises(ScenarioError, match="0 bounds for 1"):
        cmdp(np.ones((1, 1, 1)), np.zeros((1, 1)), [[[1.0]]], [">="], [])
