"""One step after the other on a tiny network, each rule against what it must do."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.detectors import totals
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.trips import CAR
from tests.envs.traffic.worlds import ALL_GREEN, Trip, World, incident, with_all_green

STEPS = 90
EAST, WEST = ("road_0_1_0", "road_1_1_0", "road_2_1_0"), ("road_3_1_2", "road_2_1_2", "road_1_1_2")
#: Phases of the generator: 0 clearance, 1 east-west straight, 2 north-south straight.
CLEAR, EAST_WEST, NORTH_SOUTH = 0, 1, 2
TRUCK = CAR | {"length": 11.0, "maxPosAcc": 1.2, "usualPosAcc": 1.2}


@pytest.fixture(scope="module")
def world():
    """Two junctions in a row, the road between them 60 m long (30 m from line to line)."""
    roadnet = grid_roadnet(1, 2, row_distance=(150.0, 60.0, 150.0), column_distance=150.0)
    return World(with_all_green(roadnet), vehicles=31, drivers=(CAR, TRUCK))


def phases(first, second=None, steps=STEPS):
    table = np.zeros((steps, 2), int)
    table[:, 0], table[:, 1] = first, first if second is None else second
    return table


def link(world, start, end):
    return [
        world.net.num_lanes + k
        for k in range(world.net.num_links)
        if world.net.road_ids[world.net.lane_road[world.net.link_start[k]]] == start
        and world.net.road_ids[world.net.lane_road[world.net.link_end[k]]] == end
    ]


def test_free_drive(world):
    params = world.params([Trip(EAST)])
    seen = world.run(params, phases(EAST_WEST))
    drivable, position, speed, _ = world.track(seen, params, 0)
    path = world.simulator.paths.value["paths"][world.paths_of[EAST][0]]
    length = world.net.length[path[path < world.net.num_drivables]]
    # 2 m/s more every step up to the limit; the distance is the trapezium under it.
    v, s, expected = 0.0, 0.0, []
    while s <= length.sum():
        faster = min(v + 2.0, 11.111)
        v, s = faster, s + (v + faster) / 2
        expected.append((s, v))
    n = len(expected) - 1
    start = np.concatenate([[0.0], np.cumsum(length)])
    hop = [list(path).index(d) for d in drivable[:n]]
    np.testing.assert_allclose(start[hop] + position[:n], [s for s, _ in expected[:n]], atol=1e-3)
    np.testing.assert_allclose(speed[:n], [v for _, v in expected[:n]], atol=1e-4)
    assert (drivable[:n] >= 0).all()
    assert (drivable[n:] == -1).all()
    # It arrives in step n, with the clock of that step.
    np.testing.assert_array_equal(seen["finished"], np.arange(STEPS) >= n)
    assert seen["travel_steps"][-1] == n


def test_turns_slow_down_before_the_junction_not_on_it(world):
    left = ("road_0_1_0", "road_1_1_1")
    params = world.params([Trip(left)])
    drivable, position, speed, _ = world.track(world.run(params, phases(ALL_GREEN)), params, 0)
    lane = world.simulator.paths.value["paths"][world.paths_of[left][0]][0]
    rest = world.net.length[lane] - position
    near = (drivable == lane) & (rest < 25)
    assert near.sum() >= 2
    np.testing.assert_allclose(speed[near], 8.3333, atol=1e-4)
    assert speed[(drivable == lane) & (rest > 40)].max() == pytest.approx(11.111)
    on_link = np.isin(drivable, link(world, *left))
    assert speed[on_link].max() > 10.0


def test_a_platoon_keeps_its_distance(world):
    params = world.params([Trip(EAST, 0, 1), Trip(EAST, 0), Trip(EAST, 0)])
    seen = world.run(params, phases(EAST_WEST))
    first, second, third = (world.track(seen, params, n) for n in range(3))
    # The next one enters once the tail has moved up: 11 m of truck and 2.5 m of gap.
    entered = np.flatnonzero(first[1] > 13.5)[0] + 1
    assert np.flatnonzero(second[0] >= 0)[0] == entered
    assert np.flatnonzero(third[0] >= 0)[0] > entered
    same = (first[0] == second[0]) & (first[0] >= 0)
    gap = (first[1] - 11.0 - second[1])[same]
    assert (gap > 0).all()
    # In steady state the headway rule: gap = headway times speed.
    cruising = same & (np.abs(second[2] - 11.111) < 0.01) & (np.abs(first[2] - 11.111) < 0.01)
    if cruising.any():
        assert (first[1] - 11.0 - second[1])[cruising].min() >= 2 * 11.111 - 0.5


def test_red_stops_and_green_releases(world):
    table = phases(CLEAR)
    table[50:] = EAST_WEST
    params = world.params([Trip(EAST)])
    drivable, position, speed, _ = world.track(world.run(params, table), params, 0)
    lane = world.simulator.paths.value["paths"][world.paths_of[EAST][0]][0]
    assert (drivable[:50] == lane).all()
    assert position[:50].max() <= world.net.length[lane]
    assert world.net.length[lane] - position[49] < 3.0
    assert speed[49] == pytest.approx(0.0, abs=1e-3)
    assert speed[50] == pytest.approx(2.0, abs=1e-3)
    assert drivable[55] != lane


def test_who_cannot_stop_passes_late_red(world):
    params = world.params([Trip(EAST)])
    lane = world.simulator.paths.value["paths"][world.paths_of[EAST][0]][0]
    drivable, position, speed, _ = world.track(world.run(params, phases(EAST_WEST)), params, 0)
    rest = world.net.length[lane] - position
    braking = speed**2 / 2 / 4.5
    # Last step of the approach after which it could still stop, by the state it then has.
    can_stop = np.flatnonzero((drivable == lane) & (braking <= rest))[-1]
    assert (drivable == lane)[can_stop + 1]
    for red_from, passes in ((can_stop + 1, False), (can_stop + 2, True)):
        table = phases(EAST_WEST)
        table[red_from:] = CLEAR
        driven, _, _, _ = world.track(world.run(params, table), params, 0)
        crossed = np.isin(driven, link(world, "road_0_1_0", "road_1_1_0")).any()
        assert crossed == passes


def test_spillback_holds_traffic_before_a_green_light(world):
    # 30 m between the lines hold four cars of 7.5 m; the second junction stays red. Cars
    # follow onto the junction as long as the last one before them still moves.
    params = world.params([Trip(EAST, n) for n in range(8)])
    seen = world.run(params, phases(EAST_WEST, CLEAR))
    path = world.simulator.paths.value["paths"][world.paths_of[EAST][0]]
    where = [(seen["drivable"][-1] == d).sum() for d in path[:3]]
    assert where[2] == 4
    assert where[0] > 0
    assert sum(where) == 8
    held = seen["drivable"][-1] == path[0]
    assert seen["speed"][-1][held].max() < 0.1
    assert world.net.length[path[0]] - seen["position"][-1][held].max() < 3.0
    table = phases(EAST_WEST, CLEAR)
    table[60:, 1] = EAST_WEST
    assert (world.run(params, table)["drivable"][-1] == path[0]).sum() == 0


def test_left_turns_yield_to_straight_traffic(world):
    """Both green, both at the crossing together: the one turning waits, the other does not."""
    left, through = ("road_0_1_0", "road_1_1_1"), ("road_3_1_2", "road_2_1_2", "road_1_1_2")
    exit_lanes = np.flatnonzero(world.net.lane_road == world.net.road_ids.index("road_1_1_1"))

    def drive(trips):
        """Steps until the first trip is on its last road, and the tracks of all trips."""
        params = world.params(trips)
        seen = world.run(params, phases(ALL_GREEN))
        tracks = [world.track(seen, params, n) for n in range(len(trips))]
        arrived = np.flatnonzero(np.isin(tracks[0][0], exit_lanes))[0]
        return arrived - trips[0].step, tracks

    alone, _ = drive([Trip(left)])
    waited = []
    for delay in range(15):
        time, (turning, going) = drive([Trip(left, delay), Trip(through)])
        assert time == alone or (turning[3] == 1).any()
        # The other way round only for who is already on the crossing and cannot go back.
        before = turning[0][np.flatnonzero(going[3] == 0) - 1]
        assert np.isin(before, link(world, *left)).all()
        waited.append(time > alone)
    assert any(waited)
    assert not all(waited)


def test_deadlocks_are_released(world):
    """With everything green some yield in a circle; that is noticed, and all get through."""
    draw = random.Random(5)
    routes = [route for route in world.routes if len(route) == 2]
    params = world.params([Trip(draw.choice(routes), draw.randrange(25)) for _ in range(31)])
    seen = world.run(params, phases(ALL_GREEN))
    caught = []
    for blocker in seen["blocker"]:
        pointer = blocker
        for _ in blocker:
            pointer = blocker[pointer]
        caught.append((pointer != world.vehicles).any())
    assert sum(caught) == 1
    assert seen["finished"][-1] == 31


def test_a_closed_lane_takes_nobody_and_keeps_those_on_it_moving(world):
    path = world.simulator.paths.value["paths"][world.paths_of[EAST][0]]
    closed = incident(int(path[2]), 0.0, 40.0, 0.0)
    params = world.params([Trip(EAST), Trip(("road_1_0_1", "road_1_1_1"))], closed)
    seen = world.run(params, phases(ALL_GREEN))
    drivable = world.track(seen, params, 0)[0]
    entered = np.flatnonzero(drivable == path[2])
    assert entered[0] > 40
    assert (drivable[20:40] == path[0]).all()
    assert seen["finished"][-1] == 2


def test_a_closed_entry_lane_keeps_vehicles_waiting(world):
    path = world.simulator.paths.value["paths"][world.paths_of[EAST][0]]
    params = world.params([Trip(EAST)], incident(int(path[0]), 5.0, 25.0, 0.0))
    late = world.params([Trip(EAST, 7)], incident(int(path[0]), 5.0, 25.0, 0.0))
    assert np.flatnonzero(world.track(world.run(params, phases(1)), params, 0)[0] >= 0)[0] == 0
    assert np.flatnonzero(world.track(world.run(late, phases(1)), late, 0)[0] >= 0)[0] == 25


def test_a_slowed_lane_has_a_lower_limit_for_its_time(world):
    path = world.simulator.paths.value["paths"][world.paths_of[EAST][0]]
    params = world.params([Trip(EAST)], incident(int(path[0]), 0.0, 12.0, 0.5))
    _, _, speed, _ = world.track(world.run(params, phases(EAST_WEST)), params, 0)
    assert speed[11] == pytest.approx(11.111 / 2, abs=1e-4)
    assert speed[12] == pytest.approx(11.111 / 2 + 2.0, abs=1e-4)


def test_travel_time_counts_every_vehicle_that_departed(world):
    """Those that arrived with their trip, the others with their age, the queue included."""
    trips = [Trip(EAST, step) for step in (0, 0, 0, 30)] + [Trip(WEST, 70)]
    params = world.params(trips)

    def after(steps):
        state = world.simulator.reset(params)
        step = jax.jit(world.simulator.step)
        for _ in range(steps):
            state = step(state, jnp.full(2, EAST_WEST, jnp.int32), params)
        return state, totals(state, params, 1.0)

    _, early = after(1)
    assert float(early.average_travel_time) == 1.0
    assert (int(early.running), int(early.waiting_to_enter)) == (1, 2)
    state, late = after(60)
    arrivals = world.run(params, phases(EAST_WEST))["travel_steps"][59]
    finished = int(late.finished)
    ages = [60 - t.step for n, t in enumerate(trips) if t.step < 60]
    running = int(late.running)
    assert finished + running == 4
    still = np.asarray(state.departed)[np.asarray(state.vehicle) >= 0]
    expected = (arrivals + (60 - still).sum()) / len(ages)
    assert float(late.average_travel_time) == pytest.approx(float(expected))


def test_overflow_is_flagged_not_swallowed():
    roadnet = grid_roadnet(1, 1, row_distance=150.0, column_distance=150.0)
    world = World(roadnet, vehicles=5)
    trips = [Trip(route, 0) for route in world.routes[:5]]
    seen = world.run(world.params(trips), np.zeros((12, 1), int))
    assert not seen["overflow"].any()
    small = make_environment(
        roadnet,
        [
            {"vehicle": CAR, "route": list(r), "interval": 1.0, "startTime": 0, "endTime": 0}
            for r in world.routes
        ],
        duration=10.0,
        capacity=3,
    )
    params = small.nominal_params()
    state = jax.jit(small.simulator.step)(
        small.simulator.reset(params), jnp.zeros(1, jnp.int32), params
    )
    assert bool(state.overflow)
    assert int((state.vehicle >= 0).sum()) == 3
    assert int(state.queue_head.sum()) == 3  # nobody is lost


def test_one_trace_for_all_trips_and_phases(world):
    world.run(world.params([Trip(EAST)]), phases(CLEAR))
    traces = world.traces
    world.run(world.params([Trip(WEST, 3, 1)], incident(0, 1.0, 2.0, 0.5)), phases(ALL_GREEN))
    assert world.traces == traces == 1


def test_capacity_must_be_positive():
    roadnet = grid_roadnet(1, 1, row_distance=150.0, column_distance=150.0)
    with pytest.raises(ConfigError, match="capacity is 0"):
        make_environment(roadnet, [], capacity=0)
