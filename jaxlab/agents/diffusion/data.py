"""Training data of the diffusion model: rows, conditions, weights, and their scaling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.core.errors import ConfigError


@struct.dataclass
class Data:
    """Rows to train on; made by `dataset`, which checks them.

    Attributes:
      x: The data, `[capacity, *shape]`.
      cond: What each row is conditioned on, `[capacity, conditions]`.
      weights: Weight of each row in the loss, `[capacity]`; mean one over the rows.
      rows: Number of rows in use, int32 `[]`; what follows is padding and never drawn.
      effective_sample_size: Of the weights, `[]`.
    """

    x: jax.Array
    cond: jax.Array
    weights: jax.Array
    rows: jax.Array
    effective_sample_size: jax.Array


@struct.dataclass
class Scaling:
    """Affine maps between units of the data and units of the network.

    Attributes:
      shift, scale: `scaled = (x - shift) / scale`, `[*shape]`.
      cond_shift, cond_scale: The same of conditions, `[conditions]`.
    """

    shift: jax.Array
    scale: jax.Array
    cond_shift: jax.Array
    cond_scale: jax.Array

    def to_network(self, x: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
        """Data in units of the network."""
        return (x - self.shift) / self.scale

    def from_network(self, x: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
        """Data in their own units."""
        return x * self.scale + self.shift

    def condition(self, cond: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
        """Conditions in units of the network."""
        return (cond - self.cond_shift) / self.cond_scale


def dataset(
    x: Any,
    cond: Any = None,
    weights: Any = None,
    *,
    capacity: int | None = None,
    dtype: str = "float32",
) -> Data:
    """Check training data on the host and give them a fixed shape.

    Weights are divided by their mean, so that the loss keeps its size. Rows of weight zero
    may hold anything, NaN included: they are replaced by zeros.

    Args:
      x: The data, `[rows, *shape]`, in their own units.
      cond: Conditions, `[rows, conditions]`; None for none.
      weights: Weights of at least zero, `[rows]`; None for equal ones.
      capacity: Rows to pad to, so that data of changing size compile one program.
      dtype: Precision of the arrays.

    Raises:
      ConfigError: Shapes do not match, there are no rows or more than the capacity, a
        weight is negative or not finite, all are zero, or a row with weight is not finite.
    """
    x = np.asarray(x, np.float64)
    if x.ndim < 2 or len(x) == 0:
        raise ConfigError(f"x has shape {x.shape}, expected [rows, *shape] with at least one row")
    rows = len(x)
    cond = np.zeros((rows, 0)) if cond is None else np.asarray(cond, np.float64)
    weights = np.ones(rows) if weights is None else np.asarray(weights, np.float64)
    if cond.ndim != 2 or len(cond) != rows:
        raise ConfigError(
            f"cond has shape {cond.shape}, expected [{rows}, conditions]: one row for each of x"
        )
    if weights.shape != (rows,):
        raise ConfigError(
            f"weights have shape {weights.shape}, expected [{rows}]: one for each row of x"
        )
    _check_weights(weights)
    used = weights > 0
    for name, values in (("x", x), ("cond", cond)):
        bad = used & ~np.isfinite(values.reshape(rows, -1)).all(-1)
        if bad.any():
            raise ConfigError(
                f"{name} is not finite in {bad.sum()} rows, the first of them {bad.argmax()}; "
                "give these rows the weight 0, or leave them out"
            )
    capacity = rows if capacity is None else capacity
    if rows > capacity:
        raise ConfigError(f"x has {rows} rows, more than the capacity of {capacity}; raise it")

    def padded(values: np.ndarray) -> jax.Array:
        full = np.zeros((capacity, *values.shape[1:]), dtype)
        full[:rows][used] = values[used]
        return jnp.asarray(full)

    return Data(
        x=padded(x),
        cond=padded(cond),
        weights=padded(weights / weights.mean()),
        rows=jnp.asarray(rows, jnp.int32),
        effective_sample_size=jnp.asarray(np.sum(weights) ** 2 / np.sum(weights**2), dtype),
    )


def _check_weights(weights: np.ndarray) -> None:
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        raise ConfigError(
            f"weights: row {bad.argmax()} has {weights[bad.argmax()]}, expected finite numbers "
            "of at least 0; weights of rewards come from reward_weights"
        )
    if not weights.any():
        raise ConfigError(
            "weights are all zero, so nothing would be trained; give at least one row a weight "
            "(a reward that is finite, or a higher temperature)"
        )


def reward_weights(
    reward: Float[Array, " rows"], temperature: Any, clip: Any = 10.0
) -> tuple[Float[Array, " rows"], Float[Array, ""]]:
    """Weights of samples by their rewards, for reward-weighted likelihood.

    `w = min(exp((r - max r) / temperature) / mean, clip)`, the mean being over rows with
    a finite reward; other rows (a diverged integration) weigh nothing. Exponential weights
    of rewards are those of reward-weighted regression (Peters and Schaal 2007).

    Where the samples already follow a density `exp(-beta J)` and the reward is -J, training
    with these weights fits `exp(-(beta + 1 / temperature) J)`: it sharpens the density, and
    more with every round. `temperature=math.inf` gives uniform weights, which keep it.

    Args:
      reward: Rewards, larger is better, `[rows]`.
      temperature: Scale of rewards, above zero.
      clip: Largest weight, in units of the mean before clipping; `math.inf` for none.

    Returns:
      The weights, and their effective sample size.

    Raises:
      ConfigError: The temperature or the clip is not above zero.
    """
    for name, value in (("temperature", temperature), ("clip", clip)):
        # Written so that NaN is refused too; traced values cannot be looked at.
        if not isinstance(value, jax.core.Tracer) and not value > 0:
            raise ConfigError(f"{name} is {value}, expected a number above 0")
    finite = jnp.isfinite(reward)
    best = jnp.max(jnp.where(finite, reward, -jnp.inf))
    # Inside the first `where` too, so that no NaN arises that a gradient would see.
    gap = jnp.where(finite, reward - jnp.where(finite, best, 0), 0)
    raw = jnp.where(finite, jnp.exp(gap / temperature), 0)
    mean = jnp.sum(raw) / jnp.maximum(jnp.sum(finite), 1)
    weights = jnp.minimum(raw / jnp.where(mean > 0, mean, 1), clip).astype(reward.dtype)
    return weights, effective_sample_size(weights)


def effective_sample_size(weights: Float[Array, " rows"]) -> Float[Array, ""]:
    """Kish's effective sample size, `(sum w)^2 / sum w^2`; zero where all weights are."""
    squares = jnp.sum(jnp.square(weights))
    return jnp.square(jnp.sum(weights)) / jnp.where(squares > 0, squares, 1)


