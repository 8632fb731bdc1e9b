"""Controls at departure and the costates that mean them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError, PrecisionError
from jaxlab.envs.cr3bp import low_thrust
from jaxlab.envs.cr3bp.adjoint_control import AdjointControl, Bounds, departure_basis
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.objective import Objective, departure
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate_low_thrust
from jaxlab.envs.cr3bp.transfers import make_transfer, thruster_in_units

ORBIT = published_orbit("st-dro")
MU = ORBIT.system.mass_parameter
FINE = Accuracy(tolerance=1e-14)
IN_PLANE = [0, 1, 3, 4]
KINDS = [(axes, mass_costate) for axes in (2, 3) for mass_costate in (-1.0, None)]


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@functools.cache
def transfer(axes):
    with jax.enable_x64(True):
        start = np.array([-0.7, 0.4, 0.02, -0.2, -0.25, 0.05, 0.9])
        orbit = ORBIT.initial()
        if axes == 2:
            start, orbit = start[[*IN_PLANE, 6]], orbit[IN_PLANE]
        thruster = thruster_in_units(
            ORBIT.system, thrust=6.0, mass=25_000.0, specific_impulse=7365.0, smoothing=0.02
        )
        return make_transfer(
            MU, start, thruster, orbit, ORBIT.period, duration=(5.0, 20.0), nodes=8
        )


def numbers(low, high):
    return st.floats(low, high, allow_subnormal=False)


@pytest.mark.parametrize(("axes", "mass_costate"), KINDS)
@given(data=st.data())
@settings(max_examples=40)
def test_controls_there_and_back(axes, mass_costate, data):
    of, task = AdjointControl(mass_costate), transfer(axes)
    low, high = (np.asarray(side) for side in of.box(task))
    parts = [data.draw(numbers(float(a), float(b))) for a, b in zip(low, high, strict=True)]
    back = of.from_costates(of.to_costates(np.array(parts), task), task)
    difference = np.asarray(back) - parts
    difference[0] = (difference[0] + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(difference, 0, atol=1e-12)


@pytest.mark.parametrize(("axes", "mass_costate"), KINDS)
@given(data=st.data())
@settings(max_examples=40)
def test_costates_there_and_back(axes, mass_costate, data):
    of, task = AdjointControl(mass_costate), transfer(axes)
    size = of.unknowns(task)
    costates = np.array([data.draw(numbers(-1, 1)) for _ in range(size)])
    primer = costates[axes : 2 * axes]
    # Upright thrust has no azimuth, and none no direction.
    primer[:2] += np.where(np.hypot(*primer[:2]) < 0.05, 0.1, 0)
    if np.hypot(*primer[:2]) < 0.05:
        primer[:2] = 0.1
    back = of.to_costates(of.from_costates(costates, task), task)
    np.testing.assert_allclose(back, costates, rtol=0, atol=1e-12)


@pytest.mark.parametrize("axes", [2, 3])
def test_controls_are_those_of_the_thrust_along_an_arc(axes):
    """Angles, S and their rates by differences of a propagated arc, from departure and later."""
    of, task = AdjointControl(None), transfer(axes)
    controls = of.sample(jax.random.key(1), 4, task)
    y = departure(Objective(mass_costate=None), of.to_costates(controls, task), task)
    later = propagate_low_thrust(y, 2.0, MU, task.thruster, accuracy=FINE).state
    for at, state in enumerate([*y, *later]):
        here = task._replace(start=state[: 2 * axes + 1])
        found = of.from_costates(state[2 * axes + 1 :], here)
        if at < 4:
            np.testing.assert_allclose(found, controls[at], rtol=0, atol=1e-12)
        step = 1e-4
        near = propagate_low_thrust(
            jnp.stack([state, state]), np.array([step, -step]), MU, task.thruster, accuracy=FINE
        ).state
        rows = jnp.stack([state, *near])
        primer = np.asarray(rows[:, 3 * axes + 1 : 4 * axes + 1])
        u = -primer / np.linalg.norm(primer, axis=1, keepdims=True) @ departure_basis(here)
        azimuth = np.unwrap(np.arctan2(u[:, 1], u[:, 0]))
        _, switching = low_thrust.throttle(rows, task.thruster)
        values = [azimuth, *([np.arcsin(u[:, 2])] if axes == 3 else []), np.asarray(switching)]
        middle = [value[0] for value in values]
        rates = [(value[1] - value[2]) / (2 * step) for value in values]
        expected = [*middle[:-1], *rates[:-1], middle[-1], rates[-1], np.linalg.norm(primer[0])]
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-7)


def test_the_basis_is_orthonormal_and_begins_with_the_velocity():
    for axes in (2, 3):
        basis = np.asarray(departure_basis(transfer(axes)))
        np.testing.assert_allclose(basis.T @ basis, np.eye(axes), atol=1e-15)
        assert np.linalg.det(basis) > 0
        velocity = np.asarray(transfer(axes).start)[axes : 2 * axes]
        np.testing.assert_allclose(basis[:, 0], velocity / np.linalg.norm(velocity), rtol=1e-15)


def test_the_costates_are_those_an_objective_takes():
    task = transfer(2)
    of = AdjointControl()
    costates = of.to_costates(of.sample(jax.random.key(0), 5, task), task)
    assert costates.shape == (5, Objective().unknowns(task))
    y = departure(Objective(), costates, task)
    np.testing.assert_allclose(
        low_thrust.throttle(y, task.thruster)[1],
        of.sample(jax.random.key(0), 5, task)[:, 2],
        rtol=0,
        atol=1e-16,
    )


def test_samples_are_within_their_bounds_and_their_key_s():
    task = transfer(3)
    of = AdjointControl(bounds=Bounds(azimuth=(-0.5, 0.2), switching=(0.0, 0.5)))
    rows = of.sample(jax.random.key(3), 2000, task)
    low, high = of.box(task)
    assert ((rows >= low) & (rows <= high)).all()
    np.testing.assert_allclose(rows.mean(0), (low + high) / 2, atol=0.03 * (high - low).max())
    exhaust = float(task.thruster.exhaust_speed)
    assert float(rows[:, 4].min()) >= 0
    assert float(rows[:, 4].max()) <= 0.5 / exhaust
    np.testing.assert_array_equal(rows, of.sample(jax.random.key(3), 2000, task))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AdjointControl(1.0).to_costates(jnp.zeros(4), transfer(2)), "mass_costate"),
        (lambda: AdjointControl().to_costates(jnp.zeros(5), transfer(2)), r"\[..., 4\]"),
        (lambda: AdjointControl().from_costates(jnp.zeros(4), transfer(3)), r"\[..., 6\]"),
        (lambda: AdjointControl().sample(jax.random.key(0), 0, transfer(2)), "count"),
        (lambda: AdjointControl(bounds=Bounds(azimuth=(1.0, 0.0))).check(), "azimuth"),
        (lambda: AdjointControl(bounds=Bounds(elevation=(0.0, 1.6))).check(), "right angle"),
        (lambda: AdjointControl(bounds=Bounds(primer=(0.0, 1.0))).check(), "primer"),
        (
            lambda: AdjointControl().to_costates(
                jnp.zeros(4), transfer(2)._replace(start=jnp.zeros(5))
            ),
            "velocity",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_32_bits_are_refused():
    task = transfer(2)
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64"):
        AdjointControl().to_costates(np.zeros(4), task)
