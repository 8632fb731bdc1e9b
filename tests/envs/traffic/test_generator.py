"""Generated networks and demand: structure, geometry, totals, routes and errors."""

import json
import math
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ScenarioError
from jaxlab.envs.traffic.demand import load_flow
from jaxlab.envs.traffic.generator import HEADINGS, grid_roadnet, lane_link_curve
from jaxlab.envs.traffic.presets import (
    HANGZHOU_ORIGINS,
    HANGZHOU_PROFILE,
    HANGZHOU_TURNS,
    default_scenario,
)
from jaxlab.envs.traffic.roadnet import load_roadnet
from jaxlab.envs.traffic.trips import draw_demand


def junctions(net):
    return [i for i in net["intersections"] if not i["virtual"]]


def movement_kinds(net):
    return {
        (link["startRoad"], link["endRoad"]): link["type"]
        for i in junctions(net)
        for link in i["roadLinks"]
    }


def driven(net, flows):
    kinds = movement_kinds(net)
    return Counter(kinds[pair] for flow in flows for pair in pairwise(flow["route"]))


def check_structure(net):
    """Every reference resolves, roads meet the junctions they name, links join their lanes."""
    places = {i["id"]: i for i in net["intersections"]}
    roads = {r["id"]: r for r in net["roads"]}
    assert len(places) == len(net["intersections"])
    assert len(roads) == len(net["roads"])
    for road in net["roads"]:
        for end, point in (("startIntersection", 0), ("endIntersection", -1)):
            place = places[road[end]]
            assert place["point"] == road["points"][point]
            assert road["id"] in place["roads"]
    for place in net["intersections"]:
        touching = {
            r["id"]
            for r in net["roads"]
            if place["id"] in (r["startIntersection"], r["endIntersection"])
        }
        assert set(place["roads"]) == touching
        assert len(place["roads"]) == (2 if place["virtual"] else 8)
        available = {
            n for phase in place["trafficLight"]["lightphases"] for n in phase["availableRoadLinks"]
        }
        assert available == set(range(len(place["roadLinks"])))
        for link in place["roadLinks"]:
            assert roads[link["startRoad"]]["endIntersection"] == place["id"]
            assert roads[link["endRoad"]]["startIntersection"] == place["id"]


def heading(road):
    a, b = road["points"]
    length = math.hypot(b["x"] - a["x"], b["y"] - a["y"])
    return (b["x"] - a["x"]) / length, (b["y"] - a["y"]) / length


def test_hangzhou_like_grid_has_the_published_layout():
    net = grid_roadnet(4, 4)
    check_structure(net)
    assert len(junctions(net)) == 16
    assert sum(len(r["lanes"]) for r in net["roads"]) == 240
    lengths = Counter(
        math.dist(*((p["x"], p["y"]) for p in road["points"])) for road in net["roads"]
    )
    assert lengths == {800.0: 40, 600.0: 40}
    places = [i["id"] for i in net["intersections"]]
    assert places[:5] == [*(f"intersection_0_{j}" for j in range(1, 5)), "intersection_1_0"]
    assert [r["id"] for r in net["roads"]][:6] == [
        *(f"road_0_{j}_0" for j in range(1, 5)),
        "road_1_0_1",
        "road_1_1_0",
    ]


