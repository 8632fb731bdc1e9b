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

The costate of the position enters by the rate of the primer vector, lv' = -lr - 2 K^T lv, since
lv'' = Omega_rr lv + 2 K lv': the primer moves like a small displacement of the spacecraft, and
so the flow is of second order in positions and primer, of first order in masses alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp import dynamics
from jaxlab.envs.cr3bp.dop853 import Phase
from jaxlab.envs.cr3bp.dynamics import Components, Primaries, dot, turned


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


def require_thruster(thruster: Any) -> None:
    """Refuse a thruster of other than finite, positive numbers; traced ones pass.

    Raises:
      ConfigError: A number is none, not finite or not positive, or there are not three.
    """
    if not isinstance(thruster, tuple) or len(thruster) != len(Thruster._fields):
        raise ConfigError(f"thruster {thruster!r}: expected a Thruster of three numbers")
    for name, value in zip(Thruster._fields, thruster, strict=True):
        if isinstance(value, jax.core.Tracer):
            continue
        try:
            values = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            raise ConfigError(f"thruster: {name} is {value!r}, expected a number") from None
        if not bool((np.isfinite(values) & (values > 0)).all()):
            raise ConfigError(f"thruster: {name} is {value}, expected finite and positive")


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


def as_phase(y: Components) -> Phase:
    """States and costates, or tangents of them, as the integrator takes them."""
    position, velocity, mass, lr, lv, lm = _split(y)
    primer_rate = (t - p for t, p in zip(turned(lv), lr, strict=True))
    return Phase((*position, *lv), (*velocity, *primer_rate), (mass, lm))


def from_phase(phase: Phase) -> list[Any]:
    """The inverse of `as_phase`."""
    n = len(phase.position) // 2
    primer, rate = phase.position[n:], phase.velocity[n:]
    lr = (t - p for t, p in zip(turned(primer), rate, strict=True))
    return [*phase.position[:n], *phase.velocity[:n], phase.rest[0], *lr, *primer, phase.rest[1]]


def _burn(
    mass: Any, primer: Components, mass_costate: Any, thruster: Thruster, held: Any = None
) -> _Burn:
    length = jnp.sqrt(dot(primer, primer))
    switching = length / mass + mass_costate / thruster.exhaust_speed
    throttle = held
    if held is None:
        throttle = 0.5 * (1 + jnp.tanh(switching / (2 * thruster.smoothing)))
    return _Burn(length, [p / length for p in primer], switching, throttle)


def flow(
    phase: Phase, mu: Any, thruster: Thruster, held: Any = None
) -> tuple[Components, Components]:
    """Accelerations of position and primer, and rates of mass and its costate.

    The throttle is `held`, 0 or 1, where given.
    """
    n = len(phase.position) // 2
    bodies = dynamics.primaries(phase.position[:n], mu)
    burn = _burn(phase.rest[0], phase.position[n:], phase.rest[1], thruster, held)
    return _flow(phase, bodies, burn, thruster, ())[:2]


def _flow(
    phase: Phase, bodies: Primaries, burn: _Burn, thruster: Thruster, kept: Components
) -> Any:
    """The flow, and what is to be kept as results of the same loop."""
    n = len(phase.position) // 2
    position, primer = phase.position[:n], phase.position[n:]
    velocity, primer_rate = phase.velocity[:n], phase.velocity[n:]
    push = thruster.acceleration * burn.throttle / phase.rest[0]
    pulls = dynamics.attraction(bodies, position, velocity)
    flow_rate = -thruster.acceleration * burn.throttle / thruster.exhaust_speed
    # A half for each primary, so that all are one sum (see `dynamics.summed`).
    sums = dynamics.summed(
        [
            *(pull - 0.5 * push * u for pull, u in zip(pulls, burn.direction, strict=True)),
            *dynamics.tide(bodies, primer, primer_rate),
            0.5 * flow_rate[None],
            (-0.5 * push * burn.primer / phase.rest[0])[None],
            *(0.5 * number[None] for number in kept),
        ]
    )
    return sums[: 2 * n], sums[2 * n : 2 * n + 2], sums[2 * n + 2 :]


