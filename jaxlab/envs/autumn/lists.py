"""Lists: elements, parts, and functions on them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn.combining import Select, fused, length, mask_of, masked, single
from jaxlab.envs.autumn.loops import for_each
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import (
    Number,
    add,
    any_of,
    both,
    choose,
    either,
    equal,
    invert,
    known,
    less,
    plain,
    spread,
)
from jaxlab.envs.autumn.scopes import Failure
from jaxlab.envs.autumn.values import (
    EMPTY,
    ListValue,
    Scalar,
    Segment,
    Union,
    Value,
    element,
    map_leaves,
    same_kind,
    truth,
)

#: Longest list of known length.
MOST_PLACES = 16384
#: Lists up to this length are searched element by element.
SHORT = 8


def list_of(values: list[Value]) -> ListValue:
    """A list of values: neighbours of one kind whose parts are known lie in one segment."""
    segments: list[Segment] = []
    for value in values:
        part = single(value)
        if (
            segments
            and not isinstance(value, ListValue)
            and same_kind(segments[-1].elements, part.elements)
            and not _traced(part.elements)
            and not _traced(segments[-1].elements)
        ):
            part = fused(ListValue((segments.pop(), part)))
        segments.append(part)
    return ListValue(tuple(segments))


def _traced(value: Value) -> bool:
    return any(not isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(value))


def mapped(machine: Machine, value: ListValue, body: Callable[[Value], Value]) -> ListValue:
    """The values of a function on the elements."""
    return ListValue(
        tuple(
            Segment(for_each(machine, segment, body), segment.mask, segment.size)
            for segment in alive(value)
        )
    )


def alive(value: ListValue) -> list[Segment]:
    """The segments of which something may be alive."""
    return [
        segment
        for segment in value.segments
        if segment.size and not (isinstance(segment.mask, np.ndarray) and not segment.mask.any())
    ]


def holds(machine: Machine, segment: Segment, body: Callable[[Value], Value], place: Place) -> Any:
    """Where a function gives a true value on the elements of a segment, `[size]`."""
    value = for_each(machine, segment, lambda item: truth(machine.truthy(body(item), place)))
    if not isinstance(value, Scalar):
        return np.zeros(segment.size, bool)
    number = value.number
    return np.full(segment.size, number) if known(number) else number


def filtered(
    machine: Machine, value: ListValue, body: Callable[[Value], Value], place: Place, *, keep: bool
) -> ListValue:
    """The elements on which a function gives a true value (or, with `keep` false, does not)."""
    segments = []
    for segment in alive(value):
        mask = holds(machine, segment, body, place)
        segments.append(_where(segment, mask if keep else invert_array(mask)))
    return ListValue(tuple(segments))


def invert_array(mask: Any) -> Any:
    """Negation of an array of truth values."""
    return ~mask if isinstance(mask, np.ndarray) else lax.bitwise_not(mask)


def _where(segment: Segment, mask: Any) -> Segment:
    if segment.mask is not None:
        mask = both(segment.mask, mask)
    if not isinstance(mask, np.ndarray):
        return Segment(segment.elements, mask, segment.size)
    if mask.all():
        return Segment(segment.elements, None, segment.size)
    if _traced(segment.elements):
        return Segment(segment.elements, mask, segment.size)
    # What is known to be gone needs no place.
    kept = map_leaves(lambda leaf: leaf[mask], segment.elements)
    return Segment(kept, None, int(mask.sum()))


def any_holds(
    machine: Machine, value: ListValue, body: Callable[[Value], Value], place: Place
) -> Number:
    """Whether a function gives a true value on any element; those behind it do not count."""
    found: Number = False
    for segment in alive(value):
        if segment.size > SHORT:
            result = (
                machine.branch(
                    found,
                    lambda: truth(True),
                    functools.partial(_any_truth, machine, segment, body, place),
                )
                if not known(found) and machine.random.in_order
                else truth(either(found, _any(machine, segment, body, place)))
            )
            assert isinstance(result, Scalar)
            found = result.number
            continue
        for index in range(segment.size):
            item = element(segment.elements, index)
            there = True if segment.mask is None else plain(segment.mask[index])

            def here(item: Value = item) -> Value:
                return truth(machine.truthy(body(item), place))

            looked = both(invert(found), there)
            result = machine.branch(looked, here, lambda: truth(False))
            assert isinstance(result, Scalar)
            found = either(found, result.number)
            if known(found) and found:
                return True
    return found


def _any_truth(
    machine: Machine, segment: Segment, body: Callable[[Value], Value], place: Place
) -> Value:
    return truth(_any(machine, segment, body, place))


def _any(
    machine: Machine, segment: Segment, body: Callable[[Value], Value], place: Place
) -> Number:
    mask = holds(machine, segment, body, place)
    if segment.mask is not None:
        mask = both(segment.mask, mask)
    return any_of(mask)


def at(machine: Machine, value: ListValue, index: Number, message: str) -> Value:
    """The element at an index counted from 0; outside the list it is an error."""
    outside = either(less(index, 0), invert(less(index, length(value))))
    machine.fail_where(outside, message)
    parts = alive(value)
    if not parts:
        raise Failure(message)
    if known(index) and all(segment.mask is None for segment in parts):
        for segment in parts:
            if index < segment.size:
                return element(segment.elements, index)
            index -= segment.size
    return _picked(parts, index)


def first(machine: Machine, value: ListValue, message: str) -> Value:
    """The first element."""
    return at(machine, value, 0, message)


def last(machine: Machine, value: ListValue, message: str) -> Value:
    """The last element."""
    parts = alive(value)
    if parts and parts[-1].mask is None:
        return element(parts[-1].elements, parts[-1].size - 1)
    return at(machine, value, add(length(value), -1), message)


def _picked(parts: list[Segment], index: Number) -> Value:
    """The element that is alive and has `index` such before it."""
    if sum(segment.size for segment in parts) <= SHORT:
        return _searched(parts, index)
    kinds = [segment.elements for segment in parts]
    if not all(same_kind(kinds[0], kind) for kind in kinds[1:]):
        return _searched_segments(parts, index)
    whole = fused(ListValue(tuple(parts)))
    place = index
    if whole.mask is not None:
        rank = lax.cumsum(lax.convert_element_type(mask_of(whole), np.int32))
        wanted = both(equal(rank, spread(add(index, 1), (whole.size,))), mask_of(whole))
        place = lax.argmax(wanted, 0, np.int32)
    place = lax.clamp(np.int32(0), spread(place, ()), np.int32(whole.size - 1))
    return map_leaves(
        lambda leaf: lax.dynamic_index_in_dim(jax.numpy.asarray(leaf), place, keepdims=False),
        whole.elements,
    )


def _searched(parts: list[Segment], index: Number) -> Value:
    before: Number = 0
    result: Value | None = None
    for segment in parts:
        for n in range(segment.size):
            item = element(segment.elements, n)
            there = True if segment.mask is None else plain(segment.mask[n])
            here = both(there, equal(before, index))
            result = item if result is None else Select(here).value(item, result)
            before = add(before, choose(there, 1, 0))
    assert result is not None
    return result


def _searched_segments(parts: list[Segment], index: Number) -> Value:
    before: Number = 0
    result: Value | None = None
    for segment in parts:
        count = length(ListValue((segment,)))
        inside = both(invert(less(index, before)), less(index, add(before, count)))
        item = _picked([segment], add(index, choose(equal(before, 0), 0, _negated(before))))
        result = item if result is None else Select(inside).value(item, result)
        before = add(before, count)
    assert result is not None
    return result


def _negated(value: Number) -> Number:
    return -value if known(value) else lax.neg(value)


def concatenated(machine: Machine, value: ListValue, message: str) -> ListValue:
    """The elements of the lists in a list."""
    segments: list[Segment] = []
    for outer in alive(value):
        if outer.size == 1:
            inner = element(outer.elements, 0)
            there = True if outer.mask is None else plain(outer.mask[0])
            if isinstance(inner, Union) or not isinstance(inner, ListValue):
                raise Failure(message)
            segments += [masked(segment, there) for segment in inner.segments]
            continue
        if not isinstance(outer.elements, ListValue):
            raise Failure(message)
        if outer.elements.segments:
            segments.append(flattened(outer))
    return ListValue(tuple(segments)) if segments else EMPTY


def flattened(outer: Segment) -> Segment:
    """A segment of lists as one segment of their elements."""
    assert isinstance(outer.elements, ListValue)
    inner = jax.vmap(fused, axis_size=outer.size)(outer.elements)
    count = outer.size * inner.size
    elements = map_leaves(lambda leaf: lax.collapse(jax.numpy.asarray(leaf), 0, 2), inner.elements)
    mask = None
    if inner.mask is not None or outer.mask is not None:
        there = spread(mask_of(outer), (outer.size, inner.size))
        own = inner.mask
        mask = there if own is None else both(there, own)
        mask = lax.collapse(jax.numpy.asarray(mask), 0, 2)
    return Segment(elements, mask, count)


def require_room(count: int, what: str) -> None:
    """Refuse a list that is far too long.

    Raises:
      ProgramError: it has more than `MOST_PLACES` places.
    """
    if count > MOST_PLACES:
        raise ProgramError(f"{what}: {count} places; a list has at most {MOST_PLACES}")


def count_up(
    start: Number, stop: Number, capacity: int, machine: Machine, message: str
) -> ListValue:
    """The integers from one number to before another."""
    if known(start) and known(stop):
        if stop <= start:
            return EMPTY
        require_room(stop - start, message)
        return ListValue(
            (Segment(Scalar("Number", np.arange(start, stop, dtype=np.int32)), None, stop - start),)
        )
    from jaxlab.envs.autumn.scalars import subtract

    count = subtract(stop, start)
    if known(count):
        capacity = max(count, 0)
        require_room(capacity, message)
    else:
        machine.fail_where(less(capacity, count), message)
    if not capacity:
        return EMPTY
    steps = np.arange(capacity, dtype=np.int32)
    numbers = add(spread(start, (capacity,)), steps)
    mask = None if known(count) else less(steps, spread(count, (capacity,)))
    return ListValue((Segment(Scalar("Number", numbers), mask, capacity),))
