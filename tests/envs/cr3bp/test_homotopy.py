"""Transfers followed to bang-bang thrust, and to other thrusters."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp import solving
from jaxlab.envs.cr3bp.bang_bang import propagate_bang_bang
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.homotopy import follow
from jaxlab.envs.cr3bp.objective import ACCURACY, Objective, departure
from jaxlab.envs.cr3bp.orbits import correct
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate, propagate_low_thrust
from jaxlab.envs.cr3bp.systems import get_system
from jaxlab.envs.cr3bp.transfers import make_transfer, thruster_in_units

SYSTEM = get_system("saturn-titan")
MU = SYSTEM.mass_parameter
FINE = Accuracy(tolerance=1e-13)
OBJECTIVE = Objective(mass_costate=None, accuracy=ACCURACY._replace(tolerance=1e-12))
TOLERANCE = (1e-4, 1e-5)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def known():
    """A transfer that needs part of its thrust, by construction, and candidates near it."""
    with jax.enable_x64(True):
        row = published_orbit("st-dro")
        orbit = row.initial()[[0, 1, 3, 4]]
        thruster = thruster_in_units(
            SYSTEM, thrust=10.0, mass=25_000.0, specific_impulse=7365.0, smoothing=3e-2
        )
        end = np.concatenate([orbit, [0.99], [0.05, 0.02, 0.045, -0.045, -0.9]])
        start = propagate_low_thrust(end, -8.0, MU, thruster, accuracy=FINE).state
        task = make_transfer(MU, start[:5], thruster, orbit, row.period, duration=(8.0, 8.5))
        noise = np.random.default_rng(0).normal(size=(16, 5))
        return task, start[5:] * (1 + 0.01 * noise)


def walk(known, make, values, **options):
    _, candidates = known
    return follow(make, values, candidates, OBJECTIVE, rounds=40, tolerance=TOLERANCE, **options)


def test_smoothed_transfers_are_followed_to_bang_bang_ones(known):
    task, _ = known

    def make(rho):
        return task._replace(thruster=task.thruster._replace(smoothing=rho))

    first = walk(known, make, [3e-2])
    programs = solving._solve(OBJECTIVE)._cache_size()
    path = walk(known, make, [3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4], logarithmic=True)
    np.testing.assert_array_equal(path.stages[0].alive, first.stages[0].alive)
    assert path.complete
    assert [stage.value for stage in path.stages][-1] == 1e-4
    last = path.stages[-1]
    alive = np.asarray(last.alive)
    assert alive.sum() >= 6
    y = departure(OBJECTIVE, path.survivors, last.transfer)
    arcs = propagate_bang_bang(y, last.solved.time[alive], MU, task.thruster, accuracy=FINE)
    assert np.asarray(arcs.switches).min() >= 1
    first = jnp.broadcast_to(task.target[0], (len(y), 4))
    there = propagate(first, last.solved.phase_time[alive], MU, accuracy=FINE).state
    assert np.abs(arcs.state[:, :4] - there).max() < 1e-4
    np.testing.assert_allclose(
        last.solved.propellant[alive], 1 - arcs.state[:, 4] / task.start[4], rtol=0, atol=1e-5
    )
    # No stage needed a program of its own.
    assert solving._solve(OBJECTIVE)._cache_size() == programs


def thrust_changed(task):
    def make(part):
        # A number of Python's makes no other program of it.
        return task._replace(
            thruster=task.thruster._replace(acceleration=part * float(task.thruster.acceleration))
        )

    return make


def test_steps_that_lose_too_many_are_halved(known):
    """Also what is not reached in the end, and says so."""
    task, _ = known
    path = walk(known, thrust_changed(task), [1.0, 0.97], survival=0.9, halvings=2)
    assert path.complete
    # The step is too long at once, and half of it is not.
    assert path.rejected == [0.97]
    assert [stage.value for stage in path.stages] == [1.0, 0.985, 0.97]
    for before, after in itertools.pairwise(path.stages):
        assert (after.alive <= before.alive).all()
        # The lost are not tried again.
        assert np.isnan(np.asarray(after.solved.costates)[~np.asarray(before.alive)]).all()
    assert path.survivors.shape == (int(path.stages[-1].alive.sum()), 5)
    far = walk(known, thrust_changed(task), [1.0, 0.05], halvings=0)
    assert not far.complete
    assert far.rejected == [0.05]
    assert [stage.value for stage in far.stages] == [1.0]
    np.testing.assert_array_equal(far.stages[0].alive, path.stages[0].alive)


def test_the_mass_parameter_is_walked_with_its_orbits(known):
    task, _ = known
    row = published_orbit("st-dro")

    def make(mu):
        orbit = correct(row.initial(), row.period, mu)
        state = np.asarray(orbit.state)[[0, 1, 3, 4]]
        return make_transfer(
            mu, task.start, task.thruster, state, float(orbit.period), duration=(8.0, 8.5)
        )

    path = walk(known, make, [MU, 1.05 * MU])
    assert path.complete
    n = int(np.flatnonzero(path.stages[-1].alive)[0])
    found, there = path.stages[-1].solved, path.stages[-1].transfer
    y = departure(OBJECTIVE, found.costates[n][None], there)[0]
    end = propagate_low_thrust(y, found.time[n], 1.05 * MU, there.thruster, accuracy=FINE).state
    orbit = propagate(there.target[0], found.phase_time[n], 1.05 * MU, accuracy=FINE).state
    assert np.abs(end[:4] - orbit).max() < 1e-5


def shorter_target(task):
    return lambda value: task if value == 1 else task._replace(target=task.target[:64])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda known: walk(known, lambda v: known[0], []), "values"),
        (lambda known: walk(known, lambda v: known[0], [1.0, float("nan")]), "values"),
        (lambda known: walk(known, lambda v: known[0], [0.0], logarithmic=True), "positive"),
        (lambda known: walk(known, lambda v: known[0], [1.0], survival=0.0), "survival"),
        (lambda known: walk(known, lambda v: known[0], [1.0], halvings=-1), "halvings"),
        (lambda known: walk(known, lambda v: None, [1.0]), "expected a Transfer"),
        (lambda known: walk(known, shorter_target(known[0]), [1.0, 2.0]), "target of shape"),
        (
            lambda known: follow(lambda v: known[0], [1.0], known[1][0], OBJECTIVE),
            r"\[candidates, d\]",
        ),
    ],
)
def test_mistakes_are_named(call, message, known):
    with pytest.raises(ConfigError, match=message):
        call(known)
