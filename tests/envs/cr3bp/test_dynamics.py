"""Equations of motion and their variations against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.envs.cr3bp import dynamics, frames, low_thrust
from jaxlab.envs.cr3bp.flows import vector_field
from jaxlab.envs.cr3bp.low_thrust import Thruster
from jaxlab.envs.cr3bp.systems import get_system

MU = 0.0121
THRUSTER = Thruster(0.4, 1.7, 0.05)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def omega(position):
    x, y, z = position
    r1, r2 = jnp.sqrt((x + MU) ** 2 + y**2 + z**2), jnp.sqrt((x - 1 + MU) ** 2 + y**2 + z**2)
    return (x**2 + y**2) / 2 + (1 - MU) / r1 + MU / r2


def hamiltonian(y):
    """Written for position, velocity, mass, and their costates, apart from the library's."""
    r, v, m, lr, lv, lm = y[:3], y[3:6], y[6], y[7:10], y[10:13], y[13]
    pull = jax.grad(omega)(r) + 2 * jnp.array([v[1], -v[0], 0])
    switching = jnp.linalg.norm(lv) / m + lm / THRUSTER.exhaust_speed
    burning = THRUSTER.smoothing * jnp.log1p(jnp.exp(switching / THRUSTER.smoothing))
    return lr @ v + lv @ pull - THRUSTER.acceleration * burning


ARGS = (MU, *THRUSTER)


def flow(y):
    return vector_field(14)(y, ARGS)


def ballistic(y):
    return vector_field(6)(y, (MU,))


def behind(state, tangents):
    return jnp.concatenate([state, jnp.ravel(tangents)])


@pytest.fixture
def point():
    y = np.random.default_rng(3).normal(size=14)
    y[6], y[13] = 0.9, -0.8
    return jnp.asarray(y)


def test_ballistic_rates_follow_from_the_potential():
    y = jnp.asarray(np.random.default_rng(1).normal(size=6))
    pull = jax.grad(omega)(y[:3])
    expected = [*y[3:], pull[0] + 2 * y[4], pull[1] - 2 * y[3], pull[2]]
    np.testing.assert_allclose(ballistic(y), expected, rtol=1e-13)


