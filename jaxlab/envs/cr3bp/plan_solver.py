"""Plans of held thrust made to close, and those that close made to burn less.

Batched steps of least change on the linearised defect, within bounds on thrust, duration and
final mass. Burning less adds one condition to them, a larger final mass: the step is the
defect's restoration and, along all that leaves it as it is, the steepest way to more mass. It is
taken if it lowers an exact penalty,

  penalty |defect| - final mass,

else what is asked for is quartered (sequential linear-quadratic programming with a trust region;
Nocedal and Wright, Numerical Optimization, 2006, section 18.5). It is a local method.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxlab.envs.cr3bp.propagation import Accuracy
from jaxlab.envs.cr3bp.segments import Plan, defect_of, plan_of, throttles
from jaxlab.envs.cr3bp.solving import DAMPING, FACTOR, TIME_STEP, least_change
from jaxlab.envs.cr3bp.transfers import Transfer

#: What a round counts as a usual change of thrust, duration, phase time and final mass.
USUAL = (0.3, 0.1, 0.1, 0.01)
#: Final masses below this part of the first are not looked for.
LEAST_MASS = 0.05
#: Of the exact penalty, well above what a unit of defect is worth in mass.
PENALTY = 10.0
#: Parts of the initial mass that a round asks for: at the beginning, at most, and so few that
#: there is no more to gain; the damping of the steps.
GAIN, MOST_GAIN, LEAST_GAIN = 1e-3, 1e-2, 1e-9
LIGHT = 1e-10
#: A round moves thrust, times and mass by so much at most, by what is usual.
REACH = 1.0


class _Point(NamedTuple):
    """Unknowns, one row each, and their defect with its derivative."""

    unknowns: jax.Array
    residual: jax.Array
    slope: jax.Array

    @property
    def square(self) -> jax.Array:
        total = (self.residual**2).sum(1)
        return jnp.where(jnp.isnan(total), jnp.inf, total)


class _Bounds(NamedTuple):
    """What plans must keep to."""

    transfer: Transfer
    segments: int

    @property
    def axes(self) -> int:
        """2 in the plane, 3 in space."""
        return self.transfer.target.shape[-1] // 2

    def plan(self, rows: jax.Array) -> Plan:
        """The plans of rows of unknowns."""
        return plan_of(rows, self.segments, self.axes)

    def scale(self, count: int) -> jax.Array:
        """Squares of usual changes, `[count, unknowns]`."""
        usual = np.append(np.full(self.segments * self.axes, USUAL[0]), USUAL[1:])
        return jnp.broadcast_to(usual**2, (count, len(usual)))

    def allowed(self, rows: jax.Array) -> jax.Array:
        """The nearest rows within all bounds."""
        plan, mass0 = self.plan(rows), self.transfer.start[-1]
        controls = plan.controls / jnp.maximum(throttles(plan), 1)[..., None]
        duration = jnp.clip(plan.duration, *self.transfer.duration)
        mass = jnp.clip(plan.final_mass, LEAST_MASS * mass0, mass0)
        others = jnp.stack([duration, plan.phase_time, mass], 1)
        return jnp.concatenate([controls.reshape(len(rows), -1), others], 1)

    def along(self, now: _Point, move: jax.Array) -> _Point:
        """The same without the changes that a move would make across bounds."""
        trial, controls = self.plan(now.unknowns + move), self.plan(now.unknowns).controls
        length = jnp.linalg.norm(controls, axis=-1, keepdims=True)
        outside = (throttles(trial) > 1)[..., None] & (length > 0.95)
        normal = jnp.where(outside, controls / jnp.where(length > 0, length, 1), 0)
        count = len(move)
        slope = now.slope[..., :-3].reshape(count, -1, self.segments, self.axes)
        across = jnp.einsum("ncsi,nsi->ncs", slope, normal)
        slope = slope - across[..., None] * normal[:, None]
        others = (now.unknowns + move)[:, -3:]
        free = self.allowed(now.unknowns + move)[:, -3:] == others
        by_controls = slope.reshape(count, -1, self.segments * self.axes)
        return now._replace(
            slope=jnp.concatenate([by_controls, now.slope[..., -3:] * free[:, None]], 2)
        )

    def step(self, now: _Point, damping: jax.Array) -> jax.Array:
        """The step of least change that keeps to the bounds."""
        scale = self.scale(len(now.unknowns))
        move = least_change(now, scale, damping)
        limited = now
        for _ in range(2):  # what is kept at its bound makes others reach theirs
            limited = self.along(limited, move)
            move = least_change(limited, scale, damping)
        return move.at[:, -3:].set(jnp.clip(move[:, -3:], -TIME_STEP, TIME_STEP))


def _kept(better: jax.Array, new: _Point, now: _Point) -> _Point:
    """The new points where they are better."""
    keep = lambda a, b: jnp.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b)  # noqa: E731
    return jax.tree.map(keep, new, now)


@functools.cache
def closed(segments: int, accuracy: Accuracy, rounds: int) -> Any:
    """From rows and a transfer to the points where the defect is least, and steps taken."""

    @jax.jit
    def many(rows: jax.Array, transfer: Transfer) -> tuple[_Point, jax.Array]:
        bounds, count = _Bounds(transfer, segments), len(rows)

        def at(rows: jax.Array) -> _Point:
            return _Point(rows, *defect_of(rows, transfer, segments, accuracy))

        def once(_: Any, carry: Any) -> Any:
            now, damping, accepted = carry
            move = bounds.step(now, damping)
            new = at(bounds.allowed(now.unknowns + move))
            better = (new.square < now.square) & jnp.isfinite(move).all(1)
            damping = jnp.clip(jnp.where(better, damping / FACTOR, damping * FACTOR), 1e-14, 1e6)
            return _kept(better, new, now), damping, accepted + better

        begin = at(bounds.allowed(rows))
        carry = (begin, jnp.full(count, DAMPING), jnp.zeros(count, jnp.int32))
        end, _, accepted = lax.fori_loop(0, rounds, once, carry)
        return end, accepted

    return many


@functools.cache
def lightened(segments: int, accuracy: Accuracy) -> Any:
    """From rows, a transfer, rounds and a tolerance to the points that close with most mass.

    Where none closed it is the last point. Also the steps taken.
    """

    @jax.jit
    def many(
        rows: jax.Array, transfer: Transfer, rounds: jax.Array, tolerance: jax.Array
    ) -> tuple[_Point, jax.Array]:
        bounds, (count, size) = _Bounds(transfer, segments), rows.shape
        mass0, usual = transfer.start[-1], jnp.sqrt(bounds.scale(count))
        of_mass = jnp.zeros((count, 1, size)).at[..., -1].set(1)

        def at(rows: jax.Array) -> _Point:
            return _Point(rows, *defect_of(rows, transfer, segments, accuracy))

        def penalty(of: _Point) -> jax.Array:
            return PENALTY * jnp.sqrt(of.square) - of.unknowns[:, -1] / mass0

        def closes(of: _Point) -> jax.Array:
            return (jnp.abs(of.residual) <= tolerance).all(1)

        def better_of(new: _Point, best: _Point) -> _Point:
            heavier = new.unknowns[:, -1] > best.unknowns[:, -1]
            return _kept(closes(new) & (heavier | ~closes(best)) | ~closes(best), new, best)

        def more(carry: Any) -> jax.Array:
            _, _, gain, _, n = carry
            return (n < rounds) & (gain > LEAST_GAIN).any()

        def once(carry: Any) -> Any:
            now, best, gain, accepted, n = carry
            # The last rounds close what is left.
            wanted = jnp.where(n + 3 < rounds, gain, 0) * mass0
            asked = now._replace(
                residual=jnp.concatenate([now.residual, -wanted[:, None]], 1),
                slope=jnp.concatenate([now.slope, of_mass], 1),
            )
            move = bounds.step(asked, jnp.full(count, LIGHT))
            length = jnp.abs(move / usual).max(1, keepdims=True)
            move = move * jnp.minimum(1, REACH / jnp.maximum(length, 1e-300))
            new = at(bounds.allowed(now.unknowns + move))
            good = (penalty(new) < penalty(now)) & jnp.isfinite(move).all(1)
            now = _kept(good, new, now)
            gain = jnp.where(good, jnp.minimum(1.5 * gain, MOST_GAIN), gain / FACTOR)
            return now, better_of(now, best), gain, accepted + good, n + 1

        begin = at(bounds.allowed(rows))
        none = jnp.zeros(count, jnp.int32)
        carry = (begin, begin, jnp.full(count, GAIN), none, jnp.int32(0))
        _, best, _, accepted, _ = lax.while_loop(more, once, carry)
        return best, accepted

    return many
