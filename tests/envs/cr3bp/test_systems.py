"""Systems, units, libration points."""

import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.systems import System, get_system, libration_points

# Thirty-digit solutions of Euler's quintic, rounded.
COLLINEAR = {
    "earth-moon": (0.83691512577235715, 1.1556821654448841, -1.0050626458102778),
    "saturn-titan": (0.95749617332411434, 1.0432564213473924, -1.0000985997142102),
    "jupiter-europa": (0.97976410458941826, 1.0204613859816161, -1.0000105334063680),
}


@pytest.mark.parametrize("name", COLLINEAR)
def test_collinear_points(name):
    points = libration_points(get_system(name).mass_parameter)
    np.testing.assert_allclose(points[:3, 0], COLLINEAR[name], rtol=0, atol=4e-16)
    assert (points[:3, 1:] == 0).all()


@pytest.mark.parametrize("mu", [1e-9, 3e-6, 0.0121, 0.3, 0.5])
def test_nothing_pulls_at_a_libration_point(mu):
    for x, y, z in libration_points(mu):
        r1, r2 = np.hypot(x + mu, y), np.hypot(x - 1 + mu, y)
        pull = np.array([x, y]) - (1 - mu) / r1**3 * np.array([x + mu, y])
        pull -= mu / r2**3 * np.array([x - 1 + mu, y])
        # Rounding of a position near a small secondary is large by its own pull.
        np.testing.assert_allclose(pull, 0, atol=1e-14 * (1 + mu / r2**3))
        assert z == 0


def test_units_of_a_spacecraft():
    system = get_system("saturn-titan")
    np.testing.assert_allclose(system.velocity_km_s, 5.63365474471, rtol=1e-11)
    np.testing.assert_allclose(system.acceleration_m_s2, 0.0265440095863, rtol=1e-11)
    np.testing.assert_allclose(system.thrust_acceleration(2, 25_000), 3.0139e-3, rtol=1e-4)
    np.testing.assert_allclose(system.exhaust_speed(7365), 12.8204, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: get_system("mars-moon"), "known are earth-moon"),
        (lambda: System("own", 0.6, 1.0, 1.0), r"\(0, 0.5\]"),
        (lambda: System("own", float("nan"), 1.0, 1.0), r"\(0, 0.5\]"),
        (lambda: System("own", 0.1, -1.0, 1.0), "length_km"),
        (lambda: libration_points(0.0), r"\(0, 0.5\]"),
        (lambda: get_system("earth-moon").exhaust_speed(-1), "specific impulse"),
        (lambda: get_system("earth-moon").thrust_acceleration(1, 0), "mass"),
        (lambda: published_orbit("none"), "known are em-l1"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
