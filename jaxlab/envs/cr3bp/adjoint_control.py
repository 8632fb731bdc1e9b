"""Initial costates by what the thrust does at departure: the adjoint control transformation.

Costates have no bounds that mean anything; the direction of thrust, how it turns, and when it
switches do (Dixon and Bartholomew-Biggs 1981; Russell 2007, J. Guidance 30(2)). With the thrust
direction u = -lv / |lv|, L = |lv| and the switching function S = L / m + lm / c:

  L = m (S - lm / c),   L' = m S',
  lv = -L u,   lv' = -(L' u + L u'),   lr = -lv' - 2 K^T lv,

the last from the costate equations in the turning frame (2 K^T lv = (-2 lv_y, 2 lv_x, 0)). The
rate of S needs no throttle, as its terms with the mass flow cancel. The direction is given by
angles in a basis that stays as it is in the turning frame: the azimuth alpha from the velocity at
departure towards its left, and in space the elevation beta out of the plane of both:

  u = cos(beta) (cos(alpha) e1 + sin(alpha) e2) + sin(beta) e3,

with e1 along the velocity, e2 across it in the plane of the primaries' motion, e3 = e1 x e2. Where
lm(0) is fixed, as an objective does to fix the scale of all costates, S gives L as well;
otherwise L is one number more.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.cr3bp.dynamics import turned
from jaxlab.envs.cr3bp.transfers import Transfer


class Bounds(NamedTuple):
    """Where controls at departure are looked for, each between two numbers; static.

    Attributes:
      azimuth: Radians.
      elevation: Radians, in space.
      azimuth_rate: Radians in a unit of time.
      elevation_rate: The same, in space.
      switching: S, in units of 1 / c: -1 is no primer vector at all where lm = -1 and m = 1.
      switching_rate: S', in units of 1 / c in a unit of time.
      primer: |lv|, in units of m / c, where the mass costate is not fixed.
    """

    azimuth: tuple[float, float] = (-np.pi, np.pi)
    elevation: tuple[float, float] = (-np.pi / 4, np.pi / 4)
    azimuth_rate: tuple[float, float] = (-2.0, 2.0)
    elevation_rate: tuple[float, float] = (-1.0, 1.0)
    switching: tuple[float, float] = (-0.5, 1.0)
    switching_rate: tuple[float, float] = (-1.0, 1.0)
    primer: tuple[float, float] = (1.0, 2.0)


#: The bounds unless told otherwise: our choice, as public papers name none.
BOUNDS = Bounds()


@dataclasses.dataclass(frozen=True)
class AdjointControl:
    """From controls at departure to costates and back; static.

    Controls are `[..., d]`: azimuth, its rate, S, S' in the plane (d = 4); azimuth, elevation,
    their rates, S, S' in space (d = 6); behind these |lv| if the mass costate is None. Costates
    are the unknowns of an `Objective` with the same mass costate.

    Attributes:
      mass_costate: Its initial value, negative; None makes it unknown too.
      bounds: Of what is sampled.
    """

    mass_costate: float | None = -1.0
    bounds: Bounds = BOUNDS

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
          ConfigError: The mass costate is not negative, a bound no interval, an elevation upright.
        """
        if self.mass_costate is not None and not self.mass_costate < 0:
            raise ConfigError(f"mass_costate {self.mass_costate:g}: expected a negative number")
        for name, interval in zip(Bounds._fields, self.bounds, strict=True):
            if len(interval) != 2 or not -np.inf < interval[0] < interval[1] < np.inf:
                raise ConfigError(f"bounds of {name} {interval}: expected low and high")
        if not max(map(abs, self.bounds.elevation)) < np.pi / 2:
            raise ConfigError("bounds of elevation must be within a right angle, both excluded")
        if not self.bounds.primer[0] > 0:
            raise ConfigError("bounds of primer must be positive")

    def unknowns(self, transfer: Transfer) -> int:
        """How many controls, and costates, there are."""
        return transfer.target.shape[-1] + (self.mass_costate is None)

    def to_costates(self, controls: Any, transfer: Transfer) -> Float[Array, "*batch unknowns"]:
        """Initial costates with these controls; without a meaning for |lv| <= 0, which S below
        lm / c asks for.

        Args:
          controls: `[..., d]`.
          transfer: The state at departure and the exhaust speed.

        Raises:
          PrecisionError: JAX computes in 32 bits.
          ConfigError: Their number is wrong, or the velocity at departure gives no basis.
        """
        parts, basis, mass = self._begin("controls", controls, transfer)
        size = basis.shape[0]
        angles, angle_rates = parts[: size - 1], parts[size - 1 : 2 * size - 2]
        switching, switching_rate = parts[2 * size - 2 : 2 * size]
        exhaust = transfer.thruster.exhaust_speed
        if self.mass_costate is None:
            length = parts[-1]
            mass_costate = exhaust * (switching - length / mass)
        else:
            length = mass * (switching - self.mass_costate / exhaust)
        direction, turning = jax.jvp(_direction, (angles,), (angle_rates,))
        along, change = (jnp.stack(of, -1) @ basis.T for of in (direction, turning))
        primer = -length[..., None] * along
        primer_rate = -(mass * switching_rate)[..., None] * along - length[..., None] * change
        costates = [_turned(primer) - primer_rate, primer]
        if self.mass_costate is None:
            costates.append(mass_costate[..., None])
        return jnp.concatenate(costates, -1)

    def from_costates(self, costates: Any, transfer: Transfer) -> Float[Array, "*batch unknowns"]:
        """The controls that initial costates mean; arguments and errors as `to_costates`.

        The azimuth is in (-pi, pi], the elevation in [-pi / 2, pi / 2].
        """
        parts, basis, mass = self._begin("costates", costates, transfer)
        size = basis.shape[0]
        position, primer = (jnp.stack(parts[n : n + size], -1) for n in (0, size))
        exhaust = transfer.thruster.exhaust_speed
        mass_costate = parts[-1] if self.mass_costate is None else self.mass_costate
        length = jnp.linalg.norm(primer, axis=-1)
        primer_rate = _turned(primer) - position
        longer = (primer * primer_rate).sum(-1) / length
        along = -primer / length[..., None]
        change = -(primer_rate + longer[..., None] * along) / length[..., None]
        angles, angle_rates = jax.jvp(_angles, (along @ basis,), (change @ basis,))
        controls = [*angles, *angle_rates, length / mass + mass_costate / exhaust, longer / mass]
        if self.mass_costate is None:
            controls.append(length)
        return jnp.stack(controls, -1)

    def sample(self, key: Array, count: int, transfer: Transfer) -> Float[Array, "count unknowns"]:
        """Controls evenly within the bounds.

        Args:
          key: Of `jax.random.key`.
          count: How many.
          transfer: The units of S and |lv|, and whether it is in the plane.

        Raises:
          PrecisionError: JAX computes in 32 bits.
          ConfigError: The count or a bound is wrong.
        """
        self.check()
        require_x64("adjoint control")
        if not isinstance(count, int) or count < 1:
            raise ConfigError(f"count {count!r}: expected a whole number of at least 1")
        low, high = self.box(transfer)
        shape = (count, self.unknowns(transfer))
        return low + (high - low) * jax.random.uniform(key, shape, jnp.float64)

    def box(
        self, transfer: Transfer
    ) -> tuple[Float[Array, " unknowns"], Float[Array, " unknowns"]]:
        """Lower and upper bounds of the controls, in units of the system."""
        of, space = self.bounds, transfer.target.shape[-1] == 6
        angles = [of.azimuth, of.elevation] if space else [of.azimuth]
        rates = [of.azimuth_rate, of.elevation_rate] if space else [of.azimuth_rate]
        one = jnp.float64(1.0)
        per_exhaust = 1 / transfer.thruster.exhaust_speed
        units = [one] * (2 * len(angles)) + [per_exhaust] * 2
        intervals = [*angles, *rates, of.switching, of.switching_rate]
        if self.mass_costate is None:
            units.append(transfer.start[-1] * per_exhaust)
            intervals.append(of.primer)
        scaled = jnp.stack(units)[:, None] * np.array(intervals)
        return scaled[:, 0], scaled[:, 1]

    def _begin(self, name: str, values: Any, transfer: Transfer) -> tuple[Any, jax.Array, Any]:
        """Components of controls or costates, the basis at departure and the mass there."""
        self.check()
        require_x64("adjoint control")
        values, size = jnp.asarray(values, jnp.float64), self.unknowns(transfer)
        if values.shape[-1:] != (size,):
            raise ConfigError(f"{name} are [..., {size}] here, got {list(values.shape)}")
        return list(jnp.moveaxis(values, -1, 0)), departure_basis(transfer), transfer.start[-1]


