"""Arcs by diffrax: any of its solvers, and derivatives of every kind through its adjoints.

The general path beside `dop853`: many times slower in batches, but differentiable in the mass
parameter and the thruster as well, and another author's code to check with.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.flows import flow, guard, vector_field

#: diffrax keeps checkpoints for so many steps.
MOST_STEPS = 16_384


class Ends(NamedTuple):
    """Where arcs end, as in `propagation.Arc`."""

    state: jax.Array
    stm: jax.Array | None
    steps: jax.Array
    status: jax.Array
    time: jax.Array


def require_solver(name: str) -> None:
    """Refuse a solver that diffrax does not have.

    Raises:
      ConfigError: There is none of that name; the message lists what there is.
    """
    import diffrax

    def serves(kind: Any) -> bool:
        base = diffrax.AbstractAdaptiveSolver
        if not (inspect.isclass(kind) and issubclass(kind, base)) or inspect.isabstract(kind):
            return False
        # Without a control path or a potential, and made without arguments.
        return getattr(kind, "term_structure", None) is diffrax.AbstractTerm and issubclass(
            kind, diffrax.AbstractERK
        )

    if not serves(getattr(diffrax, name, None)):
        known = sorted(n for n, kind in vars(diffrax).items() if serves(kind))
        raise ConfigError(
            f"engine '{name}' is unknown: dop853, or a solver of diffrax: {', '.join(known)}"
        )


def solve(
    state: jax.Array,
    stm: bool,
    time: jax.Array,
    args: tuple[jax.Array, ...],
    *,
    solver: str,
    tolerance: float,
    control_all: bool,
    radii: tuple[float, float],
    max_steps: int,
) -> Ends:
    """Arcs of states `[count, size]` over times `[count]`, each with its own steps.

    Args:
      state, stm, time, args: As the engine of `propagation` takes them.
      solver: Name of a class of diffrax.
      tolerance: Relative and absolute.
      control_all: Whether errors of the matrix count in the step size.
      radii: Of collision.
      max_steps: Steps an arc may take, at most `MOST_STEPS`.
    """
    import diffrax

    size = state.shape[1]
    field, of = vector_field(size, tangents=stm), flow(size)
    inside = guard(radii, 2 if size in (4, 10) else 3)

    def norm(y: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.mean((y if control_all else y[:size]) ** 2))

    def collided(t: Any, y: jax.Array, args: Any, **_: Any) -> jax.Array:
        return inside(of.as_phase(list(y[:size])), args)

    def one(y: jax.Array, span: jax.Array, args: Any) -> Ends:
        if stm:
            y = jnp.concatenate([y, jnp.eye(size, dtype=y.dtype).ravel()])
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: field(y, args)),
            getattr(diffrax, solver)(),
            jnp.zeros_like(span),
            span,
            None,
            y,
            args,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance, norm=norm),
            event=diffrax.Event(collided),
            max_steps=min(max_steps, MOST_STEPS),
            throw=False,
        )
        assert solution.ys is not None
        assert solution.ts is not None
        end = solution.ys[-1]
        results = diffrax.RESULTS
        status = jnp.where(solution.result == results.event_occurred, Status.COLLISION, Status.DONE)
        status = jnp.where(solution.result == results.max_steps_reached, Status.STEP_LIMIT, status)
        known = (solution.result == results.successful) | (status != Status.DONE)
        status = jnp.where(known, status, Status.STEP_TOO_SMALL).astype(jnp.int32)
        return Ends(
            end[:size],
            end[size:].reshape(size, size) if stm else None,
            solution.stats["num_steps"].astype(jnp.int32),
            status,
            solution.ts[-1],
        )

    shared = tuple(0 if jnp.ndim(a) else None for a in args)
    return jax.vmap(one, (0, 0, shared))(state, time, args)
