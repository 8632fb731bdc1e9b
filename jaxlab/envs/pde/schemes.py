"""One step of each scheme, as pure functions of any leading axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxlab.envs.pde.grids import central_difference, second_difference, spacing
from jaxlab.envs.pde.implicit import diffusion_solver
from jaxlab.envs.pde.problems import Coefficients, Problem, Reaction, Scheme, Walls


class Stepper(NamedTuple):
    """A scheme for one problem, grid and time step.

    Attributes:
      start: State from a field `[..., points]` and its velocity (None: at rest).
      advance: State one step later; the second argument is a force `[..., points]`, a
        right-hand side added to the equation, 0 for none.
      field: The field of a state.
    """

    start: Callable[[Array, Array | None], Any]
    advance: Callable[[Any, Any], Any]
    field: Callable[[Any], Array]


def stepper(
    problem: Problem,
    scheme: Scheme,
    points: int,
    dt: Any,
    coefficients: Coefficients,
    walls: Walls | None = None,
) -> Stepper:
    """The functions of a scheme.

    Args:
      problem: The equation.
      scheme: One that `jaxlab.envs.pde.stability.applicable` accepted.
      points: Points of the grid.
      dt: Time step, of the field's dtype.
      coefficients: Numbers of the equation, of the field's dtype.
      walls: In place of those of the problem.
    """
    walls = problem.walls if walls is None else walls
    dx = spacing(problem, points, walls)
    if problem.speed:
        build = _leapfrog if scheme is Scheme.LEAPFROG else _crank_nicolson_wave
        return build(problem, walls, points, dx, dt, coefficients)
    if scheme is Scheme.ETDRK4:
        advance = _etdrk4(problem, points, dt, coefficients)
    elif problem.name == "kuramoto_sivashinsky":
        advance = _spectral_imex(problem, points, dt, coefficients)
    else:
        build_first = {
            Scheme.FTCS: _ftcs,
            Scheme.BTCS: _backward,
            Scheme.IMEX: _backward,
            Scheme.CRANK_NICOLSON: _crank_nicolson,
        }[scheme]
        advance = build_first(problem, walls, points, dx, dt, coefficients)
    return Stepper(lambda u, velocity: u, advance, lambda u: u)


def reaction(problem: Problem, u: Array, rate: Any) -> Array | float:
    """The local term of an equation, 0 where it has none."""
    if problem.reaction is Reaction.BISTABLE:
        return rate * (u - u * u * u)
    if problem.reaction is Reaction.LOGISTIC:
        return rate * u * (1 - u)
    return 0.0


def _explicit(problem: Problem, walls: Walls, dx: float, c: Coefficients) -> Callable:
    """What reacts and what is advected, `u -> [..., points]`."""

    def terms(u: Array) -> Any:
        found = reaction(problem, u, c.rate)
        if problem.amplitude:
            found = found - central_difference(u * u / 2, walls, 0.0) / dx
        return found

    return terms


def _ftcs(
    problem: Problem, walls: Walls, points: int, dx: float, dt: Any, c: Coefficients
) -> Callable:
    terms = _explicit(problem, walls, dx, c)

    def advance(u: Array, force: Any) -> Array:
        diffused = c.diffusion * second_difference(u, walls, problem.wall_value) / dx**2
        return u + dt * (diffused + terms(u) + force)

    return advance


def _backward(
    problem: Problem, walls: Walls, points: int, dx: float, dt: Any, c: Coefficients
) -> Callable:
    """BTCS, and IMEX where something reacts or is advected."""
    terms, alpha = _explicit(problem, walls, dx, c), jnp.asarray(c.diffusion * dt / dx**2)
    solve = diffusion_solver(points, alpha, walls, problem.wall_value)

    def advance(u: Array, force: Any) -> Array:
        return solve(u + dt * (terms(u) + force))

    return advance


def _crank_nicolson(
    problem: Problem, walls: Walls, points: int, dx: float, dt: Any, c: Coefficients
) -> Callable:
    half = jnp.asarray(c.diffusion * dt / dx**2 / 2)
    solve = diffusion_solver(points, half, walls, problem.wall_value)

    def advance(u: Array, force: Any) -> Array:
        known = u + half * second_difference(u, walls, problem.wall_value) + dt * force
        return solve(known)

    return advance


def _leapfrog(
    problem: Problem, walls: Walls, points: int, dx: float, dt: Any, c: Coefficients
) -> Stepper:
    """State `(u before, u)`; the time before the start is such that a Taylor step follows."""
    square = (c.speed * dt / dx) ** 2

    def start(u: Array, velocity: Array | None) -> Any:
        back = 0.0 if velocity is None else dt * velocity
        return u - back + square * second_difference(u, walls, problem.wall_value) / 2, u

    def advance(state: Any, force: Any) -> Any:
        before, u = state
        moved = square * second_difference(u, walls, problem.wall_value)
        return u, 2 * u - before + moved + dt**2 * force

    return Stepper(start, advance, lambda state: state[1])


def _crank_nicolson_wave(
    problem: Problem, walls: Walls, points: int, dx: float, dt: Any, c: Coefficients
) -> Stepper:
    """State `(u, v)`; eliminating the new velocity leaves one tridiagonal system."""
    quarter = jnp.asarray((c.speed * dt / dx) ** 2 / 4)
    solve = diffusion_solver(points, quarter, walls, problem.wall_value)

    def start(u: Array, velocity: Array | None) -> Any:
        return u, jnp.zeros_like(u) if velocity is None else velocity

    def advance(state: Any, force: Any) -> Any:
        u, v = state
        known = u + quarter * second_difference(u, walls, problem.wall_value)
        known = known + dt * v + dt**2 / 2 * force
        after = solve(known)
        return after, 2 * (after - u) / dt - v

    return Stepper(start, advance, lambda state: state[0])


def _modes(problem: Problem, points: int, dtype: Any) -> tuple[Array, Array, Array]:
    """Of real Fourier modes: `i k` of the derivative, `k^2`, and which keep products clean."""
    count = points // 2 + 1
    waves = 2 * np.pi / problem.length * np.arange(count)
    derivative = 1j * waves
    if points % 2 == 0:
        derivative[-1] = 0
    kept = np.arange(count) <= points // 3
    complex_dtype = jnp.result_type(dtype, jnp.complex64)
    return jnp.asarray(derivative, complex_dtype), jnp.asarray(waves**2, dtype), jnp.asarray(kept)


def _linear(problem: Problem, square: Array, c: Coefficients) -> Array:
    if problem.name == "kuramoto_sivashinsky":
        return c.diffusion * (square - square**2)
    return -c.diffusion * square


def _spectral_imex(problem: Problem, points: int, dt: Any, c: Coefficients) -> Callable:
    dtype = jnp.asarray(dt).dtype
    derivative, square, kept = _modes(problem, points, dtype)
    implicit = 1 - dt * _linear(problem, square, c)

    def advance(u: Array, force: Any) -> Array:
        moved = -derivative * kept * jnp.fft.rfft(u * u / 2)
        known = jnp.fft.rfft(u + dt * force) + dt * moved
        return jnp.fft.irfft(known / implicit, points).astype(u.dtype)

    return advance


def _etdrk4(problem: Problem, points: int, dt: Any, c: Coefficients) -> Callable:
    """With coefficients by contour integrals (Kassam, Trefethen 2005, section 3)."""
    dtype = jnp.asarray(dt).dtype
    derivative, square, kept = _modes(problem, points, dtype)
    exponent = dt * _linear(problem, square, c)
    circle = np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)
    z = exponent[:, None] + jnp.asarray(circle, derivative.dtype)
    power = jnp.exp(z)

    def mean(values: Array) -> Array:
        return dt * jnp.mean(values.real, axis=-1)

    half = mean((jnp.exp(z / 2) - 1) / z)
    first = mean((-4 - z + power * (4 - 3 * z + z**2)) / z**3)
    middle = mean((2 + z + power * (z - 2)) / z**3)
    last = mean((-4 - 3 * z - z**2 + power * (4 - z)) / z**3)
    whole, by_half = jnp.exp(exponent), jnp.exp(exponent / 2)

    def advance(u: Array, force: Any) -> Array:
        pushed = jnp.fft.rfft(jnp.broadcast_to(jnp.asarray(force, u.dtype), u.shape))

        def moved(modes: Array) -> Array:
            field = jnp.fft.irfft(modes, points)
            return pushed - derivative * kept * jnp.fft.rfft(field * field / 2)

        v = jnp.fft.rfft(u)
        at_v = moved(v)
        a = by_half * v + half * at_v
        at_a = moved(a)
        b = by_half * v + half * at_a
        at_b = moved(b)
        at_c = moved(by_half * a + half * (2 * at_b - at_v))
        after = whole * v + first * at_v + 2 * middle * (at_a + at_b) + last * at_c
        return jnp.fft.irfft(after, points).astype(u.dtype)

    return advance
