"""A cart-pole that swings for ever, with a bound on the average force.

Equations of motion after Barto, Sutton and Anderson (1983) in the corrected form of Florian
(2007), with friction; nothing ends: the cart stops at the ends of its track, and gusts keep
every state within reach, so averages do not depend on the start.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.spaces import Box

#: Fastest motion of the cart (m/s) and the pole (rad/s) that the simulator follows.
MOST_SPEED, MOST_SPIN = 8.0, 20.0


@struct.dataclass
class Params:
    """A task.

    Attributes:
      gravity: m/s^2.
      cart_mass, pole_mass: kg.
      half_length: Half of the pole's length, m.
      friction: Of the cart, and of the pole's hinge: 1/s.
      force: Largest force, N.
      gust: Standard deviation of the change of the pole's spin in a step, rad/s.
      bound: On the average of the squared action.
    """

    gravity: Float[Array, ""]
    cart_mass: Float[Array, ""]
    pole_mass: Float[Array, ""]
    half_length: Float[Array, ""]
    friction: Float[Array, ""]
    force: Float[Array, ""]
    gust: Float[Array, ""]
    bound: Float[Array, ""]


@struct.dataclass
class State:
    """Motion.

    Attributes:
      position: Of the cart, m.
      speed: m/s.
      angle: Of the pole from upright, rad, in [-pi, pi].
      spin: rad/s.
    """

    position: Float[Array, ""]
    speed: Float[Array, ""]
    angle: Float[Array, ""]
    spin: Float[Array, ""]


def slack(timestep: TimeStep, params: Params) -> jax.Array:
    """What a step leaves of the bound on effort, `[1]`."""
    return params.bound - timestep.cost


@dataclasses.dataclass(frozen=True)
class ConstrainedCartPole(Env[State, Params]):
    """Swing a pole up and hold it there with bounded average effort.

    Observations `[5]`: position over the half-width of the track, speed and spin over 4 and 8,
    cosine and sine of the angle. Actions `[1]` in [-1, 1], a share of the largest force; others
    are clipped. Reward: `(1 + cos angle) / 2` less a little for a cart far from the middle, in
    [0, 1]. Cost `[1]`: the square of the action.

    Attributes:
      track: Half-width of the track, m.
      time_step: s.
      substeps: Steps of the integrator in it.
    """

    name: ClassVar[str] = "constrained_cartpole"
    precisions: ClassVar[tuple[str, ...]] = ("float32", "float64")

    track: float = 2.4
    time_step: float = 0.04
    substeps: int = 2

    @property
    def num_costs(self) -> int:
        return 1

    def sample_params(self, key: jax.Array) -> Params:
        """The task; there is nothing to draw."""
        values = (9.81, 1.0, 0.1, 0.5, 0.1, 10.0, 0.05, 0.1)
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        return Params(*(jnp.full((), value, dtype) for value in values))

    def reset(self, key: jax.Array, params: Params) -> tuple[State, TimeStep]:
        """Begin at rest at a random place, the pole at a random angle."""
        dtype = params.gravity.dtype
        place, angle = jax.random.uniform(key, (2,), dtype, -1.0, 1.0)
        zero = jnp.zeros((), dtype)
        state = State(place * self.track / 2, zero, angle * np.pi, zero)
        return state, self._observe(state, zero, jnp.zeros((1,), dtype))

    def step(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[State, TimeStep]:
        """Push for one time step, by semi-implicit Euler."""
        effort = jnp.clip(action.astype(params.gravity.dtype).reshape(()), -1.0, 1.0)
        moved = state
        for _ in range(self.substeps):
            moved = self._push(moved, effort * params.force, params)
        gust = params.gust * jax.random.normal(key, (), params.gust.dtype)
        moved = dataclasses.replace(moved, spin=jnp.clip(moved.spin + gust, -MOST_SPIN, MOST_SPIN))
        middle = 1 - 0.2 * (moved.position / self.track) ** 2
        reward = 0.5 * (1 + jnp.cos(moved.angle)) * middle
        return moved, self._observe(moved, reward, effort[None] ** 2)

    def _push(self, state: State, force: jax.Array, params: Params) -> State:
        sine, cosine = jnp.sin(state.angle), jnp.cos(state.angle)
        mass = params.cart_mass + params.pole_mass
        moment = params.pole_mass * params.half_length
        push = (force + moment * state.spin**2 * sine) / mass
        inertia = params.half_length * (4 / 3 - params.pole_mass * cosine**2 / mass)
        turning = (params.gravity * sine - cosine * push) / inertia
        turning = turning - params.friction * state.spin
        moving = push - moment * turning * cosine / mass - params.friction * state.speed
        dt = self.time_step / self.substeps
        speed = jnp.clip(state.speed + dt * moving, -MOST_SPEED, MOST_SPEED)
        spin = jnp.clip(state.spin + dt * turning, -MOST_SPIN, MOST_SPIN)
        position = state.position + dt * speed
        inside = jnp.abs(position) <= self.track
        angle = state.angle + dt * spin
        angle = angle - 2 * np.pi * jnp.round(angle / (2 * np.pi))
        return State(
            position=jnp.clip(position, -self.track, self.track),
            speed=jnp.where(inside, speed, 0.0),
            angle=angle,
            spin=spin,
        )

    def _observe(self, state: State, reward: jax.Array, cost: jax.Array) -> TimeStep:
        obs = jnp.stack(
            [
                state.position / self.track,
                state.speed / 4,
                state.spin / 8,
                jnp.cos(state.angle),
                jnp.sin(state.angle),
            ]
        )
        never = jnp.zeros((), bool)
        return TimeStep(obs, reward, cost, terminated=never, truncated=never, info={})

    def observation_space(self, params: Params) -> Box:
        dtype = params.gravity.dtype.name
        return Box(-MOST_SPIN / 8, MOST_SPIN / 8, (5,), dtype)

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (1,), params.gravity.dtype.name)
