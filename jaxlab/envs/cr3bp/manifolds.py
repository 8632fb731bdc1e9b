"""Stable and unstable manifolds of periodic orbits.

From points along an orbit a step is taken in the direction that grows fastest (unstable)
or shrinks fastest (stable): the eigenvector of the monodromy matrix, carried along by the
state transition matrix (Koon, Lo, Marsden and Ross 2011, section 4.3).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.orbits import FINE, PeriodicOrbit, monodromy, multipliers
from jaxlab.envs.cr3bp.propagation import propagate

#: Multipliers closer to 1 than this belong to the orbit itself, not to a manifold.
TRIVIAL = 1e-2


def manifold_starts(
    orbit: PeriodicOrbit,
    points: int,
    *,
    stable: bool,
    offset: float = 1e-6,
) -> Float[Array, "sides points 6"]:
    """Where arcs on a manifold begin: on both sides of an orbit, at equal times along it.

    Propagate those of the unstable manifold forwards and of the stable one backwards.

    Args:
      orbit: A single orbit.
      points: How many along the orbit.
      stable: Which manifold.
      offset: Length of the step in position, in units of the system.

    Raises:
      ConfigError: The orbit has no such real direction, so no manifold of that kind.
    """
    if orbit.state.ndim != 1:
        raise ConfigError("manifold_starts takes one orbit, not a stack")
    if points < 1 or not offset > 0:
        raise ConfigError(f"points {points} and offset {offset} must be positive")
    direction = _direction(np.asarray(monodromy(orbit)), stable)
    times = jnp.arange(points) * (orbit.period / points)
    start = jnp.broadcast_to(orbit.state, (points, 6))
    arc = propagate(start, times, orbit.mu, stm=True, accuracy=FINE)
    assert arc.stm is not None
    along = arc.stm @ direction
    along = along / jnp.linalg.norm(along[:, :3], axis=1, keepdims=True)
    return jnp.stack([arc.state + offset * along, arc.state - offset * along])


def _direction(matrix: np.ndarray, stable: bool) -> Any:
    """Eigenvector of the multiplier farthest below or above 1 in size, if it is real."""
    values, vectors = np.linalg.eig(matrix)
    sizes = np.abs(values)
    n = int(sizes.argmin() if stable else sizes.argmax())
    real = abs(values[n].imag) <= 1e-8 * sizes[n]
    if not real or abs(sizes[n] - 1) < TRIVIAL:
        listed = ", ".join(f"{value:.6g}" for value in multipliers(matrix))
        raise ConfigError(
            f"the orbit has no real {'stable' if stable else 'unstable'} direction: its "
            f"multipliers are {listed}"
        )
    return jnp.asarray(vectors[:, n].real)
