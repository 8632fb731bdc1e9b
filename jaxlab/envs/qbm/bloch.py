"""One spin in a field `phi . sigma`: its potential and Bloch vector, smooth at zero field.

The potential is `log Tr exp(phi . sigma) = log(2 cosh |phi|)`, its gradient the Bloch vector
`tanh(|phi|) phi / |phi|`. Functions take squares `R^2 = |phi|^2`; squares of fields up to 1e150
are numbers, and nothing else overflows.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

#: In the place of smaller squares, whose spins answer in the same way.
_LEAST = 1e-300
#: Below this square the derivative of the ratio is summed as a series.
_SMALL = 1e-2
#: `tanh(x) / x` in powers of x^2 (Abramowitz & Stegun 4.5.64); the next one is below 1e-17.
_SERIES = (
    *(1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925),
    *(21844 / 6081075, -929569 / 638512875),
)
#: A product of so many factors of at most 2 does not overflow.
_FACTORS = 512
#: Bits of sqrt(1/2) as a 64-bit float, and of the part of such a number that is its fraction.
_ROOT_BITS, _FRACTION_BITS = 0x3FE6A09E667F3BCD, 52
#: Terms of the series of the inverse hyperbolic tangent; the next one is below 1e-17.
_LOG_TERMS = 11


def _length(squares: Any) -> tuple[Array, Array]:
    """R and 1/R. A reciprocal root and a product are faster than a root and a division."""
    squares = jnp.maximum(jnp.asarray(squares), _LEAST)
    inverse = lax.rsqrt(squares)
    return squares * inverse, inverse


def _log(values: Array) -> Array:
    """Logarithm of normal positive numbers, to four units in the last place.

    On CPUs the one of XLA is not vectorised in 64 bits, and took a tenth of the time of training.
    """
    if values.dtype != np.float64:
        return jnp.log(values)
    return lax.platform_dependent(values, cpu=_log_by_series, default=jnp.log)


def _log_by_series(values: Array) -> Array:
    """`k log 2 + 2 artanh((x - 1) / (x + 1))`, with `2^k x` the value and x around 1."""
    bits = lax.bitcast_convert_type(values, np.int64)
    exponent = (bits - _ROOT_BITS) >> _FRACTION_BITS
    x = lax.bitcast_convert_type(bits - (exponent << _FRACTION_BITS), np.float64)
    ratio = (x - 1) / (x + 1)
    square = ratio * ratio
    total = jnp.zeros_like(square)
    for term in range(_LOG_TERMS - 1, -1, -1):
        total = total * square + 2 / (2 * term + 1)
    return exponent.astype(np.float64) * math.log(2.0) + ratio * total


@jax.custom_jvp
def tanh_ratio(squares: Any) -> Float[Array, "*shape"]:
    """`tanh(R) / R` by the squares `R^2`; 1 at zero."""
    length, inverse = _length(squares)
    return jnp.tanh(length) * inverse


def tanh_ratio_slope(squares: Any) -> Float[Array, "*shape"]:
    """Twice the derivative of `tanh_ratio` by its argument: `(sech^2 R - tanh(R) / R) / R^2`."""
    squares = jnp.asarray(squares)
    small = squares < _SMALL
    large = jnp.where(small, 1.0, squares)
    tanh = jnp.tanh(jnp.sqrt(large))
    curved = ((1 - tanh) * (1 + tanh) - tanh / jnp.sqrt(large)) / large
    value, x = jnp.zeros_like(squares), jnp.where(small, squares, 0.0)
    for power in range(len(_SERIES) - 1, 0, -1):
        value = value * x + 2 * power * _SERIES[power]
    return jnp.where(small, value, curved)


@tanh_ratio.defjvp
def _tanh_ratio_jvp(primals: Any, tangents: Any) -> Any:
    return tanh_ratio(primals[0]), tanh_ratio_slope(primals[0]) / 2 * tangents[0]


@jax.custom_jvp
def spin_potentials(squares: Any) -> Float[Array, "*shape"]:
    """`sum_j log(2 cosh R_j)` over the first axis, by the squares `R_j^2`."""
    lengths, _ = _length(squares)
    # 2 cosh R = 2 exp(R) / (1 + tanh R): one logarithm for all spins.
    factors = 1 + jnp.tanh(lengths)
    total = _fold(jnp.add, lengths) + lengths.shape[0] * math.log(2.0)
    for first in range(0, factors.shape[0], _FACTORS):
        total = total - _log(_fold(jnp.multiply, factors[first : first + _FACTORS]))
    return total


def _fold(operation: Any, rows: Array) -> Array:
    """Reduce the first axis by halves, so that each operation runs along the others."""
    while rows.shape[0] > 1:
        half = rows.shape[0] // 2
        folded = operation(rows[:half], rows[half : 2 * half])
        rows = jnp.concatenate([folded, rows[2 * half :]]) if rows.shape[0] % 2 else folded
    return rows[0]


@spin_potentials.defjvp
def _spin_potentials_jvp(primals: Any, tangents: Any) -> Any:
    # The derivative of log(2 cosh R) by R^2 is tanh(R) / (2 R).
    change = jnp.sum(tanh_ratio(primals[0]) * tangents[0], 0) / 2
    return spin_potentials(primals[0]), change
