"""The vehicle model's formulas against values worked out by hand, and their limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.envs.traffic import vehicles
from jaxlab.envs.traffic.vehicles import Drivers

#: The car of the city data: metres, m/s, m/s^2, seconds.
CAR = {
    "length": 5.0,
    "max_acceleration": 2.0,
    "max_deceleration": 4.5,
    "usual_acceleration": 2.0,
    "usual_deceleration": 4.5,
    "min_gap": 2.5,
    "max_speed": 11.111,
    "headway_time": 2.0,
}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def car(**changes):
    return Drivers(**{name: jnp.array(value) for name, value in (CAR | changes).items()})


def safe(leader_speed, speed, gap, target_gap=0.0, *, own=4.5, leader=4.5, dt=1.0):
    numbers = (leader_speed, leader, speed, own, gap)
    return float(vehicles.safe_speed(*map(jnp.array, numbers), dt, target_gap))


def test_look_ahead_is_a_braking_distance_and_two_steps():
    assert float(vehicles.look_ahead(car(), 1.0)) == pytest.approx(11.111**2 / 9 + 22.222)
    assert float(vehicles.look_ahead(car(max_speed=9.0), 0.5)) == pytest.approx(9.0 + 9.0)


def test_braking_distance():
    assert float(vehicles.braking_distance(jnp.array(9.0), jnp.array(4.5))) == 9.0


@pytest.mark.parametrize(
    ("arguments", "expected", "options"),
    [
        # 2.5 + v/2 + v^2/9 = 10 behind a standing vehicle.
        ((0.0, 5.0, 10.0), 4.5 * (math.sqrt(0.25 + 30 / 9) - 0.5), {}),
        # The same with 2.5 m to spare.
        ((0.0, 5.0, 10.0, 2.5), 4.5 * (math.sqrt(0.25 + 20 / 9) - 0.5), {}),
        # Twice the leader's speed, less what it may lose, and twice the gap: 4 - 4.5 + 2.
        ((2.0, 0.0, 1.0), 1.5, {}),
        # A leader that brakes harder than oneself: 25/12 m for it, v^2/8 for oneself.
        (
            (5.0, 5.0, 10.0),
            4.0 * (math.sqrt(0.25 + 0.5 * (10 + 25 / 12 - 2.5)) - 0.5),
            {"own": 4.0, "leader": 6.0},
        ),
        # Half a second: 5/4 + v/4 + v^2/9 = 10.
        ((0.0, 5.0, 10.0), 4.5 * (math.sqrt(1 / 16 + 4 / 9 * 8.75) - 0.25), {"dt": 0.5}),
    ],
)
def test_safe_speed(arguments, expected, options):
    assert safe(*arguments, **options) == pytest.approx(expected, rel=1e-12)


def test_safe_speed_of_the_hopeless():
    assert safe(0.0, 5.0, 0.0) == -100.0


@given(
    leader_speed=st.floats(0, 20),
    speed=st.floats(0, 20),
    gap=st.floats(0.5, 60),
    target_gap=st.floats(0, 3),
    own=st.floats(3, 8),
    leader=st.floats(3, 8),
    dt=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_at_safe_speed_one_stops_at_the_target_gap(
    leader_speed, speed, gap, target_gap, own, leader, dt
):
    v = safe(leader_speed, speed, gap, target_gap, own=own, leader=leader, dt=dt)
    room = gap - target_gap + leader_speed**2 / 2 / leader
    closing = 2 * leader_speed - leader * dt + 2 * (gap - target_gap) / dt
    if v == -100.0:
        # Even braking from a negative speed would take more than there is.
        assert speed * dt / 2 - own * dt**2 / 8 > room - 1e-9
    else:
        used = speed * dt / 2 + v * dt / 2 + v * v / 2 / own
        assert used <= room + 1e-6 or v < -own * dt / 2
        assert v <= closing + 1e-9
        assert used == pytest.approx(room, abs=1e-6) or v == pytest.approx(closing)


def follow(speed, leader_speed, gap, **changes):
    numbers = map(jnp.array, (speed, leader_speed, gap))
    v, vl, g = numbers
    return float(vehicles.following_speed(v, car(**changes), vl, car(), g, 1.0))


def test_headway_binds_at_speed():
    # (20 + (8 + (10 - 8) / 2) - 10 / 2) / (2 + 1/2); safety alone would allow 11.2 m/s.
    assert follow(10.0, 8.0, 20.0) == pytest.approx(9.6)
    assert follow(8.0, 8.0, 20.0, headway_time=0.5) > 9.6


def test_comfort_binds_in_a_queue():
    # 6 m behind a standing vehicle: -4.5 + 2 (6 - 2.5), while safety alone allows 4.6 m/s.
    assert follow(0.0, 0.0, 6.0, headway_time=0.5) == pytest.approx(2.5)


def test_emergency_binds_where_comfort_is_easy():
    # A driver whose usual braking is harder than the hardest: the hardest decides.
    v = follow(5.0, 0.0, 10.0, usual_deceleration=9.0, min_gap=0.0, headway_time=0.0)
    assert v == pytest.approx(4.5 * (math.sqrt(0.25 + 30 / 9) - 0.5))


@pytest.mark.parametrize(
    ("speed", "distance", "expected"),
    [
        (10.0, 50.0, 12.0),  # 11 m for this step and 16 m to brake fit
        (10.0, 20.0, 10.0 - 10.0 / 3),  # just under four steps, three counted
        (10.0, 45.0 / 2, 10.0 - 10.0 / 4),
        (10.0, 4.0, 10.0 - 10.0 / 0.8),  # less than one step
        (0.0, 0.5, 0.0),
        (0.0, 2.0, 2.0),  # 1 m and 4/9 m
        (0.0, 0.0, 0.0),
    ],
)
def test_stopping_speed(speed, distance, expected):
    v = vehicles.stopping_speed(jnp.array(speed), car(), jnp.array(distance), 1.0)
    assert float(v) == pytest.approx(expected, abs=1e-7)


def steps(speed, distance, target=8.3333, acceleration=2.0, dt=1.0):
    numbers = map(jnp.array, (speed, distance, target, acceleration))
    return float(vehicles.steps_to_reach(*numbers, dt))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0.0, 16.0), 4),  # 2 + 4 + 6 + 8 m/s, halves counted: 16 m after four steps
        ((0.0, 16.1), 5),
        ((0.0, 24.1), 5),  # the fifth step reaches the target: 8.17 m
        ((0.0, 40.0), 5 + 2),  # 15.8 m are left at 8.33 m/s
        ((8.3333, 25.1), 4),
        ((10.0, 25.0), 3),  # faster than the target: at one's own speed
        ((10.0, 0.0), 0),
        ((10.0, -3.0), 0),
        # The two slips of the engine: metres over speed without dt, stage speed over dt.
        ((10.0, 25.0, 8.3333, 2.0, 0.5), 3),
        ((0.0, 40.0, 8.0, 2.0, 0.5), 13),  # 64 m instead of 16 m to reach 8 m/s: the root
        ((0.0, 70.0, 8.0, 2.0, 0.5), 8 + 2),  # and 6 m at 4 m a step
    ],
)
def test_steps_to_reach(arguments, expected):
    assert steps(*arguments) == expected


@given(speed=st.floats(0, 8.3), distance=st.floats(0.1, 200))
def test_steps_to_reach_agree_with_driving(speed, distance):
    v, covered, n = speed, 0.0, 0
    while covered < distance - 1e-9:
        faster = min(v + 2.0, 8.3333)
        covered, v, n = covered + (v + faster) / 2, faster, n + 1
    # Part of the step in which the target is reached is counted by formula, not driven.
    assert abs(steps(speed, distance) - n) <= 1


def test_can_yield():
    speed, deceleration, length = jnp.array(10.0), jnp.array(4.5), jnp.array(5.0)
    distances = jnp.array([17.0, 16.2, 16.1, 0.0, -4.9, -5.1])
    answer = vehicles.can_yield(speed, distances, deceleration, length)
    # 11.11 m of braking and 5 m of clearance before the crossing, or the tail beyond it.
    np.testing.assert_array_equal(answer, [True, True, False, False, False, True])


@given(
    numbers=st.lists(st.floats(0, 20, width=32), min_size=2, max_size=2),
    gap=st.floats(-10, 100, width=32),
    dt=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_speeds_are_finite_in_single_precision(numbers, gap, dt):
    speed, leader_speed, gap = (jnp.float32(x) for x in (*numbers, gap))
    driver = jax.tree.map(jnp.float32, car())
    for value in (
        vehicles.following_speed(speed, driver, leader_speed, driver, gap, dt),
        vehicles.stopping_speed(speed, driver, jnp.abs(gap) + 1, dt),
        vehicles.steps_to_reach(speed, gap, driver.max_speed, driver.usual_acceleration, dt),
    ):
        assert value.dtype == jnp.float32
        assert bool(jnp.isfinite(value))


def test_parameters_are_looked_up_by_type():
    types = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), car())
    kind = jnp.array([1, 0, 1])
    assert types.of(kind).length.tolist() == [10.0, 5.0, 10.0]
    assert types.of(kind, jnp.array([1, 2])).min_gap.tolist() == [2.5, 5.0]
    one = jax.tree.map(lambda x: x[None], car())
    assert one.of(jnp.array([0, 0])).max_speed.tolist() == [11.111, 11.111]
