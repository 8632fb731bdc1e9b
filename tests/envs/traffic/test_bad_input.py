"""What a user can get wrong in files and options: one message, the right exception."""

import copy
import json

import jax
import numpy as np
import pytest

from jaxlab.core.errors import CapacityError, ConfigError, DataError, JaxlabError
from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.controllers import make_controller
from jaxlab.envs.traffic.demand import load_flow
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.recording import record
from jaxlab.envs.traffic.roadnet import load_roadnet
from jaxlab.envs.traffic.rollout import for_controller
from jaxlab.envs.traffic.trips import CAR

ROUTE = ["road_0_1_0", "road_1_1_0", "road_2_1_0"]
FLOW = [{"vehicle": CAR, "route": ROUTE, "interval": 1.0, "startTime": 0, "endTime": 0}]


@pytest.fixture(scope="module")
def good():
    return grid_roadnet(1, 2)


@pytest.fixture
def roadnet(good):
    return copy.deepcopy(good)


@pytest.fixture(scope="module")
def net(good):
    return load_roadnet(good)


def junction(roadnet):
    return next(i for i in roadnet["intersections"] if not i["virtual"])


def refused(act, *words, error=DataError):
    """The one-line message of the error that `act` raises; it must hold all words."""
    with pytest.raises(error) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    assert isinstance(caught.value, JaxlabError)
    for word in words:
        assert word in message
    return message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["no such file"]),
        ("", ["not valid JSON at line 1"]),
        ('{"roads": [}', ["not valid JSON at line 1, column 12"]),
        ("[1, 2]", ["object with 'intersections' and 'roads'"]),
        ("{}", ["field 'roads' is missing"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("[" + "9" * 5000 + "]", ["number that cannot be read"]),
        (b"\xff\xfe{", ["cannot be read"]),
    ],
)
def test_files_that_are_no_network(content, words, tmp_path):
    path = tmp_path / "roadnet.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    refused(lambda: load_roadnet(path), "roadnet.json", *words)


def test_a_folder_is_no_file(tmp_path):
    refused(lambda: load_roadnet(tmp_path), "cannot be read")


def rename_road(r):
    r["roads"][1]["id"] = r["roads"][0]["id"]


def rename_place(r):
    r["intersections"][1]["id"] = r["intersections"][0]["id"]


def set_road(**fields):
    def change(r):
        r["roads"][0].update(fields)

    return change


def set_lane(**fields):
    def change(r):
        r["roads"][0]["lanes"][0].update(fields)

    return change


def set_place(**fields):
    def change(r):
        junction(r).update(fields)

    return change


def set_link(**fields):
    def change(r):
        junction(r)["roadLinks"][0].update(fields)

    return change


def set_lane_link(**fields):
    def change(r):
        junction(r)["roadLinks"][0]["laneLinks"][0].update(fields)

    return change


def set_phase(**fields):
    def change(r):
        junction(r)["trafficLight"]["lightphases"][1].update(fields)

    return change


def no_time_at_all(r):
    for phase in junction(r)["trafficLight"]["lightphases"]:
        phase["time"] = 0


