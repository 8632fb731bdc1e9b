"""What holds on any demand under any signals, tried on random ones."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.trips import CAR
from tests.envs.traffic.worlds import Trip, World

STEPS, VEHICLES = 120, 63
DRIVERS = (
    CAR,
    CAR | {"length": 11.0, "maxPosAcc": 1.1, "usualPosAcc": 1.0, "maxSpeed": 9.0},
    CAR | {"length": 3.5, "minGap": 1.0, "headwayTime": 0.8, "maxSpeed": 15.0, "maxNegAcc": 6.0},
)
WORLDS = {
    "junction": lambda: World(
        grid_roadnet(1, 1, row_distance=90.0, column_distance=(70.0, 110.0)),
        vehicles=VEHICLES,
        drivers=DRIVERS,
    ),
    "shared lanes": lambda: World(
        grid_roadnet(
            2,
            2,
            row_distance=(60.0, 50.0, 80.0),
            column_distance=60.0,
            lanes=("left+straight", "straight+right"),
        ),
        vehicles=VEHICLES,
        drivers=DRIVERS,
        longest=4,
    ),
    "half seconds": lambda: World(
        grid_roadnet(1, 1, row_distance=70.0, column_distance=70.0, lanes=("left+straight+right",)),
        vehicles=VEHICLES,
        drivers=DRIVERS,
        dt=0.5,
    ),
}


@pytest.fixture(scope="module")
def worlds():
    return {name: make() for name, make in WORLDS.items()}


@st.composite
def episodes(draw):
    """Trips by random numbers, and phases held for random numbers of steps."""
    seed = draw(st.integers(0, 2**32 - 1))
    number = draw(st.integers(1, VEHICLES))
    last = draw(st.sampled_from([0, 10, 40, 80]))
    longest_green = draw(st.sampled_from([1, 5, 15, 40]))
    return seed, number, last, longest_green


def make(world, episode):
    seed, number, last, longest_green = episode
    rng = np.random.default_rng(seed)
    trips = [
        Trip(
            world.routes[rng.integers(len(world.routes))],
            int(rng.integers(last + 1)),
            int(rng.integers(world.kinds)),
            int(rng.integers(4)),
        )
        for _ in range(number)
    ]
    phases, n = np.zeros((STEPS, world.net.num_junctions), int), 0
    while n < STEPS:
        green = int(rng.integers(1, longest_green + 1))
        phases[n : n + green] = rng.integers(0, world.net.num_phases)
        n += green
    return trips, phases


def check_vehicles(world, params, seen):
    """Vehicles come from the queue, keep to their path, and go at its end."""
    paths, depart = world.simulator.paths.value["paths"], np.asarray(params.depart_step)
    entry = np.asarray(params.entry_offset)
    before, gone, hops = set(), set(), {}
    for n in range(STEPS):
        here = seen["vehicle"][n] >= 0
        slots = np.flatnonzero(here)
        rows = seen["vehicle"][n][slots].tolist()
        now = set(rows)
        assert len(now) == len(rows)
        assert not now & gone
        for row in now - before:
            assert depart[row] <= n
        gone |= before - now
        for row, slot in zip(rows, slots.tolist(), strict=True):
            path, hop = seen["path"][n][slot], seen["hop"][n][slot]
            assert path == int(params.path[row])
            assert seen["drivable"][n][slot] == paths[path, hop]
            assert hop >= hops.get(row, 0)
            hops[row] = hop
        assert seen["finished"][n] == len(gone)
        # Whoever is due and neither here nor gone waits behind those of its entry lane.
        started = now | gone
        for first, end in itertools.pairwise(entry):
            inside = [row in started for row in range(first, end)]
            assert inside == sorted(inside, reverse=True)
        before = now
        free = ~here
        assert (seen["drivable"][n][free] == world.simulator.nowhere).all()
    assert not seen["overflow"].any()


def check_motion(world, params, seen):
    """Speeds and accelerations stay within those of the driver; all is finite."""
    dt = world.simulator.dt
    kind = np.asarray(params.driver)
    drivers = {k: np.asarray(getattr(params.drivers, k)) for k in ("max_speed", "max_acceleration")}
    brake = np.asarray(params.drivers.max_deceleration)
    assert all(np.isfinite(seen[name]).all() for name in ("position", "speed", "gap"))
    length = np.append(world.net.length, np.inf)
    assert (seen["position"] >= 0).all()
    assert (seen["position"] <= length[seen["drivable"]] + 1e-4).all()
    for n in range(STEPS):
        slots = np.flatnonzero(seen["vehicle"][n] >= 0)
        k = kind[seen["vehicle"][n][slots]]
        speed = seen["speed"][n][slots]
        assert (speed >= 0).all()
        assert (speed <= drivers["max_speed"][k] + 1e-4).all()
        if n > 0:
            stayed = seen["vehicle"][n - 1][slots] == seen["vehicle"][n][slots]
            change = (speed - seen["speed"][n - 1][slots])[stayed]
            assert (change <= drivers["max_acceleration"][k][stayed] * dt + 1e-4).all()
            assert (change >= -brake[k][stayed] * dt - 1e-4).all()


def check_lanes(world, params, seen):
    """Vehicles on a lane keep their order and do not overlap.

    Those that come from different links at once may: the engine lets through who can no
    longer yield, and has the same overlaps.
    """
    kind = np.asarray(params.driver)
    length = np.asarray(params.drivers.length)
    order = {}
    for n in range(STEPS):
        on_lane = np.flatnonzero(seen["drivable"][n] < world.net.num_lanes)
        now = {}
        for lane in np.unique(seen["drivable"][n][on_lane]):
            slots = on_lane[seen["drivable"][n][on_lane] == lane]
            slots = slots[np.argsort(-seen["position"][n][slots], kind="stable")]
            rows = seen["vehicle"][n][slots]
            now[lane] = rows.tolist()
            kept = [row for row in order.get(lane, []) if row in now[lane]]
            assert [row for row in now[lane] if row in kept] == kept
            space = seen["position"][n][slots][:-1] - length[kind[rows[:-1]]]
            overlap = space - seen["position"][n][slots][1:] < -1e-3
            source = seen["previous"][n][slots]
            assert (source[1:] != source[:-1])[overlap].all()
        order = now


def check_signals(world, params, seen, phases):
    """Nobody enters a link without right of way but who could not stop before it."""
    allowed = world.simulator.network.value["phase_allows"]
    lanes = world.net.num_lanes
    kind = np.asarray(params.driver)
    brake = np.asarray(params.drivers.max_deceleration)
    entries = ran = 0
    for n in range(1, STEPS):
        was, now = seen["drivable"][n - 1], seen["drivable"][n]
        same = (seen["vehicle"][n - 1] == seen["vehicle"][n]) & (seen["vehicle"][n] >= 0)
        # The slot may have changed hands within the step only if it was free before.
        crossed = np.flatnonzero(same & (was < lanes) & (now != was))
        for slot in crossed:
            path = world.simulator.paths.value["paths"][seen["path"][n][slot]]
            link = path[seen["hop"][n - 1][slot] + 1] - lanes
            junction, movement = world.net.link_junction[link], world.net.link_movement[link]
            entries += 1
            if not allowed[junction, phases[n][junction], movement]:
                speed = seen["speed"][n - 1][slot]
                rest = world.net.length[was[slot]] - seen["position"][n - 1][slot]
                need = speed**2 / 2 / brake[kind[seen["vehicle"][n][slot]]]
                assert need > rest - 1e-3
                ran += 1
    return entries, ran


@pytest.mark.parametrize("name", list(WORLDS))
@settings(max_examples=15)
@given(episode=episodes())
def test_rules_hold_whatever_happens(worlds, name, episode):
    world = worlds[name]
    trips, phases = make(world, episode)
    params = world.params(trips)
    seen = world.run(params, phases)
    check_vehicles(world, params, seen)
    check_motion(world, params, seen)
    check_lanes(world, params, seen)
    check_signals(world, params, seen, phases)


def test_red_lights_are_run_only_by_those_who_cannot_stop(worlds):
    """The check above is no empty one: with phases that change all the time some do."""
    world = worlds["junction"]
    ran = entered = 0
    for seed in range(4):
        trips, phases = make(world, (seed, VEHICLES, 40, 5))
        params = world.params(trips)
        counts = check_signals(world, params, world.run(params, phases), phases)
        entered, ran = entered + counts[0], ran + counts[1]
    assert 0 < ran < entered / 2


def test_copies_side_by_side_are_as_each_alone(worlds):
    world = worlds["junction"]
    made = [make(world, (seed, 10 + 20 * seed, 40, 5)) for seed in range(3)]
    params = [world.params(trips) for trips, _ in made]
    alone = [world.run(p, phases) for p, (_, phases) in zip(params, made, strict=True)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *params)
    table = jnp.asarray(np.stack([phases for _, phases in made]), jnp.int32)
    together = jax.jit(jax.vmap(world.compiled))(stacked, table)
    for n, one in enumerate(alone):
        for name, values in one.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(together[name][n], values, atol=1e-3)
            else:
                np.testing.assert_array_equal(together[name][n], values)
