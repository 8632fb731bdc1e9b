"""Features of junctions and phases against hand-counted vehicles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.envs.traffic.controllers import make_controller
from jaxlab.envs.traffic.features import (
    ACTION_FEATURES,
    JUNCTION_FEATURES,
    action_features,
    junction_features,
)
from tests.envs.traffic.worlds import HOLD, SOUTH, WEST, Trip, two_junctions


@pytest.fixture(scope="module")
def world():
    return two_junctions()


@pytest.fixture(scope="module")
def measure(world):
    """State -> features of junctions and of actions, by name."""

    @jax.jit
    def both(state):
        return junction_features(world.env, state), action_features(world.env, state)

    def named(state):
        junctions, actions = map(np.asarray, both(state))
        for features, values in ((JUNCTION_FEATURES, junctions), (ACTION_FEATURES, actions)):
            assert values.shape[-1] == len(features)
            for n, feature in enumerate(features):
                assert (values[..., n] >= feature.low).all(), feature.name
                assert (values[..., n] <= feature.high).all(), feature.name
        return (
            {f.name: junctions[:, n] for n, f in enumerate(JUNCTION_FEATURES)},
            {f.name: actions[:, :, n] for n, f in enumerate(ACTION_FEATURES)},
        )

    return named


@pytest.fixture(scope="module")
def standing(world):
    """Five vehicles that wait at red: three from the west, two turning left from the south."""
    params = world.params([Trip(WEST)] * 3 + [Trip(SOUTH)] * 2)
    state, _ = jax.jit(world.env.reset)(jax.random.key(0), params)
    step = jax.jit(world.env.step)
    states = [state]
    for n in range(6):
        state, _ = step(jax.random.key(n), state, jnp.array(HOLD, jnp.int32), params)
        states.append(state)
    return states


def lane(world, name):
    return world.net.lane_ids.index(name)


def close(values, expected):
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-7)


def test_an_empty_network(world, measure, standing):
    junctions, actions = measure(standing[0])
    for name, values in junctions.items():
        close(values, [1.0, 1.0] if name == "speed" else [0.0, 0.0])
    for name in ("queue", "count", "pressure"):
        close(actions[name], np.zeros((2, 8)))
    close(actions["is_current"], np.eye(8)[[0, 0]])


def test_junctions(measure, standing):
    junctions, _ = measure(standing[-1])
    expected = {
        "queue": [5 / 12 / 10, 0.0],  # five stand on twelve lanes
        "count": [5 / 12 / 10, 0.0],
        "waiting": [1.0, 0.0],
        "pressure": [5 / 12 / 10, 0.0],  # nobody on the exits
        "speed": [0.0, 1.0],
        "occupancy": [3 * 7.5 / 135.0, 0.0],  # three on a lane of 135 m
        "phase_age": [1.0, 1.0],  # 60 s
        "switched": [0.0, 0.0],
        "neighbour_queue": [0.0, 5 / 12 / 10],  # each is the only one upstream of the other
        "neighbour_count": [0.0, 5 / 12 / 10],
    }
    assert set(junctions) == set(expected)
    for name, values in expected.items():
        close(junctions[name], values)


def test_actions(measure, standing):
    _, actions = measure(standing[-1])
    # Two lanes a phase, right turns apart. Phases: west-east straight, north-south straight,
    # west-east left, north-south left, then all of west, east, south, north.
    three, two = 3 / 2 / 10, 2 / 2 / 10
    served = [[three, 0, 0, two, three, 0, two, 0], [0.0] * 8]
    for name in ("queue", "count", "pressure"):
        close(actions[name], served)
    close(actions["is_current"], np.eye(8)[[1, 2]])


def test_vehicles_that_leave_count_against_the_pressure(world, measure, standing):
    state = standing[-1]
    there = lane(world, "road_1_1_0_1")  # between the junctions
    traffic = state.traffic
    moved = jnp.where(traffic.vehicle >= 0, there, traffic.drivable)
    state = state.replace(traffic=traffic.replace(drivable=moved))
    junctions, actions = measure(state)
    close(junctions["pressure"], [-5 / 12 / 10, 5 / 12 / 10])
    close(junctions["queue"], [0, 5 / 12 / 10])
    assert world.env.table["length"][there] == 30.0
    close(junctions["occupancy"], [0, 1.0])  # five on a lane with room for four
    # Of the six links of west-east straight three end on the road, one of them on this lane.
    close(actions["pressure"][0, 0], -5 / 6 / 10)
    close(actions["queue"][1], [5 / 2 / 10, *[0.0] * 7])


def test_speed_and_waiting_of_moving_vehicles(measure, standing):
    state = standing[-1]
    occupied = state.traffic.vehicle >= 0
    limit = 11.111
    half = jnp.where(occupied, limit / 2, 0).astype(jnp.float32)
    junctions, _ = measure(state.replace(traffic=state.traffic.replace(speed=half)))
    close(junctions["speed"], [0.5, 1.0])
    close(junctions["waiting"], [0.0, 0.0])
    close(junctions["queue"], [0.0, 0.0])
    close(junctions["count"], [5 / 12 / 10, 0.0])


def test_a_change_of_phase_shows_for_one_decision(world, measure):
    params = world.params([])
    state, _ = world.env.reset(jax.random.key(0), params)
    step = jax.jit(world.env.step)
    switched, ages = [], []
    for n, action in enumerate([3, 3, 0, 0]):
        state, _ = step(jax.random.key(n), state, jnp.array([action, 0], jnp.int32), params)
        junctions, actions = measure(state)
        switched.append(junctions["switched"].tolist())
        ages.append(float(junctions["phase_age"][0]))
        assert actions["is_current"][0].argmax() == action
    # What is chosen first does not count: no phase was shown before.
    assert switched == [[0, 0], [0, 0], [1, 0], [0, 0]]
    np.testing.assert_allclose(ages, [1 / 6, 2 / 6, 1 / 6, 2 / 6], rtol=1e-6)


def test_the_largest_pressure_is_what_max_pressure_chooses(world, measure, standing):
    controller = make_controller("max_pressure", world.simulator.network)
    for state in standing[2:]:
        _, phase = controller.act(jax.random.key(0), controller.init(), world.env.detectors(state))
        _, actions = measure(state)
        choices = world.env.table["green_phases"]
        pressure = np.where(choices >= 0, actions["pressure"], -np.inf)
        for junction in range(2):
            assert choices[junction, pressure[junction].argmax()] == phase[junction]


def test_names_are_identifiers_with_descriptions():
    for features in (JUNCTION_FEATURES, ACTION_FEATURES):
        names = [feature.name for feature in features]
        assert len(set(names)) == len(names)
        assert all(f.name.isidentifier() and f.description and f.low < f.high for f in features)


def test_one_trace_in_the_precision_of_the_state(world, standing):
    traces = []

    @jax.jit
    def both(state):
        traces.append(1)
        return junction_features(world.env, state), action_features(world.env, state)

    for state in standing[1:3]:
        for values in both(state):
            assert values.dtype == state.traffic.speed.dtype
            assert not values.weak_type
    assert len(traces) == 1
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *standing[:2])
    batch = jax.vmap(lambda s: junction_features(world.env, s))(stacked)
    np.testing.assert_allclose(batch[1], junction_features(world.env, standing[1]), rtol=1e-6)
