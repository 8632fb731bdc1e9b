"""Road networks: sizes, lengths, curves and crossings, on our grids and on the cities."""

import copy
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.envs.traffic import geometry
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.json_files import parse_decimal, read_json
from jaxlab.envs.traffic.roadnet import load_roadnet


@pytest.fixture(scope="module")
def document():
    return grid_roadnet(1, 2, row_distance=(200.0, 100.0, 300.0), column_distance=150.0)


@pytest.fixture(scope="module")
def net(document):
    return load_roadnet(document)


def test_sizes(net):
    assert net.num_junctions == 2
    assert len(net.road_ids) == 14
    assert (net.num_lanes, net.num_links) == (42, 72)
    assert net.num_phases.tolist() == [9, 9]
    assert net.lane_ids[:4] == ("road_0_1_0_0", "road_0_1_0_1", "road_0_1_0_2", "road_1_0_1_0")
    assert net.link_ids[0].count("_TO_") == 1
    assert net.drivable_ids[net.num_lanes] == net.link_ids[0]


def test_lanes_are_as_long_as_the_road_less_the_junctions(net):
    length = dict(zip(net.lane_ids, net.length[: net.num_lanes], strict=True))
    assert length["road_0_1_0_0"] == 200.0 - 15.0  # from the border
    assert length["road_1_1_0_2"] == 100.0 - 30.0
    assert length["road_2_1_0_1"] == 300.0 - 15.0


def test_lanes_lie_right_of_the_road(net):
    at = net.lane_ids.index("road_1_1_0_0")
    np.testing.assert_allclose(net.polylines[at], [[15.0, -2.0], [85.0, -2.0]])
    np.testing.assert_allclose(net.polylines[at + 2][:, 1], -10.0)
    back = net.lane_ids.index("road_2_1_2_1")
    np.testing.assert_allclose(net.polylines[back], [[85.0, 6.0], [15.0, 6.0]])


def test_speed_limits(net):
    assert (net.max_speed[: net.num_lanes] == 11.111).all()
    assert (net.max_speed[net.num_lanes :] == 10_000.0).all()


def test_every_crossing_is_seen_from_both_sides(net):
    for link in range(net.num_links):
        foes = net.cross_foe[link]
        for n in np.flatnonzero(foes >= 0):
            foe, slot = foes[n], net.cross_slot[link, n]
            assert net.cross_foe[foe, slot] == link
            assert net.link_junction[foe] == net.link_junction[link]
            # Both distances lead to one point.
            here, there = (
                geometry.point_at(net.polylines[net.num_lanes + k], d)
                for k, d in (
                    (link, net.cross_distance[link, n]),
                    (foe, net.cross_distance[foe, slot]),
                )
            )
            np.testing.assert_allclose(here, there, atol=1e-6)
        distances = net.cross_distance[link][foes >= 0]
        assert (np.diff(distances) >= 0).all()
        assert (distances <= net.length[net.num_lanes + link] + 1e-9).all()


def test_phases_are_those_of_the_file(net, document):
    places = [i for i in document["intersections"] if not i["virtual"]]
    for j, place in enumerate(places):
        for p, phase in enumerate(place["trafficLight"]["lightphases"]):
            assert net.phase_time[j, p] == phase["time"]
            allowed = np.flatnonzero(net.phase_allows[j, p]).tolist()
            assert allowed == sorted(phase["availableRoadLinks"])


def test_networks_of_equal_content_are_equal(document, net):
    again = load_roadnet(copy.deepcopy(document))
    assert again == net
    assert hash(again) == hash(net)
    changed = copy.deepcopy(document)
    changed["roads"][0]["lanes"][0]["maxSpeed"] = 10.0
    assert load_roadnet(changed) != net


def test_a_file_is_read_as_its_contents(document, net, tmp_path):
    path = tmp_path / "roadnet.json"
    path.write_text(json.dumps(document))
    assert load_roadnet(path) == net
    assert load_roadnet(str(path)) == net


def test_bent_roads(document):
    bent = copy.deepcopy(document)
    road = next(r for r in bent["roads"] if r["id"] == "road_1_1_0")
    # 50 m east, 30 m north, 50 m east: 15 m are cut off at either end.
    road["points"] = [{"x": x, "y": y} for x, y in ((0, 0), (50, 0), (50, 30), (100, 30))]
    net = load_roadnet(bent)
    lane = net.polylines[net.lane_ids.index("road_1_1_0_0")]
    # At a bend the offset of 2 m goes along the bisector and is not lengthened.
    step = 2.0 / np.sqrt(2.0)
    expected = [[15.0, -2.0], [50.0 + step, -step], [50.0 + step, 30.0 - step], [85.0, 28.0]]
    np.testing.assert_allclose(lane, expected, atol=1e-9)