def test_movements_and_phases_are_in_the_conventional_order():
    junction = junctions(grid_roadnet(2, 3))[0]
    compass = "ENWS"
    order = [
        f"{link['type']} {compass[int(link['startRoad'][-1])]}-{compass[int(link['endRoad'][-1])]}"
        for link in junction["roadLinks"]
    ]
    assert order == [
        "go_straight E-E",
        "turn_left E-N",
        "turn_right E-S",
        "turn_right N-E",
        "go_straight N-N",
        "turn_left N-W",
        "turn_right W-N",
        "go_straight W-W",
        "turn_left W-S",
        "turn_left S-E",
        "turn_right S-W",
        "go_straight S-S",
    ]
    right = {2, 3, 6, 10}
    phases = junction["trafficLight"]["lightphases"]
    greens = [set(p["availableRoadLinks"]) for p in phases]
    assert all(right <= green for green in greens)
    assert [green - right for green in greens] == [
        set(),
        {0, 7},
        {4, 11},
        {1, 8},
        {5, 9},
        {0, 1},
        {7, 8},
        {4, 5},
        {9, 11},
    ]
    assert [p["time"] for p in phases] == [5.0] + [30.0] * 8


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    lanes=st.sampled_from(
        [
            ("left", "straight", "right"),
            ("left+straight", "right"),
            ("left+straight+right",),
            ("straight", "right"),
            ("left", "straight", "straight", "right"),
        ]
    ),
    width=st.floats(15, 30),
    data=st.data(),
)
def test_any_grid_is_consistent(rows, columns, lanes, width, data):
    gaps = st.floats(80, 900)
    net = grid_roadnet(
        rows,
        columns,
        row_distance=data.draw(st.lists(gaps, min_size=columns + 1, max_size=columns + 1)),
        column_distance=data.draw(st.lists(gaps, min_size=rows + 1, max_size=rows + 1)),
        intersection_width=width,
        lanes=lanes,
    )
    check_structure(net)
    assert len(junctions(net)) == rows * columns
    assert len(net["roads"]) == 2 * (rows * (columns + 1) + columns * (rows + 1))
    roads = {r["id"]: r for r in net["roads"]}
    for junction in junctions(net):
        for link in junction["roadLinks"]:
            into, out = heading(roads[link["startRoad"]]), heading(roads[link["endRoad"]])
            turn = into[0] * out[1] - into[1] * out[0]
            expected = {"go_straight": 0, "turn_left": 1, "turn_right": -1}[link["type"]]
            assert turn == pytest.approx(expected, abs=1e-9)
            word = link["type"].split("_")[1]
            served = [n for n, label in enumerate(lanes) if word in label.split("+")]
            assert [
                (lane_link["startLaneIndex"], lane_link["endLaneIndex"])
                for lane_link in link["laneLinks"]
            ] == [(m, n) for m in served for n in range(len(lanes))]


def test_lane_links_run_from_stop_line_to_lane_start_without_kinks():
    net = grid_roadnet(1, 1)
    roads = {r["id"]: r for r in net["roads"]}
    (junction,) = junctions(net)

    def lane_point(road, index, ahead):
        (dx, dy), right = heading(road), 4.0 * index + 2.0
        return ahead * dx + right * dy, ahead * dy - right * dx

    for link in junction["roadLinks"]:
        start, end = roads[link["startRoad"]], roads[link["endRoad"]]
        for lane_link in link["laneLinks"]:
            curve = np.array([(p["x"], p["y"]) for p in lane_link["points"]])
            assert curve.shape == (11, 2)
            np.testing.assert_allclose(
                curve[0], lane_point(start, lane_link["startLaneIndex"], -15.0), atol=1e-9
            )
            np.testing.assert_allclose(
                curve[-1], lane_point(end, lane_link["endLaneIndex"], 15.0), atol=1e-9
            )
            steps = np.diff(curve, axis=0)
            angles = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
            # No step back, no sharp corner between two of the ten pieces.
            assert np.abs(np.diff(angles)).max() < 0.5
            length = np.hypot(*steps.T).sum()
            assert math.dist(curve[0], curve[-1]) - 1e-9 <= length <= 45.0


def test_turning_curve_is_a_quarter_circle_to_a_thousandth():
    curve = lane_link_curve((0.0, 0.0), (1, 0), (10.0, 10.0), (0, 1))
    radii = [math.dist((p["x"], p["y"]), (0.0, 10.0)) for p in curve]
    np.testing.assert_allclose(radii, 10.0, rtol=1e-3)


def test_straight_curve_is_straight_where_it_can_be():
    curve = lane_link_curve((0.0, -2.0), (1, 0), (30.0, -2.0), (1, 0))
    assert {p["y"] for p in curve} == {-2.0}


def test_crossing_movements_meet_and_parallel_ones_do_not():
    (junction,) = junctions(grid_roadnet(1, 1))
    curves = [
        (
            link["type"],
            int(link["startRoad"][-1]),
            np.array([(p["x"], p["y"]) for p in c["points"]]),
        )
        for link in junction["roadLinks"]
        for c in link["laneLinks"]
    ]
    met = Counter()
    for (kind_a, from_a, a), (kind_b, from_b, b) in combinations(curves, 2):
        if kind_a == kind_b == "go_straight" and from_a != from_b:
            met[(from_b - from_a) % 2, _segments_meet(a, b)] += 1
    assert met == {(1, True): 36, (0, False): 18}


