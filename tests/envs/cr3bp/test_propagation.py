"""Arcs against quadruple precision, closed catalogue orbits and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError, PrecisionError
from jaxlab.envs.cr3bp import dynamics, low_thrust
from jaxlab.envs.cr3bp.catalogue import ORBITS, published_orbit
from jaxlab.envs.cr3bp.dop853 import Method, Status
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate, propagate_low_thrust
from tests.envs.cr3bp import oracles

FINE = Accuracy(tolerance=1e-14)
ALL = Accuracy(tolerance=1e-14, control="all")


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def test_ends_and_transition_matrices_of_quadruple_precision():
    rows = [published_orbit(o.orbit) for o in oracles.BALLISTIC]
    start = np.stack([row.initial() for row in rows])
    mu = np.array([row.system.mass_parameter for row in rows])
    time = np.array([float(o.time) for o in oracles.BALLISTIC])
    arc = jax.jit(lambda s, t, m: propagate(s, t, m, stm=True, accuracy=ALL))(start, time, mu)
    assert (arc.status == Status.DONE).all()
    for n, oracle in enumerate(oracles.BALLISTIC):
        np.testing.assert_allclose(arc.state[n], oracle.end, rtol=0, atol=oracle.tolerance)
        stm = np.asarray(arc.stm[n])
        np.testing.assert_allclose(np.trace(stm), oracle.trace, rtol=1e-10)
        np.testing.assert_allclose(stm[0, 0], oracle.corner, rtol=1e-10)
        np.testing.assert_allclose(np.linalg.norm(stm), oracle.frobenius, rtol=1e-10)
    assert np.abs(np.linalg.det(arc.stm) - 1).max() < 2e-10
    assert dynamics.symplectic_defect(arc.stm).max() < 5e-15


def test_catalogue_orbits_close_and_keep_their_jacobi_constant():
    rows = list(ORBITS.values())
    start = np.stack([row.initial() for row in rows])
    mu = np.array([row.system.mass_parameter for row in rows])
    period = np.array([row.period for row in rows])
    arc = jax.jit(lambda s, t, m: propagate(s, t, m, accuracy=FINE))(start, period, mu)
    gap = np.linalg.norm(arc.state - start, axis=-1)
    assert (gap < 10 * np.array([row.closure for row in rows])).all(), gap
    jacobi = jax.vmap(dynamics.jacobi_constant)(start, mu)
    np.testing.assert_allclose(jacobi, [row.jacobi for row in rows], rtol=0, atol=2e-14)
    np.testing.assert_allclose(
        jax.vmap(dynamics.jacobi_constant)(arc.state, mu), jacobi, rtol=0, atol=1e-12
    )


def test_low_thrust_of_quadruple_precision():
    run = jax.jit(
        lambda t: propagate_low_thrust(
            jnp.asarray(oracles.LOW_THRUST_START),
            t,
            oracles.LOW_THRUST_MU,
            oracles.THRUSTER,
            stm=True,
            accuracy=ALL,
        )
    )
    for time, end in oracles.LOW_THRUST_ENDS.items():
        arc = run(time)
        np.testing.assert_allclose(arc.state, end, rtol=0, atol=1e-11)
        energy = low_thrust.hamiltonian(arc.state, oracles.LOW_THRUST_MU, oracles.THRUSTER)
        np.testing.assert_allclose(energy, oracles.LOW_THRUST_HAMILTONIAN, rtol=0, atol=1e-11)
    stm = np.asarray(arc.stm)  # of t = 10
    np.testing.assert_allclose(stm[0, 7:], oracles.LOW_THRUST_X_BY_COSTATES, rtol=1e-9)
    np.testing.assert_allclose(stm[6, 7:], oracles.LOW_THRUST_M_BY_COSTATES, rtol=1e-8)


DRO = published_orbit("st-dro")
MU = DRO.system.mass_parameter


def starts(count, spread=1e-3, seed=0):
    noise = np.random.default_rng(seed).normal(size=(count, 6))
    return jnp.asarray(DRO.initial() + spread * noise)


def test_lanes_and_batches_do_not_change_an_arc():
    """More arcs than lanes, of different spans, so that lanes are refilled."""
    start, span = starts(23), jnp.linspace(0.1, 4, 23)
    together = propagate(start, span, MU, accuracy=Accuracy(method=Method(lanes=5)))
    alone = propagate(start, span, MU, accuracy=Accuracy(method=Method(lanes=64)))
    np.testing.assert_array_equal(together.steps, alone.steps)
    np.testing.assert_allclose(together.state, alone.state, rtol=0, atol=1e-13)
    assert (together.time == span).all()
    assert len(set(np.asarray(together.steps).tolist())) > 3


def test_under_vmap_the_whole_batch_is_one():
    start, span = starts(6).reshape(2, 3, 6), jnp.array([0.5, 1.5, 2.5])
    masses = jnp.array([MU, 0.0121])

    def one(state, time, mu):
        return propagate(state, time, mu, stm=True)

    mapped = jax.vmap(jax.vmap(one, (0, 0, None)), (0, None, 0))(start, span, masses)
    flat = propagate(start, span, jnp.broadcast_to(masses[:, None], (2, 3)), stm=True)
    np.testing.assert_array_equal(mapped.steps, flat.steps)
    np.testing.assert_allclose(mapped.stm, flat.stm, rtol=1e-11, atol=1e-11)
    text = str(jax.make_jaxpr(jax.vmap(lambda s: propagate(s, 1.0, MU).state))(starts(4)))
    assert text.count("while[") == 1  # not a loop for each


def test_backwards_there_and_back():
    start = starts(3)
    out = propagate(start, 2.0, MU, accuracy=FINE)
    back = propagate(out.state, -2.0, MU, accuracy=FINE)
    np.testing.assert_allclose(back.state, start, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(back.time, -2.0)


def test_derivatives_forward_backward_and_by_differences():
    start = starts(1)[0]

    def end(state, time):
        return propagate(state, time, MU, accuracy=FINE).state

    stm = propagate(start, 1.5, MU, stm=True, accuracy=FINE).stm
    forward, by_time = jax.jacfwd(end, (0, 1))(start, jnp.asarray(1.5))
    backward = jax.jacrev(end)(start, 1.5)
    np.testing.assert_allclose(forward, stm, rtol=1e-12)
    np.testing.assert_allclose(backward, stm, rtol=1e-12)
    h = 1e-5
    rise = [(end(start + h * e, 1.5) - end(start - h * e, 1.5)) / (2 * h) for e in np.eye(6)]
    np.testing.assert_allclose(np.stack(rise, 1), stm, rtol=0, atol=2e-7)
    slope = (end(start, 1.5 + h) - end(start, 1.5 - h)) / (2 * h)
    np.testing.assert_allclose(by_time, slope, rtol=0, atol=1e-9)


def test_a_derivative_that_is_not_there_is_an_error():
    with pytest.raises(ConfigError, match="mass parameter"):
        jax.grad(lambda mu: propagate(starts(1), 1.0, mu).state.sum())(MU)


def test_a_collision_ends_its_own_arc_alone():
    """One falls into the larger primary along the axis, and one is far out."""
    start = jnp.array([[0.5, 0, 0, 0, -0.5, 0], [1.1, 0, 0, 0, -0.2, 0.0]])
    radii = Accuracy(collision_radius=(0.05, 1e-7))
    arc = propagate(start, 3.0, MU, accuracy=radii)
    assert arc.status.tolist() == [Status.COLLISION, Status.DONE]
    assert 0 < arc.time[0] < 3
    assert arc.time[1] == 3
    r1, _ = dynamics.primary_distances(arc.state[0, :3], MU)
    assert 0.01 < r1 < 0.05
    np.testing.assert_allclose(arc.state[1], propagate(start[1], 3.0, MU).state, atol=1e-12)


def test_a_start_inside_a_primary_and_one_without_numbers_are_flagged():
    start = jnp.array([[-MU, 0, 0, 0, 0, 0], [1.1, 0, 0, 0, jnp.nan, 0], [1.1, 0, 0, 0, -0.2, 0]])
    arc = propagate(start, 1.0, MU)
    assert Status.DONE not in arc.status[:2].tolist()
    assert arc.status[2] == Status.DONE
    assert jnp.isfinite(arc.state[2]).all()


def test_the_limit_of_steps_is_told_from_an_end():
    limited = Accuracy(method=Method(max_steps=12))
    arc = propagate(starts(2), jnp.array([0.01, 5.0]), MU, accuracy=limited)
    assert arc.status.tolist() == [Status.DONE, Status.STEP_LIMIT]
    assert arc.steps[1] == 12
    assert 0 < arc.time[1] < 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: propagate(jnp.zeros(5), 1.0, MU), r"float64 \[..., 6 or 4\]"),
        (lambda: propagate(jnp.zeros(6, jnp.float32), 1.0, MU), "float64"),
        (lambda: propagate(starts(2), jnp.zeros(3), MU), "time"),
        (lambda: propagate(starts(2), 1.0, 0.7), r"\(0, 0.5\]"),
        (lambda: propagate(starts(2), 1.0, MU, accuracy=Accuracy(1e-17)), "below"),
        (lambda: propagate(starts(2), 1.0, MU, accuracy=Accuracy(control="none")), "control"),
        (lambda: propagate(starts(2), 1.0, MU, accuracy=Accuracy(engine="Euler")), "Dopri8"),
        (
            lambda: Accuracy(collision_radius=[1e-7, 1e-7]).check(),
            "collision_radius of an Accuracy",
        ),
        (lambda: Accuracy(jnp.array(1e-9)).check(), "tolerance of an Accuracy is a"),
        (lambda: Accuracy("fine").check(), "'fine': expected a number"),
        (lambda: Accuracy(collision_radius=(1e-7,)).check(), "expected two numbers"),
        (lambda: Accuracy(collision_radius=(1e-7, -1.0)).check(), "none of them negative"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"acceleration": 0.0}, "acceleration is 0.0, expected finite and positive"),
        ({"exhaust_speed": float("inf")}, "exhaust_speed is inf"),
        ({"smoothing": np.array([1e-2, -1e-2])}, "smoothing is"),
        ({"smoothing": None}, "smoothing is None"),
        ({"acceleration": "full"}, "acceleration is 'full', expected a number"),
    ],
)
def test_thrusters_that_are_none_are_refused(change, message):
    thruster = oracles.THRUSTER._replace(**change)
    start = np.broadcast_to(oracles.LOW_THRUST_START, (2, 14))
    with pytest.raises(ConfigError, match=message):
        propagate_low_thrust(start, 1.0, MU, thruster)
    with pytest.raises(ConfigError, match="a Thruster of three numbers"):
        low_thrust.require_thruster(thruster[:2])


def test_traced_thrusters_pass():
    check = lambda a: low_thrust.require_thruster(oracles.THRUSTER._replace(acceleration=a))  # noqa: E731
    jax.eval_shape(check, jnp.zeros(()))
    with pytest.raises(ConfigError, match="acceleration"):
        check(jnp.zeros(()))


def test_32_bits_are_refused():
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64-bit"):
        propagate(jnp.zeros(6), 1.0, MU)


@pytest.fixture(scope="module")
def by_diffrax():
    return Accuracy(tolerance=1e-11, control="all", engine="Dopri8", collision_radius=(0.01, 1e-3))


def test_diffrax_gives_the_same_arcs(by_diffrax):
    start, time = starts(3), jnp.array([2.0, -1.5, 0.5])
    # At rest in the inertial frame, so that it falls straight at the larger primary.
    start = start.at[2].set(jnp.array([-0.6, 0, 0, 0, 0.6, 0]))
    time = time.at[2].set(3.0)
    other = propagate(start, time, MU, stm=True, accuracy=by_diffrax)
    own = propagate(start, time, MU, stm=True, accuracy=by_diffrax._replace(engine="dop853"))
    np.testing.assert_array_equal(other.status, own.status)
    assert list(map(Status, np.asarray(own.status))) == [
        Status.DONE,
        Status.DONE,
        Status.COLLISION,
    ]
    np.testing.assert_allclose(other.state[:2], own.state[:2], rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.stm[:2], own.stm[:2], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(other.time[:2], time[:2])


def test_derivatives_by_the_mass_parameter_go_through_diffrax(by_diffrax):
    start = starts(1)[0]
    end = lambda mu: propagate(start, 1.0, mu, accuracy=FINE).state  # noqa: E731
    slope = jax.jit(jax.jacrev(lambda mu: propagate(start, 1.0, mu, accuracy=by_diffrax).state))(MU)
    step = 1e-4 * MU
    np.testing.assert_allclose(slope, (end(MU + step) - end(MU - step)) / (2 * step), rtol=1e-5)


def test_arcs_that_cannot_begin_end_at_once():
    """At a primary, without a number, at an equilibrium at rest: none keeps a lane busy."""
    start = starts(5)
    start = start.at[1, 0].set(jnp.nan).at[2].set(0).at[2, 0].set(1 - MU).at[3, 0].set(1e200)
    start = start.at[4].set(0)
    arc = propagate(start, jnp.array([1.0, 1.0, 1.0, 1.0, 0.0]), MU)
    expected = [Status.DONE, Status.STEP_TOO_SMALL, Status.COLLISION, Status.STEP_TOO_SMALL]
    assert list(map(Status, np.asarray(arc.status)))[:4] == expected
    assert (np.asarray(arc.steps) < 100).all()
    middle = propagate(jnp.zeros(6), 1.0, 0.5)
    assert Status(int(middle.status)) == Status.DONE
    np.testing.assert_array_equal(middle.state, 0)


def test_an_arc_that_ended_early_does_not_move_with_its_span():
    falling = jnp.array([-0.6, 0, 0, 0, 0.6, 0])
    accuracy = Accuracy(collision_radius=(0.01, 1e-3))
    end = jax.jit(jax.grad(lambda t: propagate(falling, t, MU, accuracy=accuracy).state[0]))
    assert end(3.0) == 0
    assert abs(end(0.1)) > 1e-3
    assert jax.grad(lambda t: propagate(falling, t, MU, accuracy=accuracy).time)(0.1) == 1


@pytest.mark.parametrize(
    "method", [Method(refill_every=0), Method(lanes=0), Method(fixed_steps=0), Method(knots=-1)]
)
def test_methods_that_are_none_are_refused(method):
    with pytest.raises(ConfigError, match="whole number"):
        propagate(starts(1), 1.0, MU, accuracy=Accuracy(method=method))


def test_fixed_steps_converge_to_the_adaptive_arc():
    start, span = starts(5), jnp.linspace(1, 3, 5)
    fine = propagate(start, span, MU, accuracy=FINE).state
    errors = []
    for steps in (20, 40):
        arc = propagate(start, span, MU, accuracy=Accuracy(method=Method(fixed_steps=steps)))
        assert (np.asarray(arc.steps) == steps).all()
        errors.append(np.abs(arc.state - fine).max())
    assert errors[1] < errors[0] / 100  # order 8
    assert errors[1] < 1e-9
