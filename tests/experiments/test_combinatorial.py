"""`python -m experiments.combinatorial`: solutions, training, and what is refused."""

import json

import jax
import numpy as np
import pytest

from experiments.combinatorial.__main__ import main
from experiments.combinatorial.problems import PROBLEMS
from experiments.combinatorial.solving import _answer
from jaxlab.envs.combinatorial.graph_files import graph_file
from jaxlab.envs.combinatorial.instances import TourInstance
from tests.envs.combinatorial import oracles

KEYS = ["solution", "cost", "optimum", "bound", "gap"]


@pytest.fixture(autouse=True)
def _precision():
    """The command switches 64 bits on for the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def knapsack_file(instance):
    rows = zip(instance.values, instance.weights, strict=True)
    lines = [f"{len(instance.values)} {instance.capacity:g}", *(f"{v:g} {w:g}" for v, w in rows)]
    return "\n".join(lines) + "\n"


FILES = {
    "tsp": "\n".join(f"{x!r} {y!r}" for x, y in oracles.halton_tour(8).coordinates.tolist()),
    "atsp": "NAME: a\nTYPE: ATSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
    "EDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n0 1 9\n9 0 1\n2 9 0\nEOF\n",
    "maxcut": graph_file(oracles.graph(8)),
    "mis": graph_file(oracles.graph(8)),
    "mvc": graph_file(oracles.graph(8)),
    "colouring": graph_file(oracles.graph(8)),
    "qubo": "2 3\n1 1 -3\n2 2 -2\n1 2 2\n",
    "knapsack": knapsack_file(oracles.knapsack(10)),
    "cvrp": "NAME: c\nTYPE: CVRP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nCAPACITY: 5\n"
    "NODE_COORD_SECTION\n1 0 0\n2 3 4\n3 6 8\nDEMAND_SECTION\n1 0\n2 2\n3 4\n"
    "DEPOT_SECTION\n1\n-1\nEOF\n",
    "jobshop": "2 2\n0 3 1 2\n1 4 0 1\n",
    "shortest_path": "3 3 1 3\n1 2 1\n2 3 1\n1 3 5\n",
}
OPTIMA = {
    **{"tsp": oracles.TOURS[8], "atsp": 4, "maxcut": 9, "mis": 4, "mvc": 4, "qubo": -3},
    **{"knapsack": 109, "cvrp": 30, "jobshop": 6, "shortest_path": 2},
}


def write(tmp_path, text):
    path = tmp_path / "instance.txt"
    path.write_text(text)
    return str(path)


def solve(capsys, tmp_path, problem, *argv, text=None):
    path = write(tmp_path, FILES[problem] if text is None else text)
    main(["solve", "--problem", problem, "--instance", path, "--json", *argv])
    out = json.loads(capsys.readouterr().out)
    assert list(out) == KEYS
    return out


def refused(capsys, argv):
    """The one line on standard error of a command that ends with exit code 2."""
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("problem", [name for name in FILES if name != "colouring"])
def test_optima_are_proved(capsys, tmp_path, problem):
    found = solve(capsys, tmp_path, problem)
    assert found["cost"] == pytest.approx(OPTIMA[problem], abs=1e-9)
    assert found["optimum"] == found["bound"] == found["cost"]
    assert found["gap"] == 0
    instance = PROBLEMS[problem].load(tmp_path / "instance.txt")
    assert PROBLEMS[problem].objective(instance, found["solution"]) == found["cost"]


#: Two pairs of neighbours far from each other: distances that break the triangle inequality.
PAIRS = (
    "NAME: pairs\nTYPE: CVRP\nDIMENSION: 5\nCAPACITY: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
    "EDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n0 9 9 9 9\n9 0 7 900 900\n"
    "9 7 0 900 900\n9 900 900 0 7\n9 900 900 7 0\nDEMAND_SECTION\n1 0\n2 1\n3 1\n4 1\n5 1\n"
    "DEPOT_SECTION\n1\n-1\nEOF\n"
)


@pytest.mark.parametrize("method", ["exact", "heuristic"])
def test_routes_are_not_bounded_by_tours(capsys, tmp_path, method):
    found = solve(capsys, tmp_path, "cvrp", "--method", method, text=PAIRS)
    assert found["bound"] <= 50
    assert (found["optimum"] is None) == (found["cost"] > 50)
    assert method == "heuristic" or found["optimum"] == 50


@pytest.mark.parametrize("proved", [True, False])
def test_a_bound_that_is_not_met_proves_nothing(proved):
    problem = PROBLEMS["tsp"]
    triangle = TourInstance("triangle", np.ones((3, 3)) - np.eye(3))
    assert _answer(problem, triangle, [0, 1, 2], 2.0, proved).optimum is None
    assert _answer(problem, triangle, [0, 1, 2], 3.0, proved).optimum == 3
    beaten = _answer(problem, triangle, [0, 1, 2], 4.0, proved)
    assert beaten.optimum is None
    assert beaten.bound == -np.inf


def test_a_colouring(capsys, tmp_path):
    found = solve(capsys, tmp_path, "colouring")
    graph = oracles.graph(8)
    colours = np.array(found["solution"])
    assert not (graph.adjacency & (colours[:, None] == colours)).any()
    assert found["optimum"] == found["cost"] == len(set(found["solution"]))


@pytest.mark.parametrize(
    ("problem", "argv"),
    [
        ("tsp", ["--method", "dp"]),
        ("tsp", ["--solver", "milp"]),
        ("maxcut", ["--method", "dp"]),
        ("knapsack", ["--solver", "milp"]),
        ("mis", ["--solver", "milp"]),
    ],
)
def test_methods_agree(capsys, tmp_path, problem, argv):
    found = solve(capsys, tmp_path, problem, *argv)
    assert found["optimum"] == pytest.approx(OPTIMA[problem], abs=1e-9)


@pytest.mark.parametrize("problem", list(FILES))
def test_heuristics_have_bounds(capsys, tmp_path, problem):
    found = solve(capsys, tmp_path, problem, "--method", "heuristic", "--effort", "50")
    sense = PROBLEMS[problem].sense
    best = OPTIMA.get(problem, found["cost"])
    assert sense * (found["cost"] - best) >= -1e-9
    assert sense * (best - found["bound"]) >= -1e-6
    assert (found["optimum"] is None) == (found["gap"] > 0)


def test_a_value_learnt_on_the_instance(capsys, tmp_path):
    found = solve(
        capsys, tmp_path, "tsp", "--method", "learned", "--learning-steps", "10", "--beam", "4"
    )
    assert sorted(found["solution"]) == list(range(8))
    assert oracles.TOURS[8] - 1e-9 <= found["cost"] < 1.1 * oracles.TOURS[8]


def test_tables_and_pictures(capsys, tmp_path):
    path, picture = write(tmp_path, FILES["tsp"]), tmp_path / "tour.png"
    main(["solve", "--instance", path, "--picture", str(picture)])
    assert "solution: 0 " in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_checks_of_formulations(capsys):
    main(["check", "--problem", "mis", "--size", "4", "--instances", "1"])
    out = capsys.readouterr().out
    assert out.count("holds") == 5


def test_what_is_refused(capsys, tmp_path):
    path = write(tmp_path, "3 1\n1 4 1\n")
    assert "--instance: is missing" in refused(capsys, ["solve"])
    argv = ["solve", "--problem", "maxcut", "--instance", path]
    assert "line 2" in refused(capsys, argv)
    path = write(tmp_path, FILES["jobshop"])
    argv = ["solve", "--problem", "jobshop", "--instance", path]
    assert "values are learnt for" in refused(capsys, [*argv, "--method", "learned"])
    assert "--policy" in refused(capsys, [*argv, "--policy", str(tmp_path)])
    path = write(tmp_path, "2 1.5\n1 0.5\n1 1\n")
    argv = ["solve", "--problem", "knapsack", "--instance", path, "--method", "dp"]
    assert "whole" in refused(capsys, argv)
    argv = ["train", "--problem", "maxcut", "--algorithm", "fitted"]
    assert "--algorithm dqn" in refused(capsys, argv)
    argv = ["train", "--algorithm", "dqn", "--embedding", "features"]
    assert "attention" in refused(capsys, argv)


def test_smoke(capsys, tmp_path):
    folder = tmp_path / "run"
    path = write(tmp_path, FILES["tsp"].rsplit("\n", 2)[0])
    main(["--preset", "smoke", "--run-dir", str(folder), "--instance", path, "--no-progress"])
    assert "certificate" in capsys.readouterr().out
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["test_instances"] == summary["proved"] == 4
    for name in ("greedy", "beam2", "x8"):
        assert summary[name]["gap"] >= -1e-5
        assert summary[name]["gap_low"] <= summary[name]["gap"] <= summary[name]["gap_high"]
    assert summary["certificate"]["gap_bound"] >= summary["certificate"]["realised_loss"] - 1e-6
    assert summary["files"][0]["cost"] > 2
    for name in ("learning_curve", "solutions"):
        assert (folder / "figures" / f"{name}.png").exists()
    assert len(list((folder / "trained" / "checkpoints").glob("[0-9]*"))) >= 2
    main(["train", "--resume", str(folder), "--no-progress"])
    again = json.loads((folder / "summary.json").read_text())
    assert again["greedy"] == summary["greedy"]
    capsys.readouterr()
    # This switches 64 bits on, so it comes last.
    argv = ["--method", "learned", "--policy", str(folder), "--beam", "4"]
    found = solve(capsys, tmp_path, "tsp", *argv, text=FILES["tsp"].rsplit("\n", 2)[0])
    assert sorted(found["solution"]) == list(range(6))


def test_smoke_of_flips(capsys, tmp_path):
    folder = tmp_path / "run"
    main(
        [
            *("train", "--preset", "smoke", "--problem", "maxcut"),
            *("--run-dir", str(folder), "--no-progress"),
        ]
    )
    assert "maxcut 6" in capsys.readouterr().out
    summary = json.loads((folder / "summary.json").read_text())
    assert 0 <= summary["learned"]["optimal"] <= 1
    assert summary["certificate"] is None
