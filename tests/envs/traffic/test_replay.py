"""Frames and replay files: places on polylines, lane signals, the two files of the viewer."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.core.errors import DataError, ScenarioError
from jaxlab.envs.traffic import geometry
from jaxlab.envs.traffic.frames import (
    GREEN,
    RED,
    UNSIGNALLED,
    Frame,
    Polylines,
    frame_of_state,
    lane_signals,
)
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.replay import roadnet_log, write_replay
from jaxlab.envs.traffic.roadnet import load_roadnet


@pytest.fixture(scope="module")
def net():
    return load_roadnet(grid_roadnet(1, 2, row_distance=300.0, column_distance=200.0))


def make_frame(net, places, phase, time=0.0):
    """A frame with cars at `places`: pairs of a drivable's name and a distance."""
    n = len(places)
    return Frame(
        time=time,
        drivable=np.array([net.drivable_ids.index(name) for name, _ in places], int),
        distance=np.array([distance for _, distance in places], float),
        speed=np.full(n, 5.0),
        length=np.full(n, 5.0),
        width=np.full(n, 2.0),
        vehicle_ids=[f"flow_{k}_0" for k in range(n)],
        lane_signals=lane_signals(net, phase),
    )


coordinates = st.integers(-50, 50).map(float)


@given(
    lines=st.lists(
        st.lists(st.tuples(coordinates, coordinates), min_size=2, max_size=6, unique=True),
        min_size=1,
        max_size=4,
    ),
    data=st.data(),
)
def test_placing_many_agrees_with_walking_along_one(lines, data):
    lines = [np.array(line) for line in lines]
    many = Polylines(lines)
    which = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=8))
    share = np.array([data.draw(st.floats(-0.2, 1.2)) for _ in which])
    distance = share * many.length[which]
    x, y, angle = many.place(np.array(which), distance)
    for k, line in enumerate(which):
        np.testing.assert_allclose(
            [x[k], y[k]], geometry.point_at(lines[line], distance[k]), atol=1e-9
        )
        steps = np.diff(lines[line], axis=0)
        headings = np.arctan2(steps[:, 1], steps[:, 0])
        assert np.isclose(np.cos(headings - angle[k]), 1.0).any()


def test_heading_changes_at_the_corner_and_holds_at_the_end():
    corner = Polylines([np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]])])
    x, y, angle = corner.place(np.zeros(4, int), np.array([0.0, 2.9, 3.0, 99.0]))
    np.testing.assert_allclose(angle, [0.0, 0.0, np.pi / 2, np.pi / 2])
    np.testing.assert_allclose(x, [0.0, 2.9, 3.0, 3.0])
    np.testing.assert_allclose(y, [0.0, 0.0, 0.0, 4.0])