def test_generated_files_load_with_the_known_number_of_crossings(tmp_path):
    net, flows = default_scenario(0)
    for name, content in (("roadnet", net), ("flow", flows)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    loaded = load_roadnet(tmp_path / "roadnet.json")
    demand = load_flow(tmp_path / "flow.json", loaded, duration=3600.0)
    assert demand.num_vehicles == 2983
    assert loaded.num_lanes == 240
    assert loaded.num_links == 16 * 36
    pairs = Counter()
    for own, foes in enumerate(loaded.cross_foe):
        for foe in foes[foes > own]:
            pairs[tuple(sorted((loaded.link_rank[own], loaded.link_rank[foe])))] += 1
    # Straight 3, left 2, right 1: what CityFlow finds in a junction of this shape.
    per_junction = {(2, 3): 96, (3, 3): 48, (2, 2): 48, (1, 3): 24, (1, 2): 24, (1, 1): 12}
    assert pairs == {pair: 16 * n for pair, n in per_junction.items()}


def _segments_meet(a, b):
    p, r, q, s = a[:-1, None], np.diff(a, axis=0)[:, None], b[None, :-1], np.diff(b, axis=0)[None]
    cross = r[..., 0] * s[..., 1] - r[..., 1] * s[..., 0]
    cross = np.where(np.abs(cross) < 1e-12, np.nan, cross)
    t = ((q - p)[..., 0] * s[..., 1] - (q - p)[..., 1] * s[..., 0]) / cross
    u = ((q - p)[..., 0] * r[..., 1] - (q - p)[..., 1] * r[..., 0]) / cross
    return bool(((t >= 0) & (t <= 1) & (u >= 0) & (u <= 1)).any())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "at least one row"),
        ({"row_distance": 25.0}, "row_distance: every road must be longer"),
        ({"column_distance": [300.0] * 2}, "column_distance has 2 lengths"),
        ({"lanes": ("left", "ahead")}, "'ahead' is none of straight, left, right"),
        ({"lanes": ()}, "lanes must be a sequence"),
        ({"lanes": "left"}, "lanes must be a sequence"),
        ({"intersection_width": 9.0}, "must exceed 10.0 m"),
        ({"max_speed": -1.0}, "max_speed must be positive"),
        ({"green_time": math.nan}, "green_time must be positive"),
    ],
)
def test_impossible_grids_are_refused(change, message):
    with pytest.raises(ScenarioError, match=message):
        grid_roadnet(**({"rows": 2, "columns": 2} | change))