def flow_with_tangents(
    phase: Phase, mu: Any, thruster: Thruster, held: Any = None
) -> tuple[Any, Any]:
    """The flow of a phase and, behind it in each part, of tangents with columns in front."""
    n = len(phase.position) // 4
    own = Phase(phase.position[: 2 * n], phase.velocity[: 2 * n], phase.rest[:2])
    tangent = Phase(phase.position[2 * n :], phase.velocity[2 * n :], phase.rest[2:])
    bodies = dynamics.primaries(own.position[:n], mu)
    burn = _burn(own.rest[0], own.position[n:], own.rest[1], thruster, held)
    # As results these are computed once, not by every column.
    kept = (*own.position, *own.rest)
    accelerations, rates, kept = _flow(own, bodies, burn, thruster, kept)
    own = own._replace(position=kept[: 2 * n], rest=kept[2 * n :])
    columns = bodies.beside_columns(kept[:n], mu)
    bent, changed = _tangents(own, tangent, columns, burn, thruster)
    return (*accelerations, *bent), (*rates, *changed)


def _tangents(
    own: Phase, tangent: Phase, bodies: Primaries, burn: _Burn, thruster: Thruster
) -> Any:
    """The derivative of `_flow`."""
    n = len(own.position) // 2
    dr, dlv = tangent.position[:n], tangent.position[n:]
    dv, dlv_rate = tangent.velocity[:n], tangent.velocity[n:]
    mass, primer = own.rest[0], own.position[n:]
    dm, dlm = tangent.rest
    a, c = thruster.acceleration, thruster.exhaust_speed
    per_mass = 1 / mass
    steep = burn.throttle * (1 - burn.throttle) / thruster.smoothing
    longer, lighter = dot(burn.direction, dlv), dm * per_mass
    throttle = steep * ((longer - burn.primer * lighter) * per_mass + dlm / c)
    along = a * per_mass * (throttle - burn.throttle * lighter)
    across = a * per_mass * burn.throttle / burn.primer
    push = [
        -along * u - across * (d - longer * u) for u, d in zip(burn.direction, dlv, strict=True)
    ]
    mass_costate = throttle * burn.primer + burn.throttle * (longer - 2 * burn.primer * lighter)
    bend = third_derivative(bodies, primer, dr)
    sums = dynamics.summed(
        [
            *(t + 0.5 * p for t, p in zip(dynamics.tide(bodies, dr, dv), push, strict=True)),
            *(t + b for t, b in zip(dynamics.tide(bodies, dlv, dlv_rate), bend, strict=True)),
            (-0.5 * a * throttle / c)[None],
            (-0.5 * a * per_mass * per_mass * mass_costate)[None],
        ]
    )
    return sums[: 2 * n], sums[2 * n :]


def third_derivative(bodies: Primaries, w: Components, u: Components) -> list[Any]:
    """The vector sum_jk Omega_ijk w_j u_k by primary, `[2, ...]`."""
    d = bodies.offset
    dw, du = dot(d, w), dot(d, u)
    along = dot(w, u) - 5 * bodies.inverse_square * dw * du
    return [
        bodies.steepness * (wi * du + ui * dw + di * along)
        for wi, ui, di in zip(w, u, d, strict=True)
    ]


def hamiltonian(
    y: Float[Array, "*batch components"], mu: Any, thruster: Thruster
) -> Float[Array, "*batch"]:
    """H of the smoothed problem, constant along the flow."""
    parts = list(jnp.moveaxis(y, -1, 0))
    position, velocity, mass, lr, lv, lm = _split(parts)
    pull = dynamics.ballistic(position, velocity, mu)
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
