"""Crossings against scipy's events."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxlab.core.errors import CapacityError, ConfigError, ConvergenceError
from jaxlab.envs.cr3bp import dynamics
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.propagation import Accuracy
from jaxlab.envs.cr3bp.sections import Plane, crossings, first_crossing

ORBIT = published_orbit("st-dro")
MU = ORBIT.system.mass_parameter
FINE = Accuracy(tolerance=1e-14)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def events(start, time, surface, direction):
    def rates(t, y):
        x, yy, z, vx, vy, vz = y
        r1, r2 = np.hypot(x + MU, np.hypot(yy, z)), np.hypot(x - 1 + MU, np.hypot(yy, z))
        k1, k2 = (1 - MU) / r1**3, MU / r2**3
        ax = 2 * vy + x - k1 * (x + MU) - k2 * (x - 1 + MU)
        return [vx, vy, vz, ax, -2 * vx + yy - (k1 + k2) * yy, -(k1 + k2) * z]

    def event(t, y):
        return float(surface(y))

    event.direction = direction
    found = solve_ivp(rates, (0, time), start, "DOP853", events=event, rtol=3e-14, atol=3e-14)
    return found.t_events[0], found.y_events[0].reshape(-1, 6)


def test_half_a_periodic_orbit_ends_on_its_plane():
    found = first_crossing(ORBIT.initial(), 4.0, MU, Plane("y"), accuracy=FINE)
    np.testing.assert_allclose(found.time, [ORBIT.period / 2], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.state[0, [1, 3]], 0, atol=1e-11)


@pytest.mark.parametrize("direction", [-1, 0, 1])
@pytest.mark.parametrize("surface", [Plane("y"), Plane("x", 1.02), Plane("vx", 0.05)])
def test_crossings_are_those_of_scipy(surface, direction):
    rng = np.random.default_rng(0)
    start = ORBIT.initial() + 1e-2 * rng.normal(size=(3, 6))
    span = np.array([4.0, 9.0, 14.0])
    found = crossings(start, span, MU, surface, direction=direction, limit=6, accuracy=FINE)
    for n in range(3):
        times, states = events(start[n], span[n], surface, direction)
        assert int(found.number[n]) == len(times)
        shown = min(len(times), 6)
        assert found.valid[n].tolist() == [m < shown for m in range(6)]
        np.testing.assert_allclose(found.time[n, :shown], times[:shown], rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.state[n, :shown], states[:shown], rtol=0, atol=1e-9)
        assert np.isnan(found.time[n, shown:]).all()


def test_backwards_times_are_negative():
    found = first_crossing(ORBIT.initial(), -4.0, MU, Plane("y"), accuracy=FINE)
    np.testing.assert_allclose(found.time, [-ORBIT.period / 2], rtol=0, atol=1e-11)


def test_any_function_is_a_surface():
    def sphere(state):
        return dynamics.primary_distances(state[:3], MU)[1] - 0.12

    found = first_crossing(ORBIT.initial(), 5.0, MU, sphere, accuracy=FINE)
    distance = dynamics.primary_distances(found.state[0, :3], MU)[1]
    np.testing.assert_allclose(distance, 0.12, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Plane("w"), ConfigError, "x, y, z"),
        (lambda: crossings(jnp.zeros(5), 1.0, MU, Plane("y")), ConfigError, "float64"),
        (
            lambda: crossings(ORBIT.initial(), 1.0, MU, Plane("y"), direction=2),
            ConfigError,
            "direction",
        ),
        (
            lambda: first_crossing(ORBIT.initial(), 1.0, MU, Plane("z", 0.5)),
            ConvergenceError,
            "does not cross",
        ),
        (lambda: crossings(ORBIT.initial(), 9.0, MU, Plane("y"), knots=8), CapacityError, "knots"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
