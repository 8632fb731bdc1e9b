"""The objective of a transfer against scipy and central differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from jaxlab.agents import mcmc
from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.flows import vector_field
from jaxlab.envs.cr3bp.objective import ACCURACY, Objective, departure
from jaxlab.envs.cr3bp.rendezvous import hermite
from jaxlab.envs.cr3bp.systems import get_system
from jaxlab.envs.cr3bp.transfers import (
    circular_start,
    make_transfer,
    thruster_in_units,
)

SYSTEM = get_system("saturn-titan")
MU = SYSTEM.mass_parameter
IN_PLANE = [0, 1, 3, 4]
RNG = np.random.default_rng(0)
#: As many everywhere: programs are compiled for a number of rows.
ROWS = 16
COSTATES = 0.1 * RNG.normal(size=(48, 4))[:ROWS]
FINE = ACCURACY._replace(tolerance=1e-13)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def transfer(duration=(5.0, 20.0), weights=(1e-2, 1e-4), orbit=None, **options):
    row = published_orbit("st-dro")
    thruster = thruster_in_units(
        SYSTEM, thrust=6.0, mass=25_000.0, specific_impulse=7365.0, smoothing=1e-2
    )
    orbit = row.initial()[IN_PLANE] if orbit is None else orbit
    options = {"nodes": 64} | options
    return make_transfer(
        MU,
        circular_start(MU, 0.85),
        thruster,
        orbit,
        row.period,
        duration=duration,
        weights=weights,
        **options,
    )


@functools.cache
def slopes(objective):
    """J* and its gradient for rows of costates, compiled once for all transfers."""
    return jax.jit(jax.vmap(jax.value_and_grad(objective), (0, None)))


def least_by_scipy(row, objective, task):
    """J* from dense solutions: a fine grid of both times, then Nelder and Mead."""
    args = (float(task.mu), *map(float, task.thruster))
    field = jax.jit(lambda y: vector_field(10)(y, args))
    orbit_field = jax.jit(lambda y: vector_field(4)(y, args[:1]))
    start = np.asarray(departure(objective, jnp.asarray(row)[None], task)[0])
    options = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12, "dense_output": True}
    low, high = map(float, task.duration)
    arc = solve_ivp(lambda t, y: np.asarray(field(y)), (0, high), start, **options).sol
    period = float(task.period)
    orbit = solve_ivp(
        lambda t, y: np.asarray(orbit_field(y)), (0, period), np.asarray(task.target[0]), **options
    ).sol
    k1, k2 = map(float, task.weights)

    def cost(times):
        end, there = arc(times[0]), orbit(times[1] % period)
        return np.linalg.norm(end[:4] - there) + k1 * (1 - end[4]) + k2 * times[0]

    times, phases = np.linspace(low, high, 1500), np.linspace(0, period, 500, endpoint=False)
    ends, theirs = arc(times), orbit(phases)
    gaps = np.linalg.norm(ends[:4, :, None] - theirs[:, None], axis=0)
    total = gaps + (k1 * (1 - ends[4]) + k2 * times)[:, None]
    best = np.unravel_index(total.argmin(), total.shape)
    inside = lambda t: cost((np.clip(t[0], low, high), t[1]))  # noqa: E731
    polished = minimize(
        inside,
        (times[best[0]], phases[best[1]]),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 2000},
    )
    return polished.fun, polished.x


def test_the_least_cost_is_that_of_scipy():
    objective, task = Objective(accuracy=FINE), transfer()
    found = objective.cost(COSTATES, task)
    for n, row in enumerate(COSTATES[:4]):
        value, times = least_by_scipy(row, objective, task)
        np.testing.assert_allclose(found.value[n], value, rtol=0, atol=2e-9)
        np.testing.assert_allclose(found.time[n], np.clip(times[0], *task.duration), atol=1e-3)


@pytest.mark.parametrize(
    ("gap", "duration", "mass_costate"),
    [
        ("norm", (5.0, 20.0), -1.0),
        pytest.param("smooth", (5.0, 20.0), None, marks=pytest.mark.slow),
        pytest.param("square", (14.0, 20.0), -1.0, marks=pytest.mark.slow),
    ],
)
def test_the_gradient_is_that_of_central_differences(gap, duration, mass_costate):
    objective = Objective(gap=gap, mass_costate=mass_costate, accuracy=FINE)
    task = transfer(duration)
    costates = jnp.asarray(COSTATES)
    if mass_costate is None:
        costates = jnp.concatenate([costates, jnp.full((len(costates), 1), -0.9)], 1)
    values, gradient = slopes(objective)(costates, task)
    np.testing.assert_allclose(values, objective.cost(costates, task).value, rtol=1e-14)
    size, step = costates.shape[1], 1e-6
    moves = step * np.concatenate([np.eye(size), -np.eye(size)])
    moved = np.stack([objective.cost(costates + move, task).value for move in moves], 1)
    differences = (moved[:, :size] - moved[:, size:]) / (2 * step)
    relative = np.linalg.norm(differences - gradient, axis=1) / np.linalg.norm(gradient, axis=1)
    assert np.median(relative) < 1e-6
    # Where another minimum takes over there is a kink, and some arcs are chaotic.
    assert np.quantile(relative, 0.8) < 1e-5


def test_an_end_of_the_duration_can_be_best():
    """Time is so dear that the shortest duration is best, and the other time is still free."""
    task = transfer((12.0, 20.0), weights=(0.0, 10.0))
    objective = Objective(accuracy=FINE)
    cost = objective.cost
    np.testing.assert_allclose(cost(COSTATES, task).time, 12.0)
    _, gradient = slopes(objective)(jnp.asarray(COSTATES), task)
    step = np.tile(np.eye(4), (2, 1)) * 1e-6
    ends = cost(np.concatenate([COSTATES[0] + step, COSTATES[0] - step]), task).value  # rows again
    differences = (ends[:4] - ends[ROWS // 2 :][:4]) / 2e-6
    np.testing.assert_allclose(gradient[0], differences, rtol=1e-5, atol=1e-6)


def test_space_contains_the_plane():
    row = published_orbit("st-dro")
    inside, task = transfer(), transfer()
    lift = np.zeros((6, 4))
    lift[IN_PLANE, range(4)] = 1
    start = jnp.concatenate([lift @ inside.start[:4], inside.start[4:]])
    task = make_transfer(
        MU, start, inside.thruster, row.initial(), row.period, duration=(5.0, 20.0), nodes=64
    )
    cost = Objective(accuracy=FINE).cost
    flat, full = cost(COSTATES, inside), cost(COSTATES @ lift.T, task)
    np.testing.assert_allclose(full.value, flat.value, rtol=0, atol=1e-9)
    np.testing.assert_allclose(full.end[:, 6], flat.end[:, 4], rtol=0, atol=1e-10)


def test_a_collision_counts_up_to_where_it_happens():
    """Straight at the larger primary, without much thrust."""
    task = transfer((0.05, 20.0))
    task = task._replace(start=jnp.array([-0.5, 0.0, 0.0, 0.5, 1.0]))
    found = Objective(accuracy=FINE).cost(COSTATES, task)
    assert (np.asarray(found.status) == Status.COLLISION).all()
    assert np.isfinite(found.value).all()
    assert (np.asarray(found.time) < 1).all()
    late = Objective(accuracy=FINE).cost(COSTATES, task._replace(duration=jnp.array([10.0, 20.0])))
    assert (np.asarray(late.value) == np.inf).all()


@pytest.mark.slow
def test_chains_sample_it():
    objective, task = Objective(), transfer()
    learner = mcmc.make(
        lambda row: -100 * objective(row, task),
        mcmc.MCMCConfig("mala", warmup=0),
        initial=jnp.asarray(COSTATES[:3]),
    )
    state = learner.init(jax.random.key(0), mcmc.Hyper(step_size=1e-6))
    state, _ = jax.jit(learner.step)(state, jnp.int32(0))
    np.testing.assert_allclose(
        state.log_density, -100 * objective.cost(state.positions, task).value, rtol=1e-12
    )


def test_quintics_are_met_exactly():
    rng = np.random.default_rng(2)
    polynomial = np.polynomial.Polynomial(rng.normal(size=6))
    knots = np.array([0.3, 1.1])
    q, v, a = (p(knots)[:, None] for p in (polynomial, polynomial.deriv(), polynomial.deriv(2)))
    h = np.diff(knots)[:, None]
    position, velocity = hermite(*map(jnp.asarray, (q, v, a, h)), 0.3)
    time = knots[0] + 0.3 * h
    np.testing.assert_allclose(position, polynomial(time), rtol=1e-13)
    np.testing.assert_allclose(velocity, polynomial.deriv()(time), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: transfer(orbit=np.array([1.1, 0, 0, -0.25])), "does not close"),
        (lambda: transfer(orbit=np.zeros(5)), r"\[4\] in the plane"),
        (lambda: transfer(duration=(5.0, 1.0)), "duration"),
        (lambda: transfer(nodes=2), "nodes"),
        (lambda: transfer(weights=(float("nan"), 0.0)), "weights"),
        (lambda: transfer(orbit=np.array([1 - MU, 0, 0, 0.3])), "primary"),
        (lambda: transfer(orbit=np.array([0.5 - MU, np.sqrt(0.75), 0, 0])), "equilibrium"),
        (lambda: jax.grad(Objective(), 1)(jnp.zeros(4), transfer()), "by the transfer"),
        (lambda: circular_start(MU, -1.0), "radius"),
        (lambda: Objective(gap="cube")(jnp.zeros(4), transfer()), "cube"),
        (lambda: Objective(width=0.0)(jnp.zeros(4), transfer()), "width"),
        (lambda: Objective(rounds=0)(jnp.zeros(4), transfer()), "rounds"),
        (lambda: Objective()(jnp.zeros(5), transfer()), r"\[4\]"),
        (
            lambda: thruster_in_units(SYSTEM, thrust=-1.0, mass=1.0, specific_impulse=1.0),
            "thrust",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_published_units():
    """Specification: 25 t, 2 N, 7365 s about Saturn."""
    thruster = thruster_in_units(SYSTEM, thrust=2.0, mass=25_000.0, specific_impulse=7365.0)
    np.testing.assert_allclose(thruster.acceleration, 3.0139e-3, rtol=1e-4)
    np.testing.assert_allclose(thruster.exhaust_speed, 12.8204, rtol=1e-5)
