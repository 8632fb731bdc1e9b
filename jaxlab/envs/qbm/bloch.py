"""One spin in a field `phi . sigma`: its potential and Bloch vector, smooth at zero field.

The potential is `log Tr exp(phi . sigma) = log(2 cosh |phi|)`, its gradient the Bloch vector
`tanh(|phi|) phi / |phi|`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

#: Below this square of a field the series are used, whose next term is below 1e-17 there.
_SMALL = 1e-2
#: `tanh(x) / x` in powers of x^2 (Abramowitz & Stegun 4.5.64).
_SERIES = (
    *(1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925),
    *(21844 / 6081075, -929569 / 638512875),
)
#: A product of so many factors of at most 2 does not overflow.
_FACTORS = 512


class _Field(NamedTuple):
    small: Array
    length: Array
    decay: Array


def _field(squares: Array) -> _Field:
    """Length R of the fields and `exp(-2 R)`, with R = 1 in the place of small ones."""
    small = squares < _SMALL
    length = jnp.sqrt(jnp.where(small, 1.0, squares))
    return _Field(small, length, jnp.exp(-2 * length))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


@jax.custom_jvp
def tanh_ratio(squares: Any) -> Float[Array, "*shape"]:
    """`tanh(R) / R` by the squares `R^2` of lengths; 1 at zero."""
    squares = jnp.asarray(squares)
    small, length, decay = _field(squares)
    return jnp.where(
        small,
        _polynomial(_SERIES, jnp.where(small, squares, 0.0)),
        (1 - decay) / ((1 + decay) * length),
    )


def tanh_ratio_slope(squares: Any) -> Float[Array, "*shape"]:
    """Twice the derivative of `tanh_ratio` by its argument: `(sech^2 R - tanh(R) / R) / R^2`."""
    squares = jnp.asarray(squares)
    small, length, decay = _field(squares)
    curved = 4 * decay / (1 + decay) ** 2 - (1 - decay) / ((1 + decay) * length)
    derivative = tuple(2 * n * c for n, c in enumerate(_SERIES))[1:]
    return jnp.where(
        small, _polynomial(derivative, jnp.where(small, squares, 0.0)), curved / length**2
    )


@tanh_ratio.defjvp
def _tanh_ratio_jvp(primals: Any, tangents: Any) -> Any:
    return tanh_ratio(primals[0]), tanh_ratio_slope(primals[0]) / 2 * tangents[0]


@jax.custom_jvp
def spin_potentials(squares: Any) -> Float[Array, "*shape"]:
    """`sum_j log(2 cosh R_j)` over the last axis, by the squares `R_j^2`."""
    lengths = jnp.sqrt(jnp.asarray(squares))
    factors = 1 + jnp.exp(-2 * lengths)
    if factors.shape[-1] > _FACTORS:
        return jnp.sum(lengths + jnp.log(factors), -1)
    # One logarithm for all spins.
    return jnp.sum(lengths, -1) + jnp.log(jnp.prod(factors, -1))


@spin_potentials.defjvp
def _spin_potentials_jvp(primals: Any, tangents: Any) -> Any:
    # The derivative of log(2 cosh R) by R^2 is tanh(R) / (2 R).
    change = jnp.sum(tanh_ratio(primals[0]) * tangents[0], -1) / 2
    return spin_potentials(primals[0]), change
