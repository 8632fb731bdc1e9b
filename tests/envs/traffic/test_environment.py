"""Signal control as an environment: contract, rewards and observations worked out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.spaces import Discrete
from jaxlab.core.testing import check_env
from jaxlab.core.wrappers import TimeLimit
from jaxlab.envs.traffic import signals as lights
from jaxlab.envs.traffic.construction import (
    default_environment,
    estimate_capacity,
    make_environment,
)
from jaxlab.envs.traffic.demand import load_flow
from jaxlab.envs.traffic.detectors import lane_delay, lane_waiting
from jaxlab.envs.traffic.environment import OBSERVATIONS, REWARDS
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.roadnet import load_roadnet
from jaxlab.envs.traffic.trips import CAR, draw_demand
from tests.envs.traffic.worlds import HOLD, SOUTH, WEST, Trip, two_junctions


@pytest.fixture(scope="module")
def world():
    return two_junctions()


@pytest.fixture(scope="module")
def step(world):
    return jax.jit(world.env.step)


@pytest.fixture(scope="module")
def standing(world, step):
    """Five vehicles that wait at red: three from the west, two turning left from the south."""
    params = world.params([Trip(WEST)] * 3 + [Trip(SOUTH)] * 2)
    state, first = jax.jit(world.env.reset)(jax.random.key(0), params)
    timesteps = [first]
    before = state
    for n in range(6):
        before = state
        state, timestep = step(jax.random.key(n), state, jnp.array(HOLD, jnp.int32), params)
        timesteps.append(timestep)
    return params, before, state, timesteps


def lane_position(world, junction, lane):
    """Column of a lane in the observation of its junction."""
    approach = world.env.table["approach"][junction]
    return int(np.flatnonzero(approach == world.net.lane_ids.index(lane))[0])


def test_observations(world, standing):
    _, _, _, timesteps = standing
    last = timesteps[-1].obs
    count = np.zeros((2, 12))
    count[0, lane_position(world, 0, "road_0_1_0_1")] = 3
    count[0, lane_position(world, 0, "road_1_0_1_0")] = 2
    np.testing.assert_array_equal(last["lane_count"], count)
    np.testing.assert_array_equal(last["lane_waiting"], count)
    np.testing.assert_array_equal(last["phase"], np.eye(8)[[1, 2]])
    np.testing.assert_array_equal(last["phase_age"], [[60.0], [60.0]])
    np.testing.assert_array_equal(last["action_mask"], [[True] * 8, [True] * 3 + [False] * 5])
    # Each junction has the other one upstream, and no third.
    slots = world.env.neighbours.shape[1]
    shown = np.asarray(last["neighbour_phase"]).reshape(2, slots, 8)
    for junction, other, action in ((0, 1, 2), (1, 0, 1)):
        rows = world.env.neighbours[junction]
        np.testing.assert_array_equal(
            shown[junction], np.where(rows[:, None] == other, np.eye(8)[action], 0)
        )
    np.testing.assert_array_equal(timesteps[0].obs["lane_count"], np.zeros((2, 12)))
    np.testing.assert_array_equal(timesteps[0].obs["phase"], np.eye(8)[[0, 0]])


def test_observations_can_be_left_out(world):
    env = dataclasses.replace(world.env, observe=("phase",))
    _, timestep = env.reset(jax.random.key(0), world.params([]))
    assert set(timestep.obs) == {"phase", "action_mask"}
    space = env.observation_space(world.params([]))
    assert set(dict(space.items)) == {"phase", "action_mask"}
    assert set(OBSERVATIONS) == {
        *("lane_count", "lane_waiting", "phase", "phase_age", "neighbour_phase")
    }


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("waiting", [-5 / 12, 0.0]),  # five stand all the time, twelve lanes
        ("queue", [-5.0, 0.0]),
        ("pressure", [-5.0, 0.0]),
        ("delay", [-2 / 12, 0.0]),  # two of twelve lanes do not move
        ("travel_time", [-25.0, -25.0]),  # five vehicles, ten seconds, two junctions
    ],
)
def test_rewards(world, standing, reward, expected):
    params, before, after, timesteps = standing
    env = dataclasses.replace(world.env, reward=reward)
    lanes = world.simulator.num_lanes
    waiting = 10 * lane_waiting(after.traffic, lanes)
    value = env._reward(before.traffic, after.traffic, waiting, params)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert reward in REWARDS
    if reward == "waiting":
        np.testing.assert_allclose(timesteps[-1].reward, expected, rtol=1e-6)


def test_pressure_counts_exit_lanes_too(world, standing):
    params, before, after, _ = standing
    lane = world.net.lane_ids.index("road_1_1_1_2")
    drivable = jnp.where(after.traffic.vehicle >= 0, lane, after.traffic.drivable)
    moved = after.traffic.replace(drivable=drivable)
    env = dataclasses.replace(world.env, reward="pressure")
    nobody = jnp.zeros(world.simulator.num_lanes, jnp.int32)
    # All five on a lane that leaves the first junction: 0 come, 5 go.
    assert env._reward(before.traffic, moved, nobody, params).tolist() == [-5.0, 0.0]


def test_delay_is_one_less_mean_speed_over_the_limit(world, standing):
    _, _, after, _ = standing
    lanes = world.simulator.num_lanes
    speed = jnp.where(after.traffic.vehicle >= 0, 5.5555, 0.0).astype(jnp.float32)
    delay = lane_delay(after.traffic.replace(speed=speed), world.env.table, lanes)
    occupied = [world.net.lane_ids.index(n) for n in ("road_0_1_0_1", "road_1_0_1_0")]
    np.testing.assert_allclose(delay[jnp.array(occupied)], 0.5, rtol=1e-5)
    assert float(delay.sum()) == pytest.approx(1.0, rel=1e-5)


def test_info(standing):
    _, _, _, timesteps = standing
    info = timesteps[-1].info
    assert float(info["average_travel_time"]) == 60.0
    assert [int(info[k]) for k in ("finished", "running", "waiting_to_enter")] == [0, 5, 0]
    assert float(info["delay"]) == pytest.approx(2 / 24)
    np.testing.assert_array_equal(info["waiting"], [5.0, 0.0])
    queues = [float(t.info["waiting"].mean()) for t in timesteps[1:]]
    assert float(info["mean_queue"]) == pytest.approx(np.mean(queues))
    assert not bool(info["overflow"])


def test_green_lets_them_go(world, step, standing):
    params, _, state, _ = standing

    def after_green(state, actions):
        for n in range(5):
            state, timestep = step(jax.random.key(n), state, jnp.array(actions, jnp.int32), params)
        return state, timestep

    # Trips end where their last road does, whatever its signal shows.
    state, timestep = after_green(state, [0, 2])  # west-east straight on
    assert int(timestep.info["finished"]) == 3
    assert timestep.obs["lane_count"][0].sum() == 2
    state, timestep = after_green(state, [3, 0])  # north-south left
    assert int(timestep.info["finished"]) == 5


def test_clearance_and_minimum_green(world, step):
    params = world.params([])
    table = {"clearance": 3.0, "min_green": 25.0}
    params = params.replace(**{k: jnp.float32(v) for k, v in table.items()})
    state, _ = world.env.reset(jax.random.key(0), params)
    asked = [1, 2, 2, 2, 0, 0, 0]
    shown, ages = [], []
    for n, action in enumerate(asked):
        actions = jnp.array([action, 0], jnp.int32)
        state, _ = step(jax.random.key(n), state, actions, params)
        shown.append(int(state.signals.phase[0]))
        ages.append(int(state.signals.age[0]))
    # Phase 1 holds to 30 s: at 0, 10 and 20 s it is too young to go. So does the next one.
    assert shown == [1, 1, 1, 3, 3, 3, 1]
    assert ages == [10, 20, 30, 10, 20, 30, 10]


def test_signals_step_by_step():
    three = lambda *x: jnp.array(x, jnp.int32)  # noqa: E731
    signals = lights.reset_signals(three(1, 1, 2))
    clearance, none = jnp.int32(2), jnp.int32(0)
    signals = lights.request(signals, three(1, 2, 1), clearance, none)
    clear = three(0, 0, 9)
    seen = []
    for _ in range(3):
        seen.append(lights.shown(signals, clear).tolist())
        signals = lights.tick(signals)
        # What is asked for while a junction clears is not heard.
        signals = lights.request(signals, three(1, 7, 1), clearance, jnp.int32(2))
    assert seen == [[1, 0, 9], [1, 0, 9], [1, 0, 1]]
    assert signals.phase.tolist() == [1, 7, 1]


def test_padded_actions_keep_the_phase(world, step):
    params = world.params([])
    state, timestep = world.env.reset(jax.random.key(0), params)
    assert not timestep.obs["action_mask"][1, 5]
    state, _ = step(jax.random.key(0), state, jnp.array([5, 5], jnp.int32), params)
    assert state.signals.phase.tolist() == [6, 1]


def test_sensors_drop_out_and_err(world, step, standing):
    params, before, _, timesteps = standing
    actions = jnp.array(HOLD, jnp.int32)
    true = np.asarray(timesteps[-1].obs["lane_count"])

    def observe(count, **changes):
        changed = params.replace(**{k: jnp.float32(v) for k, v in changes.items()})
        keys = jax.random.split(jax.random.key(1), count)
        made = [step(key, before, actions, changed)[1] for key in keys]
        for timestep in made:  # rewards are of what happened, not of what was seen
            np.testing.assert_allclose(timestep.reward, timesteps[-1].reward, rtol=1e-6)
        return np.stack([t.obs["lane_count"] for t in made])

    assert (observe(2, sensor_dropout=1.0) == 0).all()
    seen = observe(150, sensor_noise=0.1)
    ratio = seen[:, true > 0] / true[true > 0]
    assert (seen[:, true == 0] == 0).all()
    assert ratio.mean() == pytest.approx(1.0, abs=0.03)
    assert ratio.std() == pytest.approx(0.1, rel=0.2)
    lost = observe(150, sensor_dropout=0.3)[:, true > 0] == 0
    assert lost.mean() == pytest.approx(0.3, abs=0.1)


def test_more_vehicles_than_rows_are_flagged(world, step):
    params = world.params([]).replace(overfull=jnp.array(True))
    _, timestep = world.env.reset(jax.random.key(0), params)
    assert bool(timestep.info["overflow"])


def test_pictures(world, standing):
    params, _, state, _ = standing
    picture = world.env.render(state, params)
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert picture.std() > 5


def test_spaces(world):
    params = world.params([])
    assert world.env.action_space(params) == Discrete(8, (2,))
    assert (world.env.num_agents, world.env.num_actions) == (2, 8)


@pytest.mark.parametrize(
    "precisions", [("float32",), pytest.param(("float32", "float64"), marks=pytest.mark.slow)]
)
def test_the_contract_of_environments(precisions):
    roadnet = grid_roadnet(1, 1, row_distance=90.0, column_distance=90.0)
    flow = draw_demand(roadnet, 3, trips=20, duration=30)
    env = make_environment(roadnet, flow, duration=30.0, decision_interval=5.0)
    assert env.precisions == ("float32", "float64")
    # Half of the time goes into the second precision, in which the golden scenes run.
    wrapped = TimeLimit(env, 3)
    check_env(wrapped, steps=5, batch=2, batch_steps=2, eager_steps=1, precisions=precisions)


def test_the_built_in_environment():
    env = default_environment(duration=600.0)
    params = env.nominal_params()
    assert (env.num_agents, env.num_actions) == (16, 8)
    assert int((params.depart_step < 600).sum()) == 514
    assert env == default_environment(duration=600.0)
    assert env != default_environment(duration=600.0, seed=1)


def test_capacity_holds_all_vehicles_or_all_that_roads_can():
    roadnet = grid_roadnet(1, 1, row_distance=40.0, column_distance=40.0)
    net = load_roadnet(roadnet)

    def capacity(trips, **options):
        record = {"vehicle": CAR, "route": ["road_0_1_0", "road_1_1_0"], "interval": 1.0}
        flows = [record | {"startTime": 0, "endTime": trips - 1}]
        demand = load_flow(flows, net, duration=3600.0)
        assert demand.num_vehicles == trips
        return estimate_capacity(net, demand, **options)

    # All of them, two for rounding and a slot for nobody, in multiples of 64 slots.
    assert capacity(61) == 63
    assert capacity(62) == 127
    assert capacity(62, max_demand=2.0) == 127
    assert capacity(63, max_demand=2.0) == 191
    # Cars of 5 m: at most two per 5 m of lane and link.
    bound = np.sum(np.ceil(net.length / 2.5) + 1)
    assert bound <= capacity(3500) < bound + 64 < 3500
