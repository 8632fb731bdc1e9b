"""Schemes against closed forms and each other; stability, transformations, bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.pde.grids import (
    chebyshev_points,
    second_difference,
    uniform_points,
)
from jaxlab.envs.pde.implicit import MANY, implicit_diffusion
from jaxlab.envs.pde.initial import draw_nodes, initial_values, spline_values
from jaxlab.envs.pde.problems import PROBLEMS, Scheme, Walls, problem
from jaxlab.envs.pde.solving import forecast, reference, refinement, solve
from jaxlab.envs.pde.stability import check_stable, stability_numbers


@pytest.mark.parametrize("fields", [2, MANY])
@pytest.mark.parametrize("walls", list(Walls))
def test_implicit_diffusion_inverts_the_explicit_operator(walls, fields):
    u = jnp.asarray(np.random.RandomState(0).normal(size=(3, fields, 9)))
    alpha, wall = jnp.asarray(0.7), -1.5
    known = u - alpha * second_difference(u, walls, wall)
    np.testing.assert_allclose(implicit_diffusion(known, alpha, walls, wall), u, atol=1e-13)


@pytest.mark.parametrize(
    ("scheme", "factor"),
    [
        ("ftcs", lambda z: 1 - z),
        ("btcs", lambda z: 1 / (1 + z)),
        ("crank_nicolson", lambda z: (1 - z / 2) / (1 + z / 2)),
    ],
)
def test_heat_multiplies_a_discrete_mode(scheme, factor):
    """Sine modes are eigenvectors of the grid: each step multiplies by a known number."""
    n, steps = 15, 6
    mode = np.sin(3 * np.pi * np.arange(1, n + 1) / (n + 1))
    found = solve(problem("heat_dirichlet"), scheme, mode, steps=steps)
    z = 0.01 * 0.5 / steps / (2 / (n + 1)) ** 2 * (2 - 2 * np.cos(3 * np.pi / (n + 1)))
    expected = factor(z) ** np.arange(steps + 1)[:, None] * mode
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("scheme", ["leapfrog", "crank_nicolson"])
def test_waves_turn_a_discrete_mode(scheme):
    n, steps = 15, 6
    mode = np.sin(2 * np.pi * np.arange(1, n + 1) / (n + 1))
    found = np.asarray(solve(problem("wave"), scheme, mode, steps=steps))
    square = (0.2 * 0.5 / steps / (2 / (n + 1))) ** 2 * (2 - 2 * np.cos(2 * np.pi / (n + 1)))
    angle = np.arccos(1 - square / 2) if scheme == "leapfrog" else 2 * np.arctan(square**0.5 / 2)
    expected = np.cos(angle * np.arange(steps + 1))[:, None] * mode
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_a_wave_with_a_velocity():
    n, steps = 31, 400
    where = uniform_points(problem("wave"), n)
    mode = np.cos(np.pi * where / 2)
    found = solve(problem("wave"), "leapfrog", 0 * mode, velocity=mode, steps=steps, duration=3.0)
    rate = 0.2 * np.pi / 2
    np.testing.assert_allclose(found[-1], np.sin(3 * rate) / rate * mode, atol=1e-3)


def burgers_exact(x, t, k):
    """Cole-Hopf: from 1 + a exp(-k q^2 t) cos(q x), period 2."""
    q, a = np.pi, 0.5
    decay = a * np.exp(-k * q**2 * t)
    return 2 * k * q * decay * np.sin(q * x) / (1 + decay * np.cos(q * x))


@pytest.mark.parametrize(
    ("scheme", "points", "steps", "tolerance"),
    [("etdrk4", 32, 40, 1e-9), ("ftcs", 128, 500, 2e-4), ("imex", 128, 500, 2e-4)],
)
def test_burgers_in_closed_form(scheme, points, steps, tolerance):
    equation = problem("burgers")
    c = equation.coefficients(diffusion=0.05)
    x = uniform_points(equation, points)
    found = solve(
        equation, scheme, burgers_exact(x, 0, 0.05), steps=steps, duration=1.0, coefficients=c
    )
    np.testing.assert_allclose(found[-1], burgers_exact(x, 1.0, 0.05), atol=tolerance)


@pytest.mark.parametrize(("scheme", "tolerance"), [("etdrk4", 1e-5), ("imex", 2e-2)])
def test_kuramoto_sivashinsky_grows_as_its_linear_part(scheme, tolerance):
    equation = problem("kuramoto_sivashinsky")
    x = uniform_points(equation, 32)
    wave = 2 * np.pi * 2 / 22
    small = 1e-6 * np.cos(wave * x)
    found = solve(equation, scheme, small, steps=200, duration=5.0)
    rate = wave**2 - wave**4
    grown = np.exp(5 * rate)
    np.testing.assert_allclose(found[-1], grown * small, atol=tolerance * grown * 1e-6)


def test_kuramoto_sivashinsky_converges_with_order_four_and_keeps_its_mean():
    equation = problem("kuramoto_sivashinsky")
    u = initial_values(equation, draw_nodes(equation, [0])[0], 48)
    ends = [solve(equation, "etdrk4", u, steps=n, duration=10.0)[-1] for n in (100, 200, 400)]
    order = np.log2(np.abs(ends[0] - ends[1]).max() / np.abs(ends[1] - ends[2]).max())
    assert 3.5 < order < 4.6
    np.testing.assert_allclose(ends[-1].mean(), u.mean(), atol=1e-12)
    assert np.abs(ends[-1]).max() < 5


@pytest.mark.parametrize("name", PROBLEMS)
def test_schemes_agree_with_the_reference(name):
    """All schemes of a problem on its own grid, in the end as far as grids allow."""
    equation = problem(name)
    points, steps = (48, 400) if equation.walls is Walls.PERIODIC else (59, 200)
    duration = 1.0 if name == "kuramoto_sivashinsky" else 0.25
    nodes = draw_nodes(equation, [3])[0]
    end = reference(equation, nodes, points, 1, duration=duration, refine=4)[-1]
    scale = np.abs(end).max()
    for scheme in equation.schemes:
        u = initial_values(equation, nodes, points)
        found = solve(equation, scheme, u, steps=steps, duration=duration)[-1]
        inner = slice(3, -3) if equation.walls is Walls.NEUMANN else slice(None)
        assert np.abs(found - end)[inner].max() < 0.03 * scale, scheme


def test_splines_are_scipys():
    from scipy.interpolate import CubicSpline

    points = np.linspace(-0.97, 0.93, 17)
    for name, wall in (("allen_cahn", -1.0), ("wave", 0.0)):
        nodes = draw_nodes(problem(name), [5])[0]
        spline = CubicSpline(np.linspace(-1, 1, 16), np.concatenate([[wall], nodes, [wall]]))
        found = spline_values(problem(name), nodes, points)
        np.testing.assert_allclose(found, spline(points), atol=1e-13)
    nodes = draw_nodes(problem("heat_neumann"), [5])[0]
    ends = (4 * nodes[0] - nodes[1]) / 3, (4 * nodes[-1] - nodes[-2]) / 3
    spline = CubicSpline(
        np.linspace(-1, 1, 16), [ends[0], *nodes, ends[1]], bc_type=((1, 0.0), (1, 0.0))
    )
    found = spline_values(problem("heat_neumann"), nodes, points)
    np.testing.assert_allclose(found, spline(points), atol=1e-13)


def test_chebyshev_points_are_interpolated():
    equation = problem("heat_dirichlet")
    nodes = np.cos(np.pi * np.linspace(-1, 1, 16)[1:-1] / 2)
    found = reference(equation, nodes, 6, 2, sampling="chebyshev")
    where = chebyshev_points(equation, 6)
    np.testing.assert_allclose(where, -np.cos(np.pi * np.arange(1, 7) / 7))
    # Linear interpolation errs by up to (2 / 140)^2 pi^2 / 32.
    expected = np.exp(-0.01 * np.pi**2 / 4 * 0.5) * np.cos(np.pi * where / 2)
    np.testing.assert_allclose(found[-1], expected, atol=1e-4)
    assert found.shape == (3, 6)


def test_refinement_is_the_papers():
    """In double precision 100 * 1.1 is a little more or less than 110, so it is 111 or 110."""
    assert refinement(problem("allen_cahn"), 14, 10, 0.5, 0.0) == 111
    for n in range(2, 41):
        coarse, fine = 2 / (n + 1), 2 / ((n + 1) * 10)
        expected = int(np.ceil((coarse / fine) ** 2 * 1.1))
        assert refinement(problem("heat_neumann"), n, 50, 0.5, 0.0) == expected
    assert refinement(problem("wave"), 14, 2, 0.5, 0.2) == 5


def test_solutions_map_and_differentiate():
    equation = problem("fisher_kpp")
    nodes = draw_nodes(equation, range(3))
    u = initial_values(equation, nodes, 7)
    whole = solve(equation, "imex", u, steps=4)
    one_by_one = jax.vmap(lambda row: solve(equation, "imex", row, steps=4))(u)
    np.testing.assert_allclose(whole, one_by_one, atol=1e-15)
    ks = jnp.array([0.001, 0.002])
    by_k = jax.vmap(
        lambda k: solve(
            equation, "imex", u, steps=4, coefficients=equation.coefficients(diffusion=k)
        )
    )(ks)
    np.testing.assert_allclose(by_k[1], whole, atol=1e-15)

    def end(k, nodes):
        c = equation.coefficients(diffusion=k)
        return reference(equation, nodes, 3, 2, coefficients=c, refine=2)[-1].sum()

    slope, by_node = jax.grad(end, (0, 1))(0.002, jnp.asarray(nodes[0]))
    h = 1e-6
    numeric = (end(0.002 + h, nodes[0]) - end(0.002 - h, nodes[0])) / (2 * h)
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)
    moved = nodes[0] + h * np.eye(14)[4]
    np.testing.assert_allclose(
        by_node[4], (end(0.002, moved) - end(0.002, nodes[0])) / h, rtol=1e-4
    )


def test_precision_follows_the_field():
    u = np.zeros(5, np.float32)
    assert solve(problem("wave"), "crank_nicolson", u, steps=2).dtype == np.float32
    assert solve(problem("wave"), "crank_nicolson", u.astype(float), steps=2).dtype == np.float64


@pytest.mark.parametrize(
    ("name", "scheme", "changes", "steps", "message"),
    [
        ("heat_dirichlet", "ftcs", {"diffusion": 1.0}, 10, r"s = k dt / dx\^2 .* at most 0.5"),
        ("wave", "leapfrog", {"speed": 3.0}, 10, "Courant number c dt / dx .* at most 1"),
        ("allen_cahn", "ftcs", {"rate": 9.0}, 2, r"4 s \+ 2 r dt .* at most 2"),
        ("allen_cahn", "imex", {"rate": 9.0}, 2, "2 r dt .* at most 2"),
        ("fisher_kpp", "imex", {"rate": 9.0}, 2, " r dt .* at most 2"),
        ("burgers", "imex", {"diffusion": 1e-4}, 10, r"max\|u\|\^2 dt / \(2 k\) .* at most 1"),
        ("kuramoto_sivashinsky", "imex", {}, 2, "growth number"),
        ("kuramoto_sivashinsky", "etdrk4", {}, 2, r"pi max\|u\| dt / dx .* at most 2.8"),
    ],
)
def test_unstable_steps_are_refused_with_the_bound(name, scheme, changes, steps, message):
    equation = problem(name)
    c = equation.coefficients(**changes)
    with pytest.raises(ConfigError, match=message):
        solve(equation, scheme, np.full(14, 0.5), steps=steps, coefficients=c)


def test_what_is_traced_and_unstable_is_nan():
    equation = problem("heat_dirichlet")
    run = jax.vmap(
        lambda k: solve(
            equation, "ftcs", np.ones(14), steps=10, coefficients=equation.coefficients(diffusion=k)
        )
    )
    found = run(jnp.array([0.01, 1.0]))
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()


def test_bounds_are_sharp():
    """At the bound a sawtooth stays bounded, one percent beyond it explodes."""
    equation = problem("heat_dirichlet")
    saw = (-1.0) ** np.arange(39)
    dx, steps = 2 / 40, 2000
    for factor, bounded in ((1.0, True), (1.01, False)):
        k = 0.5 * factor * dx**2 * steps / 0.5
        c = equation.coefficients(diffusion=k)
        (number,) = stability_numbers(equation, Scheme.FTCS, dx, 0.5 / steps, c)
        assert abs(number.value - 0.5 * factor) < 1e-12
        found = jax.jit(lambda k: second_steps(saw, k * 0.5 / steps / dx**2, steps))(k)
        assert bool(np.abs(found).max() < 1.1) is bounded
    check_stable(equation, Scheme.FTCS, dx, 0.5 / steps, equation.coefficients(diffusion=5.0))


def second_steps(u, s, steps):
    """FTCS without the check."""
    step = lambda _, u: u + s * second_difference(u, Walls.DIRICHLET, 0.0)  # noqa: E731
    return jax.lax.fori_loop(0, steps, step, jnp.asarray(u))


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ConfigError, "expected one of allen_cahn", lambda: problem("laplace")),
        (
            ConfigError,
            "does not apply; expected one of ftcs, imex",
            lambda: solve(problem("allen_cahn"), "leapfrog", np.ones(5), steps=2),
        ),
        (
            ConfigError,
            "0 time steps",
            lambda: solve(problem("wave"), "leapfrog", np.ones(5), steps=0),
        ),
        (
            DataError,
            "not finite",
            lambda: solve(problem("wave"), "leapfrog", np.full(5, np.nan), steps=2),
        ),
        (DataError, "shape", lambda: solve(problem("wave"), "leapfrog", np.ones(0), steps=2)),
        (
            DataError,
            "at least 2 rows",
            lambda: forecast(problem("wave"), "leapfrog", np.ones((1, 5)), steps=1, dt=0.1),
        ),
        (ConfigError, "is periodic", lambda: chebyshev_points(problem("burgers"), 5)),
        (
            ConfigError,
            "diffusion = -1.0",
            lambda: solve(
                problem("heat_neumann"),
                "btcs",
                np.ones(5),
                steps=2,
                coefficients=problem("heat_neumann").coefficients(diffusion=-1.0),
            ),
        ),
        (
            ConfigError,
            "duration",
            lambda: solve(problem("heat_neumann"), "btcs", np.ones(5), steps=2, duration=0.0),
        ),
        (ConfigError, "3 nodes", lambda: draw_nodes(problem("wave"), [0], nodes=3)),
    ],
)
def test_mistakes_are_named(error, message, call):
    with pytest.raises(error, match=message):
        call()
