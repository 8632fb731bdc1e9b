"""Files of instances: what they mean, and what is refused."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import DataError
from jaxlab.envs.combinatorial import graph_files, list_files, tsplib

HEAD = "NAME: toy\nTYPE: {kind}\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
PLACES = "NAME: toy\nTYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: {}\nNODE_COORD_SECTION\n{}\nEOF\n"


def write(tmp_path, text, name="toy.txt"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("layout", "entries"),
    [
        ("FULL_MATRIX", "9 1 2 1 9 3 2 3 9"),
        ("UPPER_ROW", "1 2\n3"),
        ("LOWER_ROW", "1\n2 3"),
        ("UPPER_DIAG_ROW", "0 1 2 0 3 0"),
        ("LOWER_DIAG_ROW", "0 1 0 2 3 0"),
        ("UPPER_COL", "1 2 3"),
        ("LOWER_COL", "1 2 3"),
        ("UPPER_DIAG_COL", "0 1 0 2 3 0"),
        ("LOWER_DIAG_COL", "0 1 2 0 3 0"),
    ],
)
def test_explicit_layouts(tmp_path, layout, entries):
    text = HEAD.format(kind="TSP") + f"EDGE_WEIGHT_FORMAT: {layout}\nEDGE_WEIGHT_SECTION\n{entries}"
    instance = tsplib.load_tour_problem(write(tmp_path, text))
    np.testing.assert_array_equal(instance.distances, [[0, 1, 2], [1, 0, 3], [2, 3, 0]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("EUC_2D", 2), ("CEIL_2D", 3), ("MAN_2D", 3), ("MAX_2D", 2), ("ATT", 1), ("GEO", 254)],
)
def test_distances_of_places(tmp_path, kind, expected):
    text = PLACES.format(kind, "1 0 0\n2 1.05 2\n3 7 7")
    assert tsplib.load_tour_problem(write(tmp_path, text)).distances[0, 1] == expected


def test_a_place_line_is_as_a_file_without_keywords(tmp_path):
    instance = tsplib.load_tour_problem(write(tmp_path, "0 0\n0.3 0.4\n1 1\n"))
    assert instance.distances[0, 1] == pytest.approx(0.5)


def test_direction_matters_only_to_atsp(tmp_path):
    rest = "EDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n0 1 2\n5 0 3\n2 3 0\nEOF"
    path = write(tmp_path, HEAD.format(kind="ATSP") + rest)
    instance = tsplib.load_tour_problem(path)
    assert instance.distances[1, 0] == 5
    assert instance.length([0, 1, 2]) == 1 + 3 + 2
    with pytest.raises(DataError, match="from city 1 to 2 is 1 but back 5"):
        tsplib.load_tour_problem(write(tmp_path, HEAD.format(kind="TSP") + rest))


@pytest.mark.parametrize(
    ("loader", "text", "message"),
    [
        (tsplib.load_tour_problem, "", "empty"),
        (tsplib.load_tour_problem, "NAME: x\nWHAT\n", "line 2.*no keyword"),
        (tsplib.load_tour_problem, "0 0\n1 x\n", "line 2.*coordinate.*'x'"),
        (tsplib.load_tour_problem, PLACES.format("EUC_9D", "1 0 0"), "line 4.*EUC_9D"),
        (tsplib.load_tour_problem, PLACES.format("ATT", "1 0 0\n2 1 nan\n3 1 1"), "line 7.*nan"),
        (tsplib.load_tour_problem, PLACES.format("ATT", "1 0 0\n2 1 1"), "line 7.*city 3"),
        (tsplib.load_tour_problem, PLACES.format("ATT", "1 0 0\n1 1 1"), "line 7.*twice"),
        (tsplib.load_tour_problem, PLACES.format("ATT", "1 0 0\n4 1 1"), "line 7.*from 1 to 3"),
        (tsplib.load_tour_problem, PLACES.format("ATT", "1 0 0\n2 1\n3 0 0"), "line 7"),
        (graph_files.load_graph, "3 1\n1 4 1\n", "line 2.*from 1 to 3, found 4"),
        (graph_files.load_graph, "3 1\n1 1 1\n", "line 2.*to itself"),
        (graph_files.load_graph, "3 2\n1 2 1\n2 1 5\n", "line 3.*after line 2"),
        (graph_files.load_graph, "3 2\n1 2 1\n", "line 2.*announces 2"),
        (graph_files.load_graph, "3\n", "line 1.*header"),
        (graph_files.load_qubo, "2 1\n1 2 one\n", "line 2.*'one'"),
        (graph_files.load_paths, "3 1 1 4\n1 2 1\n", "line 1.*target"),
        (list_files.load_knapsack, "2 10\n1 2\n", "line 2.*announces 2 items"),
        (list_files.load_knapsack, "1 10\n1 -2\n", "line 2.*weight is -2"),
        (list_files.load_knapsack, "1.5 10\n1 2\n", "line 1.*integer"),
        (list_files.load_job_shop, "1 2\n0 3 0 4\n", "line 2.*machine 0 twice"),
        (list_files.load_job_shop, "1 2\n0 3 2 4\n", "line 2.*from 0 to 1"),
        (list_files.load_job_shop, "2 2\n0 3 1 4\n", "line 2.*2 lines of jobs"),
    ],
)
def test_malformed_files_are_named_by_line(tmp_path, loader, text, message):
    with pytest.raises(DataError, match=message):
        loader(write(tmp_path, text))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        graph_files.load_graph(tmp_path / "absent")


def test_tours_are_permutations(tmp_path):
    text = "TYPE: TOUR\nDIMENSION: 3\nTOUR_SECTION\n1\n3\n2\n-1\nEOF\n"
    assert tsplib.load_tour(write(tmp_path, text)).tolist() == [0, 2, 1]
    for wrong, message in (("1\n3\n3", "line 6.*twice"), ("1\n2", "has 2 cities")):
        with pytest.raises(DataError, match=message):
            tsplib.load_tour(write(tmp_path, text.replace("1\n3\n2", wrong)))


def test_routing_files(tmp_path):
    text = (
        "NAME: toy\nTYPE: CVRP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nCAPACITY: 5\n"
        "NODE_COORD_SECTION\n1 0 0\n2 3 4\n3 6 8\nDEMAND_SECTION\n1 2\n2 0\n3 4\n"
        "DEPOT_SECTION\n2\n-1\nEOF\n"
    )
    instance = tsplib.load_routing_problem(write(tmp_path, text))
    assert instance.demands.tolist() == [0, 2, 4]
    assert instance.length([1, 0, 2]) == 20
    with pytest.raises(DataError, match="carries 6 of 5"):
        instance.length([1, 2])
    with pytest.raises(DataError, match="demands 4, more than the capacity 3"):
        tsplib.load_routing_problem(write(tmp_path, text.replace("CAPACITY: 5", "CAPACITY: 3")))


def test_job_shops(tmp_path):
    instance = list_files.load_job_shop(write(tmp_path, "# toy\n2 2\n0 3 1 2\n1 4 0 1\n"))
    assert instance.makespan([0, 1, 0, 1]) == 6
    assert instance.makespan([0, 0, 1, 1]) == 10
    with pytest.raises(DataError, match="names not each"):
        instance.makespan([0, 0, 0, 1])


@settings(max_examples=25)
@given(st.integers(0, 2**31 - 1), st.integers(2, 7))
def test_a_qubo_is_a_cut_of_one_more_vertex(seed, n):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.integers(-9, 10, (n, n)))
    rows, columns = np.nonzero(upper)
    lines = [f"{i + 1} {j + 1} {upper[i, j]}" for i, j in zip(rows, columns, strict=True)]
    file = graph_files.TextFile("toy", [f"{n} {len(lines)}", *lines])
    qubo = graph_files.parse_qubo(file)
    bits = rng.integers(0, 2, n)
    expected = sum(
        upper[i, j] * bits[i] * bits[j] * (1 if i == j else 2) for i in range(n) for j in range(n)
    )
    assert qubo.value(bits) == expected
    assert -qubo.as_cut().cut([0, *bits]) == pytest.approx(expected)


def test_graphs_are_written_as_they_are_read(tmp_path):
    text = "4 3 J\n1 2 0.5\n3 1 -2\n4 3\n"
    graph = graph_files.load_graph(write(tmp_path, text))
    assert graph.cut([0, 1, 0, 1]) == 1.5
    again = graph_files.load_graph(write(tmp_path, graph_files.graph_file(graph)))
    np.testing.assert_array_equal(again.matrix, graph.matrix)


@pytest.fixture
def table(shared_data):
    def read(name):
        with open(shared_data(f"combinatorial/{name}")) as file:
            return list(csv.DictReader(file))

    return read


def test_published_tours_of_the_shared_data_skipped_where_absent(shared_data, table):
    known = 0
    for row in table("tsplib_atsp_optima.csv"):
        folder = "atsp" if row["instance"] in ATSP else "tsplib"
        path = shared_data(
            f"combinatorial/{folder}/{row['instance']}.{'atsp' if folder == 'atsp' else 'tsp'}"
        )
        instance = tsplib.load_tour_problem(path)
        assert instance.size == int(row["n"])
        tour = path.with_suffix(".opt.tour")
        if tour.exists():
            known += 1
            assert instance.length(tsplib.load_tour(tour)) == int(row["published_opt"])
    assert known == 9


ATSP = ("br17", "ftv33", "ftv35", "ftv38", "p43", "ry48p")


def test_graphs_of_the_shared_data_load_skipped_where_absent(shared_data, table):
    for row in table("maxcut_best.csv"):
        suffix = ".txt" if row["set"] == "gset" else ""
        path = shared_data(f"combinatorial/{row['set']}/{row['instance']}{suffix}")
        graph = graph_files.load_graph(path)
        assert (graph.vertices, len(graph.edges)) == (int(row["n"]), int(row["edges"]))
    for row in table("qubo_gka_best.csv"):
        path = shared_data(f"combinatorial/qubo_gka/{row['instance']}.sparse")
        assert len(graph_files.load_qubo(path).matrix) == int(row["n"])
    for row in table("tsp_uniform/optima.csv"):
        path = shared_data(f"combinatorial/tsp_uniform/{row['instance']}.txt")
        assert tsplib.load_tour_problem(path).size == int(row["n"])
