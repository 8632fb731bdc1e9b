"""Solutions: by a scheme, refined references, and forecasts from the last rows of a context."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.pde.grids import chebyshev_points, padded, spacing, uniform_points
from jaxlab.envs.pde.initial import spline_values
from jaxlab.envs.pde.problems import Coefficients, Problem, Scheme, Walls
from jaxlab.envs.pde.schemes import stepper
from jaxlab.envs.pde.stability import applicable, check_stable, within_bounds

#: Refinement in space of references on uniform points, and of those at Chebyshev points.
REFINE, REFINE_CHEBYSHEV = 10, 20


def solve(
    problem: Problem,
    scheme: Scheme | str,
    initial: Any,
    *,
    steps: int,
    duration: Any = None,
    coefficients: Coefficients | None = None,
    velocity: Any = None,
    walls: Walls | None = None,
) -> Float[Array, "*batch rows points"]:
    """Integrate an equation from an initial field.

    Differentiable in the field, the velocity, the duration and the coefficients, and may be
    mapped over any of them. What is known when it is called is checked before anything
    runs; where coefficients, duration or (for advection) the field are traced, a solution
    beyond a stability bound is NaN instead.

    Args:
      problem: The equation.
      scheme: One of `problem.schemes`.
      initial: `[..., points]`; interior points, or what `walls` says. Its dtype holds.
      steps: Time steps.
      duration: Time span, by default that of the problem.
      coefficients: In place of the defaults.
      velocity: `u_t` at the start of the wave equation, `[..., points]`; at rest by default.
      walls: In place of those of the problem.

    Raises:
      ConfigError: The scheme does not apply or is unstable; the text names the bound.
      DataError: The field is empty or not finite.
    """
    scheme = applicable(problem, scheme)
    duration = problem.duration if duration is None else duration
    c = problem.coefficients() if coefficients is None else coefficients
    u = _field(problem, initial)
    points = u.shape[-1]
    check_run(problem, scheme, points, steps, duration, c, u, walls)
    return _integrate(problem, scheme, steps, 1, walls, u, velocity, duration, c)


def check_run(
    problem: Problem,
    scheme: Scheme,
    points: int,
    steps: int,
    duration: Any,
    coefficients: Coefficients,
    field: Any,
    walls: Walls | None = None,
) -> None:
    """Refuse what could not be integrated, as far as it is known; see `solve`."""
    if steps < 1:
        raise ConfigError(f"{problem.name}: {steps} time steps, expected at least 1")
    dx = spacing(problem, points, walls)
    known = (duration, coefficients) + ((field,) if problem.amplitude else ())
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(known)):
        return
    spans = np.asarray(duration, float)
    if not (np.all(np.isfinite(spans)) and np.all(spans > 0)):
        raise ConfigError(f"{problem.name}: duration {duration}, expected a number above 0")
    amplitude = _amplitude(problem, field)
    check_stable(problem, scheme, dx, float(np.max(spans)) / steps, coefficients, float(amplitude))


def _amplitude(problem: Problem, field: Any) -> Any:
    """What advection may move with: Kuramoto-Sivashinsky grows to its own amplitude."""
    if not problem.amplitude:
        return 0.0
    largest = jnp.max(jnp.abs(field))
    if problem.name == "kuramoto_sivashinsky":
        return jnp.maximum(largest, problem.amplitude)
    return largest


def _field(problem: Problem, initial: Any) -> Array:
    u = jnp.asarray(initial)
    if not jnp.issubdtype(u.dtype, jnp.floating):
        u = u.astype(jnp.result_type(float))
    if u.ndim < 1 or 0 in u.shape:
        raise DataError(f"{problem.name}: initial field of shape {u.shape}, expected [..., points]")
    if not isinstance(u, jax.core.Tracer) and not bool(jnp.all(jnp.isfinite(u))):
        raise DataError(f"{problem.name}: the initial field has values that are not finite")
    return u


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _integrate(
    problem: Problem,
    scheme: Scheme,
    steps: int,
    substeps: int,
    walls: Walls | None,
    u: Array,
    velocity: Any,
    duration: Any,
    coefficients: Coefficients,
) -> Array:
    """Every `substeps`-th of the fields, `[..., steps + 1, points]`."""
    points = u.shape[-1]
    dt = jnp.asarray(duration, u.dtype) / (steps * substeps)
    c = jax.tree.map(lambda leaf: jnp.asarray(leaf, u.dtype), coefficients)
    if velocity is not None:
        velocity = jnp.broadcast_to(jnp.asarray(velocity, u.dtype), u.shape)
    run = stepper(problem, scheme, points, dt, c, walls)
    none = jnp.zeros((), u.dtype)

    def several(state: Any, _: None) -> tuple[Any, Array]:
        # Two at a time, so that what leapfrog hands on need not be copied.
        state = jax.lax.fori_loop(0, substeps, lambda _, s: run.advance(s, none), state, unroll=2)
        return state, run.field(state)

    _, rows = jax.lax.scan(several, run.start(u, velocity), None, length=steps)
    dx = spacing(problem, points, walls)
    stable = within_bounds(problem, scheme, dx, dt, c, _amplitude(problem, u))
    rows = jnp.where(stable, jnp.concatenate([u[None], rows]), jnp.nan)
    return jnp.moveaxis(rows, 0, -2)


def refinement(
    problem: Problem,
    points: int,
    steps: int,
    duration: float,
    speed: float,
    refine: int = REFINE,
) -> int:
    """Time steps of a reference for each step of the coarse solution.

    The paper's expressions, in double precision: 111 for tenfold points where diffusion
    limits the step, the Courant number 0.9 for waves. Periodic references keep 1/2 with
    the problem's amplitude.
    """
    coarse = spacing(problem, points)
    if problem.walls is Walls.PERIODIC:
        fine = coarse / refine
        return max(1, math.ceil(problem.amplitude * duration / steps / (fine / 2)))
    fine = problem.length / ((points + 1) * refine)
    if problem.speed:
        return max(1, math.ceil(speed * (duration / steps) / (0.9 * fine)))
    return math.ceil((coarse / fine) ** 2 * 1.1)


def reference(
    problem: Problem,
    nodes: Any,
    points: int,
    steps: int,
    *,
    duration: float | None = None,
    coefficients: Coefficients | None = None,
    sampling: Literal["uniform", "chebyshev"] = "uniform",
    refine: int | None = None,
) -> Float[Array, "*batch rows points"]:
    """The refined solution from a spline through nodes, at the points of a coarse grid.

    Args:
      problem: The equation.
      nodes: Values at the spline's nodes, `[..., nodes]`; their dtype holds.
      points: Points of the coarse grid.
      steps: Steps of the coarse solution.
      duration: Time span, by default that of the problem.
      coefficients: In place of the defaults.
      sampling: At uniform points, or by linear interpolation at Chebyshev points.
      refine: Fine intervals for each coarse one; 10, or 20 for Chebyshev points.

    Raises:
      ConfigError, DataError: As `solve`.
    """
    if sampling not in ("uniform", "chebyshev"):
        raise ConfigError(f"sampling {sampling!r}: expected uniform or chebyshev")
    if refine is None:
        refine = REFINE if sampling == "uniform" else REFINE_CHEBYSHEV
    if refine < 1 or steps < 1:
        raise ConfigError(f"{problem.name}: refine = {refine}, {steps} steps: expected at least 1")
    duration = problem.duration if duration is None else duration
    c = problem.coefficients() if coefficients is None else coefficients
    speed = 0.0
    if problem.speed:
        if isinstance(c.speed, jax.core.Tracer):
            raise ConfigError(
                "wave: the speed decides on the reference's steps, so it must be known"
            )
        speed = float(np.max(np.asarray(c.speed)))
    substeps = refinement(problem, points, steps, duration, speed, refine)
    where, walls = fine_points(problem, points, refine)
    fine = spline_values(problem, _field(problem, nodes), where)
    check_run(problem, problem.reference, len(where), steps * substeps, duration, c, fine, walls)
    rows = _integrate(problem, problem.reference, steps, substeps, walls, fine, None, duration, c)
    return _sampled(problem, rows, points, refine, sampling)


def fine_points(problem: Problem, points: int, refine: int = REFINE) -> tuple[np.ndarray, Walls]:
    """Points of a reference's grid, and its walls: without flux they are points themselves."""
    if problem.walls is Walls.PERIODIC:
        return uniform_points(problem, points * refine), problem.walls
    half = problem.length / 2
    whole = np.linspace(-half, half, (points + 1) * refine + 1)
    if problem.walls is Walls.NEUMANN:
        return whole, Walls.GHOST
    return whole[1:-1], problem.walls


