"""Transfers found from costates near a transfer that is known to exist."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.objective import ACCURACY, Objective, departure
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate, propagate_low_thrust
from jaxlab.envs.cr3bp.solving import solve_transfers
from jaxlab.envs.cr3bp.systems import get_system
from jaxlab.envs.cr3bp.transfers import make_transfer, thruster_in_units

SYSTEM = get_system("saturn-titan")
MU = SYSTEM.mass_parameter
FINE = Accuracy(tolerance=1e-13)
OBJECTIVE = Objective(mass_costate=None, accuracy=ACCURACY._replace(tolerance=1e-12))


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def known_transfer():
    """Backwards from the target orbit: a start and the costates that lead from it."""
    row = published_orbit("st-dro")
    orbit = row.initial()[[0, 1, 3, 4]]
    thruster = thruster_in_units(
        SYSTEM, thrust=6.0, mass=25_000.0, specific_impulse=7365.0, smoothing=3e-2
    )
    end = np.concatenate([orbit, [0.99], [0.05, 0.02, 0.05, -0.06, -0.9]])
    start = propagate_low_thrust(end, -8.0, MU, thruster, accuracy=FINE).state
    task = make_transfer(MU, start[:5], thruster, orbit, row.period, duration=(4.0, 12.0))
    return task, start[5:]


def test_a_known_transfer_is_found_again():
    task, costates = known_transfer()
    noise = np.random.default_rng(0).normal(size=(16, 5))
    found = solve_transfers(costates * (1 + 0.01 * noise), task, OBJECTIVE, rounds=40)
    assert np.mean(found.solved) > 0.8
    # Once more, by finer integration of both.
    for n in np.flatnonzero(found.solved)[:4]:
        y = departure(OBJECTIVE, found.costates[n][None], task)[0]
        end = propagate_low_thrust(y, found.time[n], MU, task.thruster, accuracy=FINE).state
        there = propagate(task.target[0], found.phase_time[n], MU, accuracy=FINE).state
        assert np.linalg.norm(end[:2] - there[:2]) < 1e-4
        assert np.linalg.norm(end[2:4] - there[2:4]) < 1e-5
        np.testing.assert_allclose(
            found.propellant[n], (task.start[4] - end[4]) / task.start[4], atol=1e-9
        )


def test_one_row_without_a_number_leaves_the_others_alone():
    task, costates = known_transfer()
    rows = jnp.stack([costates * 1.01] * 16).at[3].set(jnp.nan)
    found = solve_transfers(rows, task, OBJECTIVE, rounds=40)
    assert np.asarray(found.solved).tolist() == [n != 3 for n in range(16)]


def test_mistakes_are_named():
    task, costates = known_transfer()
    with pytest.raises(ConfigError, match=r"\[5\]"):
        solve_transfers(costates[:4], task, OBJECTIVE)
    with pytest.raises(ConfigError, match="rounds"):
        solve_transfers(costates, task, OBJECTIVE, rounds=0)
