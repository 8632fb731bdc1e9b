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
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.cr3bp import low_thrust, plan_solver
from jaxlab.envs.cr3bp.dop853 import Method
from jaxlab.envs.cr3bp.objective import RADII, Objective, departure
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate_low_thrust
from jaxlab.envs.cr3bp.segments import Plan as Plan
from jaxlab.envs.cr3bp.segments import defect_of, plan_of
from jaxlab.envs.cr3bp.segments import throttles as throttles
from jaxlab.envs.cr3bp.solving import Solved
from jaxlab.envs.cr3bp.transfers import Transfer

ACCURACY = Accuracy(
    tolerance=1e-12, collision_radius=RADII, method=Method(max_steps=4096, refill_every=2)
)


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
        _check_search(rounds, tolerance)
        rows, batch = _rows(self, plan, transfer)
        found = plan_solver.closed(self.segments, self.accuracy, rounds)(rows, transfer)
        return self._told(*found, transfer, batch, tolerance)

    def least_propellant(
        self, plan: Plan, transfer: Transfer, *, rounds: int = 200, tolerance: float = 1e-8
    ) -> Closed:
        """Plans nearby that close and burn as little as can be, within the bounds of `close`.

        A local method: it ends where steps gain nothing more, which other plans nearby may. Each
        round is one evaluation of the defect with its Jacobian.

        Args:
          plan: Where to begin, best one that closes.
          transfer: From where to where; its weight of time is not used.
          rounds: Steps to try at most.
          tolerance: Of each component of the defect.

        Returns:
          Of the points met that close the one with the least propellant; where none did, the last.

        Raises:
          PrecisionError: JAX computes in 32 bits.
          ConfigError: A shape or number is wrong.
        """
        _check_search(rounds, tolerance)
        rows, batch = _rows(self, plan, transfer)
        search = plan_solver.lightened(self.segments, self.accuracy)
        found = search(rows, transfer, jnp.int32(rounds), jnp.asarray(tolerance))
        return self._told(*found, transfer, batch, tolerance)

    def _told(
        self, end: Any, accepted: jax.Array, transfer: Transfer, batch: Any, tolerance: float
    ) -> Closed:
        """What a solver's points are, with the batch's axes."""
        closed = Closed(
            plan_of(end.unknowns, self.segments, transfer.target.shape[-1] // 2),
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


def _check_search(rounds: Any, tolerance: float) -> None:
    """Refuse a search that is none.

    Raises:
      ConfigError: A number is not positive.
    """
    if not isinstance(rounds, int) or rounds < 1 or not 0 < tolerance < np.inf:
        raise ConfigError(f"rounds {rounds} and tolerance {tolerance} must be positive")


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


@functools.cache
def _differentiated(of: Transcription) -> Any:
    return jax.jit(lambda rows, transfer: defect_of(rows, transfer, of.segments, of.accuracy))
