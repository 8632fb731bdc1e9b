"""Where arcs cross a surface: events and Poincare sections.

A crossing is bracketed by two accepted steps and found by single steps from the first of
them, so that it lies on the arc to the accuracy of the integration.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import CapacityError, ConfigError, ConvergenceError
from jaxlab.envs.cr3bp import dop853
from jaxlab.envs.cr3bp.flows import flow, guard
from jaxlab.envs.cr3bp.propagation import (
    DEFAULT,
    Accuracy,
    checked_states,
    one_each,
)

#: From a state `[6]` to a number whose zero is the surface.
Surface = Callable[[jax.Array], jax.Array]
#: Rounds of the search, of which smooth crossings need some ten.
ROUNDS = 60
BALLISTIC = flow(6)
AXES = ("x", "y", "z", "vx", "vy", "vz")


class Crossings(NamedTuple):
    """Crossings of arcs in order, padded where there are fewer.

    Attributes:
      state: `[..., crossings, 6]`.
      time: `[..., crossings]`.
      valid: Whether there is one, `[..., crossings]`.
      number: How many there were, `[...]`: more than `crossings` means that later ones are left out.
      status: A `dop853.Status` of each arc.
    """

    state: Float[Array, "*batch crossings 6"]
    time: Float[Array, "*batch crossings"]
    valid: Bool[Array, "*batch crossings"]
    number: Int[Array, "*batch"]
    status: Int[Array, "*batch"]


@dataclasses.dataclass(frozen=True)
class Plane:
    """The surface on which a coordinate has a value.

    Attributes:
      axis: `x`, `y`, `z`, `vx`, `vy` or `vz`.
      value: In units of the system.

    Raises:
      ConfigError: The coordinate is unknown.
    """

    axis: str
    value: float = 0.0

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            raise ConfigError(f"axis '{self.axis}' is unknown: {', '.join(AXES)}")

    def __call__(self, state: Any) -> Any:
        """The coordinate of a state `[6]` beyond the value."""
        return state[AXES.index(self.axis)] - self.value


def crossings(
    state: Any,
    time: Any,
    mu: float,
    surface: Surface,
    *,
    direction: int = 0,
    limit: int = 8,
    knots: int = 512,
    accuracy: Accuracy = DEFAULT,
) -> Crossings:
    """Crossings of ballistic arcs with a surface.

    Args:
      state: Where arcs begin, float64 `[..., 6]`; a start on the surface is no crossing.
      time: Spans, one for all or `[...]`.
      mu: Mass parameter, one for all.
      surface: Zero where the surface is, a `Plane` or any function of a state `[6]`; compiled
        once for each function.
      direction: 1 for crossings along which `surface` grows, -1 for the others, 0 for both.
      limit: Crossings to return for each arc.
      knots: Steps an arc may take.
      accuracy: Of the integration; a step across two crossings at once shows neither.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A shape or option is wrong.
      CapacityError: An arc took more steps than `knots` (not under a transformation).
    """
    accuracy.check()
    state = checked_states("crossings", state, mu)
    if direction not in (-1, 0, 1):
        raise ConfigError(f"direction {direction} is unknown: 1, -1 or 0 for both")
    if limit < 1 or knots < 2:
        raise ConfigError(f"limit {limit} and knots {knots} must be at least 1 and 2")
    batch = state.shape[:-1]
    flat = state.reshape(-1, 6)
    span = one_each("crossings", "time", time, batch)
    solution = _arcs(flat, span, jnp.asarray(mu, jnp.float64), accuracy, knots)
    assert solution.knots is not None
    if not isinstance(solution.steps, jax.core.Tracer):
        most = int(solution.knots.number.max())
        if most > knots:
            raise CapacityError(f"an arc took {most} steps, more than knots = {knots}: raise it")
    found = _found(solution, jnp.asarray(mu, jnp.float64), surface, direction, limit)
    return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), found)


def first_crossing(state: Any, time: Any, mu: float, surface: Surface, **options: Any) -> Crossings:
    """The first crossing of every arc, `[..., 1]`; arguments as `crossings`.

    Raises:
      ConvergenceError: Some arc does not cross in its time; the message says which.
    """
    found = crossings(state, time, mu, surface, limit=1, **options)
    missing = jnp.flatnonzero(~found.valid.reshape(-1))
    if missing.size:
        raise ConvergenceError(
            f"arc {int(missing[0])} of {found.valid.size} does not cross the surface in its "
            "time: give a longer one, or another direction"
        )
    return found


@functools.partial(jax.jit, static_argnums=(3, 4))
def _arcs(y: jax.Array, span: jax.Array, mu: jax.Array, accuracy: Accuracy, knots: int) -> Any:
    method = accuracy.method._replace(knots=knots)
    return dop853.integrate(
        BALLISTIC.rates,
        BALLISTIC.as_phase(list(y.T)),
        span,
        (mu,),
        error=dop853.Error(accuracy.tolerance, accuracy.tolerance),
        guard=guard(accuracy.collision_radius),
        method=method,
    )


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _found(solution: Any, mu: jax.Array, surface: Surface, direction: int, limit: int) -> Crossings:
    knots = solution.knots
    count, size = knots.time.shape
    states = jnp.stack(BALLISTIC.from_phase(knots.phase), -1)
    values = jax.vmap(jax.vmap(surface))(states)
    before, after = values[:, :-1], values[:, 1:]
    # A value of exactly zero counts once, where the arc arrives at it.
    rising, falling = (before < 0) & (after >= 0), (before > 0) & (after <= 0)
    wanted = {1: rising, -1: falling, 0: rising | falling}[direction]
    wanted &= jnp.arange(1, size)[None] < knots.number[:, None]
    number = wanted.sum(1, dtype=jnp.int32)
    place = jnp.cumsum(wanted, 1) - 1
    rows = jnp.broadcast_to(jnp.arange(count)[:, None], wanted.shape)
    at = jnp.where(wanted, place, limit)
    step = jnp.zeros((count, limit), jnp.int32)
    step = step.at[rows, at].set(jnp.arange(size - 1, dtype=jnp.int32)[None], mode="drop")
    valid = jnp.arange(limit)[None] < number[:, None]
    row = jnp.arange(count)[:, None]
    start, begun = states[row, step], knots.time[row, step]
    length = knots.time[row, step + 1] - begun
    phase = BALLISTIC.as_phase(list(start.reshape(-1, 6).T))

    def at_time(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        end = jnp.stack(BALLISTIC.from_phase(dop853.step(BALLISTIC.rates, phase, h, (mu,))))
        return jax.vmap(surface, 1)(end), end

    h = _root(at_time, values[row, step].ravel(), length.ravel())
    _, end = at_time(h)
    shape = (count, limit)
    return Crossings(
        jnp.where(valid[..., None], end.T.reshape(*shape, 6), jnp.nan),
        jnp.where(valid, begun + h.reshape(shape), jnp.nan),
        valid,
        number,
        solution.status,
    )


def _root(function: Any, low_value: jax.Array, high: jax.Array) -> jax.Array:
    """Zeros between 0 and `high`, one a lane: false position with halved ends (Illinois)."""

    def step(_: Array | int, carry: Any) -> Any:
        a, fa, b, fb = carry
        split = fb - fa
        middle = jnp.where(
            split == 0, (a + b) / 2, b - fb * (b - a) / jnp.where(split == 0, 1, split)
        )
        value, _ = function(middle)
        crossed = (value < 0) != (fb < 0)
        a, fa = jnp.where(crossed, b, a), jnp.where(crossed, fb, fa / 2)
        return a, fa, middle, value

    high_value, _ = function(high)
    start = (jnp.zeros_like(high), low_value, high, high_value)
    return lax.fori_loop(0, ROUNDS, step, start)[2]
