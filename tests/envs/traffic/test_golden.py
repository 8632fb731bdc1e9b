"""The simulator against outputs recorded from CityFlow: counts, travel times, vehicles, phases."""

import gzip
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.envs.traffic.controllers import Controller, make_controller
from jaxlab.envs.traffic.demand import load_flow
from jaxlab.envs.traffic.environment import make_environment
from jaxlab.envs.traffic.recording import record
from jaxlab.envs.traffic.rollout import for_controller

OWN = pathlib.Path(__file__).parents[2] / "golden" / "traffic"
CITIES = {
    "hz_plan": ("hangzhou_4x4", "plan"),
    "hz_fixed8_30": ("hangzhou_4x4", "fixed_time"),
    "hz_maxpressure8_10": ("hangzhou_4x4", "max_pressure"),
    "jn_maxpressure8_10": ("jinan_3x4", "max_pressure"),
}


def given_phases(phase, dt):
    """A controller that sets the phases of a table `[steps, junctions]` at once."""

    def act(key, memory, detectors):
        return memory, jnp.asarray(phase, jnp.int32)[detectors.step]

    return Controller(dt, 0.0, lambda: (), act)


def simulated(roadnet, flow, steps, *, dt=1.0, seed=0, controller="plan", phase=None, at=()):
    """What the simulator gives, in the layout of the recordings; vehicles after the steps `at`."""
    source = {"duration": steps * dt, "dt": dt, "seed": seed}
    env = make_environment(roadnet, flow, **source)
    if phase is None:
        controller = make_controller(controller, env.simulator.network, dt=dt)
    else:
        controller = given_phases(phase, dt)
    env = for_controller(env, controller)
    chunks = list(
        record(
            jax.random.key(0),
            env,
            controller,
            env.nominal_params(),
            steps,
            totals=True,
            lanes=True,
            vehicles=len(at) > 0,
            chunk=300,
        )
    )
    seen = {name: np.concatenate([c.steps[name] for c in chunks]) for name in chunks[0].steps}
    every = round(10 / dt)
    ids = load_flow(flow, env.net, **source).vehicle_ids if at else ()
    return {
        "lanes": env.net.lane_ids,
        "att": seen["average_travel_time"],
        "running": seen["running"],
        "incomplete": seen["running"] + seen["waiting_to_enter"],
        "count": seen["count"][every - 1 :: every],
        "waiting": seen["waiting"][every - 1 :: every],
        "phase": seen["phase"],
        "vehicles": {step: vehicles_after(seen, step, env.net, ids) for step in at},
    }


def vehicles_after(seen, step, net, ids):
    row = {name: seen[name][step - 1] for name in ("vehicle", "drivable", "position", "speed")}
    return {
        ids[v]: (net.drivable_ids[d], x, speed)
        for v, d, x, speed in zip(*row.values(), strict=True)
        if v >= 0
    }


def check(ours, recorded, counts=("count", "waiting")):
    """All counts equal, travel times to 1e-6 s, vehicles to 1e-4."""
    order = [ours["lanes"].index(lane) for lane in recorded["lanes"]]
    for name, theirs in zip(("count", "waiting"), counts, strict=True):
        np.testing.assert_array_equal(ours[name][:, order], recorded[theirs])
    np.testing.assert_array_equal(ours["running"], recorded["running"])
    np.testing.assert_array_equal(ours["incomplete"], recorded["incomplete"])
    np.testing.assert_allclose(ours["att"], recorded["att"], atol=1e-6, rtol=0)


def check_vehicles(ours, recorded):
    assert len(ours) > 0
    for step, vehicles in ours.items():
        theirs = recorded[str(step)]
        assert {v: place[0] for v, place in vehicles.items()} == {
            v: place[0] for v, place in theirs.items()
        }
        for v, (_, position, speed) in vehicles.items():
            assert position == pytest.approx(theirs[v][1], abs=1e-4)
            assert speed == pytest.approx(theirs[v][2], abs=1e-4)


def own_scene(name):
    return json.loads(gzip.decompress((OWN / f"{name}.json.gz").read_bytes()))


@pytest.mark.parametrize("name", ["busy_junction", "drawn_phases", "half_seconds"])
def test_own_scenes_are_reproduced_exactly(name):
    scene = own_scene(name)
    recorded = scene.pop("recorded")
    with jax.enable_x64(True):
        ours = simulated(**scene, at=[int(step) for step in recorded["vehicles"]])
    check(ours, recorded)
    check_vehicles(ours["vehicles"], recorded["vehicles"])
    if "phase" in scene:
        np.testing.assert_array_equal(ours["phase"], scene["phase"])


@pytest.mark.parametrize("name", ["busy_junction", "drawn_phases", "half_seconds"])
def test_own_scenes_in_single_precision(name):
    scene = own_scene(name)
    recorded = scene.pop("recorded")
    ours = simulated(**scene)
    assert ours["att"].dtype == np.float32
    assert ours["att"][-1] == pytest.approx(recorded["att"][-1], abs=1.0)
    # Queues amplify rounding: who is where may differ late, not early.
    np.testing.assert_array_equal(ours["running"][:60], recorded["running"][:60])


@pytest.mark.parametrize("name", list(CITIES))
def test_cities_of_the_shared_data_are_reproduced_exactly(name, shared_data):
    city, controller = CITIES[name]
    files = [shared_data(f"traffic/{city}/{part}.json") for part in ("roadnet", "flow")]
    recorded = np.load(shared_data(f"traffic/reference/{name}.npz"))
    path = shared_data(f"traffic/reference/{name}.vehicles.json.gz")
    snapshots = json.loads(gzip.decompress(path.read_bytes()))
    steps = [int(step) for step in snapshots]
    with jax.enable_x64(True):
        ours = simulated(*files, 3600, controller=controller, at=steps)
    check(ours, recorded, ("lane_count_10s", "lane_wait_10s"))
    check_vehicles(ours["vehicles"], snapshots)
    if controller != "plan":
        np.testing.assert_array_equal(ours["phase"], recorded["phase"])


@pytest.mark.parametrize("size", ["1x1", "2x2", "4x4"])
def test_grids_of_the_shared_data_are_reproduced_exactly(size, shared_data):
    files = [shared_data(f"traffic/generated/{part}_{size}.json") for part in ("roadnet", "flow")]
    recorded = np.load(shared_data(f"traffic/reference/grid{size}_plan.npz"))
    path = shared_data(f"traffic/reference/grid{size}_plan.vehicles.json.gz")
    snapshots = json.loads(gzip.decompress(path.read_bytes()))
    with jax.enable_x64(True):
        ours = simulated(*files, len(recorded["att"]), at=[int(s) for s in snapshots][::5])
    check(ours, recorded, ("lane_count_10s", "lane_wait_10s"))
    check_vehicles(ours["vehicles"], snapshots)