def departure_basis(transfer: Transfer) -> Float[Array, "axes axes"]:
    """Columns e1 along the velocity at departure, e2 to its left in the plane, e3 upwards.

    Raises:
      ConfigError: In the turning frame the start is at rest, or moves straight out of the plane.
    """
    size = transfer.target.shape[-1] // 2
    velocity = transfer.start[size : 2 * size]
    across = jnp.hypot(velocity[0], velocity[1])
    if not isinstance(across, jax.core.Tracer) and not across > 0:
        raise ConfigError(
            "the start has no velocity in the plane of the primaries, from which the azimuth of "
            "thrust is counted: give it some"
        )
    first = velocity / jnp.linalg.norm(velocity)
    left = jnp.stack([-velocity[1], velocity[0]]) / across
    if size == 2:
        return jnp.stack([first, left], 1)
    second = jnp.append(left, 0.0)
    return jnp.stack([first, second, jnp.cross(first, second)], 1)


def _turned(vectors: jax.Array) -> jax.Array:
    """-2 K^T of vectors `[..., n]`."""
    parts = turned(list(jnp.moveaxis(vectors, -1, 0)))
    return jnp.stack([jnp.broadcast_to(part, vectors.shape[:-1]) for part in parts], -1)


def _direction(angles: list[Any]) -> list[Any]:
    """Components in the basis by azimuth, and in space elevation."""
    azimuth, *elevation = angles
    flat = [jnp.cos(azimuth), jnp.sin(azimuth)]
    if not elevation:
        return flat
    return [*(jnp.cos(elevation[0]) * part for part in flat), jnp.sin(elevation[0])]


def _angles(direction: jax.Array) -> list[Any]:
    """The inverse of `_direction`, of `[..., n]`."""
    along, left, *up = jnp.moveaxis(direction, -1, 0)
    azimuth = jnp.arctan2(left, along)
    return [azimuth, *(jnp.arctan2(part, jnp.hypot(along, left)) for part in up)]
