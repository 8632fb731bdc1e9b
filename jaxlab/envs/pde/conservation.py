"""The integral of a field, which diffusion without flux keeps."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.pde.grids import padded, spacing
from jaxlab.envs.pde.initial import spline_values
from jaxlab.envs.pde.problems import Problem, Walls

#: Points of the trapezoidal rule for the integral at the start, as in the paper.
SAMPLES = 1000


def integral(problem: Problem, field: Any) -> Float[Array, "*batch"]:
    """The trapezoidal rule over the domain, `[...]`, of fields `[..., points]`.

    Walls without flux are `(4 u1 - u2) / 3`, so that the one-sided slope of second order
    vanishes there; Dirichlet walls have their value; a periodic rule is the mean.

    Raises:
      ConfigError: A field without flux has a single point.
    """
    u = jnp.asarray(field)
    dx = spacing(problem, u.shape[-1])
    if problem.walls is Walls.PERIODIC:
        return dx * jnp.sum(u, axis=-1)
    if problem.walls is Walls.DIRICHLET:
        whole = padded(u, problem.walls, problem.wall_value)
    elif u.shape[-1] < 2:
        raise ConfigError(f"{problem.name}: an integral needs at least 2 points")
    else:
        left = (4 * u[..., :1] - u[..., 1:2]) / 3
        right = (4 * u[..., -1:] - u[..., -2:-1]) / 3
        whole = jnp.concatenate([left, u, right], axis=-1)
    return dx * (jnp.sum(whole, axis=-1) - (whole[..., 0] + whole[..., -1]) / 2)


def initial_integral(problem: Problem, nodes: Any) -> Float[Array, "*batch"]:
    """The integral of the spline through nodes `[..., nodes]`, by a thousand points, `[...]`."""
    half = problem.length / 2
    fine = spline_values(problem, nodes, np.linspace(-half, half, SAMPLES))
    inside = jnp.sum(fine, axis=-1) - (fine[..., 0] + fine[..., -1]) / 2
    return problem.length / (SAMPLES - 1) * inside
