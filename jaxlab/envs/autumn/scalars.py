"""Numbers at trace time: Python integers where known, 32-bit arrays where not.

Whatever is known while a program is traced stays a Python number and is computed here;
so constant parts of a program cost nothing in the compiled one. Integers are C ints of
32 bits: sums and products wrap, division and remainder truncate toward zero.
"""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np
from jax import lax

#: A Python integer or truth value, or an array of int32 or bool.
Number = Any


def known(value: Number) -> bool:
    """Whether a number is known while tracing."""
    return isinstance(value, bool | int)


def array(value: Number) -> Any:
    """A number as an array of int32 or bool."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int32(value)
    return value


def plain(value: Any) -> Number:
    """A numpy scalar as a Python number; anything else as it is."""
    if isinstance(value, np.bool_ | np.integer) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    ):
        return value.item()
    return value


def wrapped(value: int) -> int:
    """An integer as 32 bits hold it."""
    return (value + 2**31) % 2**32 - 2**31


def _arrays(left: Number, right: Number) -> tuple[Any, Any]:
    left, right = array(left), array(right)
    shape = np.broadcast_shapes(np.shape(left), np.shape(right))
    return spread(left, shape), spread(right, shape)


def spread(value: Number, shape: tuple[int, ...]) -> Any:
    """A number or array broadcast to a shape; its own axes come first."""
    value = array(value)
    if np.shape(value) == shape:
        return value
    missing = len(shape) - np.ndim(value)
    if isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)
        return np.broadcast_to(value.reshape(value.shape + (1,) * missing), shape)
    return lax.broadcast_in_dim(value, shape, tuple(range(np.ndim(value))))


#: Arrays that are another array and a constant, by their `id`: themselves, the other one, and
#: the constant. So `x + 1` and `x + 3` are known to differ, by 2, though `x` is not known.
_SHIFTED: dict[int, tuple[weakref.ref[Any], Any, int]] = {}


def _base(value: Any) -> tuple[Any, int]:
    entry = _SHIFTED.get(id(value))
    return (value, 0) if entry is None or entry[0]() is not value else entry[1:]


def _shift(value: Any, by: int) -> Any:
    base, offset = _base(value)
    offset = wrapped(offset + by)
    if offset == 0 and np.shape(base) == np.shape(value):
        return base
    result = lax.add(*_arrays(value, by))
    key = id(result)
    reference = weakref.ref(result, lambda _: _SHIFTED.pop(key, None))
    _SHIFTED[key] = (reference, base, offset)
    return result


def difference(left: Number, right: Number) -> int | None:
    """What the left number is more than the right one, where that is known."""
    if known(left) and known(right):
        return wrapped(left - right)
    if known(left) or known(right):
        return None
    (base, offset), (other, other_offset) = _base(left), _base(right)
    return wrapped(offset - other_offset) if base is other else None


def add(left: Number, right: Number) -> Number:
    """Sum."""
    if known(left) and known(right):
        return wrapped(left + right)
    for one, other in ((left, right), (right, left)):
        if known(other):
            if other == 0:
                return one
            if is_traced(one):
                return _shift(one, int(other))
    return lax.add(*_arrays(left, right))


def subtract(left: Number, right: Number) -> Number:
    """Difference."""
    if known(left) and known(right):
        return wrapped(left - right)
    if known(right):
        return add(left, wrapped(-right))
    known_difference = difference(left, right)
    if known_difference is not None and np.ndim(left) == np.ndim(right) == 0:
        return known_difference
    return lax.sub(*_arrays(left, right))


def multiply(left: Number, right: Number) -> Number:
    """Product."""
    if known(left) and known(right):
        return wrapped(left * right)
    for one, other in ((left, right), (right, left)):
        if known(one) and one in (0, 1):
            return other if one == 1 else 0
    return lax.mul(*_arrays(left, right))


def divide(left: Number, right: Number) -> Number:
    """Quotient toward zero; a divisor of zero must have been dealt with."""
    if known(left) and known(right):
        quotient = abs(left) // abs(right)
        return wrapped(quotient if (left < 0) == (right < 0) else -quotient)
    if known(right) and right == 1:
        return left
    return lax.div(*_arrays(left, right))


def remainder(left: Number, right: Number) -> Number:
    """Remainder with the sign of the dividend; a divisor of zero must have been dealt with."""
    if known(left) and known(right):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return lax.rem(*_arrays(left, right))


def negate(value: Number) -> Number:
    """The number with the other sign."""
    return wrapped(-value) if known(value) else lax.neg(value)


def equal(left: Number, right: Number) -> Number:
    """Whether two numbers are the same."""
    if left is right:
        return True
    if known(left) and known(right):
        return left == right
    known_difference = difference(left, right)
    if known_difference is not None:
        return known_difference == 0
    return lax.eq(*_arrays(left, right))


def less(left: Number, right: Number) -> Number:
    """Whether the left number is smaller."""
    if known(left) and known(right):
        return left < right
    return lax.lt(*_arrays(left, right))


def at_most(left: Number, right: Number) -> Number:
    """Whether the left number is not greater."""
    return invert(less(right, left))


def both(left: Number, right: Number) -> Number:
    """Conjunction."""
    for one, other in ((left, right), (right, left)):
        if known(one):
            return other if one else False
    return left if left is right else lax.bitwise_and(*_arrays(left, right))


def either(left: Number, right: Number) -> Number:
    """Disjunction."""
    for one, other in ((left, right), (right, left)):
        if known(one):
            return True if one else other
    return left if left is right else lax.bitwise_or(*_arrays(left, right))


def invert(value: Number) -> Number:
    """Negation of a truth value."""
    return not value if known(value) else lax.bitwise_not(value)


def choose(condition: Number, left: Number, right: Number) -> Number:
    """The left number where the condition holds, else the right one.

    The axes of the condition are the first ones of the numbers.
    """
    if known(condition):
        return left if condition else right
    if left is right or (known(left) and known(right) and left == right):
        return left
    if isinstance(left, bool) and np.ndim(right) <= np.ndim(condition):
        return either(condition, right) if left else both(invert(condition), right)
    if isinstance(right, bool) and np.ndim(left) <= np.ndim(condition):
        return either(invert(condition), left) if right else both(condition, left)
    left, right = _arrays(left, right)
    shape = np.broadcast_shapes(np.shape(left), np.shape(condition)) if np.ndim(left) == 0 else None
    if shape is not None and shape != np.shape(left):
        left, right = spread(left, shape), spread(right, shape)
    if np.ndim(condition) and np.shape(condition) != np.shape(left):
        condition = spread(condition, np.shape(left))
    return lax.select(condition, left, right)


def any_of(values: Any) -> Number:
    """Whether any of an array of truth values holds."""
    if isinstance(values, np.ndarray):
        return bool(values.any())
    return lax.reduce_or(values, tuple(range(values.ndim)))


def sum_of(values: Any) -> Number:
    """Sum of an array of integers or truth values, in 32 bits."""
    if isinstance(values, np.ndarray):
        return wrapped(int(values.sum()))
    return lax.reduce_sum(lax.convert_element_type(values, np.int32), tuple(range(values.ndim)))


def is_traced(value: Any) -> bool:
    """Whether a leaf is no constant."""
    return isinstance(value, jax.Array | jax.core.Tracer)
