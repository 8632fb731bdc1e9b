"""States inside arcs against arcs that end there, and against quadruple precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import CapacityError, ConfigError, PrecisionError
from jaxlab.envs.cr3bp.dense_output import states_at
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.dynamics import jacobi_constant
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate
from jaxlab.envs.cr3bp.systems import get_system
from tests.envs.cr3bp import oracles

MU = get_system("saturn-titan").mass_parameter
FINE = Accuracy(tolerance=1e-14)
#: An orbit about Saturn, and one that falls on it from rest.
STARTS = np.array([[-0.8, 0.0, 0.0, -0.3], [-0.5, 0.0, 0.0, 0.5]])
TIMES = np.array([5.0, 0.0, 0.3, 2.1, 2.1, 4.9999])


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def test_states_are_those_of_arcs_that_end_there():
    found = states_at(STARTS, TIMES, MU, accuracy=FINE)
    assert found.state.shape == (2, 6, 4)
    assert found.valid[0].all()
    arcs = propagate(jnp.broadcast_to(STARTS[0], (6, 4)), TIMES, MU, accuracy=FINE)
    np.testing.assert_allclose(found.state[0], arcs.state, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.state[0, 1], STARTS[0])
    # The one that falls is there up to its end alone.
    assert found.status.tolist() == [Status.DONE, Status.COLLISION]
    np.testing.assert_array_equal(found.valid[1], found.end[1] >= TIMES)
    assert found.valid[1].any()
    np.testing.assert_array_equal(np.isnan(found.state[1]).any(-1), ~found.valid[1])
    inside = found.state[1][found.valid[1]]
    first = jacobi_constant(jnp.asarray(STARTS[1]), MU)
    np.testing.assert_allclose(jacobi_constant(inside, MU), first, rtol=1e-9)


def test_backwards_and_times_of_each_arc():
    times = np.stack([-TIMES, TIMES])
    found = states_at(np.stack([STARTS[0]] * 2), times, MU, accuracy=FINE)
    assert found.valid.all()
    # Time and y turn round together.
    mirror = np.array([1, -1, -1, 1])
    np.testing.assert_allclose(found.state[0], found.state[1] * mirror, rtol=0, atol=1e-12)


def test_low_thrust_of_quadruple_precision():
    times = np.array(sorted(oracles.LOW_THRUST_ENDS))
    found = states_at(
        oracles.LOW_THRUST_START,
        np.append(times, 7.3),
        oracles.LOW_THRUST_MU,
        oracles.THRUSTER,
        accuracy=FINE,
    )
    assert found.state.shape == (len(times) + 1, 14)
    for n, time in enumerate(times):
        np.testing.assert_allclose(
            found.state[n], oracles.LOW_THRUST_ENDS[time], rtol=0, atol=1e-11
        )


def test_too_few_knots_are_named():
    with pytest.raises(CapacityError, match="more than knots = 4: raise it"):
        states_at(STARTS, TIMES, MU, accuracy=FINE, knots=4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: states_at(np.zeros(5), TIMES, MU), "float64"),
        (lambda: states_at(STARTS, TIMES, 0.7), "mass parameter"),
        (lambda: states_at(STARTS, [1.0, -1.0], MU), "before and after its start"),
        (lambda: states_at(STARTS, [np.nan], MU), "finite"),
        (lambda: states_at(STARTS, np.zeros((3, 2)), MU), "times are"),
        (lambda: states_at(STARTS, 1.0, MU), "times are"),
        (lambda: states_at(STARTS, [], MU), "no times"),
        (lambda: states_at(STARTS, TIMES, MU, knots=1), "knots 1"),
        (lambda: states_at(STARTS, TIMES, MU, oracles.THRUSTER), "float64"),
        (lambda: states_at(STARTS, TIMES, MU, accuracy=Accuracy(engine="Dopri8")), "dop853 alone"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_32_bits_are_refused():
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64"):
        states_at(STARTS, TIMES, MU)
