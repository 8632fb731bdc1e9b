"""Transfers in segments of held thrust against scipy and differences, and from solved costates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxlab.core.errors import ConfigError, PrecisionError
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.dop853 import Phase
from jaxlab.envs.cr3bp.flows import apart, beside
from jaxlab.envs.cr3bp.held_thrust import held_thrust
from jaxlab.envs.cr3bp.objective import ACCURACY, Objective
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate_low_thrust
from jaxlab.envs.cr3bp.solving import Solved
from jaxlab.envs.cr3bp.systems import get_system
from jaxlab.envs.cr3bp.transcription import Plan, Transcription, throttles
from jaxlab.envs.cr3bp.transfers import make_transfer, thruster_in_units

SYSTEM = get_system("saturn-titan")
MU = SYSTEM.mass_parameter
FINE = Accuracy(tolerance=1e-13)
OBJECTIVE = Objective(mass_costate=None, accuracy=ACCURACY._replace(tolerance=1e-12))
CUT = Transcription(segments=8)


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


@pytest.fixture(scope="module")
def task():
    with jax.enable_x64(True):
        return known_transfer()[0]


@pytest.fixture(scope="module")
def solved():
    """What `solve_transfers` would make of the known transfer, which closes as it was made."""
    with jax.enable_x64(True):
        task, costates = known_transfer()
        zero = jnp.zeros(1)
        return Solved(
            *(costates[None], zero + 8.0, zero, zero, zero),
            (task.start[4] - 0.99)[None] / task.start[4],
            jnp.array([True]),
            jnp.zeros(1, jnp.int32),
        )


def plans(task, count=2, seed=0):
    """Any plans, far from closed."""
    rng = np.random.default_rng(seed)
    controls = rng.normal(size=(count, 8, 2))
    controls /= np.maximum(np.linalg.norm(controls, axis=-1, keepdims=True), 1)
    controls[0, 3] = 0  # coasts
    return Plan(
        jnp.asarray(controls),
        jnp.asarray(rng.uniform(6, 9, count)),
        jnp.asarray(rng.uniform(0, 5, count)),
        jnp.asarray(rng.uniform(0.9, 1, count)),
    )


def rates(y, u, task):
    """Of position, velocity and mass in the plane, apart from the library's."""
    a, c = float(task.thruster.acceleration), float(task.thruster.exhaust_speed)
    (x, h, vx, vy, m), mu = y, float(task.mu)
    near, far = np.hypot(x - 1 + mu, h), np.hypot(x + mu, h)
    k1, k2 = (1 - mu) / far**3, mu / near**3
    ax = 2 * vy + x - k1 * (x + mu) - k2 * (x - 1 + mu)
    ay = -2 * vx + h - (k1 + k2) * h
    return [vx, vy, ax + a * u[0] / m, ay + a * u[1] / m, -a * np.hypot(*u) / c]


def by_scipy(y, controls, span, task):
    for u in controls:
        options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-13}
        y = solve_ivp(lambda t, y, u=u: rates(y, u, task), (0, span), y, **options).y[:, -1]
    return y


@pytest.mark.parametrize("axes", [2, 3])
def test_tangents_are_the_derivative_of_the_flow(axes):
    rng = np.random.default_rng(axes)
    flow, size = held_thrust(axes), 2 * axes + 1
    y, u = rng.normal(size=size) + 0.5, rng.normal(size=axes)
    tangents = rng.normal(size=(size, size + axes))

    def field(y, u):
        phase = flow.as_phase(list(y[:, None]))
        accelerations, rest = flow.rates(phase, (MU, 0.3, 2.0, *u))
        return jnp.stack(flow.from_phase(Phase(phase.velocity, accelerations, rest)))[:, 0]

    change = np.eye(axes, size + axes, size)
    _, expected = jax.vmap(
        lambda d, e: jax.jvp(field, (jnp.asarray(y), jnp.asarray(u)), (d, e)), 1, 1
    )(jnp.asarray(tangents), jnp.asarray(change))
    own, columns = flow.as_phase(list(y[:, None])), flow.as_phase(list(tangents[..., None]))
    accelerations, rest = flow.rates_with_tangents(beside(own, columns), (MU, 0.3, 2.0, *u))
    together = beside(own, columns)
    _, found = apart(Phase(together.velocity, tuple(accelerations), tuple(rest)))
    found = jnp.stack(flow.from_phase(found))[..., 0]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_the_defect_is_that_of_scipy(task):
    plan = plans(task)
    found = CUT.defect(plan, task)
    for n in range(2):
        u, span = np.asarray(plan.controls[n]), float(plan.duration[n]) / 8
        forward = by_scipy(np.asarray(task.start), u[:4], span, task)
        first = np.append(task.target[0], 1.0)
        there = by_scipy(first, np.zeros((1, 2)), float(plan.phase_time[n]), task)
        there[4] = plan.final_mass[n]
        backward = by_scipy(there, u[4:][::-1], -span, task)
        np.testing.assert_allclose(found[n], forward - backward, rtol=0, atol=1e-10)


