"""Implicit diffusion: one matrix, factored once, for all steps and all fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.envs.pde.problems import Walls

#: Fields from which elimination over all of them at once is quicker than LAPACK one by one.
MANY = 256


def implicit_diffusion(
    rhs: Float[Array, "*batch points"], alpha: Any, walls: Walls, wall_value: float
) -> Float[Array, "*batch points"]:
    """Solve `u - alpha * second_difference(u) = rhs`.

    Args:
      rhs: Right-hand sides; all share one matrix.
      alpha: The diffusion number of an implicit step, `[]`.
      walls: Of the field that is solved for.
      wall_value: Held at Dirichlet walls.
    """
    return diffusion_solver(rhs.shape[-1], jnp.asarray(alpha, rhs.dtype), walls, wall_value)(rhs)


def diffusion_solver(
    points: int, alpha: Array, walls: Walls, wall_value: float
) -> Callable[[Array], Array]:
    """`implicit_diffusion` as a function of `rhs` alone, factored outside of a loop of steps."""
    if walls is Walls.PERIODIC:
        return _periodic(points, alpha)
    dtype = alpha.dtype
    beside_wall = np.zeros(points)
    beside_wall[0] += 1
    beside_wall[-1] += 1
    ends = jnp.asarray(beside_wall, dtype)
    main = jnp.full(points, 1 + 2 * alpha, dtype)
    lower = jnp.full(points, -alpha, dtype).at[0].set(0)
    upper = jnp.full(points, -alpha, dtype).at[-1].set(0)
    if walls is Walls.NEUMANN:
        main = main - alpha * ends
    elif walls is Walls.GHOST:
        upper, lower = upper.at[0].multiply(2), lower.at[-1].multiply(2)
    factors = _factors(lower, main, upper)

    def solve(rhs: Array) -> Array:
        if walls is Walls.DIRICHLET:
            rhs = rhs + alpha * jnp.asarray(wall_value, dtype) * ends
        flat = rhs.reshape(-1, points).T
        if flat.shape[1] < MANY:
            solved = jax.lax.linalg.tridiagonal_solve(lower, main, upper, flat)
        else:
            solved = _eliminate(flat, lower, *factors)
        return solved.T.reshape(rhs.shape)

    return solve


def _periodic(points: int, alpha: Array) -> Callable[[Array], Array]:
    """By Fourier modes, in which the second difference is diagonal."""
    angles = 2 * np.pi * np.arange(points // 2 + 1) / points
    symbol = 1 + alpha * jnp.asarray(2 - 2 * np.cos(angles), alpha.dtype)

    def solve(rhs: Array) -> Array:
        return jnp.fft.irfft(jnp.fft.rfft(rhs) / symbol, points).astype(rhs.dtype)

    return solve


def _factors(lower: Array, main: Array, upper: Array) -> tuple[Array, Array]:
    """Reciprocal pivots and scaled upper diagonal of the elimination, `[points]` each."""

    def down(above: Array, row: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        low, diagonal, up = row
        pivot = 1 / (diagonal - low * above)
        return up * pivot, (pivot, up * pivot)

    return jax.lax.scan(down, jnp.zeros((), main.dtype), (lower, main, upper))[1]


def _eliminate(rhs: Array, lower: Array, pivot: Array, upper: Array) -> Array:
    """Both sweeps, row by row over all fields `[points, fields]`; the matrix is diagonally dominant."""

    def down(above: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        known, low, scale = row
        found = (known - low * above) * scale
        return found, found

    def up(below: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        known, factor = row
        found = known - factor * below
        return found, found

    none = jnp.zeros_like(rhs[0])
    swept = jax.lax.scan(down, none, (rhs, lower, pivot))[1]
    return jax.lax.scan(up, none, (swept, upper), reverse=True)[1]