def test_the_flow_is_that_of_the_hamiltonian(point):
    slope = jax.grad(hamiltonian)(point)
    np.testing.assert_allclose(flow(point)[:7], slope[7:], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(flow(point)[7:], -slope[:7], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        low_thrust.hamiltonian(point, MU, THRUSTER), hamiltonian(point), rtol=1e-13
    )


@pytest.mark.parametrize("columns", [1, 6, 9])
def test_variations_of_ballistic_arcs_are_the_derivative(columns):
    rng = np.random.default_rng(columns)
    y, tangents = jnp.asarray(rng.normal(size=6)), jnp.asarray(rng.normal(size=(6, columns)))
    out = vector_field(6, tangents=True)(behind(y, tangents), (MU,))
    expected = jax.vmap(lambda d: jax.jvp(ballistic, (y,), (d,))[1], 1, 1)(tangents)
    np.testing.assert_allclose(out[:6], ballistic(y), rtol=1e-13)
    np.testing.assert_allclose(np.reshape(out[6:], (6, columns)), expected, rtol=1e-11, atol=1e-12)


def test_variations_under_thrust_are_the_derivative(point):
    tangents = jnp.asarray(np.random.default_rng(5).normal(size=(14, 5)))
    out = vector_field(14, tangents=True)(behind(point, tangents), ARGS)
    expected = jax.vmap(lambda d: jax.jvp(flow, (point,), (d,))[1], 1, 1)(tangents)
    np.testing.assert_allclose(out[:14], flow(point), rtol=1e-13)
    np.testing.assert_allclose(np.reshape(out[14:], (14, 5)), expected, rtol=1e-10, atol=1e-11)


def test_the_plane_is_a_part_of_space(point):
    """Without third components, rates and variations are those of space at z = 0."""
    inside = np.array([0, 1, 3, 4, 6, 7, 8, 10, 11, 13])
    flat = jnp.zeros(14).at[inside].set(point[inside])
    tangents = np.random.default_rng(6).normal(size=(10, 2))
    lifted = np.zeros((14, 2))
    lifted[inside] = tangents
    plane = vector_field(10, tangents=True)(behind(flat[inside], tangents), ARGS)
    space = vector_field(14, tangents=True)(behind(flat, lifted), ARGS)
    np.testing.assert_allclose(plane[:10], np.array(space[:14])[inside], rtol=1e-14)
    np.testing.assert_allclose(
        np.reshape(plane[10:], (10, 2)), np.reshape(space[14:], (14, 2))[inside], rtol=1e-13
    )
    within = np.array([0, 1, 3, 4])
    np.testing.assert_allclose(
        vector_field(4)(flat[within], (MU,)), np.array(ballistic(flat[:6]))[within], rtol=1e-14
    )


def test_both_primaries_are_summed_with_derivatives_forward_and_backward():
    terms = [jnp.arange(6.0).reshape(2, 3), jnp.ones((2, 1))]
    sums = dynamics.summed(terms)
    np.testing.assert_array_equal(sums[0], [3, 5, 7])
    np.testing.assert_array_equal(sums[1], [2, 2, 2])
    slope = jax.grad(lambda x: (dynamics.summed([x**2, x])[0] ** 2).sum())(terms[0])
    np.testing.assert_allclose(slope, 4 * terms[0] * (terms[0] ** 2).sum(0), rtol=1e-15)


def test_symplectic_defect_of_what_is_and_what_is_not():
    stm = np.eye(6)
    assert dynamics.symplectic_defect(stm) == 0
    assert dynamics.symplectic_defect(1.1 * stm) > 1e-3


@pytest.mark.parametrize("centre", frames.CENTRES)
def test_frames_there_and_back(centre):
    rng = np.random.default_rng(0)
    state, time = jnp.asarray(rng.normal(size=(4, 6))), jnp.asarray(rng.normal(size=4))
    inertial = frames.to_inertial(state, time, MU, centre)
    back = frames.to_rotating(inertial, time, MU, centre)
    np.testing.assert_allclose(back, state, rtol=0, atol=1e-14)


def test_a_far_body_feels_both_masses_in_the_inertial_frame():
    """Independent of the rotating equations: Newton's law about moving primaries."""
    system = get_system("earth-moon")
    mu = system.mass_parameter
    state, time = jnp.array([0.4, -0.9, 0.3, 0.2, 0.5, -0.1]), jnp.asarray(0.7)

    def seen(t):
        # The state a moment later to second order, which its second derivative needs.
        rates = vector_field(6)(state, (mu,))
        step = t - time
        position = state[:3] + step * rates[:3] + step**2 / 2 * rates[3:]
        moved = jnp.concatenate([position, state[3:] + step * rates[3:]])
        return frames.to_inertial(moved, t, mu)[:3]

    velocity = jax.jacfwd(seen)(time)
    acceleration = jax.jacfwd(jax.jacfwd(seen))(time)
    inertial = frames.to_inertial(state, time, mu)
    np.testing.assert_allclose(velocity, inertial[3:], rtol=1e-13)
    axis = jnp.array([jnp.cos(time), jnp.sin(time), 0])
    expected = 0.0
    for mass, place in ((1 - mu, -mu), (mu, 1 - mu)):
        away = inertial[:3] - place * axis
        expected = expected - mass * away / jnp.linalg.norm(away) ** 3
    np.testing.assert_allclose(acceleration, expected, rtol=1e-12)


def test_units():
    system = get_system("saturn-titan")
    state = jnp.arange(1.0, 7.0)
    km = frames.to_km(state, system)
    np.testing.assert_allclose(km[0], 1195677.151917583)
    np.testing.assert_allclose(km[3:] / state[3:], 5.63365474471, rtol=1e-11)
    np.testing.assert_allclose(frames.from_km(km, system), state)
