"""Control of a low-thrust spacecraft that is to reach a periodic orbit, as an environment.

A step is a segment of time over which the thrust is held in the turning frame. The return of
an episode, undiscounted, is the gap at the start less the objective of the transfer at its end
(`jaxlab.envs.cr3bp.objective`), so that its best policies are the best transfers:

  reward = decrease of the gap - kappa1 * mass burnt - kappa2 * time - (penalty if it crashed),

the gap being the distance in position and velocity to the target orbit, wherever on it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.environment import Constant, Env, TimeStep
from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.core.spaces import Box
from jaxlab.envs.cr3bp import dop853, dynamics
from jaxlab.envs.cr3bp.dop853 import Phase
from jaxlab.envs.cr3bp.pictures import Picture

#: Observations are clipped to this, far outside of what a transfer needs.
BOUND = 10.0
#: Propellant that is less than this part of the dry mass is none.
ROUNDING = 1e-12


@struct.dataclass
class Spacecraft:
    """What flies, in units of the system and of its initial mass.

    Attributes:
      acceleration: Full thrust by the initial mass.
      exhaust_speed: Specific impulse times standard gravity.
      dry_mass: What is left when the propellant is spent, below 1.
    """

    acceleration: Float[Array, ""]
    exhaust_speed: Float[Array, ""]
    dry_mass: Float[Array, ""]


@struct.dataclass
class ControlParams:
    """A task; n = 2 in the plane, 3 in space.

    Attributes:
      mu: Mass parameter.
      start: Position, velocity and mass at the start, `[2 n + 1]`.
      target: States around the target orbit, evenly in time, `[nodes, 2 n]`.
      spacecraft: What flies.
      segment: Time over which an action is held.
      tolerance: Gap below which the spacecraft has arrived.
      collision_radius: Of the larger and the smaller primary, `[2]`.
      weights: kappa1 of mass burnt and kappa2 of time, `[2]`.
      penalty: Of a collision.
    """

    mu: Float[Array, ""]
    start: Float[Array, " state"]
    target: Float[Array, "nodes components"]
    spacecraft: Spacecraft
    segment: Float[Array, ""]
    tolerance: Float[Array, ""]
    collision_radius: Float[Array, "2"]
    weights: Float[Array, "2"]
    penalty: Float[Array, ""]


@struct.dataclass
class ControlState:
    """Where a spacecraft is.

    Attributes:
      state: Position, velocity and mass, `[2 n + 1]`.
      time: Since the start.
      gap: Distance to the target orbit.
      arrived, collided, empty: Why an episode ended: at the target, in a primary, or without
        propellant.
      resolution: Largest step of the integration so far by the time that a close orbit takes,
        a radian of it.
      steps: Segments flown.
      trail: Positions at the ends of the last segments, in a ring, `[trail, n]`.
    """

    state: Float[Array, " state"]
    time: Float[Array, ""]
    gap: Float[Array, ""]
    arrived: Bool[Array, ""]
    collided: Bool[Array, ""]
    empty: Bool[Array, ""]
    resolution: Float[Array, ""]
    steps: Int[Array, ""]
    trail: Float[Array, "trail axes"]

    @property
    def over(self) -> jax.Array:
        """Whether the episode has ended."""
        return self.arrived | self.collided | self.empty


@dataclasses.dataclass(frozen=True)
class LowThrustControl(Env[ControlState, ControlParams]):
    """A spacecraft with throttle and direction of its thrust under control.

    Action `[n]`: thrust by full thrust, held over a segment in the turning frame; one longer
    than 1 is scaled to length 1. When the propellant ends within a segment, so does the thrust.

    Observation `[6 n + 2]`, clipped to +-10: position and velocity; the state of the target orbit
    next to it less its own; position less that of the smaller primary; a unit vector to the same
    and the logarithm of the distance; the part of the propellant that is left.

    An episode ends with a gap below the tolerance at the end of a segment, in a primary (the state
    is the last outside, checked also between steps), or without propellant. Wrap it in `TimeLimit`.
    An action that is no number ends it as a collision does.

    Each segment is so many equal steps of DOP853. They are too long for what passes a primary
    closely: `info["resolution"]` tells, see `ControlState`; below 0.2 a segment is exact to 1e-10.

    Attributes:
      nominal: `ControlParams` of which `sample_params` makes others.
      spatial: Whether there are three axes.
      substeps: Steps of the integration in a segment.
      radius: Of the circular orbit about the larger primary that tasks start on, from and to.
      angle: On it from the line to the smaller primary, from and to.
      inclination: Largest inclination of it, in space.
      trail: Positions that are kept for pictures.
    """

    name: ClassVar[str] = "low_thrust_control"
    precisions: ClassVar[tuple[str, ...]] = ("float64",)

    nominal: Constant
    spatial: bool = False
    substeps: int = 16
    radius: tuple[float, float] = (0.8, 0.9)
    angle: tuple[float, float] = (0.0, 2 * math.pi)
    inclination: float = 0.0
    trail: int = 128

    def __post_init__(self) -> None:
        for name in ("substeps", "trail"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} {value!r}: expected a whole number of at least 1")
        ranges = (self.radius, self.angle)
        if not all(len(r) == 2 and -math.inf < r[0] <= r[1] < math.inf for r in ranges):
            raise ConfigError(f"radius {self.radius}, angle {self.angle}: expected from and to")
        if not self.radius[0] > 0 or not 0 <= self.inclination <= math.pi:
            raise ConfigError(
                f"radius {self.radius} must be positive, inclination {self.inclination} in [0, pi]"
            )
        if self.inclination and not self.spatial:
            raise ConfigError("an inclined start needs a target orbit in space")

    @property
    def axes(self) -> int:
        """Of positions: 2 in the plane, 3 in space."""
        return 3 if self.spatial else 2

    def nominal_params(self) -> ControlParams:
        """The task the environment was made with."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), self.nominal.value)

    def sample_params(self, key: jax.Array) -> ControlParams:
        """The nominal task from another start: radius, angle and inclination are uniform."""
        require_x64(self.name)
        params = self.nominal_params()
        draw = lambda key, low, high: jax.random.uniform(key, (), jnp.float64, low, high)  # noqa: E731
        keys = jax.random.split(key, 3)
        radius, angle = draw(keys[0], *self.radius), draw(keys[1], *self.angle)
        inclination = draw(keys[2], 0.0, self.inclination)
        start = circular(params.mu, radius, angle, inclination, self.axes)
        return dataclasses.replace(params, start=jnp.append(start, 1.0))

    def reset(self, key: jax.Array, params: ControlParams) -> tuple[ControlState, TimeStep]:
        require_x64(self.name)
        position = params.start[: self.axes]
        no = jnp.zeros((), bool)
        state = ControlState(
            state=params.start,
            time=jnp.zeros((), jnp.float64),
            gap=self._nearest(params.start, params)[1],
            arrived=no,
            collided=no,
            empty=no,
            resolution=jnp.zeros((), jnp.float64),
            steps=jnp.zeros((), jnp.int32),
            trail=jnp.broadcast_to(position, (self.trail, self.axes)),
        )
        return state, self._timestep(state, jnp.zeros((), jnp.float64), params)

    def step(
        self, key: jax.Array, state: ControlState, action: jax.Array, params: ControlParams
    ) -> tuple[ControlState, TimeStep]:
        end, collided, resolution = self._fly(state.state, action, params)
        gap = self._nearest(end, params)[1]
        steps = state.steps + 1
        new = ControlState(
            state=end,
            time=state.time + params.segment,
            gap=gap,
            arrived=~collided & (gap < params.tolerance),
            collided=collided,
            empty=end[-1] <= params.spacecraft.dry_mass * (1 + ROUNDING),
            resolution=jnp.maximum(state.resolution, resolution),
            steps=steps,
            trail=state.trail.at[steps % self.trail].set(end[: self.axes]),
        )
        spent = jnp.stack([state.state[-1] - end[-1], params.segment])
        reward = state.gap - gap - (params.weights * spent).sum() - params.penalty * collided
        over = state.over
        new = jax.tree.map(lambda old, now: jnp.where(over, old, now), state, new)
        return new, self._timestep(new, jnp.where(over, 0.0, reward), params)

    def _fly(
        self, start: jax.Array, action: jax.Array, params: ControlParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The end of a segment, whether it is in a primary, and its resolution."""
        n, craft = self.axes, params.spacecraft
        length = jnp.sqrt(jnp.maximum((action**2).sum(), 1.0))
        thrust = craft.acceleration * action / length
        # Not quite zero, so that a coast has derivatives.
        size = jnp.sqrt(jnp.maximum((thrust**2).sum(), 1e-60))
        h = params.segment / self.substeps

        def rates(phase: Phase, part: Any) -> tuple[Any, Any]:
            pulls = dynamics.ballistic(phase.position, phase.velocity, params.mu)
            push = part / phase.rest[0]
            return (
                tuple(a + push * t for a, t in zip(pulls, thrust, strict=True)),
                (-part * size / craft.exhaust_speed,),
            )

        def substep(_: Any, carry: Any) -> Any:
            state, collided, resolution = carry
            # The part of the step that the propellant lasts, spread over all of it.
            lasts = (state[-1] - craft.dry_mass) * craft.exhaust_speed / (size * h)
            phase = Phase(tuple(state[:n]), tuple(state[n : 2 * n]), (state[-1],))
            moved = dop853.step(rates, phase, h, jnp.minimum(lasts, 1.0))
            new = jnp.stack([*moved.position, *moved.velocity, *moved.rest])
            new = new.at[-1].max(craft.dry_mass)
            closest = self._closest(state[:n], new[:n], params)
            hit = (closest < params.collision_radius).any() | ~jnp.isfinite(new).all()
            masses = jnp.stack([1 - params.mu, params.mu])
            # Beside what is outside a primary, so that the numbers stay finite.
            apart = jnp.where(hit, 1.0, closest)
            pace = h * jnp.sqrt((masses / apart**3).max())
            collided = collided | hit
            resolution = jnp.maximum(resolution, jnp.where(collided, 0.0, pace))
            return jnp.where(collided, state, new), collided, resolution

        begin = (start, jnp.zeros((), bool), jnp.zeros((), jnp.float64))
        return lax.fori_loop(0, self.substeps, substep, begin)

    def _closest(self, here: jax.Array, there: jax.Array, params: ControlParams) -> jax.Array:
        """Distances `[2]` of the primaries from the line between two positions."""
        places = jnp.zeros((2, self.axes)).at[:, 0].set(jnp.stack([-params.mu, 1 - params.mu]))
        return _to_line(places, here, there)[1]

    def _nearest(self, state: jax.Array, params: ControlParams) -> tuple[jax.Array, jax.Array]:
        """The state of the target orbit next to one, `[2 n]`, and the gap.

        The orbit is the closed polygon through its nodes.
        """
        own = state[: 2 * self.axes]
        following = jnp.roll(params.target, -1, 0)
        points, distances = _to_line(own, params.target, following)
        n = jnp.argmin(distances)
        return points[n], distances[n]

    def _timestep(self, state: ControlState, reward: jax.Array, params: ControlParams) -> TimeStep:
        return TimeStep(
            obs=self._observation(state, params),
            reward=reward,
            cost=jnp.zeros((0,), jnp.float64),
            terminated=state.over,
            truncated=jnp.zeros((), bool),
            info={
                "gap": state.gap,
                "mass": state.state[-1],
                "time": state.time,
                "arrived": state.arrived,
                "collided": state.collided,
                "out_of_propellant": state.empty,
                "resolution": state.resolution,
            },
        )

    def _observation(self, state: ControlState, params: ControlParams) -> jax.Array:
        n, dry = self.axes, params.spacecraft.dry_mass
        own = state.state[: 2 * n]
        place = jnp.zeros(n).at[0].set(1 - params.mu)
        away = own[:n] - place
        distance = jnp.sqrt(jnp.maximum((away**2).sum(), jnp.finfo(jnp.float64).tiny))
        left = (state.state[-1] - dry) / (1 - dry)
        return jnp.concatenate(
            [
                own,
                self._nearest(own, params)[0] - own,
                away,
                away / distance,
                jnp.stack([jnp.log(distance), left]),
            ]
        ).clip(-BOUND, BOUND)

    def observation_space(self, params: ControlParams) -> Box:
        return Box(-BOUND, BOUND, (6 * self.axes + 2,), "float64")

    def action_space(self, params: ControlParams) -> Box:
        return Box(-1.0, 1.0, (self.axes,), "float64")

    def render(self, state: ControlState, params: ControlParams) -> np.ndarray:
        """Target orbit, trail, primaries and spacecraft in the turning frame; uint8 `[H, W, 3]`.

        From above, and in space from the side to the right of it.
        """
        steps, n = int(state.steps), self.axes
        # The ring begins behind the last position; before it is full, at the start.
        order = np.arange(max(0, steps - self.trail + 1), steps + 1) % self.trail
        trail, target = np.asarray(state.trail)[order], np.asarray(params.target)[:, :n]
        mu, radii = float(params.mu), np.asarray(params.collision_radius)
        places = np.zeros((2, n))
        places[:, 0] = -mu, 1 - mu
        panels = []
        for axes in ([0, 1], [0, 2])[: n - 1]:
            shown = [points[:, axes] for points in (target, trail, places)]
            picture = Picture(np.concatenate(shown))
            picture.line(np.concatenate([shown[0], shown[0][:1]]), (90, 170, 90))
            picture.line(shown[1], (120, 160, 255))
            picture.disc(shown[2][0], radii[0], (230, 200, 120))
            picture.disc(shown[2][1], radii[1], (200, 200, 200))
            picture.disc(shown[1][-1], 0.0, (255, 90, 60) if bool(state.collided) else (255,) * 3)
            panels.append(picture.pixels)
        return np.concatenate(panels, 1)


def _to_line(point: jax.Array, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Points next to `point` on the lines from a to b, and their distances; `[..., components]`."""
    tiny = jnp.finfo(jnp.float64).tiny
    along = b - a
    part = ((point - a) * along).sum(-1) / jnp.maximum((along**2).sum(-1), tiny)
    next_to = a + jnp.clip(part, 0.0, 1.0)[..., None] * along
    return next_to, jnp.sqrt(jnp.maximum(((next_to - point) ** 2).sum(-1), tiny))


def circular(mu: Any, radius: Any, angle: Any, inclination: Any, axes: int) -> jax.Array:
    """A state on a direct circular orbit about the larger primary, `[2 axes]`.

    As `transfers.circular_start`, of traced numbers and inclined about the line of the primaries.
    """
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    tilt = jnp.stack([jnp.ones_like(cos), jnp.cos(inclination), jnp.sin(inclination)])
    position = radius * jnp.stack([cos, sin, sin]) * tilt
    velocity = jnp.sqrt((1 - mu) / radius) * jnp.stack([-sin, cos, cos]) * tilt
    turning = jnp.stack([-position[1], position[0], jnp.zeros_like(cos)])
    position = position.at[0].add(-mu)
    return jnp.concatenate([position[:axes], (velocity - turning)[:axes]])
