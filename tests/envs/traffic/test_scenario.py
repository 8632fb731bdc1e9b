"""Scenarios: demand drawn again by weights, conditions, and their JSON form."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import CapacityError, ScenarioError
from jaxlab.envs.traffic import scenario as scenarios
from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.controllers import make_controller
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.params import lane_conditions
from jaxlab.envs.traffic.rollout import simulate
from jaxlab.envs.traffic.scenario import nominal_scenario, scenario_params
from jaxlab.envs.traffic.scenario_schema import (
    DRIVER_BOUNDS,
    scenario_from_json,
    scenario_schema,
)
from jaxlab.envs.traffic.trips import draw_demand

DURATION = 600
NEVER = np.iinfo(np.int32).max
NET = grid_roadnet(2, 2, row_distance=300.0, column_distance=200.0)
FLOW = draw_demand(NET, 3, trips=240, duration=DURATION)


@pytest.fixture(scope="module")
def env():
    return make_environment(NET, FLOW, duration=DURATION, max_demand=2.0)


@pytest.fixture(scope="module")
def draw(env):
    return jax.jit(lambda scenario, key: scenario_params(env, scenario, key))


@pytest.fixture(scope="module")
def key():
    return jax.random.key(5)


def scaled(env, demand):
    """The nominal scenario with another demand."""
    scenario = nominal_scenario(env)
    return scenario.replace(demand=jnp.full_like(scenario.demand, demand))


def present(params):
    """Rows in use: depart step and path."""
    used = np.asarray(params.depart_step) < NEVER
    return np.asarray(params.depart_step)[used], np.asarray(params.path)[used]


def test_the_nominal_scenario_gives_the_nominal_vehicles_and_bitwise_the_same_travel_times(
    env, draw, key
):
    nominal, params = env.nominal_params(), draw(nominal_scenario(env), key)
    number = nominal.depart_step.shape[0]
    for name in ("depart_step", "path", "driver", "priority"):
        np.testing.assert_array_equal(getattr(params, name)[:number], getattr(nominal, name))
    np.testing.assert_array_equal(params.depart_step[number:], NEVER)
    np.testing.assert_array_equal(params.entry_offset, nominal.entry_offset)
    assert params.depart_step.shape == (scenarios.num_rows(env),)
    assert not params.overfull
    controller = make_controller("max_pressure", env.simulator.network)

    @jax.jit
    def travel_times(params):
        return simulate(key, env, controller, params, 60)[1].info["average_travel_time"]

    times = travel_times(params)
    np.testing.assert_array_equal(times, travel_times(nominal))
    assert times[-1] > 60


def test_twice_the_demand_is_every_vehicle_twice(env, draw, key):
    nominal, params = env.nominal_params(), draw(scaled(env, 2.0), key)
    paths = env.simulator.paths.value["paths"].shape[0]
    once = np.bincount(nominal.path, minlength=paths)
    depart, path = present(params)
    np.testing.assert_array_equal(np.bincount(path, minlength=paths), 2 * once)
    # One copy keeps the time, the other departs within half a minute of it.
    at = np.bincount(np.minimum(depart, DURATION - 1), minlength=DURATION)
    assert np.all(at >= np.bincount(nominal.depart_step, minlength=DURATION))
    assert len(np.unique(params.priority[: len(depart)])) == len(depart)


@given(
    demand=st.floats(0, 2),
    tilt=st.floats(-0.9, 0.9),
    left=st.floats(0.1, 5),
    factor=st.floats(0, 1),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=40, deadline=None)
def test_any_scenario_has_the_wanted_vehicles_in_order(env, draw, demand, tilt, left, factor, seed):
    nominal, real = nominal_scenario(env), jnp.result_type(float)
    scenario = nominal.replace(
        demand=jnp.asarray(demand, real),
        profile=jnp.asarray(scenarios.ramp(1 - tilt, 1 + tilt), real),
        turns=jnp.asarray([1.0, left, 1.0], real),
        surges=nominal.surges.replace(
            origins=nominal.surges.origins.at[0].set(True),
            end=jnp.full(scenarios.SURGES, 200.0, real),
            factor=jnp.asarray([factor, 1.0, 1.0], real),
        ),
        seed=jnp.int32(seed),
    )
    params = draw(scenario, jax.random.key(seed % 7))
    wanted = float(scenarios.wanted_vehicles(env, scenario))
    if params.overfull:
        assert wanted > scenarios.num_rows(env) - 2
        return
    depart, path = present(params)
    assert abs(len(depart) - wanted) <= 1 + 240 / 1024
    entry = np.asarray(env.simulator.paths.value["entry"])[path]
    order = np.lexsort((depart, entry))
    np.testing.assert_array_equal(order, np.arange(len(order)))
    entries = len(env.simulator.paths.value["entry_lanes"])
    np.testing.assert_array_equal(
        params.entry_offset, np.searchsorted(entry, np.arange(entries + 1))
    )
    assert depart.min(initial=0) >= 0
    assert depart.max(initial=0) < DURATION


def test_an_origin_that_is_switched_off_sends_nobody(env, draw, key):
    origins = scenarios.origins_of(env)
    factors = jnp.ones(len(origins.road)).at[2].set(0.0)
    _, path = present(draw(nominal_scenario(env).replace(origins=factors), key))
    came_from = np.bincount(origins.of_path[path], minlength=len(origins.road))
    nominal = np.bincount(origins.of_path[env.nominal_params().path])
    np.testing.assert_array_equal(came_from, np.where(np.arange(len(nominal)) == 2, 0, nominal))


def test_a_surge_acts_on_one_side_for_a_while(env, draw, key):
    document = {"surges": [{"origin": "north", "start": 200, "duration": 300, "factor": 0}]}
    depart, path = present(draw(scenario_from_json(env, document), key))
    nominal = env.nominal_params()
    origins = scenarios.origins_of(env)

    def hit(depart, path):
        from_north = origins.side[origins.of_path[path]] == scenarios.SIDES.index("north")
        return from_north & (depart >= 200) & (depart < 500)

    removed = hit(np.asarray(nominal.depart_step), np.asarray(nominal.path))
    assert removed.sum() > 10
    assert not hit(depart, path).any()
    assert len(depart) == 240 - removed.sum()


def test_origins_are_named_by_the_side_they_come_from(env):
    origins = scenarios.origins_of(env)
    side = dict(zip(origins.names, [scenarios.SIDES[n] for n in origins.side], strict=True))
    # road_i_j_k starts in column i from the west and row j from the south.
    assert side == {
        "road_0_1_0": "west",
        "road_0_2_0": "west",
        "road_1_0_1": "south",
        "road_2_0_1": "south",
        "road_3_1_2": "east",
        "road_3_2_2": "east",
        "road_1_3_3": "north",
        "road_2_3_3": "north",
    }


def test_turn_weights_change_routes_but_not_the_number_of_vehicles(env, draw, key):
    origins = scenarios.origins_of(env)
    scenario = nominal_scenario(env).replace(turns=jnp.array([0.0, 1.0, 0.0]))
    _, path = present(draw(scenario, key))
    turns = origins.turns[path]
    assert np.all(turns[:, 1] > 0)
    assert abs(len(path) - 240) <= 1
    assert np.any(origins.turns[env.nominal_params().path][:, 1] == 0)


def test_a_profile_moves_departures(env, draw, key):
    values = np.zeros(scenarios.PROFILE_BINS)
    values[6:] = 2
    document = {"profile": {"shape": "bins", "values": values.tolist()}}
    depart, _ = present(draw(scenario_from_json(env, document), key))
    nominal = np.asarray(env.nominal_params().depart_step)
    assert len(depart) == 2 * (nominal >= DURATION / 2).sum()
    assert depart.min() >= DURATION / 2 - scenarios.JITTER


@pytest.mark.parametrize(
    "values",
    [
        scenarios.flat(),
        scenarios.ramp(0.5, 1.5),
        scenarios.peak(3600.0, time=900, width=300, height=3),
        scenarios.double_peak(3600.0, times=(600, 2700), width=200, height=2),
    ],
)
def test_profiles_have_mean_one(values):
    assert values.shape == (scenarios.PROFILE_BINS,)
    assert values.mean() == pytest.approx(1)


def test_a_peak_is_highest_at_its_time():
    values = scenarios.peak(1200.0, time=650, width=100, height=3)
    assert values.argmax() == 6
    assert values.max() / values.min() == pytest.approx(3, rel=0.01)


def test_vmap_over_scenarios_equals_a_loop_and_traces_once(env, key):
    documents = [{}, {"demand": 0.5}, {"turns": {"left": 3}, "seed": 9}, {"demand": 1.6}]
    many = [scenario_from_json(env, document) for document in documents]
    traces = []

    @jax.jit
    def draw(scenario, key):
        traces.append(1)
        return scenario_params(env, scenario, key)

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *many)
    keys = jax.random.split(key, len(many))
    batch = jax.vmap(lambda s, k: scenario_params(env, s, k))(stacked, keys)
    for n, scenario in enumerate(many):
        one = draw(scenario, keys[n])
        jax.tree.map(np.testing.assert_array_equal, one, jax.tree.map(lambda x, n=n: x[n], batch))
    assert len(traces) == 1


def test_seeds_and_keys_tell_draws_apart(env, draw, key):
    scenario = scaled(env, 0.5)
    first, again = draw(scenario, key), draw(scenario, key)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other_seed = draw(scenario.replace(seed=1), key)
    other_key = draw(scenario, jax.random.key(6))
    assert np.any(first.depart_step != other_seed.depart_step)
    assert np.any(first.depart_step != other_key.depart_step)


def test_more_vehicles_than_rows_are_told_on_the_host_and_flagged_in_the_step(env, draw, key):
    with pytest.raises(CapacityError, match=r"720 vehicles.*room for 480.*max_demand=3"):
        scenarios.check_scenario(env, scaled(env, 3.0))
    surge = {"origin": "everywhere", "start": 0, "duration": 300, "factor": 5}
    with pytest.raises(CapacityError, match="room for 480"):
        scenario_from_json(env, {"surges": [surge]})
    params = draw(scaled(env, 3.0), key)
    assert params.overfull
    assert env.reset(key, params)[1].info["overflow"]


def test_absurd_weights_are_flagged_rather_than_wrapped_around(env, draw, key):
    assert draw(scaled(env, 1e12), key).overfull
    assert draw(scaled(env, jnp.nan), key).overfull


def test_room_for_a_larger_demand_is_room_on_the_road_as_well(env):
    one = make_environment(NET, FLOW, duration=DURATION)
    assert env.simulator.capacity > one.simulator.capacity
    assert scenarios.num_rows(env) >= 480 > scenarios.num_rows(one) >= 240


def test_sampled_params_always_fit_and_differ(env):
    keys = jax.random.split(jax.random.key(0), 32)
    for one in (env, dataclasses.replace(env, max_demand=1.0)):
        params = jax.jit(jax.vmap(one.sample_params))(keys)
        assert not params.overfull.any()
        total = np.asarray(params.entry_offset[:, -1])
        assert total.min() >= 0.7 * 240 - 2
        assert total.max() <= min(1.2, one.max_demand) * 240 + 2
        assert len(np.unique(total)) > 16


def test_an_environment_without_vehicles_has_scenarios(key):
    env = make_environment(NET, [], duration=DURATION)
    params = scenario_params(env, scenario_from_json(env, {"sensors": {"noise": 0.1}}), key)
    assert params.depart_step.shape == (0,)
    assert params.sensor_noise == pytest.approx(0.1)


def test_incidents_close_and_slow_lanes(env, draw, key):
    document = {
        "incidents": [
            {"road": "road_1_1_0", "start": 100, "duration": 200, "speed_factor": 0},
            {"road": "road_2_1_0", "lane": 1, "start": 0, "duration": 50, "speed_factor": 0.5},
        ]
    }
    params = draw(scenario_from_json(env, document), key)
    lanes = env.simulator.num_lanes
    names = env.net.road_ids
    closed_road = np.append(env.table["lane_road"] == names.index("road_1_1_0"), False)
    for step, during in ((99, False), (100, True), (299, True), (300, False)):
        _, closed = lane_conditions(params, jnp.int32(step), 1.0, lanes)
        np.testing.assert_array_equal(closed, closed_road & during)
    factor, _ = lane_conditions(params, jnp.int32(10), 1.0, lanes)
    slow = np.flatnonzero(env.table["lane_road"] == names.index("road_2_1_0"))[1]
    np.testing.assert_array_equal(factor, np.where(np.arange(lanes + 1) == slow, 0.5, 1))


def test_the_schema_is_a_schema_and_json(env):
    schema = scenario_schema(env)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert all("description" in part for part in schema["properties"].values())


def test_an_empty_document_is_the_nominal_scenario(env):
    document = {"name": "as it is", "description": "nothing changed"}
    jax.tree.map(
        np.testing.assert_array_equal, scenario_from_json(env, document), nominal_scenario(env)
    )


def test_every_field_of_the_json_form_arrives(env):
    document = {
        "demand": 1.2,
        "origins": {"road_0_1_0": 0.5},
        "profile": {"shape": "ramp", "start": 0.5, "end": 1.5},
        "turns": {"left": 2.0},
        "drivers": {"max_speed": 0.9},
        "signals": {"clearance": 3, "min_green": 10},
        "sensors": {"noise": 0.1, "dropout": 0.05},
        "seed": 4,
    }
    scenario = scenario_from_json(env, document)
    names = scenarios.origins_of(env).names
    expected = nominal_scenario(env)
    expected = expected.replace(
        demand=1.2,
        origins=expected.origins.at[names.index("road_0_1_0")].set(0.5),
        profile=scenarios.ramp(0.5, 1.5),
        turns=np.array([1, 2, 1]),
        drivers=dataclasses.replace(expected.drivers, max_speed=0.9),
        clearance=3.0,
        min_green=10.0,
        sensor_noise=0.1,
        sensor_dropout=0.05,
        seed=4,
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), scenario, expected)


def test_driver_multipliers_keep_drivers_within_bounds(env):
    properties = scenario_schema(env)["properties"]["drivers"]["properties"]
    assert set(properties) == set(DRIVER_BOUNDS)
    for name, (low, high) in DRIVER_BOUNDS.items():
        nominal = env.demand.value["drivers"][name]
        assert (nominal * properties[name]["minimum"]).min() >= min(low, nominal.min()) - 1e-9
        assert (nominal * properties[name]["maximum"]).max() <= max(high, nominal.max()) + 1e-9
        assert properties[name]["minimum"] <= 1 <= properties[name]["maximum"]


def incident(**changes):
    record = {"road": "road_1_1_0", "start": 0, "duration": 100, "speed_factor": 0}
    return {"incidents": [record | changes]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "at the top"),
        ({"weather": "rain"}, "weather"),
        ({"demand": 2.1}, r"demand: 2.1 is greater than the maximum of 2"),
        ({"demand": float("nan")}, "demand: expected a finite number"),
        ({"demand": "1"}, "demand: '1' is not of type 'number'"),
        ({"origins": {"road_9_9_9": 1}}, "road_9_9_9"),
        ({"profile": {"shape": "peak", "time": 9}}, r"profile: 'width' is a required property"),
        ({"profile": {"shape": "hill"}}, "profile"),
        ({"profile": {"shape": "bins", "values": [1.0]}}, r"profile.values: \[1.0\] is too short"),
        ({"turns": {"straight": 0, "left": 0, "right": 0}}, "turns: all weights are 0"),
        (
            {"surges": [{"origin": "up", "start": 0, "duration": 60, "factor": 1}]},
            r"surges\[0\].origin: 'up' is not one of \['everywhere', 'north'",
        ),
        (incident(road="road_x"), r"incidents\[0\].road: 'road_x'"),
        (incident(lane=-1), r"incidents\[0\].lane: -1 is less than the minimum"),
        (incident(start=-5), r"incidents\[0\].start"),
        ({"incidents": 3 * incident()["incidents"]}, "9 lanes are concerned"),
        ({"seed": -1}, "seed"),
    ],
)
def test_errors_name_the_place(env, document, message):
    with pytest.raises(ScenarioError, match=message):
        scenario_from_json(env, document)
