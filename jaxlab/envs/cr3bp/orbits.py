"""Periodic orbits: correction, families, stability.

Most of those named cross the xz plane at right angles. Half a period after a perpendicular crossing such an orbit crosses the plane
perpendicularly again, by the problem's mirror symmetry (y, t) -> (-y, -t). So an orbit is
four numbers, (x, z, vy) and its half period, under three conditions, y = vx = vz = 0:
a curve of orbits, a family. Newton's method on the state transition matrix finds its
points (Howell 1984); the curve is followed by what is fixed, or along itself
(pseudo-arclength: Keller 1977), which also goes round folds. Halo, Lyapunov, butterfly and
distant retrograde orbits are of this kind (`correct`).

Others, as those about the triangular points, and orbits known elsewhere than in that plane
have all of a state and the period for unknowns, and close where the halves before and after
meet (`correct_general`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError, ConvergenceError
from jaxlab.envs.cr3bp import dynamics
from jaxlab.envs.cr3bp.closing import (
    BALLISTIC,
    CONDITIONS,
    FREE,
    closed,
    conditions,
    mirrored,
    state_of,
)
from jaxlab.envs.cr3bp.closing import FINE as FINE
from jaxlab.envs.cr3bp.propagation import checked_states, one_each, propagate

#: What a correction may hold fixed, by its place among (x, z, vy, half period).
FIXED = {"x": 0, "z": 1, "vy": 2, "period": 3}
#: What a correction without the mirror may hold fixed.
FIXED_GENERAL = (None, "period", "jacobi")
#: Periods below this are no orbits: any point closes after no time at all.
SHORTEST = 1e-6
#: Speeds and accelerations below this are those of an equilibrium.
AT_REST = 1e-9
#: What y, vx and vz of a crossing at right angles may be.
PERPENDICULAR = 1e-6


class PeriodicOrbit(NamedTuple):
    """An orbit, or a stack of them.

    Attributes:
      state: Where it crosses the xz plane at right angles, or of `correct_general` any point of
        it, `[..., 6]`.
      period: `[...]`.
      residual: Largest of |y|, |vx|, |vz| half a period later, or of the components of the gap
        between the halves before and after, `[...]`.
      mu: Mass parameter, `[...]` or one for all.
    """

    state: Float[Array, "*batch 6"]
    period: Float[Array, "*batch"]
    residual: Float[Array, "*batch"]
    mu: Any

    @property
    def jacobi(self) -> jax.Array:
        """The Jacobi constant, `[...]`."""
        return dynamics.jacobi_constant(self.state, self.mu)


def _unknowns(what: str, state: Any, period: Any, mu: Any) -> jax.Array:
    state = checked_states(what, state, mu)
    batch = state.shape[:-1]
    half = one_each(what, "period", period, batch).reshape(batch) / 2
    return jnp.concatenate([state[..., FREE], half[..., None]], -1)


def _orbit(u: jax.Array, residual: jax.Array, mu: Any) -> PeriodicOrbit:
    return PeriodicOrbit(state_of(u), 2 * u[..., 3], residual, mu)


def correct(
    state: Any,
    period: Any,
    mu: Any,
    *,
    fixed: str = "x",
    tolerance: float = 1e-12,
    iterations: int = 30,
) -> PeriodicOrbit:
    """The periodic orbit near a guess, or one near each of a stack of guesses.

    Args:
      state: Guesses `[..., 6]`; y, vx and vz are set to zero.
      period: Guesses of the period, `[...]` or one for all.
      mu: Mass parameter, one for all or `[...]`.
      fixed: What stays as it is: `x`, `z`, `vy` or `period`.
      tolerance: Of y, vx and vz half a period later.
      iterations: Steps of Newton's method at most.

    Raises:
      ConvergenceError: Some orbit does not close to the tolerance, or went to a libration point
        or a period of zero, where anything closes; the message says which.
      ConfigError: The guess has a wrong shape, or `fixed` is unknown.
      PrecisionError: JAX computes in 32 bits.
    """
    if fixed not in FIXED:
        raise ConfigError(f"fixed '{fixed}' is unknown: {', '.join(FIXED)}")
    u = _unknowns("correct", state, period, mu)
    row = jnp.broadcast_to(jnp.eye(4)[FIXED[fixed]], u.shape)
    u, residual = mirrored(u, mu, row, (row * u).sum(-1), tolerance, iterations=iterations)
    advice = "give a closer guess, or fix another of x, z, vy and period"
    miss = "misses the xz plane's perpendicular by {:.2e} after half a period"
    _require_closed("correct", residual, tolerance, miss, advice)
    orbit = _orbit(u, residual, mu)
    _require_orbits("correct: orbit", orbit, advice)
    return orbit


def correct_general(
    state: Any,
    period: Any,
    mu: Any,
    *,
    fixed: str | None = None,
    tolerance: float = 1e-11,
    iterations: int = 30,
) -> PeriodicOrbit:
    """The periodic orbit near a guess anywhere on it, with the mirror's symmetry or without.

    All six components and the period are free. Orbits come in families, so that there are many
    near a guess: it is the next by steps of least length, or the one of the period or the Jacobi
    constant of the guess.

    Args:
      state: Guesses `[..., 6]`.
      period: Guesses of the period, `[...]` or one for all.
      mu: Mass parameter, one for all or `[...]`.
      fixed: None, or what stays as it is: `period` or `jacobi`.
      tolerance: Of each component of the gap between the halves before and after the state.
      iterations: Steps of Newton's method at most.

    Raises:
      ConvergenceError: As `correct`.
      ConfigError: The guess has a wrong shape, or `fixed` is unknown.
      PrecisionError: JAX computes in 32 bits.
    """
    if fixed not in FIXED_GENERAL:
        raise ConfigError(f"fixed '{fixed}' is unknown: None, period, jacobi")
    state = checked_states("correct_general", state, mu)
    batch = state.shape[:-1]
    period = one_each("correct_general", "period", period, batch).reshape(batch)
    u = jnp.concatenate([state, period[..., None]], -1)
    u, residual = closed(u, mu, tolerance, fixed=fixed, iterations=iterations)
    advice = "give a closer guess, or fix another of period, jacobi and None"
    miss = "has halves that miss each other by {:.2e}"
    _require_closed("correct_general", residual, tolerance, miss, advice)
    orbit = PeriodicOrbit(u[..., :6], u[..., 6], residual, mu)
    _require_orbits("correct_general: orbit", orbit, advice)
    return orbit


def _require_closed(
    what: str, residual: jax.Array, tolerance: float, miss: str, advice: str
) -> None:
    worst = np.atleast_1d(np.asarray(residual)).ravel()
    open_ones = np.flatnonzero(worst > tolerance)
    if open_ones.size:
        n = open_ones[0]
        raise ConvergenceError(
            f"{what}: orbit {n} of {worst.size} {miss.format(worst[n])}, more than {tolerance:g}: "
            f"{advice}"
        )


def _require_orbits(what: str, orbit: PeriodicOrbit, advice: str) -> None:
    """Refuse what closes without being an orbit: an equilibrium, or any point after no time."""
    states, periods = np.reshape(orbit.state, (-1, 6)), np.ravel(orbit.period)
    masses = np.broadcast_to(orbit.mu, orbit.period.shape).ravel()
    rest = np.linalg.norm(BALLISTIC(states.T, (masses,)), axis=0) < AT_REST
    wrong = np.flatnonzero(rest | ~(periods > SHORTEST))
    if wrong.size:
        n = wrong[0]
        place = "a libration point" if rest[n] else f"a period of {periods[n]:.3g}"
        raise ConvergenceError(
            f"{what} {n} of {len(periods)} went to {place}, which is no orbit: {advice}"
        )


def continue_family(
    orbit: PeriodicOrbit,
    steps: int,
    step_size: float,
    *,
    fixed: str | None = None,
    tolerance: float = 1e-11,
    iterations: int = 12,
) -> PeriodicOrbit:
    """Follow the family of one orbit.

    Args:
      orbit: Where to begin; a single one.
      steps: How many more orbits.
      step_size: Between two of them: along the curve of (x, z, vy, half period) with
        pseudo-arclength, first the way on which x grows for a positive one; with `fixed`,
        the change of that quantity (natural continuation).
      fixed: None for pseudo-arclength, or `x`, `z`, `vy`, `period`.
      tolerance, iterations: As in `correct`.

    Returns:
      A stack `[steps + 1]`, the first being the one given.

    Raises:
      ConvergenceError: The family could not be followed so far; the message says to where.
      ConfigError: It is no single orbit, none that crosses the xz plane at right angles where it
        begins, or `fixed` is unknown.
    """
    if fixed is not None and fixed not in FIXED:
        raise ConfigError(f"fixed '{fixed}' is unknown: {', '.join(FIXED)}, or None")
    if orbit.state.ndim != 1:
        raise ConfigError("continue_family begins with one orbit, not with a stack")
    if np.abs(np.asarray(orbit.state)[CONDITIONS]).max() > PERPENDICULAR:
        raise ConfigError(
            "continue_family begins where an orbit crosses the xz plane at right angles: y, vx and "
            "vz must be zero, as `correct` makes them"
        )
    u = _unknowns("continue_family", orbit.state, orbit.period, orbit.mu)
    natural = None if fixed is None else jnp.eye(4)[FIXED[fixed]]
    # x grows first; along a family of constant x the half period does.
    tangent = jnp.array([1.0, 0, 0, 1e-3]) if natural is None else natural
    found, residuals = [u], [orbit.residual]
    for n in range(steps):
        row = _tangent(u, orbit.mu, tangent) if natural is None else natural
        guess = u + step_size * row
        if natural is not None and n:
            guess = u + (u - found[-2])  # the same change as before
        aim = (row * u).sum() + step_size
        new, residual = mirrored(guess, orbit.mu, row, aim, tolerance, iterations=iterations)
        if not residual <= tolerance:
            raise ConvergenceError(
                f"continue_family: after {n} of {steps} orbits the next does not close "
                f"({float(residual):.2e}): take smaller steps than {step_size:g}"
            )
        # Along the family as it is numbered, whichever way it is followed.
        tangent = np.copysign(1, step_size) * (new - u) if natural is None else tangent
        u = new
        found.append(u)
        residuals.append(residual)
    family = _orbit(jnp.stack(found), jnp.stack(residuals), orbit.mu)
    advice = f"take smaller steps than {step_size:g}, or fewer"
    _require_orbits("continue_family: member", family, advice)
    return family


@jax.jit
def _tangent(u: jax.Array, mu: Any, ahead: jax.Array) -> jax.Array:
    """Unit vector along the family, on the side of `ahead`."""
    _, derivative = conditions(u, mu)
    _, _, vt = jnp.linalg.svd(derivative, full_matrices=True)
    along = vt[-1]
    return along * jnp.where((along * ahead).sum() < 0, -1, 1)


def monodromy(orbit: PeriodicOrbit) -> Float[Array, "*batch 6 6"]:
    """The state transition matrix of a whole period.

    Made of the halves before and after the state, so that rounding is that of half a period.
    """
    ahead, behind = (
        propagate(orbit.state, half, orbit.mu, stm=True, accuracy=FINE).stm
        for half in (orbit.period / 2, -orbit.period / 2)
    )
    return jnp.linalg.solve(behind, ahead)


def multipliers(matrix: Any) -> np.ndarray:
    """Eigenvalues of a monodromy matrix, complex `[..., 6]`, the largest first.

    The pair at 1 is defective: 64-bit numbers show it as 1 within 1e-4.
    """
    values = np.linalg.eigvals(np.asarray(matrix)).astype(complex)
    order = np.argsort(-np.abs(values), axis=-1, kind="stable")
    return np.take_along_axis(values, order, -1)


def stability_index(matrix: Any) -> Any:
    """(|lambda| + 1 / |lambda|) / 2 of the largest multiplier, `[...]`; 1 for a stable orbit."""
    largest = np.abs(multipliers(matrix))[..., 0]
    return (largest + 1 / largest) / 2
