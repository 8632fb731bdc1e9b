"""The three-body problem under a thrust vector that is held in the turning frame.

r' = v,  v' = g(r, v) + a u / m,  m' = -a |u| / c,  |u| <= 1.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxlab.envs.cr3bp import dynamics
from jaxlab.envs.cr3bp.dop853 import Phase
from jaxlab.envs.cr3bp.dynamics import dot
from jaxlab.envs.cr3bp.flows import Flow


def held_thrust(axes: int) -> Flow:
    """The flow of position, velocity and mass with arguments (mu, a, c, u ...), u held.

    Tangents have `2 axes + 1 + axes` columns, the last ones for the thrust vector.
    """
    size = 2 * axes + 1

    def parts(phase: Phase, args: Any) -> Any:
        mu, a, c, *u = args
        length = jnp.sqrt(dot(u, u))
        # At no thrust its direction has no value, and the mass flow the slope zero.
        direction = [p / jnp.where(length > 0, length, 1) for p in u]
        return mu, a / phase.rest[0], a / c, u, length, direction

    def rates(phase: Phase, args: Any) -> Any:
        mu, push, burn, u, length, _ = parts(phase, args)
        pull = dynamics.ballistic(phase.position, phase.velocity, mu)
        mass_rate = jnp.broadcast_to(-burn * length, phase.rest[0].shape)
        return tuple(g + push * p for g, p in zip(pull, u, strict=True)), (mass_rate,)

    def rates_with_tangents(phase: Phase, args: Any) -> Any:
        own = Phase(phase.position[:axes], phase.velocity[:axes], phase.rest[:1])
        mu, push, burn, u, length, direction = parts(own, args)
        pulls = dynamics.ballistic_with_tangents(phase.position, phase.velocity, mu)
        lighter = phase.rest[1] / own.rest[0]
        change = np.zeros((axes, size + axes, 1))  # of the thrust, by columns
        change[range(axes), range(size, size + axes)] = 1
        accelerations = [g + push * p for g, p in zip(pulls[:axes], u, strict=True)]
        bent = [
            tide + push * (change[n] - p * lighter)
            for n, (tide, p) in enumerate(zip(pulls[axes:], u, strict=True))
        ]
        flow_rates = -burn * dot(direction, list(change))
        return (*accelerations, *bent), (
            jnp.broadcast_to(-burn * length, own.rest[0].shape),
            jnp.broadcast_to(flow_rates, phase.rest[1].shape),
        )

    return Flow(
        size,
        lambda y: Phase(tuple(y[:axes]), tuple(y[axes : 2 * axes]), (y[2 * axes],)),
        lambda phase: [*phase.position, *phase.velocity, *phase.rest],
        rates,
        rates_with_tangents,
        axes,
    )
