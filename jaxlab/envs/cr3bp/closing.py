"""Conditions under which orbits close, with their derivatives, and Newton's method on them.

For `jaxlab.envs.cr3bp.orbits`: four unknowns (x, z, vy, half period) of orbits that cross the xz
plane at right angles, or seven (state, period) of any.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxlab.envs.cr3bp import dynamics
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.flows import vector_field
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate

#: Where (x, z, vy) stand in a state, and where its conditions do.
FREE, CONDITIONS = np.array([0, 2, 4]), np.array([1, 3, 5])
#: Orbits are integrated to rounding, half a period at a time.
FINE = Accuracy(tolerance=1e-14)
BALLISTIC = vector_field(6)


def state_of(u: jax.Array) -> jax.Array:
    return jnp.zeros((*u.shape[:-1], 6), u.dtype).at[..., FREE].set(u[..., :3])


def rates(state: jax.Array, mu: Any) -> jax.Array:
    """Velocities and accelerations of states `[..., 6]`."""
    return jnp.moveaxis(BALLISTIC(jnp.moveaxis(state, -1, 0), (mu,)), 0, -1)


def conditions(u: jax.Array, mu: Any) -> tuple[jax.Array, jax.Array]:
    """y, vx and vz half a period later, `[..., 3]`, and their derivative, `[..., 3, 4]`."""
    arc = propagate(state_of(u), u[..., 3], mu, stm=True, accuracy=FINE)
    speed = rates(arc.state, mu)
    by_start = arc.stm[..., CONDITIONS, :][..., FREE]
    derivative = jnp.concatenate([by_start, speed[..., CONDITIONS, None]], -1)
    failed = (arc.status != Status.DONE)[..., None]
    return jnp.where(failed, jnp.nan, arc.state[..., CONDITIONS]), derivative


def _halves(u: jax.Array, mu: Any) -> tuple[jax.Array, jax.Array]:
    """The gap between the halves after and before a state, `[..., 6]`, and its derivative.

    By the unknowns (state, period), `[..., 6, 7]`. An instability grows over half the period only.
    """
    state, half = u[..., :6], u[..., 6] / 2
    arcs = propagate(
        jnp.stack([state, state]), jnp.stack([half, -half]), mu, stm=True, accuracy=FINE
    )
    speed = (rates(arcs.state[0], mu) + rates(arcs.state[1], mu)) / 2
    derivative = jnp.concatenate([arcs.stm[0] - arcs.stm[1], speed[..., None]], -1)
    failed = (arcs.status != Status.DONE).any(0)[..., None]
    return jnp.where(failed, jnp.nan, arcs.state[0] - arcs.state[1]), derivative


def _solve(matrix: jax.Array, right: jax.Array, rank: int | None = None) -> jax.Array:
    """Shortest least-squares solution; where a family branches, matrices lose rank."""
    u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
    kept = (s > 1e-12 * s[..., :1]) & (jnp.arange(s.shape[-1]) < (rank or s.shape[-1]))
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    projected = jnp.einsum("...ij,...i->...j", u, right) * inverse
    return jnp.einsum("...ji,...j->...i", vt, projected)


def _newton(
    residual: Any, u: jax.Array, tolerance: Any, iterations: int, rank: int | None = None
) -> tuple[jax.Array, jax.Array]:
    """Newton on a residual with its derivative; the unknowns and the residual's largest part."""

    def size(values: jax.Array) -> jax.Array:
        return jnp.abs(values).max(-1)

    def goes_on(carry: Any) -> jax.Array:
        _, values, _, n = carry
        return (n < iterations) & (size(values) > tolerance).any()

    def step(carry: Any) -> Any:
        u, values, derivative, n = carry
        change = -_solve(derivative, values, rank)
        # Far from the orbit a full step may leave the problem: at most a tenth of the unknowns.
        longest = 0.1 * jnp.maximum(jnp.linalg.norm(u, axis=-1), 1e-3)
        length = jnp.linalg.norm(change, axis=-1)
        change = change * jnp.minimum(1, longest / jnp.maximum(length, 1e-300))[..., None]
        new = u + change
        new_values, new_derivative = residual(new)
        # One that is there stays: rounding would move it about.
        there = (size(values) <= tolerance)[..., None]
        return (
            jnp.where(there, u, new),
            jnp.where(there, values, new_values),
            jnp.where(there[..., None], derivative, new_derivative),
            n + 1,
        )

    values, derivative = residual(u)
    u, values, _, _ = lax.while_loop(goes_on, step, (u, values, derivative, jnp.int32(0)))
    return u, jnp.where(jnp.isfinite(size(values)), size(values), jnp.inf)


@functools.partial(jax.jit, static_argnames=("iterations",))
def mirrored(
    u: jax.Array, mu: Any, row: jax.Array, aim: jax.Array, tolerance: Any, *, iterations: int
) -> tuple[jax.Array, jax.Array]:
    """Unknowns (x, z, vy, half period) that meet the three conditions and `row . u = aim`."""

    def residual(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, derivative = conditions(u, mu)
        values = jnp.concatenate([values, ((row * u).sum(-1) - aim)[..., None]], -1)
        return values, jnp.concatenate([derivative, row[..., None, :]], -2)

    return _newton(residual, u, tolerance, iterations)


@functools.partial(jax.jit, static_argnames=("fixed", "iterations"))
def closed(
    u: jax.Array, mu: Any, tolerance: Any, *, fixed: str | None, iterations: int
) -> tuple[jax.Array, jax.Array]:
    """Unknowns (state, period) whose halves meet.

    The gap lies in the surface of one energy, so that one of its six rows follows from the
    others; a row against sliding along the orbit and one for what is fixed take its place.
    """
    energy = lambda u: dynamics.jacobi_constant(u[..., :6], mu)  # noqa: E731
    first = u

    def residual(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, derivative = _halves(u, mu)
        still = jnp.zeros_like(u[..., 0])
        along = jnp.concatenate([rates(u[..., :6], mu), still[..., None]], -1)
        more, slopes = [still], [along]
        if fixed == "period":
            more.append(u[..., 6] - first[..., 6])
            slopes.append(jnp.broadcast_to(jnp.eye(7)[6], u.shape))
        elif fixed == "jacobi":
            more.append(energy(u) - energy(first))
            slopes.append(jax.grad(lambda u: energy(u).sum())(u))
        values = jnp.concatenate([values, jnp.stack(more, -1)], -1)
        return values, jnp.concatenate([derivative, jnp.stack(slopes, -2)], -2)

    return _newton(residual, u, tolerance, iterations, rank=6 if fixed is None else 7)
