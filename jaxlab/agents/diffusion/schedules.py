"""Noise schedules of the forward process."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.errors import ConfigError

#: Offset of the cosine schedule, and the largest noise of one step (both schedules).
COSINE_OFFSET = 0.008
MAX_BETA = 0.999
#: First and last noise of the linear schedule at a thousand steps.
LINEAR_ENDS = (1e-4, 0.02)


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """Signal and noise of every step t of the forward process, t = 0 being the data.

    Row x_0 becomes `x_t = sqrt(alpha_bar[t]) x_0 + sqrt(1 - alpha_bar[t]) noise`
    (Ho et al. 2020, eq. 4).

    Attributes:
      alpha_bar: Share of signal in the variance, float64 `[timesteps + 1]`, 1 at t = 0.
    """

    alpha_bar: np.ndarray

    @property
    def timesteps(self) -> int:
        """T, the number of noise levels."""
        return len(self.alpha_bar) - 1

    def levels(
        self, t: Int[Array, "*batch"], dtype: jnp.dtype
    ) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        """Factors of signal and noise, `sqrt(alpha_bar)` and `sqrt(1 - alpha_bar)`, at t."""
        # The roots are taken in 64 bits: 1 - alpha_bar loses digits where noise is small.
        signal, noise = np.sqrt(self.alpha_bar), np.sqrt(1 - self.alpha_bar)
        return jnp.asarray(signal, dtype)[t], jnp.asarray(noise, dtype)[t]


def make_schedule(name: str, timesteps: int) -> Schedule:
    """Build a schedule.

    `cosine` is Nichol and Dhariwal (2021), eq. 17, with s = 0.008 and steps of at most 0.999.
    `linear` lets beta rise linearly as in Ho et al. (2020), section 4, whose ends for a
    thousand steps are scaled by 1000 / T, so that the end is noise whatever T is.

    Args:
      name: `cosine` or `linear`.
      timesteps: T.

    Raises:
      ConfigError: The name is unknown, or T is below 2.
    """
    if timesteps < 2:
        raise ConfigError(f"timesteps is {timesteps}, expected at least 2")
    if name == "cosine":
        phase = (np.arange(timesteps + 1) / timesteps + COSINE_OFFSET) / (1 + COSINE_OFFSET)
        wanted = np.cos(phase * np.pi / 2) ** 2
        beta = 1 - wanted[1:] / wanted[:-1]
    elif name == "linear":
        beta = np.linspace(*LINEAR_ENDS, timesteps) * (1000 / timesteps)
    else:
        raise ConfigError(f"schedule is {name!r}, expected one of cosine, linear")
    kept = np.cumprod(1 - np.minimum(beta, MAX_BETA))
    return Schedule(np.concatenate([[1.0], kept]))


def along_rows(factor: Float[Array, "*batch"], rows: jax.Array) -> jax.Array:
    """A factor of each row with trailing axes of one, to multiply `rows` with."""
    return factor.reshape(factor.shape + (1,) * (rows.ndim - factor.ndim))
