"""The simulator against outputs recorded from CityFlow: counts, travel times, vehicles, phases."""

import gzip
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.controllers import Controller
from jaxlab.envs.traffic.demand import load_flow
from jaxlab.envs.traffic.recording import record
from jaxlab.envs.traffic.rollout import for_controller
from jaxlab.envs.traffic.signals import plan_phases

OWN = pathlib.Path(__file__).parents[2] / "golden" / "traffic"
CITIES = {
    "hangzhou_4x4": ("hz_plan", "hz_fixed8_30", "hz_maxpressure8_10"),
    "jinan_3x4": ("jn_maxpressure8_10",),
}


class Replay:
    """Simulates given phases `[steps, junctions]`; one compiled program for all of them."""

    def __init__(self, roadnet, flow, steps, *, dt=1.0, seed=0):
        source = {"duration": steps * dt, "dt": dt, "seed": seed}
        env = make_environment(roadnet, flow, **source)
        self.controller = Controller(dt, 0.0, lambda: self.phase, self.act)
        self.env, self.steps, self.dt = for_controller(env, self.controller), steps, dt
        self.ids = load_flow(flow, env.net, **source).vehicle_ids

    @staticmethod
    def act(key, memory, detectors):
        return memory, memory[detectors.step]

    def __call__(self, phase=None, at=()):
        """In the layout of the recordings; vehicles after the steps `at`; default: the plan."""
        phase = plan_phases(self.env.net, self.steps, self.dt) if phase is None else phase
        self.phase = jnp.asarray(phase, jnp.int32)
        chunks = list(
            record(
                jax.random.key(0),
                self.env,
                self.controller,
                self.env.nominal_params(),
                self.steps,
                totals=True,
                lanes=True,
                vehicles=True,
                chunk=300,
            )
        )
        seen = {name: np.concatenate([c.steps[name] for c in chunks]) for name in chunks[0].steps}
        np.testing.assert_array_equal(seen["phase"], phase)
        every = round(10 / self.dt)
        return {
            "lanes": self.env.net.lane_ids,
            "att": seen["average_travel_time"],
            "running": seen["running"],
            "incomplete": seen["running"] + seen["waiting_to_enter"],
            "count": seen["count"][every - 1 :: every],
            "waiting": seen["waiting"][every - 1 :: every],
            "vehicles": {n: vehicles_after(seen, n, self.env.net, self.ids) for n in at},
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
    """Inputs of a recorded scene, its phases, and what was recorded."""
    scene = json.loads(gzip.decompress((OWN / f"{name}.json.gz").read_bytes()))
    return scene, scene.pop("phase", None), scene.pop("recorded")


@pytest.mark.parametrize("name", ["busy_junction", "drawn_phases", "half_seconds"])
def test_own_scenes_are_reproduced_exactly(name):
    scene, phase, recorded = own_scene(name)
    with jax.enable_x64(True):
        ours = Replay(**scene)(phase, at=[int(step) for step in recorded["vehicles"]])
    check(ours, recorded)
    check_vehicles(ours["vehicles"], recorded["vehicles"])


@pytest.mark.parametrize("name", ["busy_junction", "drawn_phases", "half_seconds"])
def test_own_scenes_in_single_precision(name):
    scene, phase, recorded = own_scene(name)
    ours = Replay(**scene)(phase)
    assert ours["att"].dtype == np.float32
    assert ours["att"][-1] == pytest.approx(recorded["att"][-1], abs=1.0)
    # Queues amplify rounding: who is where may differ late, not early.
    np.testing.assert_array_equal(ours["running"][:60], recorded["running"][:60])


def snapshots(path):
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    return recorded, [int(step) for step in recorded]


@pytest.mark.parametrize("city", list(CITIES))
def test_cities_of_the_shared_data_are_reproduced_exactly(city, shared_data):
    files = [shared_data(f"traffic/{city}/{part}.json") for part in ("roadnet", "flow")]
    with jax.enable_x64(True):
        replay = Replay(*files, 3600)
        for name in CITIES[city]:
            recorded = np.load(shared_data(f"traffic/reference/{name}.npz"))
            vehicles, steps = snapshots(shared_data(f"traffic/reference/{name}.vehicles.json.gz"))
            ours = replay(recorded["phase"] if recorded["phase"].size else None, at=steps)
            check(ours, recorded, ("lane_count_10s", "lane_wait_10s"))
            check_vehicles(ours["vehicles"], vehicles)


@pytest.mark.parametrize(
    "size", [*(pytest.param(size, marks=pytest.mark.slow) for size in ("1x1", "2x2")), "4x4"]
)
def test_grids_of_the_shared_data_are_reproduced_exactly(size, shared_data):
    files = [shared_data(f"traffic/generated/{part}_{size}.json") for part in ("roadnet", "flow")]
    recorded = np.load(shared_data(f"traffic/reference/grid{size}_plan.npz"))
    path = shared_data(f"traffic/reference/grid{size}_plan.vehicles.json.gz")
    vehicles, steps = snapshots(path)
    with jax.enable_x64(True):
        ours = Replay(*files, len(recorded["att"]))(at=steps[::5])
    check(ours, recorded, ("lane_count_10s", "lane_wait_10s"))
    check_vehicles(ours["vehicles"], vehicles)