def all_virtual(r):
    for place in r["intersections"]:
        place["virtual"] = True


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename_road, ["road_0_1_0", "appears twice", "unique"]),
        (rename_place, ["intersections", "appears twice"]),
        (lambda r: r.update(roads=[]), ["'roads' is empty"]),
        (lambda r: r.update(roads={}), ["'roads' should be list, found dict"]),
        (lambda r: r["roads"].append(7), ["roads[14]", "expected an object, found int"]),
        (all_virtual, ["all intersections are virtual"]),
        (set_road(startIntersection="nowhere"), ["startIntersection 'nowhere' is not"]),
        (set_road(points=[{"x": 0, "y": 0}]), ["road_0_1_0", "two distinct points"]),
        (set_road(points=[{"x": 0, "y": 0}] * 2), ["two distinct points"]),
        (set_road(points=[{"x": 0, "y": 0}, {"x": 9, "y": 0}]), ["shorter than the junctions"]),
        (set_road(points=[{"x": 0}, {"x": 900, "y": 0}]), ["field 'y' is missing"]),
        (set_road(points=[{"x": float("nan"), "y": 0}] * 2), ["'x' is not finite"]),
        (set_road(points=[{"x": 10**400, "y": 0}] * 2), ["'x' is not finite"]),
        (set_road(lanes=[]), ["has no lanes"]),
        (set_lane(width=-1), ["'width' is -1", "at least 0"]),
        (set_lane(maxSpeed=0), ["'maxSpeed' is 0"]),
        (set_lane(maxSpeed="fast"), ["'maxSpeed' should be int or float, found str"]),
        (set_lane(maxSpeed=True), ["'maxSpeed' should be int or float, found bool"]),
        (set_place(virtual="no"), ["'virtual' should be bool"]),
        (set_place(width=-3), ["'width' is -3"]),
        (set_place(point=[0, 0]), ["'point' should be dict"]),
        (set_place(roads=["road_9_9_9"]), ["'road_9_9_9', which is not a road"]),
        (set_place(trafficLight={}), ["'lightphases' is missing"]),
        (set_place(trafficLight={"lightphases": []}), ["no lightphases"]),
        (set_link(type="u_turn"), ["type 'u_turn' is none of go_straight"]),
        (set_link(startRoad="road_7_7_7"), ["startRoad 'road_7_7_7' is not a road"]),
        (set_link(startRoad="road_2_1_0"), ["does not touch this intersection"]),
        (set_link(laneLinks=3), ["'laneLinks' should be list"]),
        (set_lane_link(startLaneIndex=3), ["startLaneIndex 3 is out of range", "3 lanes"]),
        (set_lane_link(endLaneIndex=-1), ["endLaneIndex -1 is out of range"]),
        (set_lane_link(endLaneIndex=1.0), ["'endLaneIndex' should be int, found float"]),
        (set_lane_link(points=5), ["'points' should be list"]),
        (set_lane_link(points=[{"x": 1, "y": 2}]), ["has no length"]),
        (set_phase(time=-5), ["'time' is -5"]),
        (set_phase(availableRoadLinks=[12]), ["names 12; expected 0 to 11"]),
        (set_phase(availableRoadLinks=[-1]), ["names -1; expected 0 to 11"]),
        (set_phase(availableRoadLinks=[0.5]), ["names 0.5"]),
        (set_phase(availableRoadLinks="all"), ["'availableRoadLinks' should be list"]),
        (no_time_at_all, ["intersection_1_1", "lasts 0 s"]),
    ],
)
def test_networks_that_contradict_themselves(roadnet, change, words):
    change(roadnet)
    refused(lambda: load_roadnet(roadnet), "roadnet", *words)


def flow(**changes):
    return {**FLOW[0], **changes}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (7, ["expected an object, found int"]),
        ({}, ["field 'route' is missing"]),
        (flow(route=[]), ["the route is empty"]),
        (flow(route="road_0_1_0"), ["'route' should be list"]),
        (flow(route=["road_0_1_0", "road_8_8_8"]), ["road 'road_8_8_8'", "does not have"]),
        (flow(route=["road_0_1_0", ["road_1_1_0"]]), ["which the network does not have"]),
        (flow(route=["road_0_1_0"]), ["stays on one road"]),
        (flow(route=["road_2_1_0", "road_0_1_0"]), ["'road_0_1_0' cannot be reached"]),
        (flow(route=[*ROUTE, "road_1_1_2"]), ["'road_1_1_2' cannot be reached from 'road_2_1_0'"]),
        (flow(startTime=-1), ["'startTime' is -1", "at least 0"]),
        (flow(startTime=9, endTime=4), ["endTime 4 lies before startTime 9"]),
        (flow(endTime=-2), ["'endTime' is -2"]),
        (flow(interval=0), ["interval is 0 s"]),
        (flow(interval=-3.0), ["interval is -3 s"]),
        (flow(interval=0.5, endTime=9), ["interval is 0.5 s", "at least 1 s"]),
        (flow(interval="1"), ["'interval' should be int or float"]),
        (flow(vehicle={}), ["vehicle", "field 'length' is missing"]),
        (flow(vehicle=CAR | {"length": 0}), ["'length' is 0; it must be positive"]),
        (flow(vehicle=CAR | {"maxNegAcc": -4.5}), ["'maxNegAcc' is -4.5"]),
        (flow(vehicle=CAR | {"headwayTime": float("inf")}), ["'headwayTime' is not finite"]),
    ],
)
def test_flows_that_no_engine_could_follow(net, record, words):
    refused(lambda: load_flow([FLOW[0], record], net, duration=60.0), "flow[1]", *words)