def test_the_jacobian_is_that_of_central_differences(task):
    plan = plans(task, seed=2)  # without a segment at rest, where |u| has a kink
    plan = plan._replace(controls=plan.controls.at[0, 3].set(jnp.array([0.2, -0.1])))
    _, jacobian = CUT.defect_and_jacobian(plan, task)
    assert jacobian.controls.shape == (2, 5, 8, 2)
    assert jacobian.duration.shape == (2, 5)
    flat = np.concatenate(
        [np.asarray(jacobian.controls).reshape(2, 5, 16), np.stack(jacobian[1:], -1)], -1
    )
    rows = np.concatenate([np.asarray(plan.controls).reshape(2, 16), np.stack(plan[1:], -1)], -1)
    step, defect = 1e-5, []
    for sign in (1, -1):
        moved = (rows[:, None] + sign * step * np.eye(19)).reshape(-1, 19)
        moved = Plan(moved[:, :16].reshape(-1, 8, 2), *moved[:, 16:].T)
        defect.append(np.asarray(CUT.defect(jax.tree.map(jnp.asarray, moved), task)))
    differences = ((defect[0] - defect[1]) / (2 * step)).reshape(2, 19, 5).swapaxes(1, 2)
    scale = np.abs(differences).max(-1, keepdims=True)
    assert (np.abs(differences - flat) / scale).max() < 1e-7


def test_a_solved_transfer_becomes_segments_that_close(task, solved):
    few, many = Transcription(segments=8), Transcription(segments=32)
    plan = many.of_solved(solved, task, OBJECTIVE)
    assert (np.asarray(throttles(plan)) <= 1).all()
    sizes = [
        np.linalg.norm(cut.defect(cut.of_solved(solved, task, OBJECTIVE), task), axis=1)
        for cut in (few, many)
    ]
    assert (sizes[1] < sizes[0] / 4).all()
    assert (sizes[1] < 2e-3).all()
    # From there, and from worse guesses nearby, of which many segments end at full thrust.
    noise = np.random.default_rng(0).normal(size=(4, 32, 2)) * [[[0.0]], *[[[0.1]]] * 3]
    shape = (4, *plan.controls.shape[1:])
    controls = jnp.broadcast_to(plan.controls, shape) + noise
    rows = Plan(controls, *(jnp.broadcast_to(leaf, (4,)) for leaf in plan[1:]))
    found = many.close(rows, task, rounds=12, tolerance=1e-11)
    assert np.asarray(found.solved).all()
    assert np.abs(found.defect).max() < 1e-11
    lengths = np.asarray(throttles(found.plan))
    assert lengths.max() <= 1 + 1e-15
    assert (lengths > 1 - 1e-12).any()
    np.testing.assert_allclose(found.propellant, solved.propellant[0], rtol=0, atol=1e-3)
    # Flown once more, from the start to the target orbit.
    for n in range(1):
        u, span = np.asarray(found.plan.controls[n]), float(found.plan.duration[n]) / 32
        end = by_scipy(np.asarray(task.start), u, span, task)
        first = np.append(task.target[0], 1.0)
        there = by_scipy(first, np.zeros((1, 2)), float(found.plan.phase_time[n]), task)
        np.testing.assert_allclose(end[:4], there[:4], rtol=0, atol=1e-6)
        np.testing.assert_allclose(1 - end[4] / task.start[4], found.propellant[n], atol=1e-8)