def test_default_scenario_meets_the_published_totals():
    net, flows = default_scenario(0)
    assert json.loads(json.dumps([net, flows])) == [net, flows]
    assert len(flows) == 2983
    starts = [flow["startTime"] for flow in flows]
    assert starts == sorted(starts)
    assert [Counter(s // 600 for s in starts)[k] for k in range(6)] == list(HANGZHOU_PROFILE)
    assert Counter(flow["route"][0] for flow in flows) == HANGZHOU_ORIGINS
    assert len({flow["route"][-1] for flow in flows}) == 39
    assert all(f["startTime"] == f["endTime"] and f["interval"] == 1.0 for f in flows)
    moved = driven(net, flows)
    for kind, total in HANGZHOU_TURNS.items():
        assert moved[kind] == pytest.approx(total, rel=0.06)
    # At most one vehicle a second on each entry lane: lanes here are first movements.
    kinds = movement_kinds(net)
    entered = Counter((f["startTime"], f["route"][0], kinds[tuple(f["route"][:2])]) for f in flows)
    assert max(entered.values()) == 1


def test_demand_depends_on_the_seed_and_on_nothing_else():
    assert default_scenario(3) == default_scenario(3)
    (net, flows), (other_net, other_flows) = default_scenario(3), default_scenario(4)
    assert net == other_net
    assert flows != other_flows


@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    trips=st.integers(0, 200),
    profile=st.lists(st.floats(0.1, 5), min_size=1, max_size=6),
)
def test_routes_are_shortest_and_totals_exact(rows, columns, seed, trips, profile):
    net = grid_roadnet(rows, columns, row_distance=300.0, column_distance=200.0)
    flows = draw_demand(net, seed, trips=trips, duration=900, profile=profile)
    assert len(flows) == trips
    kinds = movement_kinds(net)
    entry = [road["id"] for road in net["roads"] if _on_border(net, road["startIntersection"])]
    per_origin = Counter(flow["route"][0] for flow in flows)
    assert all(abs(per_origin[road] - trips / len(entry)) < 1 for road in entry)
    edges = np.arange(len(profile) + 1) * 900 // len(profile)
    counts, _ = np.histogram([flow["startTime"] for flow in flows], edges)
    assert np.abs(counts - trips * np.array(profile) / sum(profile)).max() < 1
    for flow in flows:
        route = flow["route"]
        assert all(pair in kinds for pair in pairwise(route))
        (i, j), (k, m) = _entry_place(route[0]), _exit_place(route[-1])
        # Between two border places of a grid, no route is shorter than the city-block distance;
        # only a return to the side of departure needs more.
        if (i, j) != (k, m) and not _same_side((i, j), (k, m), rows, columns):
            assert len(route) == abs(i - k) + abs(j - m)


def _on_border(net, name):
    return next(i["virtual"] for i in net["intersections"] if i["id"] == name)


def _entry_place(road):
    i, j, _ = map(int, road.split("_")[1:])
    return i, j


def _exit_place(road):
    i, j, k = map(int, road.split("_")[1:])
    return i + HEADINGS[k][0], j + HEADINGS[k][1]


def _same_side(a, b, rows, columns):
    return any(
        p[axis] == q[axis] == side
        for p, q in [(a, b)]
        for axis, last in ((0, columns + 1), (1, rows + 1))
        for side in (0, last)
    )


@pytest.mark.parametrize(
    "turns",
    [
        {"go_straight": 1, "turn_left": 1, "turn_right": 1},
        {"go_straight": 5, "turn_left": 1, "turn_right": 4},
    ],
)
def test_turn_shares_are_met_in_expectation(turns):
    net = grid_roadnet(3, 3)
    flows = draw_demand(net, 0, trips=4000, duration=20_000, turns=turns)
    moved = driven(net, flows)
    for kind, weight in turns.items():
        assert moved[kind] / moved.total() == pytest.approx(weight / sum(turns.values()), abs=0.02)


def test_movements_per_trip_are_met_in_expectation():
    net = grid_roadnet(4, 4)
    flows = draw_demand(
        net, 0, trips=4000, duration=20_000, turns=HANGZHOU_TURNS, movements_per_trip=3.0
    )
    assert driven(net, flows).total() / len(flows) == pytest.approx(3.0, abs=0.1)


def test_turns_that_no_lane_serves_are_left_out():
    net = grid_roadnet(2, 2, lanes=("straight", "right"))
    flows = draw_demand(net, 0, trips=100, turns={"go_straight": 1, "turn_left": 8})
    assert len(flows) == 100
    assert set(driven(net, flows)) <= {"go_straight", "turn_right"}


def test_named_destinations_get_their_trips():
    net = grid_roadnet(2, 2)
    wanted = {"road_1_1_0": 7, "road_2_2_2": 3}
    flows = draw_demand(net, 0, trips=50, destinations=wanted)
    ends = Counter(flow["route"][-1] for flow in flows)
    assert {road: ends[road] for road in wanted} == wanted


def test_vehicle_fields_can_be_changed():
    (flow,) = draw_demand(grid_roadnet(1, 1), 0, trips=1, vehicle={"length": 12.0})
    assert flow["vehicle"]["length"] == 12.0
    assert flow["vehicle"]["maxSpeed"] == 11.111


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trips": -1}, "must be positive"),
        ({"origins": {"road_9_9_9": 1}}, "origins: road 'road_9_9_9' is not in the network"),
        ({"origins": {"road_0_1_0": -1}}, "origins: weights must be finite"),
        ({"profile": ()}, "profile: weights"),
        ({"profile": (1.0,) * 20, "duration": 10}, "20 slices in 10 s"),
        ({"turns": {"u_turn": 1}}, "'u_turn' is none of go_straight"),
        ({"destinations": {"road_1_1_0": 11}}, "11 trips are asked for"),
        ({"destinations": {"road_0_1_0": 1}}, "no route leads from"),
        ({"trips": 100, "duration": 3}, "would enter one lane within 3 s"),
    ],
)
def test_impossible_demand_is_refused(options, message):
    with pytest.raises(ScenarioError, match=message):
        draw_demand(grid_roadnet(1, 1), 0, **({"trips": 10} | options))


def test_a_network_without_border_needs_named_origins():
    net = grid_roadnet(1, 1)
    for place in net["intersections"]:
        place["virtual"] = False
    with pytest.raises(ScenarioError, match="no road comes in from the border"):
        draw_demand(net, 0, trips=1)
