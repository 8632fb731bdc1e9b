"""Bang-bang thrust against scipy with events, and as the limit of smoothed thrust."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxlab.core.errors import ConfigError, PrecisionError
from jaxlab.envs.cr3bp.bang_bang import (
    KNOTS,
    hamiltonian,
    propagate_bang_bang,
    saltation,
    switching,
)
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.low_thrust import Thruster
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate_low_thrust
from tests.envs.cr3bp.oracles import LOW_THRUST_MU as MU
from tests.envs.cr3bp.oracles import LOW_THRUST_START

FINE = Accuracy(tolerance=1e-14)
THRUSTER = Thruster(9.0416e-3, 12.8204, 1.0)
SPAN = 12.0
IN_PLANE = np.array([0, 1, 3, 4, 6, 7, 8, 10, 11, 13])


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def rates(y, burning, thruster=THRUSTER):
    """Of 14 components, apart from the library's."""
    r, v, m, lr, lv = y[:3], y[3:6], y[6], y[7:10], y[10:13]
    push = burning * thruster.acceleration
    omega_rr = np.diag([1.0, 1.0, 0.0])
    pull = np.array([r[0] + 2 * v[1], r[1] - 2 * v[0], 0])
    for mass, place in ((1 - MU, -MU), (MU, 1 - MU)):
        d = r - [place, 0, 0]
        distance = np.linalg.norm(d)
        pull = pull - mass * d / distance**3
        omega_rr += mass * (3 * np.outer(d, d) / distance**5 - np.eye(3) / distance**3)
    length = np.linalg.norm(lv)
    turned = np.array([2 * lv[1], -2 * lv[0], 0])
    return np.concatenate(
        [
            *(v, pull - push / m * lv / length, [-push / thruster.exhaust_speed]),
            *(-omega_rr @ lv, turned - lr, [-push * length / m**2]),
        ]
    )


def by_scipy(y, span):
    """The end and the switching times; every leg stops at its event."""

    def event(t, y):
        return np.linalg.norm(y[10:13]) / y[6] + y[13] / THRUSTER.exhaust_speed

    event.terminal = True
    burning, time, times = event(0, y) > 0, 0.0, []
    while True:
        event.direction = -1 if burning else 1
        found = solve_ivp(
            lambda t, y, on=burning: rates(y, on),
            (time, span),
            y,
            "DOP853",
            events=event,
            rtol=1e-13,
            atol=1e-13,
            max_step=0.1,
        )
        time, y = found.t[-1], found.y[:, -1]
        if found.status == 0:
            return y, np.array(times)
        times.append(time)
        burning = not burning


def starts():
    """Arcs with several switches: the oracle's start with other costates."""
    y = np.tile(LOW_THRUST_START, (6, 1))
    y[:, 7:13] = [
        [-0.014, 0.008, -0.059, 0.039, 0.007, 0.04],
        [0.001, 0.031, -0.053, 0.055, -0.014, 0.007],
        [-0.001, -0.005, 0.011, -0.022, -0.026, -0.008],
        [0.067, 0.0, -0.018, -0.035, 0.053, 0.04],
        [0.027, 0.017, 0.058, 0.033, -0.049, 0.031],
        [0.2, 0.1, 0.0, 0.3, 0.4, 0.0],  # without a switch
    ]
    return y


@pytest.fixture(scope="module")
def propagated():
    """One program for all: six arcs in space with their matrices."""

    def arcs(y, span=SPAN, **options):
        options = {"stm": True, "switches": 6, "accuracy": FINE} | options
        return propagate_bang_bang(y, span, MU, THRUSTER, **options)

    with jax.enable_x64(True):
        yield arcs


@pytest.fixture(scope="module")
def arcs(propagated):
    with jax.enable_x64(True):
        return propagated(starts())


def test_ends_and_switches_are_those_of_scipy(arcs):
    assert np.asarray(arcs.switches).tolist() == [3, 5, 5, 3, 5, 0]
    assert (np.asarray(arcs.status) == Status.DONE).all()
    for n, y in enumerate(starts()):
        end, times = by_scipy(y, SPAN)
        np.testing.assert_allclose(arcs.switch_time[n, : len(times)], times, rtol=0, atol=1e-11)
        assert np.isnan(arcs.switch_time[n, len(times) :]).all()
        np.testing.assert_allclose(arcs.state[n], end, rtol=1e-11, atol=1e-11)
        at = arcs.switch_state[n, : len(times)]
        np.testing.assert_allclose(switching(at, THRUSTER)[0], 0, atol=1e-15)


def test_the_matrix_is_that_of_central_differences(arcs, propagated):
    assert int(arcs.switches[1]) == 5
    step = 1e-6
    moves = step * np.eye(14)
    ends = []
    for sign in (1, -1):
        moved = np.concatenate([starts()[1] + sign * moves, np.tile(starts()[5], (4, 1))])
        # Six at a time, as there is a program for them.
        ends.append(np.concatenate([propagated(y).state for y in moved.reshape(3, 6, 14)])[:14])
    differences = (ends[0] - ends[1]).T / (2 * step)
    error = np.abs(differences - arcs.stm[1]).max() / np.abs(arcs.stm[1]).max()
    assert error < 1e-8
    # Without the jumps it is another matrix: five of them, none small.
    rows = np.asarray(arcs.switch_state[1, :5])
    jumps = np.asarray(saltation(rows, THRUSTER, np.array([True, False] * 2 + [True])))
    assert (np.abs(jumps - np.eye(14)).max((1, 2)) > 0.05).all()