def test_repeated_points_have_no_heading_of_their_own():
    line = Polylines([np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 2.0], [0.0, 2.0]])])
    _, y, angle = line.place(np.zeros(3, int), np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(y, [0.0, 1.0, 2.0])
    np.testing.assert_allclose(angle, np.pi / 2)


def test_signals_follow_the_phase(net):
    # Phase 1 is east-west straight; right turns always go; roads to the border have none.
    signals = dict(zip(net.lane_ids, lane_signals(net, np.array([1, 0])), strict=True))
    assert [signals[f"road_0_1_0_{n}"] for n in range(3)] == [RED, GREEN, GREEN]
    assert [signals[f"road_1_0_1_{n}"] for n in range(3)] == [RED, RED, GREEN]
    assert [signals[f"road_1_1_0_{n}"] for n in range(3)] == [RED, RED, GREEN]
    assert {signals[f"road_1_1_2_{n}"] for n in range(3)} == {UNSIGNALLED}


def test_a_shared_lane_is_green_only_with_all_its_movements():
    net = load_roadnet(grid_roadnet(1, 1, lanes=("left+straight", "right")))
    for phase, expected in ((1, RED), (3, RED), (5, GREEN)):
        signals = lane_signals(net, np.array([phase]))
        assert signals[net.lane_ids.index("road_0_1_0_0")] == expected


def test_a_junction_with_one_phase_has_no_signal():
    document = grid_roadnet(1, 1)
    for place in document["intersections"]:
        place["trafficLight"]["lightphases"] = place["trafficLight"]["lightphases"][:1]
    signals = lane_signals(load_roadnet(document), np.array([0]))
    assert set(signals.tolist()) == {UNSIGNALLED}


@pytest.mark.parametrize(
    ("phase", "message"),
    [([0], "expected shape"), ([0, 9], "'intersection_2_1' is not one of 0 to 8")],
)
def test_wrong_phases_are_refused(net, phase, message):
    with pytest.raises(ScenarioError, match=message):
        lane_signals(net, np.array(phase))


def test_frame_of_state_keeps_occupied_slots(net):
    state = SimpleNamespace(
        step=np.int32(40),
        vehicle=np.array([7, -1, 2, -1]),
        kind=np.array([1, 0, 0, 0]),
        drivable=np.array([3, 0, 5, 0]),
        position=np.array([1.5, 0.0, 9.0, 0.0], np.float32),
        speed=np.array([2.0, 0.0, 4.0, 0.0], np.float32),
    )
    frame = frame_of_state(
        net, state, np.array([1, 1]), dt=0.5, vehicle_length=np.array([5.0, 12.0])
    )
    assert frame.time == 20.0
    assert frame.vehicle_ids == ["7", "2"]
    assert frame.drivable.tolist() == [3, 5]
    assert frame.distance.tolist() == [1.5, 9.0]
    assert frame.speed.tolist() == [2.0, 4.0]
    assert frame.length.tolist() == [12.0, 5.0]
    assert frame.width.tolist() == [2.0, 2.0]


def test_replay_lines_have_the_viewers_layout(net, tmp_path):
    frames = [
        make_frame(net, [("road_0_1_0_1", 100.0), ("road_1_0_1_2", 5.25)], [1, 2]),
        make_frame(net, [], [0, 0]),
    ]
    roadnet, log = tmp_path / "net.json", tmp_path / "replay.txt"
    assert write_replay(roadnet, log, net, iter(frames)) == 2
    first, second = log.read_text().splitlines()
    traffic, signals = first.split(";")
    assert traffic == (
        "-200.0 -6.0 0.0 flow_0_0 0 5.0 2.0,10.0 -194.75 1.570796 flow_1_0 0 5.0 2.0,"
    )
    letters = dict(part.split(" ", 1) for part in signals.split(",")[:-1])
    assert letters["road_0_1_0"] == "r g g"
    assert letters["road_2_2_3"] == "r g g"
    assert set(letters) == {
        road for road, end in zip(net.road_ids, net.road_end, strict=True) if end >= 0
    }
    assert second.startswith(";")
    assert "road_0_1_0 r r g," in second
    assert set(json.loads(roadnet.read_text())) == {"static"}


def test_junctions_with_one_phase_are_written_as_unsignalled(tmp_path):
    document = grid_roadnet(1, 1)
    for place in document["intersections"]:
        place["trafficLight"]["lightphases"] = place["trafficLight"]["lightphases"][:1]
    single = load_roadnet(document)
    write_replay(tmp_path / "n.json", tmp_path / "r.txt", single, [make_frame(single, [], [0])])
    assert "road_0_1_0 i i i," in (tmp_path / "r.txt").read_text()


def test_roadnet_log_describes_nodes_and_edges(net):
    document = roadnet_log(net)
    nodes = {node["id"]: node for node in document["nodes"]}
    edges = {edge["id"]: edge for edge in document["edges"]}
    assert set(edges) == set(net.road_ids)
    assert edges["road_1_1_0"] == {
        "id": "road_1_1_0",
        "from": "intersection_1_1",
        "to": "intersection_2_1",
        "points": [[0.0, 0.0], [300.0, 0.0]],
        "nLane": 3,
        "laneWidths": [4.0, 4.0, 4.0],
    }
    assert nodes["intersection_0_1"]["virtual"] is True
    assert "width" not in nodes["intersection_0_1"]
    junction = nodes["intersection_1_1"]
    assert (junction["width"], junction["point"]) == (15.0, [0.0, 0.0])
    # Each mouth is 24 m wide and reaches 15 m to the stop line and 6 m beyond: an octagon.
    corners = np.array(junction["outline"]).reshape(-1, 2)
    expected = {(a * x, b * y) for x, y in ((12, 21), (21, 12)) for a in (1, -1) for b in (1, -1)}
    assert {tuple(np.round(c, 9).tolist()) for c in corners} == expected


def test_a_replay_that_cannot_be_written_says_so(net, tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        write_replay(tmp_path / "absent" / "n.json", tmp_path / "r.txt", net, [])