def test_links_without_points_get_a_curve(document):
    bare = copy.deepcopy(document)
    for place in bare["intersections"]:
        for link in place["roadLinks"]:
            for lane_link in link["laneLinks"]:
                lane_link.pop("points")
    net = load_roadnet(bare)
    for k in range(net.num_links):
        curve = net.polylines[net.num_lanes + k]
        before, after = (net.polylines[n[k]] for n in (net.link_start, net.link_end))
        assert len(curve) == 11
        np.testing.assert_allclose(curve[0], before[-1], atol=1e-9)
        np.testing.assert_allclose(curve[-1], after[0], atol=1e-9)
        chord = np.linalg.norm(curve[-1] - curve[0])
        assert chord - 1e-9 <= net.length[net.num_lanes + k] < 1.6 * chord + 5.0


coordinates = st.integers(-20, 20).map(float)
curves = st.lists(st.tuples(coordinates, coordinates), min_size=2, max_size=5, unique=True)


def meets_somewhere(a, b):
    """Whether two polylines meet, by exact arithmetic on integers, parallel segments aside."""
    for (p, q), (r, s) in ((x, y) for x in itertools.pairwise(a) for y in itertools.pairwise(b)):
        d = lambda u, v, w: (v[0] - u[0]) * (w[1] - u[1]) - (v[1] - u[1]) * (w[0] - u[0])  # noqa: E731
        if (q[0] - p[0]) * (s[1] - r[1]) == (q[1] - p[1]) * (s[0] - r[0]):
            continue
        if d(p, q, r) * d(p, q, s) <= 0 and d(r, s, p) * d(r, s, q) <= 0:
            return True
    return False


@given(curve=curves, others=st.lists(curves, min_size=1, max_size=4))
def test_first_crossings(curve, others):
    longest = max(map(len, others))
    padded = np.array([[*o, *[o[-1]] * (longest - len(o))] for o in others])
    meets, along, along_other = geometry.first_crossings(np.array(curve), padded)
    for n, other in enumerate(others):
        assert meets[n] == meets_somewhere(curve, other)
        if meets[n]:
            here = geometry.point_at(np.array(curve), along[n])
            there = geometry.point_at(np.array(other), along_other[n])
            np.testing.assert_allclose(here, there, atol=1e-6)


@pytest.mark.parametrize("text", ["0", "-0.5", "12.25", "1e3", "-2.5E-3", "770.0", "0.001"])
def test_short_decimals_are_read_exactly(text):
    assert parse_decimal(text) == float(text)


@given(st.decimals(-1000, 1000, places=14).map(str))
def test_long_decimals_are_read_to_the_last_bits(text):
    assert parse_decimal(text) == pytest.approx(float(text), rel=1e-15, abs=1e-300)


def test_numbers_at_the_edge_of_what_doubles_hold():
    assert parse_decimal("1e400") == float("inf")
    assert parse_decimal("1e-400") == 0.0
    assert parse_decimal("25e-310") == pytest.approx(25e-310, rel=1e-9)


def test_decimals_are_read_with_the_engines_rounding(tmp_path):
    path = tmp_path / "number.json"
    path.write_text("[7.123456789012345678, 3]")
    read, integer = read_json(path)
    # Digits beyond 2^53 are taken one by one, each addition rounded: 7.123456789012345 6 7.
    value = float(7123456789012345) * 10.0 + 6.0
    assert read == value / 10.0**16
    assert integer == 3
    assert isinstance(integer, int)


@pytest.mark.parametrize(
    ("city", "junctions", "lanes", "lengths"),
    [
        ("hangzhou_4x4", 16, 240, {770.0, 785.0, 570.0, 585.0}),
        ("jinan_3x4", 12, 186, {770.0, 785.0, 370.0, 385.0}),
    ],
)
def test_cities_of_the_shared_data(city, junctions, lanes, lengths, shared_data):
    net = load_roadnet(shared_data(f"traffic/{city}/roadnet.json"))
    assert (net.num_junctions, net.num_lanes) == (junctions, lanes)
    assert net.num_links == 36 * junctions
    assert set(np.round(net.length[:lanes], 6)) == lengths
    # 252 crossings per junction, each in the rows of two links.
    assert (net.cross_foe >= 0).sum() == 2 * 252 * junctions
    straight = net.length[lanes:][net.link_rank == 3]
    right = net.length[lanes:][net.link_rank == 1]
    assert straight.min() >= 29.99
    assert straight.max() < 30.4
    assert right.min() >= 8.9
    assert right.max() < 15.4