def fit_scaling(data: Data, kind: str) -> Scaling:
    """The scaling of data, from rows with weight; coordinates that are constant keep their size.

    Args:
      data: The data.
      kind: `standardise`, `range` or `none`.
    """
    used = (jnp.arange(len(data.weights)) < data.rows) & (data.weights > 0)

    def fit(values: jax.Array) -> tuple[jax.Array, jax.Array]:
        mask = used.reshape(-1, *(1,) * (values.ndim - 1))
        if kind == "none":
            return jnp.zeros_like(values[0]), jnp.ones_like(values[0])
        if kind == "range":
            low = jnp.min(jnp.where(mask, values, jnp.inf), axis=0)
            high = jnp.max(jnp.where(mask, values, -jnp.inf), axis=0)
            shift, scale = (low + high) / 2, (high - low) / 2
        else:
            count = jnp.sum(used, dtype=values.dtype)
            shift = jnp.sum(jnp.where(mask, values, 0), axis=0) / count
            variance = jnp.sum(jnp.where(mask, jnp.square(values - shift), 0), axis=0) / count
            scale = jnp.sqrt(variance)
        # A constant coordinate comes out with a deviation of rounding errors.
        resolution = 10 * jnp.finfo(values.dtype).eps * jnp.abs(shift)
        return shift, jnp.where(scale > resolution, scale, 1)

    return Scaling(*fit(data.x), *fit(data.cond))


def apply_scaling(data: Data, scaling: Scaling) -> Data:
    """Data in units of the network; padding holds whatever zeros become."""
    return data.replace(x=scaling.to_network(data.x), cond=scaling.condition(data.cond))


def draw_rows(key: jax.Array, rows: Int[Array, ""], count: int) -> Int[Array, " count"]:
    """Indices below `rows`, uniform and with replacement."""
    return jax.random.randint(key, (count,), 0, rows, jnp.int32)
