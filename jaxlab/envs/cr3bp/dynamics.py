"""The circular restricted three-body problem: equations of motion and their variations.

Functions take components, each of any shape: with one lane per trajectory behind each, XLA
makes one vectorised loop of a whole stage of an integrator. What both primaries do alike
has an axis of two in front, and several sums over it are one loop with several results
(`summed`); XLA compiles anything else with several results into as many loops. The
variational equations are written out, because differentiating a dozen unrolled stages
takes minutes to compile. In the plane the third components are left out.

Equations as in Szebehely, Theory of Orbits (1967), chapter 1, and for the state
transition matrix Koon, Lo, Marsden and Ross (2011), section 4.2. The Jacobi constant is
2 Omega - v^2, without the mu (1 - mu) that some add.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

Components = Sequence[Any]


def dot(a: Components, b: Components) -> Any:
    """Scalar product of two vectors given by their components."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


@jax.custom_jvp
def _sums(terms: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    return tuple(lax.reduce(terms, zeros, lambda a, b: tuple(map(operator.add, a, b)), (0,)))


@_sums.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # A reduction of several arrays at once has no derivative of its own.
    return _sums(*primals), tuple(tangent.sum(0) for tangent in tangents[0])


def summed(terms: Components) -> tuple[jax.Array, ...]:
    """Sums of several arrays of one shape over their first axis, in one loop."""
    shape = jnp.broadcast_shapes(*(term.shape for term in terms))
    return _sums(tuple(jnp.broadcast_to(term, shape) for term in terms))


class Primaries(NamedTuple):
    """Both primaries as seen from a point; arrays `[2, ...]`, the larger first.

    Attributes:
      offset: From the primary to the point; components across the line of the primaries are
        the same for both and have no axis of two.
      inverse_square: 1 / r^2.
      pull: m / r^3.
      steepness: 3 m / r^5.
    """

    offset: list[Any]
    inverse_square: Any
    pull: Any
    steepness: Any

    def beside_columns(self, position: Components, mu: Any) -> Primaries:
        """The same with an axis for columns of tangents behind that of the primaries.

        Offsets are computed anew from the position, which the caller has at hand.
        """
        along, *rest = offsets(position, mu)
        return Primaries([along[:, None], *rest], *(leaf[:, None] for leaf in self[1:]))


def _both(large: Any, small: Any, rank: int) -> jax.Array:
    """Two numbers, or two arrays of one number each lane, as an axis of two in front."""
    pair = jnp.stack([jnp.asarray(large), jnp.asarray(small)])
    return pair if pair.ndim > 1 else pair.reshape(2, *(1,) * rank)


def offsets(position: Components, mu: Any) -> list[Any]:
    """From the primaries to a position; see `Primaries`."""
    x, *rest = position
    return [x[None] + _both(mu, mu - 1, jnp.ndim(x)), *rest]


def primaries(position: Components, mu: Any) -> Primaries:
    """The primaries as seen from a position."""
    along, *rest = offsets(position, mu)
    inverse_square = 1 / (along * along + dot(rest, rest))
    masses = _both(1 - mu, mu, along.ndim - 1)
    pull = masses * inverse_square * jnp.sqrt(inverse_square)
    return Primaries([along, *rest], inverse_square, pull, 3 * pull * inverse_square)


def turned(velocity: Components) -> list[Any]:
    """The Coriolis acceleration 2 (vy, -vx, 0) of a velocity."""
    return [2 * velocity[1], -2 * velocity[0], *(0 for _ in velocity[2:])]


def attraction(bodies: Primaries, position: Components, velocity: Components) -> list[Any]:
    """Accelerations by primary, `[2, ...]`, to be `summed`: each has half of what the frame adds."""
    pulls = [bodies.pull * d for d in bodies.offset]
    turning = (0.5 * position[0] + velocity[1], 0.5 * position[1] - velocity[0])
    return [t - p for t, p in zip(turning, pulls[:2], strict=True)] + [-p for p in pulls[2:]]


def tide(bodies: Primaries, change: Components, change_rate: Components) -> list[Any]:
    """The derivative of `attraction` in a direction, by primary."""
    along = bodies.steepness * dot(bodies.offset, change)
    stretch = [along * d for d in bodies.offset]
    flat = 0.5 - bodies.pull
    return [
        flat * change[0] + change_rate[1] + stretch[0],
        flat * change[1] - change_rate[0] + stretch[1],
        *(s - bodies.pull * c for s, c in zip(stretch[2:], change[2:], strict=True)),
    ]


def ballistic(
    position: Components, velocity: Components, mu: Any
) -> tuple[Float[Array, "..."], ...]:
    """Accelerations, of two components in the plane or three in space."""
    return summed(attraction(primaries(position, mu), position, velocity))


def ballistic_with_tangents(
    position: Components, velocity: Components, mu: Any
) -> tuple[Float[Array, "..."], ...]:
    """Accelerations of a point and, behind it, of tangents, with an axis of columns in front.

    The components of the point `[...]` come first, then those of its tangents `[columns, ...]`.
    """
    size = len(position) // 2
    bodies = primaries(position[:size], mu)
    # The position is a result as well, so that it is computed once and not by every column.
    halves = [0.5 * p[None] for p in position[:size]]
    sums = summed([*attraction(bodies, position[:size], velocity[:size]), *halves])
    columns = bodies.beside_columns(sums[size:], mu)
    return (*sums[:size], *summed(tide(columns, position[size:], velocity[size:])))


def jacobi_constant(state: Float[Array, "*batch components"], mu: Any) -> Float[Array, "*batch"]:
    """C = 2 Omega - v^2, which a ballistic arc keeps; of `[..., 6]` or, in the plane, `[..., 4]`."""
    half = state.shape[-1] // 2
    position, velocity = state[..., :half], state[..., half:]
    r1, r2 = primary_distances(position, mu)
    omega = (position[..., :2] ** 2).sum(-1) / 2 + (1 - mu) / r1 + mu / r2
    return 2 * omega - (velocity**2).sum(-1)


def primary_distances(
    position: Float[Array, "*batch axes"], mu: Any
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Distances from the larger and the smaller primary."""
    across = (position[..., 1:] ** 2).sum(-1)
    x = position[..., 0]
    return jnp.sqrt((x + mu) ** 2 + across), jnp.sqrt((x - 1 + mu) ** 2 + across)


def symplectic_defect(stm: np.ndarray | jax.Array) -> np.ndarray | np.float64:
    """How far `Phi^T J Phi` is from `J`: largest entry by the square of Phi's norm, `[...]`.

    Phi is `[..., 6, 6]` of a ballistic arc. The frame turns, so the canonical momentum is
    v + (-y, x, 0), and J is written for (r, v).
    """
    stm = np.asarray(stm)
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 0]])
    eye, none = np.eye(3), np.zeros((3, 3))
    momenta = np.block([[eye, none], [turn, eye]])
    canonical = np.block([[none, eye], [-eye, none]])
    form = momenta.T @ canonical @ momenta
    defect = np.abs(np.swapaxes(stm, -1, -2) @ form @ stm - form).max((-1, -2))
    return defect / (np.linalg.norm(stm, axis=(-2, -1)) ** 2)
