"""A step of DOP853 for equations of mechanics: stages, the step's end, and its error.

For q'' = f(q, q', s), s' = g(q, q', s), with components that are arrays with lanes last; see
`jaxlab.envs.cr3bp.dop853`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxlab.envs.cr3bp import dynamics
from jaxlab.envs.cr3bp.tableau import Row, matrices, tableau

Components = tuple[jax.Array, ...]


class Phase(NamedTuple):
    """Where trajectories are: tuples of arrays with a common axis of trajectories.

    Attributes:
      position: q.
      velocity: q', of the same shapes.
      rest: s, what is of first order.
    """

    position: Components
    velocity: Components
    rest: Components = ()


#: From a phase with lanes last and arguments to accelerations and rates of the rest.
Rates = Callable[[Phase, Any], tuple[Sequence[jax.Array], Sequence[jax.Array]]]


class Error(NamedTuple):
    """Which error sets the step size; static but for the tolerances.

    Attributes:
      relative: Tolerance of each component by its size.
      absolute: Tolerance added to it.
      controlled: Which components count, of q and q' together and of s; all by default. With
        those of the state alone, tangents beside it are the derivative of the discrete map.
    """

    relative: Any = 1e-12
    absolute: Any = 1e-12
    controlled: tuple[tuple[bool, ...], tuple[bool, ...]] | None = None


class Stages(NamedTuple):
    """Accelerations and rates of the rest, of each stage."""

    accelerations: list[Sequence[jax.Array]]
    rates: list[Sequence[jax.Array]]


def _combined(row: Row, stages: list[Sequence[jax.Array]], component: int) -> Any:
    """The row of coefficients times a component of the stages; 0 for a row of zeros."""
    terms = [a * stages[j][component] for j, a in row]
    return functools.reduce(operator.add, terms) if terms else 0


def moved(phase: Phase, h: Any, time: float, rows: tuple[Row, Row], stages: Stages) -> Phase:
    """A phase after `time` steps of size `h`, with slopes combined by (row, row x tableau)."""
    first, second = rows
    pairs = list(enumerate(zip(phase.position, phase.velocity, strict=True)))
    bends, rates = stages
    return Phase(
        tuple(q + h * (time * v + h * _combined(second, bends, n)) for n, (q, v) in pairs),
        tuple(v + h * _combined(first, bends, n) for n, (_, v) in pairs),
        tuple(s + h * _combined(first, rates, n) for n, s in enumerate(phase.rest)),
    )


def stages_of(rates: Rates, phase: Phase, h: jax.Array, args: Any) -> Stages:
    """The stages of a step of size `h [lanes]`."""
    stages = Stages([], [])
    for time, rows in tableau().stages:
        at = moved(phase, h, time, rows, stages) if time else phase
        # Slopes that are no sums of `dynamics.summed` may be computed again by all who use them.
        slopes = lax.optimization_barrier(tuple(map(tuple, rates(at, args))))
        stages.accelerations.append(slopes[0])
        stages.rates.append(slopes[1])
    return stages


def step(rates: Rates, phase: Phase, h: jax.Array, args: Any) -> Phase:
    """One step of size `h [lanes]` from a phase with lanes last."""
    return moved(phase, h, 1.0, tableau().weights, stages_of(rates, phase, h, args))


def step_in_loop(rates: Rates, phase: Phase, h: jax.Array, args: Any) -> Phase:
    """The same step with its stages in a loop, for phases of leaves `[lanes]`.

    Quicker to compile than `step` and slower to run: for what is done rarely.
    """
    table = matrices()
    groups = [jnp.stack(leaves) if leaves else jnp.zeros((0, *h.shape)) for leaves in phase]
    q, v, s = groups

    def at(time: Any, first: Any, second: Any, slopes: Any) -> Phase:
        bends, others = slopes
        along = jnp.tensordot(first, bends, 1)
        twice = jnp.tensordot(second, bends, 1)
        position = q + h * (time * v + h * twice)
        rest = s + h * jnp.tensordot(first, others, 1)
        return Phase(tuple(position), tuple(v + h * along), tuple(rest))

    def stage(n: Any, slopes: Any) -> Any:
        time, first, second = (jnp.asarray(of)[n] for of in table[:3])
        found = rates(at(time, first, second, slopes), args)
        return tuple(
            whole.at[n].set(jnp.stack(jnp.broadcast_arrays(*part, h)[:-1])) if len(part) else whole
            for whole, part in zip(slopes, found, strict=True)
        )

    size = len(table.times)
    none = tuple(jnp.zeros((size, *of.shape)) for of in (v, s))
    slopes = lax.fori_loop(0, size, stage, none)
    return at(1.0, table.weights, table.double_weights, slopes)


def error_of(old: Phase, h: jax.Array, stages: Stages, error: Error) -> jax.Array:
    """Estimated error of a step by the tolerance, root mean square over components, `[lanes]`.

    Positions and velocities are an axis of two, so that the sums are one loop (`summed`).
    """
    pairs, rest = error.controlled or ((True,) * len(old.position), (True,) * len(old.rest))
    bends, rates = stages
    totals: list[tuple[Any, ...]] = []
    size = 0

    def squares(a: Any, b: Any, errors: list[Any]) -> tuple[Any, ...]:
        scale = 1 / (error.absolute + error.relative * jnp.maximum(jnp.abs(a), jnp.abs(b)))
        return tuple((e * scale) ** 2 for e in errors)

    for n, wanted in enumerate(pairs):
        if not wanted:
            continue
        q, v = old.position[n], old.velocity[n]
        first = lax.broadcasted_iota(jnp.int32, (2, *q.shape), 0) == 0
        by_step = jnp.where(first, h, 1)

        def both(rows: tuple[Row, Row], n: int = n, shape: Any = (2, *(1,) * q.ndim)) -> Any:
            # Weights of both estimates sum to zero: the velocity at the start drops out.
            places = sorted({j for row in rows for j, _ in row})
            slopes, double = (dict(row) for row in rows)
            terms = [
                np.reshape([double.get(j, 0.0), slopes.get(j, 0.0)], shape) * bends[j][n]
                for j in places
            ]
            return functools.reduce(operator.add, terms)

        a = jnp.where(first, q, v)
        b = jnp.where(first, q + h * v, v) + h * (by_step * both(tableau().weights))
        # A loop for each pair: LLVM vectorises no longer ones.
        sums = dynamics.summed(squares(a, b, [by_step * both(rows) for rows in tableau().errors]))
        totals.append(tuple(s.sum(tuple(range(s.ndim - 1))) for s in sums))
        size += 2 * (q.size // q.shape[-1])
    for n, wanted in enumerate(rest):
        if wanted:
            s = old.rest[n]
            new = s + h * _combined(tableau().weights[0], rates, n)
            errors = [_combined(rows[0], rates, n) for rows in tableau().errors]
            totals.append(tuple(e.sum(tuple(range(e.ndim - 1))) for e in squares(s, new, errors)))
            size += s.size // s.shape[-1]
    fifth, third = (functools.reduce(operator.add, of) for of in zip(*totals, strict=True))
    spread = jnp.sqrt(jnp.maximum((fifth + 0.01 * third) * size, jnp.finfo(h.dtype).tiny))
    return jnp.abs(h) * fifth / spread


def reach(leaf: jax.Array) -> jax.Array:
    """Sum of squares of a component, `[lanes]`."""
    return (leaf**2).sum(tuple(range(leaf.ndim - 1)))
