"""Points in space, and the second difference with its walls."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.pde.problems import Problem, Walls

_PADDING = {Walls.NEUMANN: "edge", Walls.GHOST: "reflect", Walls.PERIODIC: "wrap"}


def spacing(problem: Problem, points: int, walls: Walls | None = None) -> float:
    """Distance of neighbours on a uniform grid of so many points.

    Args:
      problem: Says what its grid has of the walls.
      points: Points of the grid.
      walls: In place of those of the problem.

    Raises:
      ConfigError: There are too few points.
    """
    walls = problem.walls if walls is None else walls
    least = {Walls.PERIODIC: 3, Walls.GHOST: 3}.get(walls, 1)
    if points < least:
        raise ConfigError(f"{problem.name}: {points} points in space, expected at least {least}")
    intervals = {Walls.PERIODIC: points, Walls.GHOST: points - 1}.get(walls, points + 1)
    return problem.length / intervals


def uniform_points(problem: Problem, points: int) -> np.ndarray:
    """Equidistant points `[points]`, walls left out; a periodic grid begins at the left end."""
    half = problem.length / 2
    spacing(problem, points)
    if problem.walls is Walls.PERIODIC:
        return np.linspace(-half, half, points + 1)[:-1]
    return np.linspace(-half, half, points + 2)[1:-1]


def chebyshev_points(problem: Problem, points: int) -> np.ndarray:
    """Interior Chebyshev extrema `-(length / 2) cos(pi i / (points + 1))`, ascending `[points]`.

    Raises:
      ConfigError: The problem is periodic, where they make no sense.
    """
    if problem.walls is Walls.PERIODIC:
        raise ConfigError(f"{problem.name}: is periodic; Chebyshev points need walls")
    spacing(problem, points)
    index = np.arange(1, points + 1)
    return (problem.length / 2) * -np.cos(np.pi * index / (points + 1))


def padded(u: Float[Array, "*batch points"], walls: Walls, wall_value: float) -> Array:
    """The field with one more value at either end, `[..., points + 2]`."""
    width = [(0, 0)] * (u.ndim - 1) + [(1, 1)]
    if walls is Walls.DIRICHLET:
        return jnp.pad(u, width, constant_values=wall_value)
    return jnp.pad(u, width, mode=_PADDING[walls])


def second_difference(
    u: Float[Array, "*batch points"], walls: Walls, wall_value: float
) -> Float[Array, "*batch points"]:
    """`u[i+1] - 2 u[i] + u[i-1]` with the values that the walls imply."""
    wide = padded(u, walls, wall_value)
    return wide[..., 2:] - 2 * u + wide[..., :-2]


def central_difference(
    u: Float[Array, "*batch points"], walls: Walls, wall_value: float
) -> Float[Array, "*batch points"]:
    """`(u[i+1] - u[i-1]) / 2` with the values that the walls imply."""
    wide = padded(u, walls, wall_value)
    return (wide[..., 2:] - wide[..., :-2]) / 2
