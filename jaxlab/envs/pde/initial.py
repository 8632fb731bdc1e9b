"""Random initial conditions: splines through nodes drawn by numpy's legacy generator."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.pde.grids import uniform_points
from jaxlab.envs.pde.problems import Problem, Walls

#: Nodes of an initial condition, whatever the grid.
NODES = 14


def draw_nodes(
    problem: Problem,
    seeds: Sequence[int],
    nodes: int = NODES,
    bounds: tuple[float, float] | None = None,
) -> np.ndarray:
    """Values at interior nodes, float64 `[seeds, nodes]`, uniform between the problem's bounds.

    Row by row what `numpy.random.seed(s)` and one `numpy.random.uniform` give: the paper's
    initial conditions.

    Args:
      problem: Gives the bounds.
      seeds: One for each row.
      nodes: Values of a row.
      bounds: In place of the problem's.
    """
    low, high = problem.draw if bounds is None else bounds
    if nodes < 4:
        raise ConfigError(f"{nodes} nodes: expected at least 4, as the spline needs them")
    return np.array([np.random.RandomState(s).uniform(low, high, nodes) for s in seeds])


def spline_values(problem: Problem, nodes: Any, points: Any) -> Float[Array, "*batch points"]:
    """A cubic spline through nodes and walls, at any points of the domain.

    With Dirichlet walls the ends are not-a-knot and the wall is the wall's value; without
    flux the slope is zero and the wall's value is `(4 u1 - u2) / 3`; a periodic spline
    begins with its first node at the left end. Linear in the nodes, so differentiable.

    Args:
      problem: Says what the walls are.
      nodes: Values at equidistant nodes `[..., nodes]`, of `draw_nodes`; their dtype holds.
      points: Where the spline is wanted `[points]`, numbers known while tracing.
    """
    nodes = jnp.asarray(nodes)
    inner, wall = _basis(problem, nodes.shape[-1], tuple(np.asarray(points, float).tolist()))
    found = jnp.matmul(nodes, jnp.asarray(inner, nodes.dtype), precision="highest")
    return found + jnp.asarray(problem.wall_value * wall, nodes.dtype)


@functools.lru_cache(maxsize=64)
def _basis(
    problem: Problem, nodes: int, points: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Splines through unit vectors `[nodes, points]`, and one with unit walls `[points]`."""
    from scipy.interpolate import CubicSpline

    if problem.walls is Walls.PERIODIC:
        where = np.append(uniform_points(problem, nodes), problem.length / 2)
        spline = CubicSpline(
            where, np.vstack([np.eye(nodes), np.eye(nodes)[:1]]), bc_type="periodic"
        )
        return spline(np.array(points)).T, np.zeros(len(points))
    half = problem.length / 2
    where = np.linspace(-half, half, nodes + 2)
    if problem.walls is Walls.NEUMANN:
        inner = np.eye(nodes)
        left, right = (4 * inner[0] - inner[1]) / 3, (4 * inner[-1] - inner[-2]) / 3
        flat = ((1, np.zeros(nodes)), (1, np.zeros(nodes)))
        spline = CubicSpline(where, np.vstack([left, inner, right]), bc_type=flat)
        return spline(np.array(points)).T, np.zeros(len(points))
    values = CubicSpline(where, np.eye(nodes + 2))(np.array(points)).T
    return values[1:-1], values[0] + values[-1]


def initial_values(problem: Problem, nodes: Any, points: int) -> Float[Array, "*batch points"]:
    """The spline of `spline_values` on the uniform grid of so many points."""
    return spline_values(problem, nodes, uniform_points(problem, points))
