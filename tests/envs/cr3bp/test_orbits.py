"""Periodic orbits, their families and manifolds against the published catalogue."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError, ConvergenceError
from jaxlab.envs.cr3bp import orbits
from jaxlab.envs.cr3bp.catalogue import ORBITS, published_orbit
from jaxlab.envs.cr3bp.dynamics import jacobi_constant
from jaxlab.envs.cr3bp.manifolds import manifold_starts
from jaxlab.envs.cr3bp.orbits import PeriodicOrbit
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate
from jaxlab.envs.cr3bp.systems import get_system, libration_points

ROWS = list(ORBITS.values())
STARTS = np.stack([row.initial() for row in ROWS])
PERIODS = np.array([row.period for row in ROWS])
MASSES = np.array([row.system.mass_parameter for row in ROWS])
# Largest multipliers as published, or found by an integration to rounding.
LARGEST = {
    "em-l1-halo-n": 302.15283 + 381.68975j,
    "em-l2-halo-s": 466.39667,
    "em-l1-lyapunov": 1878.0782,
    "em-l2-lyapunov": 1188.5039,
    "st-l1-halo-n": 1860.4195,
    "st-l2-lyapunov": 1146.8699,
}


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def corrected():
    """All published orbits, from guesses that are off by some 1e-5."""
    with jax.enable_x64(True):
        noise = 1e-5 * np.random.default_rng(0).normal(size=(2, len(ROWS)))
        start = STARTS.copy()
        start[:, 4] += noise[0]
        return orbits.correct(start, PERIODS + noise[1], MASSES)


def test_published_orbits_are_found(corrected):
    assert (corrected.residual <= 1e-12).all()
    np.testing.assert_array_equal(corrected.state[:, 0], STARTS[:, 0])  # x was fixed
    # z of a halo is free, so a member of the family nearby is as good: its size says so.
    np.testing.assert_allclose(corrected.state, STARTS, rtol=0, atol=2e-4)
    flat = STARTS[:, 2] == 0
    np.testing.assert_allclose(corrected.state[flat], STARTS[flat], rtol=0, atol=1e-11)
    np.testing.assert_allclose(corrected.period[flat], PERIODS[flat], rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        np.asarray(corrected.jacobi)[flat], [r.jacobi for r in ROWS if r.state[2] == 0], atol=1e-11
    )


def test_corrected_orbits_close_over_a_whole_period(corrected):
    fine = Accuracy(tolerance=1e-14)
    arc = propagate(corrected.state, corrected.period, MASSES, accuracy=fine)
    assert np.linalg.norm(arc.state - corrected.state, axis=1).max() < 2e-9
    assert np.abs(jacobi_constant(arc.state, MASSES) - corrected.jacobi).max() < 1e-12


def test_stability_of_published_orbits():
    orbit = PeriodicOrbit(jnp.asarray(STARTS), jnp.asarray(PERIODS), jnp.zeros(len(ROWS)), MASSES)
    matrices = np.asarray(orbits.monodromy(orbit))
    np.testing.assert_allclose(np.linalg.det(matrices), 1, atol=2e-9)
    values = orbits.multipliers(matrices)
    for n, row in enumerate(ROWS):
        if row.name in LARGEST:
            expected = LARGEST[row.name]
            found = values[n][0]
            np.testing.assert_allclose(
                [found.real, abs(found.imag)],
                [expected.real, np.imag(expected)],
                rtol=1e-6,
                atol=1e-3,
            )
        else:
            np.testing.assert_allclose(np.abs(values[n]), 1, atol=1e-3)
        # But for the defective pair at 1, multipliers come with their reciprocals.
        others = values[n][np.abs(values[n] - 1) > 2e-3]
        inverse = (1 / others)[:, None]
        assert (np.abs(inverse - others[None]).min(1) <= 1e-6 * np.abs(inverse[:, 0])).all()
    index = orbits.stability_index(matrices)
    assert index[[r.name for r in ROWS].index("em-l1-halo-n")] == pytest.approx(243.4057, abs=1e-4)
    assert index[[r.name for r in ROWS].index("st-l1-halo-n")] == pytest.approx(930.21, abs=1e-2)


def test_the_monodromy_matrix_of_halves_is_that_of_the_whole(corrected):
    whole = propagate(corrected.state, corrected.period, MASSES, stm=True, accuracy=orbits.FINE).stm
    halves = orbits.monodromy(corrected)
    scale = np.linalg.norm(whole, axis=(1, 2), keepdims=True)
    assert np.abs((halves - whole) / scale).max() < 1e-7


@pytest.fixture(scope="module")
def off_plane():
    """All published orbits, some way along them and off by 1e-5."""
    with jax.enable_x64(True):
        noise = 1e-5 * np.random.default_rng(1).normal(size=(len(ROWS), 7))
        along = propagate(STARTS, 0.37 * PERIODS, MASSES, accuracy=orbits.FINE).state
        return np.asarray(along) + noise[:, :6], PERIODS + noise[:, 6]


@pytest.mark.parametrize("fixed", [None, "period"])
def test_orbits_are_found_off_their_symmetry_plane(off_plane, fixed):
    state, period = off_plane
    assert np.abs(state[:, [1, 3]]).min(0).max() > 1e-3
    found = orbits.correct_general(state, period, MASSES, fixed=fixed)
    end = propagate(found.state, found.period, MASSES, accuracy=orbits.FINE).state
    assert np.linalg.norm(end - found.state, axis=1).max() < 1e-9
    np.testing.assert_allclose(found.period, PERIODS, rtol=0, atol=1e-4)
    # What is fixed may need another member of the family, further off by its rate of change.
    far = 1e-4 if fixed is None else 1e-2
    assert np.linalg.norm(found.state - state, axis=1).max() < far
    if fixed == "period":
        np.testing.assert_allclose(found.period, period, rtol=0, atol=1e-14)
    index = orbits.stability_index(orbits.monodromy(found))
    exact = PeriodicOrbit(jnp.asarray(STARTS), jnp.asarray(PERIODS), jnp.zeros(len(ROWS)), MASSES)
    np.testing.assert_allclose(index, orbits.stability_index(orbits.monodromy(exact)), rtol=5e-3)


def test_small_orbits_about_a_triangular_point_have_its_frequencies():
    """They have no mirror symmetry: the mirror makes those about L5 of them.

    Szebehely, Theory of Orbits, section 5.4: s^4 - s^2 + 27 mu (1 - mu) / 4 = 0, and the period
    changes with the square of the amplitude.
    """
    mu = get_system("earth-moon").mass_parameter
    point = np.append(libration_points(mu)[3], np.zeros(3))
    frequencies = np.sqrt(np.roots([1, -1, 27 / 4 * mu * (1 - mu)]))
    matrix = jax.jacfwd(lambda y: orbits.BALLISTIC(y, (mu,)))(jnp.asarray(point))
    values, vectors = np.linalg.eig(np.asarray(matrix))
    modes = [vectors[:, np.argmin(np.abs(values - 1j * s))].real for s in frequencies]
    amplitudes = np.array([1e-3, 1e-2])
    guess = np.stack([point + a * m / np.linalg.norm(m[:3]) for m in modes for a in amplitudes], 0)
    period = np.repeat(2 * np.pi / frequencies, 2)
    found = orbits.correct_general(guess, period, mu)
    change = (np.asarray(found.period) - period).reshape(2, 2)
    assert (np.abs(change[:, 1]) < 3e-4).all()
    np.testing.assert_allclose(change[:, 1] / change[:, 0], 100, rtol=0.03)
    end = propagate(found.state, found.period, mu, accuracy=orbits.FINE).state
    assert np.linalg.norm(end - found.state, axis=1).max() < 1e-11
    multipliers = orbits.multipliers(orbits.monodromy(found))
    np.testing.assert_allclose(np.abs(multipliers), 1, atol=1e-4)  # stable for small mu
    with pytest.raises(ConfigError, match="right angles"):
        orbits.continue_family(jax.tree.map(lambda x: x[0], found._replace(mu=guess[:, 0])), 1, 0.1)


def test_the_jacobi_constant_may_be_kept(off_plane):
    n = [row.name for row in ROWS].index("st-dro-small")
    state, period = (part[n : n + 1] for part in off_plane)
    found = orbits.correct_general(state, period, MASSES[n : n + 1], fixed="jacobi")
    kept = jacobi_constant(jnp.asarray(state), MASSES[n])
    np.testing.assert_allclose(found.jacobi, kept, rtol=0, atol=1e-12)
    end = propagate(found.state, found.period, MASSES[n], accuracy=orbits.FINE).state
    np.testing.assert_allclose(end, found.state, rtol=0, atol=1e-10)


L1 = np.array([libration_points(MASSES[-1])[0, 0], 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("correct", "state", "period", "message"),
    [
        (orbits.correct, L1, 2.0, "orbit 0 of 1 went to a libration point, which is no orbit"),
        (orbits.correct_general, L1, 2.0, "went to a libration point"),
        (orbits.correct, np.array([0.5, 0, 0.1, 0, 0.1, 0]), 0.05, "went to a period of"),
        (orbits.correct_general, STARTS[-1], 1e-3, "went to a period of"),
    ],
)
def test_what_closes_without_being_an_orbit_is_refused(correct, state, period, message):
    with pytest.raises(ConvergenceError, match=message):
        correct(state, period, MASSES[-1])


def single(name):
    row = published_orbit(name)
    return PeriodicOrbit(
        jnp.asarray(row.initial()),
        jnp.asarray(row.period),
        jnp.zeros(()),
        row.system.mass_parameter,
    )


def test_a_family_by_natural_continuation_meets_its_other_published_member():
    small, large = published_orbit("st-dro-small"), published_orbit("st-dro")
    change = large.state[0] - small.state[0]
    family = orbits.continue_family(single("st-dro-small"), 12, change / 12, fixed="x")
    assert family.state.shape == (13, 6)
    np.testing.assert_allclose(family.state[-1], large.initial(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(family.period[-1], large.period, rtol=0, atol=1e-9)
    assert (np.diff(family.jacobi) < 0).all()


def test_a_family_along_itself_closes_everywhere():
    """The halo family of L1, whose x turns back where its z still grows."""
    family = orbits.continue_family(single("st-l1-halo-n"), 20, 4e-3)
    assert (family.residual <= 1e-11).all()
    steps = np.diff(
        np.concatenate([family.state[:, [0, 2, 4]], family.period[:, None] / 2], 1), axis=0
    )
    lengths = np.linalg.norm(steps, axis=1)
    assert ((lengths > 3.9e-3) & (lengths < 4.8e-3)).all()
    cosine = (steps[1:] * steps[:-1]).sum(1) / (lengths[1:] * lengths[:-1])
    assert (cosine > 0.8).all()  # on and on, not to and fro
    arc = propagate(family.state, family.period, family.mu, accuracy=orbits.FINE)
    assert np.linalg.norm(arc.state - family.state, axis=1).max() < 1e-8


@pytest.mark.parametrize("stable", [False, True])
def test_a_manifold_leaves_its_orbit_by_the_multiplier(stable):
    orbit = single("em-l1-lyapunov")
    starts = manifold_starts(orbit, 5, stable=stable, offset=1e-7)
    assert starts.shape == (2, 5, 6)
    times = jnp.arange(5) * orbit.period / 5
    on_orbit = propagate(
        jnp.broadcast_to(orbit.state, (5, 6)), times, orbit.mu, accuracy=orbits.FINE
    ).state
    np.testing.assert_allclose(
        np.linalg.norm((starts - on_orbit)[..., :3], axis=-1), 1e-7, rtol=1e-6
    )
    np.testing.assert_allclose(starts[0] + starts[1], 2 * on_orbit, rtol=0, atol=1e-15)
    period = -orbit.period if stable else orbit.period
    later = propagate(starts, period, orbit.mu, accuracy=orbits.FINE).state
    growth = np.linalg.norm(later - on_orbit, axis=-1) / np.linalg.norm(starts - on_orbit, axis=-1)
    np.testing.assert_allclose(growth, 1878.0782, rtol=2e-2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: orbits.correct(STARTS, PERIODS, MASSES, fixed="w"), ConfigError, "x, z, vy"),
        (lambda: orbits.correct(STARTS[:, :5], PERIODS, MASSES), ConfigError, "float64"),
        (
            lambda: orbits.correct_general(STARTS, PERIODS, MASSES, fixed="x"),
            ConfigError,
            "None, period, jacobi",
        ),
        (
            lambda: orbits.correct(np.array([0.5, 0, 0.1, 0, 0.1, 0]), 3.0, 0.0121, iterations=4),
            ConvergenceError,
            "closer guess",
        ),
        (lambda: manifold_starts(single("st-dro"), 4, stable=True), ConfigError, "no real stable"),
        (lambda: manifold_starts(single("st-dro"), 0, stable=True), ConfigError, "points"),
        (
            lambda: orbits.continue_family(single("st-dro"), 1, 0.1, fixed="energy"),
            ConfigError,
            "energy",
        ),
        (
            lambda: orbits.continue_family(single("em-l2-halo-s"), 3, 8.0),
            ConvergenceError,
            "smaller steps",
        ),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
