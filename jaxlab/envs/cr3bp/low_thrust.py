"""Minimum-fuel low thrust by Pontryagin's principle: the flow of states and costates.

A spacecraft of mass m (by its initial one) with thrust acceleration `a` at m = 1 and
exhaust speed `c` burns with throttle sigma in the direction -lv / |lv|, lv the costate of
its velocity (Lawden's primer vector). With the switching function S = |lv| / m + lm / c
and sigma = 1 / (1 + exp(-S / rho)) the flow is the Hamiltonian one of

  H = lr . v + lv . g - a rho log(1 + exp(S / rho)),

so that H stays constant and the state transition matrix symplectic for every smoothing
rho; as rho goes to 0 the throttle becomes bang-bang. (The form m S with the same tanh,
often seen, is not Hamiltonian.) Costates of a fixed final mass reward have lm < 0.

Components: position, velocity, mass, then their costates; 14 in space, 10 in the plane.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.envs.cr3bp import dynamics
from jaxlab.envs.cr3bp.dynamics import Components, dot, plus, product, turned


class Thruster(NamedTuple):
    """What drives the spacecraft, in units of the system.

    Attributes:
      acceleration: Full thrust by the initial mass.
      exhaust_speed: Specific impulse times standard gravity.
      smoothing: rho, the width of a switch in S.
    """

    acceleration: Any
    exhaust_speed: Any
    smoothing: Any


class _Burn(NamedTuple):
    """Where primer vector and mass put the throttle."""

    primer: Any
    direction: list[Any]
    switching: Any
    throttle: Any


def _split(y: Components) -> tuple[Any, ...]:
    half = len(y) // 2  # of the state: n positions, n velocities, mass
    n = half // 2
    return y[:n], y[n : 2 * n], y[2 * n], y[half : half + n], y[half + n : 2 * half - 1], y[-1]


def _burn(mass: Any, primer: Components, mass_costate: Any, thruster: Thruster) -> _Burn:
    length = jnp.sqrt(dot(primer, primer))
    switching = length / mass + mass_costate / thruster.exhaust_speed
    throttle = 0.5 * (1 + jnp.tanh(switching / (2 * thruster.smoothing)))
    return _Burn(length, [p / length for p in primer], switching, throttle)


def flow(y: Components, mu: Any, thruster: Thruster) -> list[Any]:
    """Rates of states and costates."""
    position, velocity, mass, lr, lv, lm = _split(y)
    bodies = dynamics.primaries(position, mu)
    burn = _burn(mass, lv, lm, thruster)
    push = thruster.acceleration * burn.throttle / mass
    thrust = [-push * u for u in burn.direction]
    return [
        *velocity,
        *plus(plus(dynamics.gradient(position, bodies), turned(velocity)), thrust),
        -thruster.acceleration * burn.throttle / thruster.exhaust_speed,
        *(-pull for pull in product(dynamics.hessian(bodies), lv)),
        *plus([-p for p in lr], turned(lv)),
        -push * burn.primer / mass,
    ]


def flow_with_tangents(y: jax.Array, mu: Any, thruster: Thruster, size: int = 14) -> jax.Array:
    """Rates of a state-costate of `size` components and of the tangents behind it.

    The layout is that of `dynamics.split_tangents`.
    """
    state, tangents = dynamics.split_tangents(y, size)
    position, _, mass, _, lv, lm = _split(state)
    dr, dv, dm, dlr, dlv, dlm = _split(tangents)
    bodies = dynamics.primaries(position, mu)
    second = dynamics.hessian(bodies)
    a, c = thruster.acceleration, thruster.exhaust_speed
    burn = _burn(mass, lv, lm, thruster)
    per_mass = 1 / mass
    steep = burn.throttle * (1 - burn.throttle) / thruster.smoothing
    longer, lighter = dot(burn.direction, dlv), dm * per_mass
    throttle = steep * ((longer - burn.primer * lighter) * per_mass + dlm / c)
    along = a * per_mass * (throttle - burn.throttle * lighter)
    across = a * per_mass * burn.throttle / burn.primer
    push = [
        -along * u - across * (d - longer * u) for u, d in zip(burn.direction, dlv, strict=True)
    ]
    bent = product(third_derivatives_along(bodies, lv), dr)
    mass_costate = throttle * burn.primer + burn.throttle * (longer - 2 * burn.primer * lighter)
    return dynamics.joined(
        flow(state, mu, thruster),
        [
            *dv,
            *plus(plus(product(second, dr), turned(dv)), push),
            -a * throttle / c,
            *(-p - q for p, q in zip(bent, product(second, dlv), strict=True)),
            *plus([-d for d in dlr], turned(dlv)),
            -a * per_mass * per_mass * mass_costate,
        ],
    )


def third_derivatives_along(
    bodies: tuple[dynamics.Primary, dynamics.Primary], w: Components
) -> list[list[Any]]:
    """The matrix sum_k Omega_ijk w_k."""
    size = len(w)
    matrix: list[list[Any]] = [[0] * size for _ in range(size)]
    for body in bodies:
        q = 3 * body.pull * body.inverse_square
        d = body.offset
        along = dot(d, w)
        fifth = 5 * body.inverse_square * along
        for i in range(size):
            for j in range(i, size):
                term = w[i] * d[j] + d[i] * w[j] - fifth * d[i] * d[j]
                matrix[i][j] = matrix[i][j] + q * (term + along if i == j else term)
                matrix[j][i] = matrix[i][j]
    return matrix


def hamiltonian(
    y: Float[Array, "*batch components"], mu: Any, thruster: Thruster
) -> Float[Array, "*batch"]:
    """H of the smoothed problem, constant along the flow."""
    parts = list(jnp.moveaxis(y, -1, 0))
    position, velocity, mass, lr, lv, lm = _split(parts)
    bodies = dynamics.primaries(position, mu)
    pull = plus(dynamics.gradient(position, bodies), turned(velocity))
    switching = _burn(mass, lv, lm, thruster).switching
    rho = thruster.smoothing
    burning = thruster.acceleration * rho * jax.nn.softplus(switching / rho)
    return dot(lr, velocity) + dot(lv, pull) - burning


def throttle(
    y: Float[Array, "*batch components"], thruster: Thruster
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Throttle sigma in [0, 1] and switching function S of states and costates."""
    _, _, mass, _, lv, lm = _split(list(jnp.moveaxis(y, -1, 0)))
    burn = _burn(mass, lv, lm, thruster)
    return burn.throttle, burn.switching
