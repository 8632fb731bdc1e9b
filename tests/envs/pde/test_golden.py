"""Finite-difference forecasts from quantised states, against the published arrays.

RMSE over 50 initial conditions (20 of roll-outs) to the last digits in double precision: one
test of solvers, splines, seeding, scaling, rounding and metrics together.
"""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from jaxlab.envs.pde.conservation import initial_integral, integral
from jaxlab.envs.pde.initial import draw_nodes
from jaxlab.envs.pde.problems import problem
from jaxlab.envs.pde.solving import forecast, reference

#: One-step RMSE at N_X = 14 by N_T.
ONE_STEP = {
    ("allen_cahn", "ftcs"): {
        2: 0.01969775152046492,
        10: 0.003545925136949426,
        40: 0.001194674305591485,
    },
    ("allen_cahn", "imex"): {
        2: 0.017952218646760384,
        10: 0.003427442186804345,
        40: 0.0011888994212291182,
    },
    ("allen_cahn", "persistence"): {
        2: 0.13499191640766234,
        10: 0.027117355457583682,
        40: 0.00679660218899367,
    },
    ("allen_cahn", "last_token"): {
        2: 0.6410305881838163,
        10: 0.7067884789347988,
        40: 0.7198601392135211,
    },
    ("allen_cahn", "floor"): {
        2: 0.0005989948660410843,
        10: 0.0006054916002075501,
        40: 0.0006120551507597345,
    },
    ("fisher_kpp", "ftcs"): {
        2: 0.0049379720771087175,
        10: 0.0008892259566210706,
        40: 0.00032152958526495616,
    },
    ("fisher_kpp", "imex"): {
        2: 0.005532825760965619,
        10: 0.0009136649234602388,
        40: 0.0003225879099740798,
    },
    ("heat_dirichlet", "ftcs"): {
        2: 0.005761836332083429,
        10: 0.0021725387303961645,
        40: 0.0007518114739583092,
    },
    ("heat_dirichlet", "btcs"): {
        2: 0.01812535828286259,
        10: 0.002531895138125351,
        40: 0.0007681230983924759,
    },
    ("heat_neumann", "ftcs"): {
        2: 0.009110235192374807,
        10: 0.0022769858887570407,
        40: 0.0007424387204302893,
    },
    ("heat_neumann", "btcs"): {
        2: 0.017068105422297176,
        10: 0.0024945858728923774,
        40: 0.0007528933683249702,
    },
    ("wave", "leapfrog"): {
        2: 0.02672845720511712,
        10: 0.0017646457518460793,
        40: 0.0008768487830091863,
    },
    ("wave", "crank_nicolson"): {
        2: 0.06543106500853542,
        10: 0.001651206821937868,
        40: 0.0012141860339884532,
    },
}
#: One-step RMSE by FTCS of Allen-Cahn at N_T = 50 by N_X.
BY_RESOLUTION = {2: 0.0010490255853446648, 14: 0.0010839241389081977, 40: 0.0009888298943008227}
#: RMSE of roll-outs from 16 of 26 rows at n = 1 and 10.
ROLLOUT = {
    ("allen_cahn", "ftcs"): (0.0014035602028485033, 0.01241096724797311),
    ("allen_cahn", "imex"): (0.001387069631685663, 0.012208575253274947),
    ("fisher_kpp", "ftcs"): (0.00045616150487486664, 0.003369936297261656),
    ("fisher_kpp", "imex"): (0.00045965118198654085, 0.003409335444857592),
    ("heat_dirichlet", "ftcs"): (0.0017477223469186845, 0.010034848719577605),
    ("heat_dirichlet", "btcs"): (0.0018395591980767932, 0.010750398099688184),
    ("heat_neumann", "ftcs"): (0.0016409785693613337, 0.0101679573110451),
    ("heat_neumann", "btcs"): (0.001710860056436769, 0.010630035577189344),
    ("wave", "leapfrog"): (0.0009031454134328553, 0.008678876976453044),
    ("wave", "crank_nicolson"): (0.0012641416721468261, 0.01162033112333018),
}
#: Change of the integral in percent at n = 1 and 10, heat equation without flux from U(0, 1).
INTEGRAL = {
    "ftcs": (0.9050458806240347, 1.3929703425905262),
    "btcs": (0.9034464555599694, 1.380405332113288),
    "exact": (0.8634075631046235, 0.8168017190801627),
}


