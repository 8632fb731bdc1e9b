"""Plans of held thrust, flown from both ends to the middle: their defect and its derivative.

See `jaxlab.envs.cr3bp.transcription`. A plan as a row of unknowns is its controls, duration, phase
time and final mass, in this order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxlab.envs.cr3bp.dop853 import Phase, Status
from jaxlab.envs.cr3bp.flows import vector_field
from jaxlab.envs.cr3bp.held_thrust import held_thrust
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate, solve
from jaxlab.envs.cr3bp.transfers import Transfer


class Plan(NamedTuple):
    """A transfer in segments; n = 2 in the plane, 3 in space.

    Attributes:
      controls: Thrust by full thrust in the turning frame, at most 1 long, `[..., segments, n]`.
      duration: Time of flight.
      phase_time: Time on the target orbit after its stored state.
      final_mass: On arrival.
    """

    controls: Float[Array, "*batch segments n"]
    duration: Float[Array, "*batch"]
    phase_time: Float[Array, "*batch"]
    final_mass: Float[Array, "*batch"]


def throttles(plan: Plan) -> Float[Array, "*batch segments"]:
    """Length of the thrust of each segment, which must not be above 1."""
    return jnp.linalg.norm(plan.controls, axis=-1)


def plan_of(rows: jax.Array, segments: int, axes: int) -> Plan:
    """The plans of rows of unknowns `[count, unknowns]`."""
    controls = rows[:, :-3].reshape(-1, segments, axes)
    return Plan(controls, rows[:, -3], rows[:, -2], rows[:, -1])


def defect_of(
    rows: jax.Array, transfer: Transfer, segments: int, accuracy: Accuracy
) -> tuple[jax.Array, jax.Array]:
    """Defects `[count, conditions]` and slopes `[count, conditions, unknowns]` of rows."""
    axes = transfer.target.shape[-1] // 2
    size, half, count = 2 * axes + 1, segments // 2, len(rows)
    flow = held_thrust(axes)
    plan = plan_of(rows, segments, axes)
    # A row without a number must not keep the others waiting.
    known = jnp.isfinite(rows).all(1)
    phase_time = jnp.where(known, jnp.mod(plan.phase_time, transfer.period), 0)
    first = jnp.broadcast_to(transfer.target[0], (count, 2 * axes))
    there = propagate(first, phase_time, transfer.mu, accuracy=accuracy).state
    start = jnp.broadcast_to(transfer.start, (count, size))
    ends = jnp.stack([start, jnp.concatenate([there, plan.final_mass[:, None]], 1)])
    ways = jnp.array([[1.0], [-1.0]])
    span = (ways * plan.duration / segments).ravel()
    # Segments in the order in which they are flown, of both halves, and each of all plans.
    controls = jnp.stack([plan.controls[:, :half], plan.controls[:, half:][:, ::-1]])
    controls = jnp.moveaxis(controls, 2, 0).reshape(half, 2 * count, axes)
    columns = jnp.broadcast_to(jnp.eye(size, size + axes), (2 * count, size, size + axes))

    def segment(carry: Any, control: jax.Array) -> Any:
        y, well = carry
        args = (transfer.mu, *transfer.thruster[:2], *control.T)
        arc = solve(y, columns, span, args, accuracy, flow)
        phase = flow.as_phase(list(arc.state.T))
        accelerations, rest = flow.rates(phase, args)
        rate = jnp.stack(flow.from_phase(Phase(phase.velocity, accelerations, rest)), 1)
        return (arc.state, well & (arc.status == Status.DONE)), (arc.stm, rate)

    begin = (ends.reshape(2 * count, size), jnp.concatenate([known, known]))
    (y, well), (pieces, rate) = lax.scan(segment, begin, controls)

    def back(later: jax.Array, piece: jax.Array) -> Any:
        own, by_control = piece[..., :size], piece[..., size:]
        return later @ own, (later @ by_control, later)

    eye = jnp.broadcast_to(jnp.eye(size), (2 * count, size, size))
    whole, (by_control, later) = lax.scan(back, eye, pieces, reverse=True)
    by_time = jnp.einsum("sbij,sbj->bi", later, rate).reshape(2, count, size) / segments
    y, whole = y.reshape(2, count, size), whole.reshape(2, count, size, size)[1]
    by_control = by_control.reshape(half, 2, count, size, axes)
    by_control = jnp.concatenate([by_control[:, 0], -by_control[::-1, 1]])
    moving = vector_field(2 * axes)(there.T, (transfer.mu,)).T
    slope = [
        jnp.moveaxis(by_control, 0, 2).reshape(count, size, segments * axes),
        (by_time[0] + by_time[1])[..., None],  # backward spans shrink as forward ones grow
        -jnp.einsum("bij,bj->bi", whole[..., : 2 * axes], moving)[..., None],
        -whole[..., 2 * axes :],
    ]
    well = well.reshape(2, count).all(0)
    return jnp.where(well[:, None], y[0] - y[1], jnp.nan), jnp.concatenate(slope, 2)
