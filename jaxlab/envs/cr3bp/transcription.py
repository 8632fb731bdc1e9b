"""Low-thrust transfers by direct transcription: thrust held over segments, met in the middle.

The flight is cut into segments of equal duration, each with a thrust vector u, |u| <= 1, that
stays what it is in the turning frame:

  r' = v,  v' = g(r, v) + a u / m,  m' = -a |u| / c.

The first half is flown forward from the start, the second backward from the target orbit, where
the final mass is unknown; what remains between both in the middle is the defect, in position,
velocity and mass (Sims and Flanagan 1999, AAS 99-338, with thrust over the segment in place of
impulses; Englander and Conway 2017). Both halves are integrated as one batch, segment by
segment, with the derivatives of each segment by its start and its thrust beside it; their chain
is the Jacobian of the defect.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.cr3bp import low_thrust
from jaxlab.envs.cr3bp.dop853 import Method, Phase, Status
from jaxlab.envs.cr3bp.flows import vector_field
from jaxlab.envs.cr3bp.held_thrust import held_thrust
from jaxlab.envs.cr3bp.objective import RADII, Objective, departure
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate, propagate_low_thrust, solve
from jaxlab.envs.cr3bp.solving import DAMPING, FACTOR, TIME_STEP, Solved, least_change
from jaxlab.envs.cr3bp.transfers import Transfer

ACCURACY = Accuracy(
    tolerance=1e-12, collision_radius=RADII, method=Method(max_steps=4096, refill_every=2)
)
#: What a round counts as a usual change of thrust, duration, phase time and final mass.
USUAL = (0.3, 0.1, 0.1, 0.01)
#: Final masses below this part of the first are not looked for.
LEAST_MASS = 0.05


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


class Closed(NamedTuple):
    """Plans whose defect was to vanish.

    Attributes:
      plan: As far as it came.
      defect: What remains in the middle: position, velocity and mass, `[..., 2 n + 1]`.
      propellant: Burnt part of the initial mass.
      solved: Whether all of the defect is within the tolerance.
      rounds: Steps that made the defect smaller.
    """

    plan: Plan
    defect: Float[Array, "*batch conditions"]
    propellant: Float[Array, "*batch"]
    solved: Bool[Array, "*batch"]
    rounds: Int[Array, "*batch"]


@dataclasses.dataclass(frozen=True)
class Transcription:
    """How transfers are cut into segments; static.

    Attributes:
      segments: An even number, half of them each way.
      accuracy: Of the integration.
    """

    segments: int = 20
    accuracy: Accuracy = ACCURACY

    def check(self) -> None:
        """Refuse what makes no transcription.

        Raises:
          ConfigError: An option is out of range.
        """
        self.accuracy.check()
        if self.accuracy.engine != "dop853":
            raise ConfigError("a transcription integrates with dop853 alone")
        if not isinstance(self.segments, int) or self.segments < 2 or self.segments % 2:
            raise ConfigError(f"segments {self.segments!r}: expected an even number of at least 2")

    def defect(self, plan: Plan, transfer: Transfer) -> Float[Array, "*batch conditions"]:
        """Forward minus backward half in the middle, `[..., 2 n + 1]`; NaN where one collides.

        Raises:
          PrecisionError: JAX computes in 32 bits.
          ConfigError: A shape or an option is wrong.
        """
        return self.defect_and_jacobian(plan, transfer)[0]

    def defect_and_jacobian(
        self, plan: Plan, transfer: Transfer
    ) -> tuple[Float[Array, "*batch conditions"], Plan]:
        """The defect and its derivatives by all of a plan, with an axis `2 n + 1` in front of its
        own; errors as for the defect."""
        rows, batch = _rows(self, plan, transfer)
        defect, slope = _differentiated(self)(rows, transfer)
        axes = transfer.target.shape[-1] // 2
        size = 2 * axes + 1
        by_controls = slope[..., :-3].reshape(*batch, size, self.segments, axes)
        others = (slope[..., n].reshape(*batch, size) for n in (-3, -2, -1))
        return defect.reshape(*batch, size), Plan(by_controls, *others)

    def close(
        self, plan: Plan, transfer: Transfer, *, rounds: int = 40, tolerance: float = 1e-8
    ) -> Closed:
        """Make the defect vanish, with thrust of at most 1 and the duration within its bounds.

        Batched Levenberg-Marquardt; there are more unknowns than conditions, and steps are those
        of least change. What is at a bound moves along it.

        Args:
          plan: Where to begin.
          transfer: From where to where.
          rounds: Steps to try.
          tolerance: Of each component of the defect.

        Raises:
          PrecisionError: JAX computes in 32 bits.
          ConfigError: A shape or number is wrong.
        """
        if not isinstance(rounds, int) or rounds < 1 or not 0 < tolerance < np.inf:
            raise ConfigError(f"rounds {rounds} and tolerance {tolerance} must be positive")
        rows, batch = _rows(self, plan, transfer)
        axes = transfer.target.shape[-1] // 2
        end, accepted = _closed(self, rounds)(rows, transfer)
        closed = Closed(
            _plan(end.unknowns, self.segments, axes),
            end.residual,
            1 - end.unknowns[:, -1] / transfer.start[-1],
            (jnp.abs(end.residual) <= tolerance).all(1),
            accepted,
        )
        return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), closed)

    def of_solved(
        self,
        solved: Solved,
        transfer: Transfer,
        objective: Objective | None = None,
        points: int = 8,
    ) -> Plan:
        """Segments with the mean thrust of transfers solved by their costates.

        Args:
          solved: Costates and times.
          transfer: What they solve.
          objective: How the costates are meant.
          points: Of the Gauss-Legendre rule in each segment.

        Raises:
          PrecisionError: JAX computes in 32 bits.
          ConfigError: A shape or number is wrong.
        """
        self.check()
        require_x64("of_solved")
        objective = objective or Objective()
        if not isinstance(points, int) or points < 1:
            raise ConfigError(f"points {points!r}: expected a whole number of at least 1")
        unknowns = objective.unknowns(transfer)
        if solved.costates.shape[-1:] != (unknowns,):
            raise ConfigError(
                f"costates are [{unknowns}] for this transfer, got {list(solved.costates.shape)}"
            )
        batch, axes = solved.costates.shape[:-1], transfer.target.shape[-1] // 2
        y = departure(objective, solved.costates.reshape(-1, unknowns), transfer)
        nodes, weights = np.polynomial.legendre.leggauss(points)
        parts = (np.arange(self.segments)[:, None] + (nodes + 1) / 2) / self.segments
        times = solved.time.reshape(-1, 1) * np.append(parts.ravel(), 1.0)
        arcs = propagate_low_thrust(
            jnp.broadcast_to(y[:, None], (*times.shape, y.shape[1])),
            times,
            transfer.mu,
            transfer.thruster,
            accuracy=self.accuracy,
        )
        on, _ = low_thrust.throttle(arcs.state, transfer.thruster)
        primer = arcs.state[..., 3 * axes + 1 : 4 * axes + 1]
        thrust = -on[..., None] * primer / jnp.linalg.norm(primer, axis=-1, keepdims=True)
        thrust = thrust[:, :-1].reshape(-1, self.segments, points, axes)
        plan = Plan(
            jnp.einsum("nspi,p->nsi", thrust, weights / 2),
            solved.time.reshape(-1),
            solved.phase_time.reshape(-1),
            arcs.state[:, -1, 2 * axes],
        )
        return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), plan)


def throttles(plan: Plan) -> Float[Array, "*batch segments"]:
    """Length of the thrust of each segment, which must not be above 1."""
    return jnp.linalg.norm(plan.controls, axis=-1)


def _rows(of: Transcription, plan: Plan, transfer: Transfer) -> tuple[jax.Array, Any]:
    """All unknowns of each plan as one row, and the batch they had.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A shape is wrong.
    """
    of.check()
    require_x64("a transcription")
    controls, *others = (jnp.asarray(leaf, jnp.float64) for leaf in plan)
    batch, shape = controls.shape[:-2], (of.segments, transfer.target.shape[-1] // 2)
    if controls.shape[-2:] != shape or any(leaf.shape != batch for leaf in others) or 0 in batch:
        raise ConfigError(
            f"a plan's controls are [..., {shape[0]}, {shape[1]}] here and its other numbers one "
            f"for each: got {list(controls.shape)} and {[list(leaf.shape) for leaf in others]}"
        )
    flat = [controls.reshape(-1, shape[0] * shape[1]), *(o.reshape(-1, 1) for o in others)]
    return jnp.concatenate(flat, 1), batch


def _plan(rows: jax.Array, segments: int, axes: int) -> Plan:
    controls = rows[:, :-3].reshape(-1, segments, axes)
    return Plan(controls, rows[:, -3], rows[:, -2], rows[:, -1])


@functools.cache
def _differentiated(of: Transcription) -> Any:
    return jax.jit(functools.partial(_defect, of))


def _defect(of: Transcription, rows: jax.Array, transfer: Transfer) -> tuple[jax.Array, jax.Array]:
    """Defects `[count, conditions]` and slopes `[count, conditions, unknowns]` of rows."""
    axes = transfer.target.shape[-1] // 2
    size, half, count = 2 * axes + 1, of.segments // 2, len(rows)
    flow = held_thrust(axes)
    plan = _plan(rows, of.segments, axes)
    # A row without a number must not keep the others waiting.
    known = jnp.isfinite(rows).all(1)
    phase_time = jnp.where(known, jnp.mod(plan.phase_time, transfer.period), 0)
    first = jnp.broadcast_to(transfer.target[0], (count, 2 * axes))
    there = propagate(first, phase_time, transfer.mu, accuracy=of.accuracy).state
    start = jnp.broadcast_to(transfer.start, (count, size))
    ends = jnp.stack([start, jnp.concatenate([there, plan.final_mass[:, None]], 1)])
    ways = jnp.array([[1.0], [-1.0]])
    span = (ways * plan.duration / of.segments).ravel()
    # Segments in the order in which they are flown, of both halves, and each of all plans.
    controls = jnp.stack([plan.controls[:, :half], plan.controls[:, half:][:, ::-1]])
    controls = jnp.moveaxis(controls, 2, 0).reshape(half, 2 * count, axes)
    columns = jnp.broadcast_to(jnp.eye(size, size + axes), (2 * count, size, size + axes))

    def segment(carry: Any, control: jax.Array) -> Any:
        y, well = carry
        args = (transfer.mu, *transfer.thruster[:2], *control.T)
        arc = solve(y, columns, span, args, of.accuracy, flow)
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
    by_time = jnp.einsum("sbij,sbj->bi", later, rate).reshape(2, count, size) / of.segments
    y, whole = y.reshape(2, count, size), whole.reshape(2, count, size, size)[1]
    by_control = by_control.reshape(half, 2, count, size, axes)
    by_control = jnp.concatenate([by_control[:, 0], -by_control[::-1, 1]])
    moving = vector_field(2 * axes)(there.T, (transfer.mu,)).T
    slope = [
        jnp.moveaxis(by_control, 0, 2).reshape(count, size, of.segments * axes),
        (by_time[0] + by_time[1])[..., None],  # backward spans shrink as forward ones grow
        -jnp.einsum("bij,bj->bi", whole[..., : 2 * axes], moving)[..., None],
        -whole[..., 2 * axes :],
    ]
    well = well.reshape(2, count).all(0)
    return jnp.where(well[:, None], y[0] - y[1], jnp.nan), jnp.concatenate(slope, 2)


class _Point(NamedTuple):
    """Unknowns, one row each, and their defect with its derivative."""

    unknowns: jax.Array
    residual: jax.Array
    slope: jax.Array

    @property
    def square(self) -> jax.Array:
        total = (self.residual**2).sum(1)
        return jnp.where(jnp.isnan(total), jnp.inf, total)


@functools.cache
def _closed(of: Transcription, rounds: int) -> Any:
    @jax.jit
    def many(rows: jax.Array, transfer: Transfer) -> tuple[_Point, jax.Array]:
        axes = transfer.target.shape[-1] // 2
        count, mass0 = len(rows), transfer.start[-1]
        usual = np.append(np.full(of.segments * axes, USUAL[0]), USUAL[1:])
        scale = jnp.broadcast_to(usual**2, (count, len(usual)))

        def at(rows: jax.Array) -> _Point:
            return _Point(rows, *_defect(of, rows, transfer))

        def allowed(rows: jax.Array) -> jax.Array:
            """The nearest row within all bounds."""
            plan = _plan(rows, of.segments, axes)
            controls = plan.controls / jnp.maximum(throttles(plan), 1)[..., None]
            duration = jnp.clip(plan.duration, *transfer.duration)
            mass = jnp.clip(plan.final_mass, LEAST_MASS * mass0, mass0)
            others = jnp.stack([duration, plan.phase_time, mass], 1)
            return jnp.concatenate([controls.reshape(count, -1), others], 1)

        def along_bounds(now: _Point, move: jax.Array) -> _Point:
            """The same without the changes that a move would make across bounds."""
            trial = _plan(now.unknowns + move, of.segments, axes)
            controls = _plan(now.unknowns, of.segments, axes).controls
            length = jnp.linalg.norm(controls, axis=-1, keepdims=True)
            outside = (throttles(trial) > 1)[..., None] & (length > 0.95)
            normal = jnp.where(outside, controls / jnp.where(length > 0, length, 1), 0)
            slope = now.slope[..., :-3].reshape(count, -1, of.segments, axes)
            across = jnp.einsum("ncsi,nsi->ncs", slope, normal)
            slope = slope - across[..., None] * normal[:, None]
            others = (now.unknowns + move)[:, -3:]
            free = allowed(now.unknowns + move)[:, -3:] == others
            slope = jnp.concatenate(
                [slope.reshape(count, -1, of.segments * axes), now.slope[..., -3:] * free[:, None]],
                2,
            )
            return now._replace(slope=slope)

        def once(_: Any, carry: Any) -> Any:
            now, damping, accepted = carry
            move = least_change(now, scale, damping)
            limited = now
            for _ in range(2):  # what is kept at its bound makes others reach theirs
                limited = along_bounds(limited, move)
                move = least_change(limited, scale, damping)
            move = move.at[:, -3:].set(jnp.clip(move[:, -3:], -TIME_STEP, TIME_STEP))
            new = at(allowed(now.unknowns + move))
            better = (new.square < now.square) & jnp.isfinite(move).all(1)
            keep = lambda a, b: jnp.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b)  # noqa: E731
            now = jax.tree.map(keep, new, now)
            damping = jnp.clip(jnp.where(better, damping / FACTOR, damping * FACTOR), 1e-14, 1e6)
            return now, damping, accepted + better

        carry = (at(allowed(rows)), jnp.full(count, DAMPING), jnp.zeros(count, jnp.int32))
        end, _, accepted = lax.fori_loop(0, rounds, once, carry)
        return end, accepted

    return many
