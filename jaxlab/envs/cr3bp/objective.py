"""How good the initial costates of a transfer are: gap to the target orbit, propellant, time.

J(lam, ts, tf) = phi(d) + kappa1 (m0 - m(ts)) / m0 + kappa2 ts with d the gap in position and
velocity between the spacecraft at ts and the target orbit at tf, and J*(lam) its minimum over
both times (Graebner and Beeson 2025, arXiv:2512.08705). The minimum is looked for among stored
nodes of both and refined to where it is stationary, by single steps of the integrator from the
nearest node. There the times drop out of the derivative (envelope theorem), so that

  dJ*/dlam = phi'(d)^T dX(ts)/dlam - kappa1 dm(ts)/dlam,

with columns of the state transition matrix for the costates alone.

A function of one vector; under `vmap` the whole batch goes to the integrator at once.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.cr3bp import dop853
from jaxlab.envs.cr3bp.dop853 import Method
from jaxlab.envs.cr3bp.flows import flow, guard
from jaxlab.envs.cr3bp.propagation import Accuracy, solve
from jaxlab.envs.cr3bp.rendezvous import Cost, Measure, rendezvous
from jaxlab.envs.cr3bp.transfers import Transfer

#: Where a transfer may close in on a primary: the larger's and the smaller's surface are not
#: known here, but a passage this close cannot be followed to any use.
RADII = (1e-2, 1e-4)
ACCURACY = Accuracy(tolerance=1e-11, collision_radius=RADII, method=Method(max_steps=4096))


class Slope(NamedTuple):
    """Derivatives by the unknown costates, d of them.

    Attributes:
      gradient: Of J*, `[d]`.
      gap: Of position and velocity at ts, `[2 n, d]`.
    """

    gradient: Float[Array, "*batch unknowns"]
    gap: Float[Array, "*batch components unknowns"]


@dataclasses.dataclass(frozen=True)
class Objective:
    """How J* is computed; static.

    Attributes:
      gap: phi: `norm` |d|, `smooth` sqrt(|d|^2 + width^2) - width, or `square` |d|^2 / (2 width).
      width: Of the smoothed tip.
      mass_costate: Its initial value, which fixes the scale of all; None makes it unknown too.
      between: Nodes looked at within each step of the integrator.
      knots: Steps of an arc that are looked at; one that took more is `STEP_LIMIT`.
      rounds: Of the refinement.
      accuracy: Of the integration.
    """

    gap: str = "norm"
    width: float = 1e-3
    mass_costate: float | None = -1.0
    between: int = 2
    knots: int = 512
    rounds: int = 8
    accuracy: Accuracy = ACCURACY

    def check(self) -> None:
        """Refuse what makes no objective.

        Raises:
          ConfigError: An option is out of range.
        """
        self.accuracy.check()
        if self.accuracy.engine != "dop853":
            raise ConfigError("the objective integrates with dop853 alone")
        self.measure.check()
        if min(self.between, self.rounds) < 1 or self.knots < 2:
            raise ConfigError("between and rounds must be positive, knots at least 2")

    @property
    def measure(self) -> Measure:
        """phi."""
        return Measure(self.gap, self.width)

    def unknowns(self, transfer: Transfer) -> int:
        """How many costates there are to choose."""
        return transfer.target.shape[-1] + (self.mass_costate is None)

    def __call__(self, costates: Any, transfer: Transfer) -> Any:
        """J* of initial costates of position, velocity (and mass), `[d]`; differentiable in them
        backward, once.

        Raises:
          PrecisionError: JAX computes in 32 bits.
          ConfigError: The number of costates is wrong.
        """
        return _value(self)(checked_costates(self, costates, transfer), transfer)

    def cost(self, costates: Any, transfer: Transfer) -> Cost:
        """All that J* is made of, for costates `[..., d]`; errors as for the value."""
        costates = checked_costates(self, costates, transfer, batch=True)
        flat = costates.reshape(-1, costates.shape[-1])
        found = _batched(self, False)(flat, transfer)[0]
        return jax.tree.map(lambda leaf: leaf.reshape(*costates.shape[:-1], *leaf.shape[1:]), found)

    def cost_and_slope(self, costates: Any, transfer: Transfer) -> tuple[Cost, Slope]:
        """The cost with derivatives, of one vector `[d]`; errors as for the value."""
        costates = checked_costates(self, costates, transfer)
        found = _batched(self, True)(costates[None], transfer)
        return jax.tree.map(lambda leaf: leaf[0], found)


def checked_costates(
    objective: Objective, costates: Any, transfer: Transfer, batch: bool = False
) -> jax.Array:
    """Initial costates as they must be, `[unknowns]`, or `[..., unknowns]` of a batch.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: An option or their number is wrong.
    """
    require_x64("a transfer's objective")
    objective.check()
    costates = jnp.asarray(costates)
    size = objective.unknowns(transfer)
    if costates.shape[-1:] != (size,) or (costates.ndim != 1 and not batch) or 0 in costates.shape:
        raise ConfigError(
            f"initial costates are [{size}] for this transfer, got {list(costates.shape)}"
        )
    return costates.astype(jnp.float64)


def _is_primal(leaf: Any) -> bool:
    return hasattr(leaf, "perturbed")


@functools.cache
def _value(objective: Objective) -> Any:
    @jax.custom_vjp
    def value(costates: jax.Array, transfer: Transfer) -> jax.Array:
        return _batched(objective, False)(costates[None], transfer)[0].value[0]

    def forward(costates: Any, transfer: Any) -> Any:
        if any(leaf.perturbed for leaf in jax.tree.leaves(transfer, is_leaf=_is_primal)):
            raise ConfigError(
                "the objective has no derivative by the transfer, only by the costates: stop the "
                "gradient there"
            )
        given = jax.tree.map(lambda leaf: leaf.value, transfer, is_leaf=_is_primal)
        cost, slope = _batched(objective, True)(costates.value[None], given)
        return cost.value[0], (slope.gradient[0], jax.tree.map(jnp.zeros_like, given))

    def backward(residuals: Any, cotangent: Any) -> Any:
        gradient, none = residuals
        if isinstance(cotangent, SymbolicZero):
            return jnp.zeros_like(gradient), none
        return cotangent * gradient, none

    value.defvjp(forward, backward, symbolic_zeros=True)
    return value


@functools.cache
def _batched(objective: Objective, slopes: bool) -> Any:
    """From costates `[count, unknowns]` to a `Cost` and a `Slope` (or None)."""

    @custom_vmap
    @jax.jit
    def many(costates: jax.Array, transfer: Transfer) -> Any:
        cost, tangents = _search(objective, costates, transfer)
        slope = _slope(objective, costates, transfer, cost, tangents) if slopes else None
        return cost, slope

    @many.def_vmap
    def _(copies: int, batched: Any, costates: jax.Array, transfer: Transfer) -> Any:
        if any(jax.tree.leaves(batched[1])):
            raise ConfigError("costates may be mapped over, the transfer may not")
        found = many(costates.reshape(-1, costates.shape[-1]), transfer)
        found = jax.tree.map(lambda leaf: leaf.reshape(copies, -1, *leaf.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    return many


def departure(objective: Objective, costates: jax.Array, transfer: Transfer) -> jax.Array:
    """States and costates at departure, `[count, 4 n + 2]`."""
    count = len(costates)
    start = jnp.broadcast_to(transfer.start, (count, len(transfer.start)))
    parts = [start, costates]
    if objective.mass_costate is not None:
        parts.append(jnp.full((count, 1), objective.mass_costate))
    return jnp.concatenate(parts, 1)


def columns_of_costates(size: int, unknowns: int) -> jax.Array:
    """Tangents along the unknown costates of states and costates of a size, `[size, unknowns]`."""
    at = np.arange(unknowns)
    return jnp.zeros((size, unknowns)).at[size // 2 + at, at].set(1)


def _search(objective: Objective, costates: jax.Array, transfer: Transfer) -> Any:
    """The cost of each row, and phi' by the gap."""
    size = transfer.target.shape[-1]
    of = flow(2 * (size + 1))
    args = (transfer.mu, *transfer.thruster)
    y = departure(objective, costates, transfer)
    accuracy = objective.accuracy
    solution = dop853.integrate(
        of.rates,
        of.as_phase(list(y.T)),
        jnp.full((len(y),), transfer.duration[1]),
        args,
        error=dop853.Error(accuracy.tolerance, accuracy.tolerance),
        guard=guard(accuracy.collision_radius, size // 2),
        method=accuracy.method._replace(knots=objective.knots),
    )
    return rendezvous(
        solution, of, args, transfer, objective.measure, objective.between, objective.rounds
    )


def _slope(
    objective: Objective, costates: jax.Array, transfer: Transfer, cost: Cost, gap: jax.Array
) -> Slope:
    count, unknowns = costates.shape
    size = transfer.target.shape[-1]
    y = departure(objective, costates, transfer)
    columns = columns_of_costates(y.shape[1], unknowns)
    time = jnp.where(jnp.isfinite(cost.value), cost.time, 0)
    arc = solve(
        y,
        jnp.broadcast_to(columns, (count, *columns.shape)),
        time,
        (transfer.mu, *transfer.thruster),
        objective.accuracy,
    )
    assert arc.stm is not None
    by_gap, by_mass = arc.stm[:, :size], arc.stm[:, size]
    pull = objective.measure.slope(gap.T).T
    gradient = jnp.einsum("ni,nij->nj", pull, by_gap)
    gradient = gradient - transfer.weights.propellant * by_mass / transfer.start[-1]
    return Slope(jnp.where(jnp.isfinite(cost.value)[:, None], gradient, 0), by_gap)