def _sampled(problem: Problem, rows: Array, points: int, refine: int, sampling: str) -> Array:
    """Coarse points of fine rows."""
    if sampling == "uniform":
        first = {Walls.PERIODIC: 0, Walls.NEUMANN: refine}.get(problem.walls, refine - 1)
        return rows[..., first : first + (points - 1) * refine + 1 : refine]
    whole = rows
    if problem.walls is Walls.DIRICHLET:
        whole = padded(rows, problem.walls, problem.wall_value)
    half = problem.length / 2
    grid = np.linspace(-half, half, whole.shape[-1])
    wanted = chebyshev_points(problem, points)
    left = np.clip(np.searchsorted(grid, wanted, side="right") - 1, 0, len(grid) - 2)
    share = jnp.asarray((wanted - grid[left]) / (grid[left + 1] - grid[left]), rows.dtype)
    return whole[..., left] + share * (whole[..., left + 1] - whole[..., left])


def forecast(
    problem: Problem,
    scheme: Scheme | str,
    context: Any,
    *,
    steps: int,
    dt: Any,
    coefficients: Coefficients | None = None,
) -> Float[Array, "*batch rows points"]:
    """Continue the last rows of a context: the paper's finite-difference baselines.

    First-order equations begin with the last row. The wave equation begins leapfrog with the
    last two rows, and Crank-Nicolson with a velocity from the last three (backward
    differences of second order; of first order where there are two).

    Args:
      problem: The equation.
      scheme: One of `problem.schemes`.
      context: `[..., rows, points]`, of the coarse grid.
      steps: Rows to forecast.
      dt: Time between rows.
      coefficients: In place of the defaults.

    Raises:
      ConfigError: The scheme does not apply or is unstable.
      DataError: There are too few rows, or values that are not finite.
    """
    scheme = applicable(problem, scheme)
    c = problem.coefficients() if coefficients is None else coefficients
    rows = _field(problem, context)
    least = 2 if problem.speed else 1
    if rows.ndim < 2 or rows.shape[-2] < least:
        raise DataError(
            f"{problem.name} by {scheme}: a context of shape {rows.shape}, expected "
            f"[..., rows, points] with at least {least} rows"
        )
    check_run(problem, scheme, rows.shape[-1], steps, dt * steps, c, rows[..., -1, :])
    return _forecast(problem, scheme, steps, rows[..., -3:, :], dt, c)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _forecast(
    problem: Problem, scheme: Scheme, steps: int, rows: Array, dt: Any, coefficients: Coefficients
) -> Array:
    dt = jnp.asarray(dt, rows.dtype)
    c = jax.tree.map(lambda leaf: jnp.asarray(leaf, rows.dtype), coefficients)
    points = rows.shape[-1]
    run = stepper(problem, scheme, points, dt, c)
    last = rows[..., -1, :]
    if scheme is Scheme.LEAPFROG:
        state = (rows[..., -2, :], last)
    elif problem.speed and rows.shape[-2] == 2:
        state = run.start(last, (last - rows[..., -2, :]) / dt)
    elif problem.speed:
        slope = 3 * last - 4 * rows[..., -2, :] + rows[..., -3, :]
        state = run.start(last, slope / (2 * dt))
    else:
        state = run.start(last, None)
    none = jnp.zeros((), rows.dtype)

    def once(state: Any, _: None) -> tuple[Any, Array]:
        state = run.advance(state, none)
        return state, run.field(state)

    _, found = jax.lax.scan(once, state, None, length=steps)
    dx = spacing(problem, points)
    stable = within_bounds(problem, scheme, dx, dt, c, _amplitude(problem, last))
    return jnp.moveaxis(jnp.where(stable, found, jnp.nan), 0, -2)