@functools.cache
def solution(name: str, seeds: int, points: int, steps: int, bounds=None) -> np.ndarray:
    """Reference solutions; the cache outlives a test, so the precision is set here."""
    with jax.enable_x64(True):
        nodes = draw_nodes(problem(name), range(seeds), bounds=bounds)
        return np.asarray(reference(problem(name), nodes, points, steps))


def quantised(u: np.ndarray) -> np.ndarray:
    """Values that 700 steps between the least and the greatest of each series leave."""
    low, high = u.min((1, 2), keepdims=True), u.max((1, 2), keepdims=True)
    return low + np.round(700 * (u - low) / (high - low)) / 700 * (high - low)


def rms(error: np.ndarray) -> np.ndarray:
    return np.sqrt((error**2).mean(-1))


@pytest.mark.parametrize(("name", "scheme"), ONE_STEP)
def test_one_step(name, scheme):
    for steps, expected in ONE_STEP[name, scheme].items():
        u = solution(name, 50, 14, steps)
        seen = quantised(u)
        if scheme == "floor":
            found = np.sqrt(((u - seen) ** 2).mean((1, 2))).mean()
        else:
            if scheme == "persistence":
                last = seen[:, -2]
            elif scheme == "last_token":
                last = np.repeat(seen[:, -2, -1:], 14, axis=1)
            else:
                rows = forecast(problem(name), scheme, seen[:, :-1], steps=1, dt=0.5 / steps)
                last = np.asarray(rows)[:, 0]
            found = rms(last - seen[:, -1]).mean()
        assert abs(found - expected) < 1e-14, steps


@pytest.mark.parametrize("points", BY_RESOLUTION)
def test_resolutions(points):
    seen = quantised(solution("allen_cahn", 50, points, 50))
    rows = forecast(problem("allen_cahn"), "ftcs", seen[:, :-1], steps=1, dt=0.01)
    found = rms(np.asarray(rows)[:, 0] - seen[:, -1]).mean()
    assert abs(found - BY_RESOLUTION[points]) < 1e-14


@pytest.mark.parametrize(("name", "scheme"), ROLLOUT)
def test_rollouts(name, scheme):
    bounds = (0.0, 1.0) if name == "heat_neumann" else None
    seen = quantised(solution(name, 20, 14, 25, bounds))
    rows = forecast(problem(name), scheme, seen[:, :16], steps=10, dt=0.02)
    found = rms(np.asarray(rows) - seen[:, 16:]).mean(0)
    np.testing.assert_allclose(found[[0, 9]], ROLLOUT[name, scheme], rtol=0, atol=1e-14)


@pytest.mark.parametrize("scheme", INTEGRAL)
def test_conservation(scheme):
    equation = problem("heat_neumann")
    u = solution("heat_neumann", 20, 14, 25, (0.0, 1.0))
    start = initial_integral(equation, draw_nodes(equation, range(20), bounds=(0.0, 1.0)))
    rows = u[:, 16:]
    if scheme != "exact":
        rows = forecast(equation, scheme, quantised(u)[:, :16], steps=10, dt=0.02)
    found = 100 * np.abs(integral(equation, rows) - start[:, None]) / np.abs(start)[:, None]
    np.testing.assert_allclose(found.mean(0)[[0, 9]], INTEGRAL[scheme], rtol=1e-12)


def test_initial_conditions_are_numpys_and_the_walls_hold():
    nodes = draw_nodes(problem("allen_cahn"), [0, 7])
    np.testing.assert_array_equal(nodes[1], np.random.RandomState(7).uniform(-0.5, 0.5, 14))
    u = solution("allen_cahn", 50, 14, 2)
    np.testing.assert_allclose(u[0, 0], nodes[0], atol=1e-15)
