"""Equations of motion as integrators take them: ballistic or under low thrust, with variations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.envs.cr3bp import dynamics, low_thrust
from jaxlab.envs.cr3bp.dop853 import Phase
from jaxlab.envs.cr3bp.low_thrust import Thruster


def guard(radii: tuple[float, float], axes: int = 3) -> Any:
    """Whether a position is inside a primary; for `dop853.integrate`."""

    def inside(phase: Phase, args: Any) -> jax.Array:
        bodies = dynamics.primaries(phase.position[:axes], args[0])
        squares = np.reshape(np.square(radii), (2, *(1,) * (bodies.pull.ndim - 1)))
        return (bodies.inverse_square * squares >= 1).any(0)

    return inside


class Flow(NamedTuple):
    """Equations of motion as the integrator takes them; static.

    Attributes:
      size: Components of a state.
      as_phase: From components to a `Phase`, linear.
      from_phase: Its inverse.
      rates: Of a phase, with arguments (mu,) or (mu, a, c, rho).
      rates_with_tangents: Of a phase and, behind it in each of its parts, of its tangents.
      axes: 2 in the plane, 3 in space.
    """

    size: int
    as_phase: Any
    from_phase: Any
    rates: Any
    rates_with_tangents: Any
    axes: int


def flow(size: int) -> Flow:
    """The flow of states of so many components: 4 or 6 ballistic, 10 or 14 under low thrust."""
    half = size // 2
    if size in (4, 6):
        return Flow(
            size,
            lambda y: Phase(tuple(y[:half]), tuple(y[half:])),
            lambda phase: [*phase.position, *phase.velocity],
            lambda phase, args: (dynamics.ballistic(*phase[:2], *args), ()),
            lambda phase, args: (dynamics.ballistic_with_tangents(*phase[:2], *args), ()),
            half,
        )
    return Flow(
        size,
        low_thrust.as_phase,
        low_thrust.from_phase,
        lambda phase, args: low_thrust.flow(phase, args[0], Thruster(*args[1:])),
        lambda phase, args: low_thrust.flow_with_tangents(phase, args[0], Thruster(*args[1:])),
        half // 2,
    )


def vector_field(size: int, tangents: bool = False) -> Any:
    """Rates for other integrators, with arguments (mu,) or (mu, a, c, rho).

    Of states `[size, ...]`; with tangents, of a state `[size]` and behind it a matrix
    `[size, columns]`, row by row.
    """
    of = flow(size)

    def rates(y: jax.Array, args: Any) -> jax.Array:
        phase = of.as_phase(list(y))
        accelerations, others = of.rates(phase, args)
        return jnp.stack(of.from_phase(Phase(phase.velocity, tuple(accelerations), tuple(others))))

    def with_tangents(y: jax.Array, args: Any) -> jax.Array:
        phase = beside(of.as_phase(list(y[:size])), of.as_phase(list(y[size:].reshape(size, -1))))
        accelerations, others = of.rates_with_tangents(phase, args)
        slopes = Phase(phase.velocity, tuple(accelerations), tuple(others))
        parts = [leaf for half in apart(slopes) for leaf in of.from_phase(half)]
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    return with_tangents if tangents else rates


def beside(own: Phase, tangents: Phase) -> Phase:
    """A phase with tangents behind it in each of its parts."""
    return Phase(*(tuple(a) + tuple(b) for a, b in zip(own, tangents, strict=True)))


def apart(phase: Phase) -> tuple[Phase, Phase]:
    """The inverse of `beside`."""
    halves = [len(part) // 2 for part in phase]
    return (
        Phase(*(part[:half] for part, half in zip(phase, halves, strict=True))),
        Phase(*(part[half:] for part, half in zip(phase, halves, strict=True))),
    )
