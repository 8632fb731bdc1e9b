"""Flows expanded into vehicles: times, lanes, paths and their order."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.envs.traffic.demand import DRIVER_FIELDS, load_flow
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.roadnet import load_roadnet
from jaxlab.envs.traffic.trips import CAR

ROUTE = ["road_0_1_0", "road_1_1_0"]


@pytest.fixture(scope="module")
def net():
    return load_roadnet(grid_roadnet(1, 1))


@pytest.fixture(scope="module")
def shared():
    """A junction where two lanes serve the straight movement."""
    return load_roadnet(grid_roadnet(1, 1, lanes=("left+straight", "straight+right")))


def flow(start, end, interval=1.0, route=ROUTE, **vehicle):
    return {
        "vehicle": CAR | vehicle,
        "route": route,
        "interval": interval,
        "startTime": start,
        "endTime": end,
    }


def steps(net, *flows, duration=60.0, dt=1.0):
    demand = load_flow(list(flows), net, duration=duration, dt=dt)
    return demand.depart_step.tolist(), demand


@pytest.mark.parametrize(
    ("start", "end", "interval", "dt", "expected"),
    [
        (5, 5, 1.0, 1.0, [5]),
        (5, 8, 1.0, 1.0, [5, 6, 7, 8]),
        (0, 20, 7.0, 1.0, [0, 7, 14]),
        (3, 59, 20.0, 1.0, [3, 23, 43]),
        (50, -1, 4.0, 1.0, [50, 54, 58]),
        (0, 10, 2.5, 1.0, [0, 3, 5, 8, 10]),  # in the step in which the time has passed
        (0, 4, 2.0, 0.5, [0, 4, 8]),
        (3, 3, 1.0, 0.5, [6]),
        (0, 10, 1.0, 2.0, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),  # two in a step of two seconds
        (5, 5, 1.0, 2.0, []),  # no step begins within an interval of no length
        (70, 80, 1.0, 1.0, []),
    ],
)
def test_departures(net, start, end, interval, dt, expected):
    assert steps(net, flow(start, end, interval), dt=dt)[0] == expected


def test_start_and_end_have_defaults(net):
    record = flow(0, 0, 25.0)
    del record["startTime"], record["endTime"]
    assert steps(net, record)[0] == [0, 25, 50]


def test_rows_are_sorted_by_entry_lane_and_time(net):
    west = ["road_0_1_0", "road_1_1_0"]
    left = ["road_0_1_0", "road_1_1_1"]
    south = ["road_1_0_1", "road_1_1_1"]
    _, demand = steps(
        net, flow(9, 9, route=south), flow(4, 6, route=west), flow(2, 2, route=left), flow(5, 5)
    )
    entered = demand.paths[demand.path, 0]
    assert [net.lane_ids[n] for n in demand.entry_lanes] == [
        *("road_0_1_0_0", "road_0_1_0_1", "road_1_0_1_1")
    ]
    assert demand.entry_offset.tolist() == [0, 1, 5, 6]
    assert (np.diff(entered) >= 0).all()
    assert demand.depart_step.tolist() == [2, 4, 5, 5, 6, 9]
    # Of those who come in one step the flow that stands first in the file goes first.
    assert demand.vehicle_ids == (
        "flow_2_0",
        "flow_1_0",
        "flow_1_1",
        "flow_3_0",
        "flow_1_2",
        "flow_0_0",
    )
    assert demand.num_vehicles == 6


def test_driver_types_are_shared(net):
    _, demand = steps(net, flow(0, 0), flow(1, 1, length=7.0), flow(2, 2))
    assert demand.drivers.shape == (2, len(DRIVER_FIELDS))
    assert demand.driver.tolist() == [0, 1, 0]
    assert demand.drivers[:, 0].tolist() == [5.0, 7.0]
    assert demand.drivers[0].tolist() == [CAR[name] for name in DRIVER_FIELDS.values()]


def test_paths_are_lane_link_lane(net):
    _, demand = steps(net, flow(0, 0))
    (path,) = demand.paths
    lane, link, after, nowhere = path.tolist()
    assert net.lane_ids[lane] == "road_0_1_0_1"
    assert net.lane_ids[after] == "road_1_1_0_1"
    assert net.link_start[link - net.num_lanes] == lane
    assert net.link_end[link - net.num_lanes] == after
    assert nowhere == net.num_drivables


def test_first_lanes_are_drawn_where_several_will_do(shared):
    flows = [flow(n, n) for n in range(60)]
    drawn = []
    for seed in (0, 0, 1):
        demand = load_flow(flows, shared, duration=60.0, seed=seed)
        lane = demand.paths[demand.path, 0]
        drawn.append(dict(zip(demand.vehicle_ids, lane.tolist(), strict=True)))
    assert drawn[0] == drawn[1] != drawn[2]
    lanes, number = np.unique(list(drawn[0].values()), return_counts=True)
    assert [shared.lane_ids[n] for n in lanes] == ["road_0_1_0_0", "road_0_1_0_1"]
    assert number.min() > 15
    # Both paths are there even if nobody drives one of them.
    assert len(load_flow(flows[:1], shared, duration=60.0).paths) == 2


def test_the_stream_of_random_numbers_is_the_engines(shared):
    """Per step: priority and thread of each new vehicle, then a lane for each of them."""
    stream = np.random.RandomState(7)
    draws = [int.from_bytes(stream.bytes(4), "little") for _ in range(9)]
    demand = load_flow([flow(0, 0), flow(0, 2, 2.0)], shared, duration=5.0, seed=7)
    rows = {name: n for n, name in enumerate(demand.vehicle_ids)}
    expected = {"flow_0_0": (draws[0], draws[4]), "flow_1_0": (draws[2], draws[5])}
    expected["flow_1_1"] = (draws[6], draws[8])
    for name, (priority, lane) in expected.items():
        row = rows[name]
        assert demand.priority[row] == np.array(priority, np.uint32).astype(np.int32)
        entered = demand.paths[demand.path[row], 0]
        assert shared.lane_index[entered] == lane % 2


@given(
    starts=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    lengths=st.lists(st.integers(0, 30), min_size=5, max_size=5),
    interval=st.sampled_from([1.0, 1.5, 4.0, 13.0]),
    dt=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_every_vehicle_departs_when_its_flow_says(net, starts, lengths, interval, dt):
    flows = [flow(s, s + n, interval) for s, n in zip(starts, lengths, strict=False)]
    demand = load_flow(flows, net, duration=60.0, dt=dt)
    made = {}
    for name, step in zip(demand.vehicle_ids, demand.depart_step.tolist(), strict=True):
        _, which, serial = name.split("_")
        made.setdefault(int(which), {})[int(serial)] = step * dt
    for which, times in made.items():
        start, end = flows[which]["startTime"], flows[which]["endTime"]
        ordered = [times[n] for n in range(len(times))]
        assert start <= ordered[0] < start + dt
        assert ordered[-1] <= end
        for n, time in enumerate(ordered):
            ideal = ordered[0] + n * interval
            assert ideal - 1e-9 <= time < ideal + dt


def test_an_empty_flow_is_an_empty_network(net):
    demand = load_flow([], net, duration=10.0)
    assert demand.num_vehicles == 0
    assert len(demand.paths) == 0


def test_a_file_is_read_as_its_contents(net, tmp_path):
    path = tmp_path / "flow.json"
    path.write_text(json.dumps([flow(0, 30, 3.0)]))
    assert load_flow(path, net, duration=60.0).depart_step.tolist() == list(range(0, 31, 3))


@pytest.mark.parametrize(
    ("city", "flow_file", "vehicles", "entries"),
    [
        ("hangzhou_4x4", "flow.json", 2983, 9),
        ("hangzhou_4x4", "flow_5734.json", 6538, None),
        ("jinan_3x4", "flow.json", 6295, 14),
    ],
)
def test_flows_of_the_shared_data(city, flow_file, vehicles, entries, shared_data):
    net = load_roadnet(shared_data(f"traffic/{city}/roadnet.json"))
    demand = load_flow(shared_data(f"traffic/{city}/{flow_file}"), net, duration=3600.0)
    assert demand.num_vehicles == vehicles
    assert len(demand.drivers) == 1
    if entries is not None:
        assert len(np.unique(net.lane_road[demand.entry_lanes])) == entries
    if (city, flow_file) == ("hangzhou_4x4", "flow.json"):
        per_ten_minutes = np.bincount(demand.depart_step // 600, minlength=6)
        assert per_ten_minutes.tolist() == [514, 659, 488, 445, 453, 424]
        moves = demand.paths[demand.path]
        on_link = (moves >= net.num_lanes) & (moves < net.num_drivables)
        rank = net.link_rank[moves[on_link] - net.num_lanes]
        assert [int((rank == kind).sum()) for kind in (3, 1, 2)] == [6620, 3184, 1093]