def test_one_row_without_a_number_leaves_the_others_alone(task):
    plan = plans(task)
    plan = plan._replace(duration=plan.duration.at[0].set(jnp.nan))
    found = CUT.defect(plan, task)
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(found[1], CUT.defect(plans(task), task)[1])


def test_bounds_are_kept_on_the_way(task):
    """Beyond full thrust, too long and too heavy at the start, and far from closed."""
    plan = plans(task)
    plan = Plan(
        2 * plan.controls, jnp.full(2, 30.0), plan.phase_time, jnp.full(2, 2 * task.start[4])
    )
    found = CUT.close(plan, task, rounds=25)
    assert np.asarray(throttles(found.plan)).max() <= 1 + 1e-15
    assert (np.asarray(found.plan.duration) <= 12).all()
    assert (np.asarray(found.propellant) >= 0).all()
    begin = CUT.defect(
        plan._replace(
            controls=plan.controls / np.maximum(throttles(plan), 1)[..., None],
            duration=jnp.full(2, 12.0),
            final_mass=jnp.full(2, task.start[4]),
        ),
        task,
    )
    assert (np.linalg.norm(found.defect, axis=1) < np.linalg.norm(begin, axis=1) / 2).all()


def test_less_propellant_is_burnt_where_there_is_less(task, solved):
    """From plans around a solved transfer, until steps gain nothing."""
    plan = CUT.of_solved(solved, task, OBJECTIVE)
    noise = np.random.default_rng(4).normal(scale=0.05, size=(2, 8, 2))
    rows = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * 2), plan)
    closed = CUT.close(rows._replace(controls=rows.controls + noise), task, rounds=25)
    assert np.abs(closed.defect).max() < 1e-8
    least = CUT.least_propellant(closed.plan, task, rounds=150)
    assert np.asarray(least.solved).all()
    assert (np.asarray(least.propellant) < 0.98 * np.asarray(closed.propellant)).all()
    assert np.asarray(throttles(least.plan)).max() <= 1 + 1e-15
    assert ((np.asarray(least.plan.duration) >= 4) & (np.asarray(least.plan.duration) <= 12)).all()
    # It is the propellant of that thrust, and it closes as seen by the defect's own program.
    assert np.abs(CUT.defect(least.plan, task)).max() <= 1e-8
    burnt = throttles(least.plan).mean(1) * least.plan.duration
    burnt = burnt * task.thruster.acceleration / task.thruster.exhaust_speed / task.start[4]
    np.testing.assert_allclose(least.propellant, burnt, rtol=0, atol=1e-7)
    # What closes is never given up for what burns more.
    again = CUT.least_propellant(least.plan, task, rounds=150)
    assert (np.asarray(again.propellant) <= np.asarray(least.propellant)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda task: CUT.least_propellant(plans(task), task, rounds=0), "rounds"),
        (lambda task: CUT.least_propellant(plans(task), task, tolerance=0.0), "tolerance"),
        (lambda task: Transcription(segments=7).defect(plans(task), task), "even"),
        (lambda task: Transcription(segments=6).defect(plans(task), task), r"\[..., 6, 2\]"),
        (
            lambda task: CUT.defect(plans(task)._replace(duration=jnp.ones(3)), task),
            "other numbers",
        ),
        (lambda task: CUT.close(plans(task), task, rounds=0), "rounds"),
        (
            lambda task: Transcription(accuracy=Accuracy(engine="Dopri8")).defect(
                plans(task), task
            ),
            "dop853 alone",
        ),
    ],
)
def test_mistakes_are_named(call, message, task):
    with pytest.raises(ConfigError, match=message):
        call(task)


def test_32_bits_are_refused(task):
    plan = plans(task)
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64"):
        CUT.defect(plan, task)