def test_the_hamiltonian_is_constant_and_the_matrix_symplectic(arcs):
    before = hamiltonian(starts(), MU, THRUSTER)
    np.testing.assert_allclose(hamiltonian(arcs.state, MU, THRUSTER), before, rtol=0, atol=1e-13)
    form = np.block([[np.zeros((7, 7)), np.eye(7)], [-np.eye(7), np.zeros((7, 7))]])
    stm = np.asarray(arcs.stm)
    defect = np.abs(stm.swapaxes(1, 2) @ form @ stm - form).max((1, 2))
    assert (defect / np.linalg.norm(stm, axis=(1, 2)) ** 2 < 1e-12).all()


def test_back_again(arcs, propagated):
    back = propagated(arcs.state, -SPAN)
    np.testing.assert_allclose(back.state, starts(), rtol=0, atol=1e-10)
    assert back.switches.tolist() == arcs.switches.tolist()
    product = np.asarray(back.stm) @ np.asarray(arcs.stm)
    scale = np.linalg.norm(arcs.stm, axis=(1, 2)) * np.linalg.norm(back.stm, axis=(1, 2))
    assert (np.abs(product - np.eye(14)).max((1, 2)) / scale < 1e-11).all()


def test_smoothed_thrust_tends_to_it(arcs):
    """With a second power of rho, since a switch is odd about its middle."""
    errors = []
    for rho in (1e-2, 1e-3, 1e-4):
        smooth = propagate_low_thrust(
            starts(), SPAN, MU, THRUSTER._replace(smoothing=rho), accuracy=FINE
        )
        errors.append(np.abs(smooth.state - arcs.state).max(1)[:5])
    assert (errors[1] < errors[0] / 10).all()
    assert (errors[2] < errors[1] / 50).all()
    assert (errors[2] < 1e-4).all()


def test_an_arc_without_room_for_its_switches_says_so(arcs, propagated):
    few = propagated(starts(), switches=3, stm=False)
    assert few.exceeded.tolist() == [False, True, True, False, True, False]
    assert few.switches.tolist() == [3, 3, 3, 3, 3, 0]
    np.testing.assert_allclose(few.switch_time, arcs.switch_time[:, :3], rtol=0, atol=1e-13)
    # It ends at the switch that was too much.
    np.testing.assert_allclose(few.time[1], arcs.switch_time[1, 3], rtol=0, atol=1e-12)
    np.testing.assert_allclose(few.state[1], arcs.switch_state[1, 3], rtol=0, atol=1e-12)


def test_long_legs_are_taken_up_again(propagated):
    """More steps than are kept at once."""
    long = propagated(starts()[[5] * 6], 60.0)
    found = solve_ivp(
        lambda t, y: rates(y, 1.0), (0, 60.0), starts()[5], "DOP853", rtol=1e-13, atol=1e-13
    )
    assert int(long.steps[0]) > 2 * KNOTS
    assert int(long.switches[0]) == 0
    np.testing.assert_allclose(long.state[0], found.y[:, -1], rtol=1e-8, atol=1e-8)


def test_the_plane_is_a_part_of_space(propagated):
    y = starts()
    y[:, [9, 12]] = 0
    space = propagated(y)
    plane = propagate_bang_bang(
        y[:, IN_PLANE], SPAN, MU, THRUSTER, switches=6, stm=True, accuracy=FINE
    )
    assert (np.asarray(plane.switches)[:5] > 0).all()
    np.testing.assert_allclose(plane.state, space.state[:, IN_PLANE], rtol=0, atol=1e-12)
    block = space.stm[:, IN_PLANE][:, :, IN_PLANE]
    np.testing.assert_allclose(plane.stm, block, rtol=0, atol=1e-9 * np.abs(block).max())
    np.testing.assert_allclose(plane.switch_time, space.switch_time, rtol=0, atol=1e-12)


def test_an_arc_that_collides_ends_alone(propagated):
    y = starts()
    y[2, :7] = [-0.5, 0, 0, 0, 0.5, 0, 1]  # at rest in space: it falls on the larger primary
    found = propagated(y)
    assert found.status.tolist() == [0, 0, Status.COLLISION, 0, 0, 0]
    assert float(found.time[2]) < 1
    assert np.isfinite(found.state).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: propagate_bang_bang(jnp.zeros(12), 1.0, MU, THRUSTER), "float64"),
        (lambda: propagate_bang_bang(jnp.zeros((0, 14)), 1.0, MU, THRUSTER), "no states"),
        (lambda: propagate_bang_bang(starts(), 1.0, 0.7, THRUSTER), "mass parameter"),
        (lambda: propagate_bang_bang(starts(), np.ones(3), MU, THRUSTER), "time"),
        (lambda: propagate_bang_bang(starts(), 1.0, MU, THRUSTER, switches=0), "switches"),
        (
            lambda: propagate_bang_bang(
                starts(), 1.0, MU, THRUSTER, accuracy=Accuracy(engine="Dopri8")
            ),
            "dop853 alone",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_32_bits_are_refused():
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64"):
        propagate_bang_bang(starts(), 1.0, MU, THRUSTER)
