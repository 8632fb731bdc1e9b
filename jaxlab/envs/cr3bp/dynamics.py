"""The circular restricted three-body problem: equations of motion and their variations.

Right-hand sides take components, each of any shape: with one lane per trajectory behind
each, XLA makes one vectorised loop of a whole stage of an integrator. The variational
equations are written out, because differentiating a dozen unrolled stages takes minutes
to compile. In the plane the third components are
left out, so that a state has 4 components instead of 6.

Equations as in Szebehely, Theory of Orbits (1967), chapter 1, and for the state
transition matrix Koon, Lo, Marsden and Ross (2011), section 4.2. The Jacobi constant is
2 Omega - v^2, without the mu (1 - mu) that some add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Components = Sequence[Any]


def dot(a: Components, b: Components) -> Any:
    """Scalar product of two vectors given by their components."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


class Primary(NamedTuple):
    """One primary as seen from a point.

    Attributes:
      offset: From the primary to the point.
      inverse_square: 1 / r^2.
      pull: m / r^3.
    """

    offset: list[Any]
    inverse_square: Any
    pull: Any


def primaries(position: Components, mu: Any) -> tuple[Primary, Primary]:
    """The larger and the smaller primary as seen from a position."""
    x, *rest = position
    across = dot(rest, rest)

    def seen(along: Any, mass: Any) -> Primary:
        inverse_square = 1 / (along * along + across)
        return Primary(
            [along, *rest], inverse_square, mass * inverse_square * jnp.sqrt(inverse_square)
        )

    return seen(x + mu, 1 - mu), seen(x - 1 + mu, mu)


def gradient(position: Components, bodies: tuple[Primary, Primary]) -> list[Any]:
    """Gradient of Omega = (x^2 + y^2) / 2 + (1 - mu) / r1 + mu / r2."""
    large, small = bodies
    out = [
        -large.pull * a - small.pull * b for a, b in zip(large.offset, small.offset, strict=True)
    ]
    return [position[0] + out[0], position[1] + out[1], *out[2:]]


def hessian(bodies: tuple[Primary, Primary]) -> list[list[Any]]:
    """Second derivatives of Omega, a symmetric matrix as a list of rows."""
    pull = bodies[0].pull + bodies[1].pull
    steep = [3 * body.pull * body.inverse_square for body in bodies]
    size = len(bodies[0].offset)
    matrix = [[None] * size for _ in range(size)]
    for i in range(size):
        for j in range(i, size):
            terms = [q * b.offset[i] * b.offset[j] for q, b in zip(steep, bodies, strict=True)]
            value = terms[0] + terms[1]
            if i == j:
                value = value - pull if i == 2 else value + (1 - pull)
            matrix[i][j] = matrix[j][i] = value
    return matrix


def product(matrix: list[list[Any]], vector: Components) -> list[Any]:
    """A matrix times a vector."""
    return [dot(row, vector) for row in matrix]


def turned(velocity: Components) -> list[Any]:
    """The Coriolis acceleration 2 (vy, -vx, 0) of a velocity."""
    return [2 * velocity[1], -2 * velocity[0], *(None for _ in velocity[2:])]


def plus(a: Components, b: Components) -> list[Any]:
    """Sum of two vectors, of which the second may lack components (None)."""
    return [x if y is None else x + y for x, y in zip(a, b, strict=True)]


def ballistic(y: Components, mu: Any) -> list[Any]:
    """Rates of position and velocity: 4 components in the plane, 6 in space."""
    half = len(y) // 2
    position, velocity = y[:half], y[half:]
    pull = gradient(position, primaries(position, mu))
    return [*velocity, *plus(pull, turned(velocity))]


def split_tangents(y: jax.Array, size: int) -> tuple[list[jax.Array], list[jax.Array]]:
    """A state `[size, *lanes]` and tangents behind it, by component.

    Behind the state come, component by component, those of all tangents: the rows of a
    matrix with a column for each tangent, of a state transition matrix if there are `size`.
    A component of the tangents is `[columns, *lanes]`, so that all columns are one loop.
    """
    rows = y[size:].reshape(size, -1, *y.shape[1:])
    return list(y[:size]), list(rows)


def joined(state: Components, tangents: Components) -> jax.Array:
    """The inverse of `split_tangents`."""
    return jnp.concatenate([jnp.stack(list(state)), *tangents])


def ballistic_with_tangents(y: jax.Array, mu: Any, size: int = 6) -> jax.Array:
    """Rates of a state of `size` components and of the tangents behind it (`split_tangents`)."""
    half = size // 2
    state, tangents = split_tangents(y, size)
    position, velocity = state[:half], state[half:]
    bodies = primaries(position, mu)
    pull = gradient(position, bodies)
    change = tangents[half:]
    bent = product(hessian(bodies), tangents[:half])
    return joined(
        [*velocity, *plus(pull, turned(velocity))], [*change, *plus(bent, turned(change))]
    )


def jacobi_constant(state: Float[Array, "*batch 6"], mu: Any) -> Float[Array, "*batch"]:
    """C = 2 Omega - v^2, which a ballistic arc keeps."""
    position, velocity = state[..., :3], state[..., 3:]
    r1, r2 = primary_distances(position, mu)
    omega = (position[..., :2] ** 2).sum(-1) / 2 + (1 - mu) / r1 + mu / r2
    return 2 * omega - (velocity**2).sum(-1)


def primary_distances(
    position: Float[Array, "*batch 3"], mu: Any
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