def test_a_flow_file_that_is_no_list(net, tmp_path):
    path = tmp_path / "flow.json"
    path.write_text(json.dumps({"flows": FLOW}))
    refused(lambda: load_flow(path, net, duration=60.0), "flow.json", "array of flows")


def test_a_route_that_no_movement_serves(roadnet):
    place = junction(roadnet)
    place["roadLinks"] = [k for k in place["roadLinks"] if k["endRoad"] != "road_1_1_0"]
    for phase in place["trafficLight"]["lightphases"]:
        phase["availableRoadLinks"] = []
    net = load_roadnet(roadnet)
    refused(
        lambda: load_flow(FLOW, net, duration=60.0), "flow[0]", "'road_1_1_0' cannot be reached"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"duration": 0.0}, ["duration (0 s)", "must be positive"]),
        ({"dt": -1.0}, ["dt (-1 s)", "must be positive"]),
        ({"decision_interval": 2.5}, ["decision_interval 2.5 s is not a multiple of dt = 1 s"]),
        ({"reward": "joy"}, ["reward 'joy' is none of waiting"]),
        ({"observe": ("phase", "smell")}, ["observe names smell; known: lane_count"]),
        ({"clearance": -1.0}, ["clearance and min_green must not be negative"]),
        ({"capacity": 0}, ["capacity is 0"]),
        ({"max_demand": 0.0}, ["max_demand (0)"]),
    ],
)
def test_options_that_do_not_fit(good, options, words):
    refused(lambda: make_environment(good, FLOW, **options), *words, error=ConfigError)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -1}, ["seed is -1"]),
        ({"capacity": 10**13}, ["capacity is 10000000000000"]),
        ({"seed": 2**32}, ["seed is 4294967296"]),
        ({"duration": 1e18}, ["2^31 steps"]),
        ({"dt": 1e-9}, ["2^31 steps"]),
        ({"min_green": 1e30}, ["min_green", "1e+30 s"]),
        ({"clearance": 1e30}, ["clearance", "1e+30 s"]),
    ],
)
def test_numbers_too_large_to_count(good, options, words):
    refused(lambda: make_environment(good, FLOW, **options), *words, error=ConfigError)


@pytest.mark.parametrize("option", ["interval", "clearance", "green_time"])
def test_controllers_count_their_steps(good, option):
    network = make_environment(good, FLOW, duration=10.0).simulator.network
    refused(lambda: make_controller("sotl", network, **{option: 1e300}), option, error=ConfigError)


def test_a_point_beyond_the_precision_of_floats(roadnet):
    roadnet["roads"][0]["points"][0]["x"] = 1e308
    refused(lambda: load_roadnet(roadnet), roadnet["roads"][0]["id"], "1e+09 m")


@pytest.mark.parametrize("value", [1e300, 1e-300])
def test_a_vehicle_beyond_single_precision(net, value):
    flows = [FLOW[0] | {"vehicle": CAR | {"maxPosAcc": value}}]
    refused(lambda: load_flow(flows, net, duration=10.0), "flow[0]", "maxPosAcc")


def test_a_name_that_no_file_can_have():
    refused(lambda: load_roadnet("a\0.json"), "cannot be read")


@pytest.mark.parametrize("flows", [[], [FLOW[0] | {"startTime": 99, "endTime": 99}]])
def test_a_demand_without_vehicles_is_an_empty_network(good, flows):
    env = make_environment(good, flows, duration=20.0)
    params = env.nominal_params()
    state, _ = env.reset(jax.random.key(0), params)
    action = np.zeros(env.num_agents, np.int32)
    state, timestep = jax.jit(env.step)(jax.random.key(1), state, action, params)
    assert int(state.traffic.step) == 10
    assert float(timestep.info["average_travel_time"]) == 0.0
    assert int(timestep.info["finished"]) == 0


def test_too_many_vehicles_for_the_capacity(good):
    flows = [flow(startTime=n, endTime=n) for n in range(0, 20, 2)]
    env = make_environment(good, flows, duration=60.0, capacity=4)
    controller = make_controller("fixed_time", env.simulator.network)
    env = for_controller(env, controller)
    seen = []

    def run():
        key, params = jax.random.key(0), env.nominal_params()
        for chunk in record(key, env, controller, params, 60, chunk=5):
            seen.append(int(np.asarray(chunk.state.traffic.vehicle >= 0).sum()))

    refused(run, "capacity of 4 vehicles", "before 15 s", error=CapacityError)
    assert len(seen) == 2
    assert max(seen) <= 4
