"""TSPLIB files: symmetric and asymmetric tours, capacitated routing, optimal tours.

Format after Reinelt, "TSPLIB95" (1995). A file without keywords is read as plain places, an
`x y` line for each city, with distances that are not rounded.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from jaxlab.envs.combinatorial.distances import METRICS, exact_euclidean
from jaxlab.envs.combinatorial.instances import RoutingInstance, TourInstance
from jaxlab.envs.combinatorial.text_files import TextFile, read_text

_KEYS = (
    *("NAME", "TYPE", "COMMENT", "DIMENSION", "CAPACITY", "EDGE_WEIGHT_TYPE"),
    *("EDGE_WEIGHT_FORMAT", "EDGE_DATA_FORMAT", "NODE_COORD_TYPE", "DISPLAY_DATA_TYPE"),
)
_SECTIONS = (
    *("NODE_COORD_SECTION", "DEPOT_SECTION", "DEMAND_SECTION", "EDGE_WEIGHT_SECTION"),
    *("DISPLAY_DATA_SECTION", "TOUR_SECTION", "FIXED_EDGES_SECTION"),
)
#: Orders of the entries of an explicit matrix: pairs of row and column for n cities.
_LAYOUTS = ("FULL_MATRIX", "UPPER_ROW", "LOWER_ROW", "UPPER_DIAG_ROW", "LOWER_DIAG_ROW")
_COLUMN_LAYOUTS = {
    "UPPER_COL": "LOWER_ROW",
    "LOWER_COL": "UPPER_ROW",
    "UPPER_DIAG_COL": "LOWER_DIAG_ROW",
    "LOWER_DIAG_COL": "UPPER_DIAG_ROW",
}

Words = list[tuple[int, str]]


class _Document:
    """Keywords and sections of a file."""

    def __init__(self, file: TextFile):
        self.file = file
        self.values: dict[str, tuple[int, str]] = {}
        self.sections: dict[str, tuple[int, Words]] = {}
        current: Words | None = None
        for number, line in file.numbered():
            key, colon, rest = (part.strip() for part in line.partition(":"))
            word = line.split()[0].rstrip(":")
            if line == "EOF":
                break
            if word in _SECTIONS:
                current = []
                self.sections[word] = (number, current)
            elif colon and key in _KEYS:
                if key in self.values and key != "COMMENT":
                    file.fail(number, f"{key} is given twice")
                self.values[key] = (number, rest)
                current = None
            elif current is not None:
                current.extend((number, text) for text in line.split())
            else:
                file.fail(number, f"{line[:40]!r} is no keyword or section of TSPLIB")

    def value(self, key: str, default: str | None = None) -> tuple[int, str]:
        if key not in self.values:
            if default is None:
                self.file.fail(0, f"{key} is missing")
            return 0, default
        return self.values[key]

    def section(self, name: str) -> tuple[int, Words]:
        if name not in self.sections:
            self.file.fail(0, f"{name} is missing")
        return self.sections[name]

    @property
    def name(self) -> str:
        return self.value("NAME", pathlib.Path(str(self.file.path)).stem)[1]

    @property
    def dimension(self) -> int:
        at, text = self.value("DIMENSION")
        return self.file.integer(at, text, "DIMENSION", 2)

    def table(self, section: str, width: int) -> np.ndarray:
        """Rows `index, numbers...` of a section, in the order of their indices, `[n, width]`."""
        at, words = self.section(section)
        n, step = self.dimension, width + 1
        rows = np.full((n, width), np.nan)
        for begin in range(0, len(words), step):
            row = words[begin : begin + step]
            line = row[0][0]
            if len(row) < step or row[-1][0] != line:
                self.file.fail(line, f"expected a number of a city and {width} numbers")
            index = self.file.integer(line, row[0][1], "a city", 1, n)
            if not np.isnan(rows[index - 1, 0]):
                self.file.fail(line, f"city {index} is given twice")
            rows[index - 1] = [self.file.number(line, t, "a number") for _, t in row[1:]]
        missing = np.flatnonzero(np.isnan(rows[:, 0]))
        if len(missing):
            last = words[-1][0] if words else at
            self.file.fail(last, f"{section} ends without city {missing[0] + 1} of DIMENSION {n}")
        return rows


def _explicit(document: _Document) -> np.ndarray:
    """The matrix of an EDGE_WEIGHT_SECTION."""
    file, n = document.file, document.dimension
    at, layout = document.value("EDGE_WEIGHT_FORMAT")
    begin, words = document.section("EDGE_WEIGHT_SECTION")
    layout = _COLUMN_LAYOUTS.get(layout, layout)
    if layout not in _LAYOUTS:
        names = ", ".join((*_LAYOUTS, *_COLUMN_LAYOUTS))
        file.fail(at, f"EDGE_WEIGHT_FORMAT {layout!r} is unknown: expected one of {names}")
    if layout == "FULL_MATRIX":
        rows, columns = np.indices((n, n)).reshape(2, -1)
    else:
        diagonal = 0 if "DIAG" in layout else 1
        pairs = np.triu_indices(n, diagonal) if "UPPER" in layout else np.tril_indices(n, -diagonal)
        rows, columns = pairs
    values = [file.number(line, text, "a distance") for line, text in words]
    if len(values) != len(rows):
        line = words[min(len(values), len(rows)) - 1][0] if words else begin
        file.fail(
            line,
            f"{layout} of {n} cities has {len(rows)} entries, the section has {len(values)}",
        )
    matrix = np.zeros((n, n))
    matrix[rows, columns] = values
    if layout != "FULL_MATRIX":
        matrix[columns, rows] = values
    # TSPLIB writes a large number on the diagonal of some matrices.
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _distances(document: _Document) -> tuple[np.ndarray, np.ndarray | None]:
    """Distances, and coordinates where there are any."""
    at, kind = document.value("EDGE_WEIGHT_TYPE")
    if kind == "EXPLICIT":
        matrix = _explicit(document)
        shown = "DISPLAY_DATA_SECTION"
        points = document.table(shown, 2) if shown in document.sections else None
        return matrix, points
    if kind not in METRICS:
        names = ", ".join(("EXPLICIT", *METRICS))
        document.file.fail(at, f"EDGE_WEIGHT_TYPE {kind!r} is not known: expected one of {names}")
    places = document.table("NODE_COORD_SECTION", 3 if kind.endswith("3D") else 2)
    points = places[:, :2]
    # GEO has latitudes first, which go upwards in a picture.
    return METRICS[kind](places), points[:, ::-1] if kind == "GEO" else points


def _is_tsplib(file: TextFile) -> bool:
    return any(
        line.partition(":")[0].strip() in _KEYS or line.split()[0].rstrip(":") in _SECTIONS
        for _, line in file.numbered()
    )


def load_tour_problem(path: Any) -> TourInstance:
    """Read a TSP or ATSP in TSPLIB's format, or plain `x y` lines.

    Raises:
      DataError: The file is malformed; names the line.
    """
    file = read_text(path)
    if not _is_tsplib(file):
        return _plain_places(file)
    document = _Document(file)
    at, kind = document.value("TYPE", "TSP")
    if kind.split()[:1] not in (["TSP"], ["ATSP"]):
        file.fail(at, f"TYPE is {kind!r}, expected TSP or ATSP")
    distances, points = _distances(document)
    instance = TourInstance(document.name, distances, points)
    if kind.split()[0] == "TSP":
        instance.require_symmetric()
    return instance


def _plain_places(file: TextFile) -> TourInstance:
    rows = []
    for number, _ in file.numbered():
        words = file.words(number, 2, "the x and y of a city, or a keyword of TSPLIB")
        rows.append([file.number(number, word, "a coordinate") for word in words])
    if len(rows) < 2:
        file.fail(0, "a tour has two cities at least")
    points = np.array(rows)
    return TourInstance(pathlib.Path(str(file.path)).stem, exact_euclidean(points), points)


def load_routing_problem(path: Any) -> RoutingInstance:
    """Read a CVRP in TSPLIB's format; the depot becomes city 0.

    Raises:
      DataError: The file is malformed or a demand exceeds the capacity.
    """
    file = read_text(path)
    document = _Document(file)
    distances, points = _distances(document)
    at, text = document.value("CAPACITY")
    capacity = file.number(at, text, "CAPACITY")
    demands = document.table("DEMAND_SECTION", 1)[:, 0]
    begin, words = document.section("DEPOT_SECTION")
    depots = [word for word in words if word[1] != "-1"]
    if len(depots) != 1:
        file.fail(begin, f"expected one depot, found {len(depots)}")
    depot = file.integer(*depots[0], "a depot", 1, document.dimension) - 1
    if demands[depot] != 0:
        file.fail(depots[0][0], f"the depot demands {demands[depot]:g}, expected 0")
    order = np.concatenate([[depot], np.delete(np.arange(len(demands)), depot)])
    return RoutingInstance(
        document.name,
        distances[np.ix_(order, order)],
        demands[order],
        capacity,
        None if points is None else points[order],
    )


def load_tour(path: Any) -> np.ndarray:
    """Read the cities of a TOUR file in their order, counted from 0.

    Raises:
      DataError: The file is malformed or the tour is no permutation.
    """
    file = read_text(path)
    document = _Document(file)
    begin, words = document.section("TOUR_SECTION")
    cities: list[int] = []
    for line, text in words:
        if text == "-1":
            break
        city = file.integer(line, text, "a city", 1) - 1
        if city in cities:
            file.fail(line, f"city {city + 1} is visited twice")
        cities.append(city)
    expected = document.dimension if "DIMENSION" in document.values else len(cities)
    if sorted(cities) != list(range(expected)):
        file.fail(begin, f"the tour has {len(cities)} cities, expected those from 1 to {expected}")
    return np.array(cities)


def tour_file(instance: TourInstance) -> str:
    """A TSPLIB file of an instance, with an explicit matrix."""
    kind = "TSP" if instance.symmetric else "ATSP"
    rows = "\n".join(" ".join(f"{d:.17g}" for d in row) for row in instance.distances)
    return (
        f"NAME: {instance.name}\nTYPE: {kind}\nDIMENSION: {instance.size}\n"
        f"EDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n"
        f"{rows}\nEOF\n"
    )
