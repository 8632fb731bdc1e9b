"""From costates near a transfer to a transfer: batched Levenberg-Marquardt on the gap."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.flows import vector_field
from jaxlab.envs.cr3bp.objective import Objective, checked_costates, columns_of_costates, departure
from jaxlab.envs.cr3bp.propagation import propagate, solve
from jaxlab.envs.cr3bp.transfers import Transfer

#: Damping at the start, by the mean square of the weighted residuals' change, and its factor.
DAMPING, FACTOR = 1e-2, 4.0
#: How far the times may move in a round, in units of the system.
TIME_STEP = 0.5
#: Beyond this damping a row is stuck, and gaps of this part of the tolerance are closed: nothing
#: more is done for either, and the search ends where there is no other.
STUCK, CLOSED = 1e6, 1e-4


class Solved(NamedTuple):
    """Transfers that were looked for.

    Attributes:
      costates: The unknown ones at departure, `[..., d]`.
      time: Time of flight.
      phase_time: Time on the target orbit after its stored state, in [0, period).
      position_gap, velocity_gap: What remains.
      propellant: Burnt part of the initial mass.
      solved: Whether both gaps are within the tolerance.
      rounds: Steps that made the gap smaller.
    """

    costates: Float[Array, "*batch unknowns"]
    time: Float[Array, "*batch"]
    phase_time: Float[Array, "*batch"]
    position_gap: Float[Array, "*batch"]
    velocity_gap: Float[Array, "*batch"]
    propellant: Float[Array, "*batch"]
    solved: Bool[Array, "*batch"]
    rounds: Int[Array, "*batch"]


class _Point(NamedTuple):
    """Unknowns, one row each, and the gap with its derivative."""

    unknowns: jax.Array
    residual: jax.Array
    slope: jax.Array
    mass: jax.Array

    @property
    def square(self) -> jax.Array:
        total = (self.residual**2).sum(1)
        return jnp.where(jnp.isnan(total), jnp.inf, total)


def solve_transfers(
    costates: Any,
    transfer: Transfer,
    objective: Objective | None = None,
    *,
    rounds: int = 60,
    tolerance: tuple[float, float] = (1e-4, 1e-5),
) -> Solved:
    """Make the gap vanish by costates, time of flight and place on the orbit together.

    Times begin at the objective's best. Steps are those of least change that the damped
    linearised gap allows, since there are more unknowns than conditions.

    Args:
      costates: Where to begin, `[..., d]`.
      transfer: From where to where.
      objective: How costates are meant and arcs integrated.
      rounds: Steps to try at most.
      tolerance: Of position and velocity, in units of the system (those of public scripts for
        the group's solver).

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A shape or number is wrong.
    """
    objective = objective or Objective()
    costates = checked_costates(objective, costates, transfer, batch=True)
    if rounds < 1 or not all(0 < t < np.inf for t in tolerance):
        raise ConfigError(f"rounds {rounds} and tolerance {tolerance} must be positive")
    flat = costates.reshape(-1, costates.shape[-1])
    found = _solve(objective)(flat, transfer, jnp.int32(rounds), jnp.asarray(tolerance))
    return jax.tree.map(lambda leaf: leaf.reshape(*costates.shape[:-1], *leaf.shape[1:]), found)


@functools.cache
def _solve(objective: Objective) -> Any:
    @jax.jit
    def many(
        costates: jax.Array, transfer: Transfer, rounds: jax.Array, tolerance: jax.Array
    ) -> Solved:
        size = transfer.target.shape[-1]
        at = functools.partial(_point, objective, transfer)
        cost = objective.cost(costates, transfer)
        begin = at(jnp.concatenate([costates, cost.time[:, None], cost.phase_time[:, None]], 1))
        # Changes count by the size of what they change.
        usual = jnp.sqrt(jnp.nanmean(costates**2, 0)).max()
        scale = jnp.append(jnp.full(costates.shape[1], usual), jnp.full(2, 0.1)) ** 2
        scale = jnp.broadcast_to(scale, (len(costates), len(scale)))

        def parts(of: _Point) -> list[jax.Array]:
            halves = of.residual[:, : size // 2], of.residual[:, size // 2 :]
            return [jnp.sqrt((part**2).sum(1)) for part in halves]

        def goes_on(now: _Point, damping: jax.Array) -> jax.Array:
            wide = jnp.stack(parts(now), 1) > CLOSED * tolerance
            return wide.any(1) & jnp.isfinite(now.square) & (damping < STUCK)

        def more(carry: Any) -> jax.Array:
            now, damping, _, n = carry
            return (n < rounds) & goes_on(now, damping).any()

        def once(carry: Any) -> Any:
            now, damping, accepted, n = carry
            going = goes_on(now, damping)
            move = least_change(now, scale, damping)
            # At an end of the duration the others must do without the time.
            stuck = jnp.clip(now.unknowns[:, -2] + move[:, -2], *transfer.duration)
            free = stuck != now.unknowns[:, -2]
            move = least_change(now, scale.at[:, -2].multiply(free), damping)
            move = move.at[:, -2:].set(jnp.clip(move[:, -2:], -TIME_STEP, TIME_STEP))
            trial = now.unknowns + move
            trial = trial.at[:, -2].set(jnp.clip(trial[:, -2], *transfer.duration))
            new = at(jnp.where(going[:, None], trial, jnp.nan))
            better = (new.square < now.square) & jnp.isfinite(move).all(1) & going
            keep = lambda a, b: jnp.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b)  # noqa: E731
            now = jax.tree.map(keep, new, now)
            changed = jnp.where(better, damping / FACTOR, damping * FACTOR)
            damping = jnp.where(going, jnp.clip(changed, 1e-12, STUCK), damping)
            return now, damping, accepted + better, n + 1

        count = len(costates)
        none = jnp.zeros(count, jnp.int32)
        carry = (begin, jnp.full(count, DAMPING), none, jnp.int32(0))
        end, _, accepted, _ = lax.while_loop(more, once, carry)
        gaps = parts(end)
        mass0 = transfer.start[-1]
        return Solved(
            end.unknowns[:, :-2],
            end.unknowns[:, -2],
            jnp.mod(end.unknowns[:, -1], transfer.period),
            *gaps,
            (mass0 - end.mass) / mass0,
            (jnp.stack(gaps, 1) <= tolerance).all(1),
            accepted,
        )

    return many


def least_change(now: Any, scale: jax.Array, damping: jax.Array) -> jax.Array:
    """The step to the damped linearised gap's minimum, of least change by `scale`.

    Of a `residual [count, conditions]` and its `slope [count, conditions, unknowns]`.
    """
    gram = jnp.einsum("nij,nj,nkj->nik", now.slope, scale, now.slope)
    size = gram.shape[-1]
    level = damping * jnp.einsum("nii->n", gram) / size
    damped = gram + level[:, None, None] * jnp.eye(size)
    pull = jnp.linalg.solve(damped, now.residual[..., None])[..., 0]
    return -scale * jnp.einsum("nij,ni->nj", now.slope, pull)


def _point(objective: Objective, transfer: Transfer, unknowns: jax.Array) -> _Point:
    size = transfer.target.shape[-1]
    costates, time, phase_time = unknowns[:, :-2], unknowns[:, -2], unknowns[:, -1]
    args = (transfer.mu, *transfer.thruster)
    y = departure(objective, costates, transfer)
    columns = columns_of_costates(y.shape[1], costates.shape[1])
    # A row without a number must not keep the others waiting.
    time = jnp.where(jnp.isfinite(time), time, 0)
    arc = solve(
        y, jnp.broadcast_to(columns, (len(y), *columns.shape)), time, args, objective.accuracy
    )
    assert arc.stm is not None
    phase_time = jnp.mod(jnp.where(jnp.isfinite(phase_time), phase_time, 0), transfer.period)
    first = jnp.broadcast_to(transfer.target[0], (len(y), size))
    there = propagate(first, phase_time, transfer.mu, accuracy=objective.accuracy).state
    slope = vector_field(y.shape[1])(arc.state.T, args)[:size].T
    back = vector_field(size)(there.T, (transfer.mu,)).T
    gap = jnp.where((arc.status == Status.DONE)[:, None], arc.state[:, :size] - there, jnp.nan)
    derivative = jnp.concatenate([arc.stm[:, :size], slope[..., None], -back[..., None]], 2)
    return _Point(unknowns, gap, derivative, arc.state[:, size])
