"""Oracles made anew by heyoka in quadruple precision, and ours beside them.

heyoka (of the extra `bench`) integrates by Taylor series of any order, here to 1e-30.
"""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.envs.cr3bp.catalogue import ORBITS, published_orbit
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate, propagate_low_thrust
from tests.envs.cr3bp import oracles

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("heyoka") is None,
        reason="needs heyoka: install jaxlab-suite[bench]",
    ),
]
ALL = Accuracy(tolerance=1e-14, control="all")
ROWS = list(ORBITS.values())


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def pulls(x, y, z, mu):
    """Accelerations by both primaries and the turning of positions, as expressions."""
    one = ((x + mu) ** 2 + y**2 + z**2) ** -1.5
    other = ((x - 1.0 + mu) ** 2 + y**2 + z**2) ** -1.5
    large, small = (1.0 - mu) * one, mu * other
    return (
        x - large * (x + mu) - small * (x - 1.0 + mu),
        y - (large + small) * y,
        -(large + small) * z,
    )


class Quadruple:
    """An integrator in quadruple precision with the first-order variations of some variables."""

    def __init__(self, equations, parameters, by=None):
        import heyoka as hy

        self.number, self.size = hy.real128, len(equations)
        variables = [variable for variable, _ in equations]
        of = hy.var_args.vars if by is None else [variables[n] for n in by]
        self.columns = range(self.size) if by is None else by
        system = hy.var_ode_sys(equations, of, order=1)
        count = self.size * (1 + len(self.columns))
        self.identity = np.eye(self.size)[:, list(self.columns)].ravel()
        self.integrator = hy.taylor_adaptive(
            system,
            np.array([self.number(0)] * count, self.number),
            tol=self.number("1e-30"),
            fp_type=self.number,
            compact_mode=True,
            pars=np.array([self.number(0)] * parameters, self.number),
        )

    def end(self, start, time, parameters):
        """State and its derivative by the start, rounded to doubles."""
        work = self.integrator
        work.time = self.number(0)
        work.pars[:] = [self.number(float(value)) for value in parameters]
        begin = [*np.asarray(start), *self.identity]
        work.state[:] = [self.number(float(value)) for value in begin]
        work.propagate_until(self.number(float(time)))
        values = np.array([float(value) for value in work.state])
        return values[: self.size], values[self.size :].reshape(self.size, -1)


@pytest.fixture(scope="module")
def ballistic():
    import heyoka as hy

    x, y, z, vx, vy, vz = hy.make_vars("x", "y", "z", "vx", "vy", "vz")
    ax, ay, az = pulls(x, y, z, hy.par[0])
    return Quadruple(
        [(x, vx), (y, vy), (z, vz), (vx, ax + 2.0 * vy), (vy, ay - 2.0 * vx), (vz, az)], 1
    )


@pytest.fixture(scope="module")
def closed(ballistic):
    """All catalogue orbits after a period."""
    ends = [ballistic.end(row.initial(), row.period, [row.system.mass_parameter]) for row in ROWS]
    return tuple(np.stack(part) for part in zip(*ends, strict=True))


def test_recorded_ends_of_ballistic_arcs(ballistic):
    for oracle in oracles.BALLISTIC:
        row = published_orbit(oracle.orbit)
        end, stm = ballistic.end(row.initial(), oracle.time, [row.system.mass_parameter])
        np.testing.assert_allclose(end, oracle.end, rtol=0, atol=1e-15)
        np.testing.assert_allclose(np.trace(stm), oracle.trace, rtol=1e-13)
        np.testing.assert_allclose(stm[0, 0], oracle.corner, rtol=1e-13)
        np.testing.assert_allclose(np.linalg.norm(stm), oracle.frobenius, rtol=1e-13)


def test_closures_of_the_catalogue(closed):
    gap = np.linalg.norm(closed[0] - [row.initial() for row in ROWS], axis=1)
    assert (gap < 10 * np.array([row.closure for row in ROWS])).all(), gap


def test_all_catalogue_orbits_and_their_matrices(closed):
    start = np.stack([row.initial() for row in ROWS])
    mu = np.array([row.system.mass_parameter for row in ROWS])
    period = np.array([row.period for row in ROWS])
    arc = propagate(start, period, mu, stm=True, accuracy=ALL)
    assert (arc.status == Status.DONE).all()
    end, stm = closed
    size = np.linalg.norm(stm, axis=(1, 2))
    # Rounding of the first step grows by the matrix.
    error = np.linalg.norm(arc.state - end, axis=1)
    assert (error < 1e-14 * size).all(), error / size
    relative = np.linalg.norm(arc.stm - stm, axis=(1, 2)) / size
    assert (relative < 1e-10).all(), relative


def test_low_thrust_and_its_derivative_by_costates():
    import heyoka as hy

    names = ("x", "y", "z", "vx", "vy", "vz", "m")
    own = dict(zip(names, hy.make_vars(*names), strict=True))
    lam = dict(zip(names, hy.make_vars(*(f"l{name}" for name in names)), strict=True))
    mu, full, exhaust, rho = (hy.par[n] for n in range(4))
    primer = [lam[name] for name in ("vx", "vy", "vz")]
    length = hy.sqrt(primer[0] ** 2 + primer[1] ** 2 + primer[2] ** 2)
    switching = length / own["m"] + lam["m"] / exhaust
    throttle = 0.5 * (1.0 + hy.tanh(switching / (2.0 * rho)))
    pull = pulls(own["x"], own["y"], own["z"], mu)
    push = [full * throttle / own["m"] * p / length for p in primer]
    moved = [pull[0] + 2.0 * own["vy"], pull[1] - 2.0 * own["vx"], pull[2]]
    # The costates by automatic differentiation of lr . v + lv . g.
    energy = sum(lam[p] * own[f"v{p}"] for p in "xyz")
    energy += sum(p * a for p, a in zip(primer, moved, strict=True))
    equations = [
        *((own[p], own[f"v{p}"]) for p in "xyz"),
        *((own[f"v{p}"], a - t) for p, a, t in zip("xyz", moved, push, strict=True)),
        (own["m"], -full * throttle / exhaust),
        *((lam[name], -hy.diff(energy, own[name])) for name in names[:6]),
        (lam["m"], -full * throttle * length / own["m"] ** 2),
    ]
    quadruple = Quadruple(equations, 4, by=list(range(7, 14)))
    parameters = (oracles.LOW_THRUST_MU, *oracles.THRUSTER)
    for time, recorded in oracles.LOW_THRUST_ENDS.items():
        end, stm = quadruple.end(oracles.LOW_THRUST_START, time, parameters)
        np.testing.assert_allclose(end, recorded, rtol=0, atol=2e-15)
        arc = propagate_low_thrust(
            jnp.asarray(oracles.LOW_THRUST_START),
            time,
            oracles.LOW_THRUST_MU,
            oracles.THRUSTER,
            stm=True,
            accuracy=ALL,
        )
        np.testing.assert_allclose(arc.state, end, rtol=0, atol=1e-11)
        off = np.linalg.norm(arc.stm[:, 7:] - stm) / np.linalg.norm(stm)
        assert off < 1e-11
    # Of t = 10, recorded of a 64-bit integration.
    np.testing.assert_allclose(stm[0], oracles.LOW_THRUST_X_BY_COSTATES, rtol=1e-9)
    np.testing.assert_allclose(stm[6], oracles.LOW_THRUST_M_BY_COSTATES, rtol=1e-8)
