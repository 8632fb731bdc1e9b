"""Standard library: lists, numbers, and random choices."""

from __future__ import annotations

import math

import jax
import numpy as np

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn import lists
from jaxlab.envs.autumn.combining import length
from jaxlab.envs.autumn.equality import equal_values
from jaxlab.envs.autumn.evaluation import call
from jaxlab.envs.autumn.loops import fold
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.objects import position
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import (
    Number,
    add,
    both,
    choose,
    equal,
    invert,
    known,
    less,
    multiply,
)
from jaxlab.envs.autumn.scopes import Failure
from jaxlab.envs.autumn.standard_library import (
    ANY,
    alias,
    as_function,
    as_list,
    as_number,
    native,
)
from jaxlab.envs.autumn.values import EMPTY, ListValue, Scalar, Segment, Value, number, truth


@native("map", 2)
def _map(machine: Machine, place: Place, function: Value, value: Value) -> Value:
    as_function(function, place)
    return lists.mapped(
        machine, as_list(value, place), lambda item: call(machine, function, [item], place)
    )


@native("filter", 2)
def _filter(machine: Machine, place: Place, function: Value, value: Value) -> Value:
    as_function(function, place)
    return lists.filtered(
        machine,
        as_list(value, place),
        lambda item: call(machine, function, [item], place),
        place,
        keep=True,
    )


@native("foldl", 3)
def _foldl(machine: Machine, place: Place, function: Value, first: Value, value: Value) -> Value:
    as_function(function, place)
    return fold(
        machine,
        as_list(value, place),
        first,
        lambda total, item: call(machine, function, [total, item], place),
    )


@native("any", 1, 2)
def _any(machine: Machine, place: Place, *arguments: Value) -> Value:
    value = as_list(arguments[-1], place)
    if len(arguments) == 1:
        return truth(lists.any_holds(machine, value, lambda item: item, place))
    function = as_function(arguments[0], place)
    return truth(
        lists.any_holds(machine, value, lambda item: call(machine, function, [item], place), place)
    )


@native("concat", 1)
def _concat(machine: Machine, place: Place, value: Value) -> Value:
    return lists.concatenated(
        machine, as_list(value, place), f"{place}: concat takes a list of lists"
    )


alias("vcat", "concat")


@native("length", 1)
def _length(_: Machine, place: Place, value: Value) -> Value:
    return number(length(as_list(value, place)))


@native("head", 1)
def _head(machine: Machine, place: Place, value: Value) -> Value:
    return lists.first(machine, as_list(value, place), f"{place}: head of an empty list")


@native("tail", 1)
def _tail(machine: Machine, place: Place, value: Value) -> Value:
    return lists.last(machine, as_list(value, place), f"{place}: tail of an empty list")


@native("at", 2)
def _at(machine: Machine, place: Place, value: Value, index: Value) -> Value:
    return lists.at(
        machine, as_list(value, place), as_number(index, place), f"{place}: 'at' outside the list"
    )


@native("range", 2)
def _range(machine: Machine, place: Place, start: Value, stop: Value) -> Value:
    return lists.count_up(
        as_number(start, place),
        as_number(stop, place),
        machine.capacity,
        machine,
        f"{place}: a range longer than {machine.capacity}, the capacity for lists",
    )


@native("isList", 1)
def _is_list(_: Machine, __: Place, value: Value) -> Value:
    return truth(isinstance(value, ListValue))


@native("arrayEqual", 2)
def _array_equal(machine: Machine, place: Place, left: Value, right: Value) -> Value:
    one, other = as_list(left, place), as_list(right, place)
    same = equal(length(one), length(other))
    message = f"{place}: arrayEqual of lists of different lengths"
    machine.fail_where(invert(same), message)
    shorter = one if one.size <= other.size else other
    results = []
    for index in range(shorter.size):
        pair = [_place(machine, value, index) for value in (one, other)]
        results.append(truth(equal_values(machine, *pair)))
    result = lists.list_of(list(results))
    return _shortened(result, length(one))


def _place(machine: Machine, value: ListValue, index: int) -> Value:
    """The element at an index, anything behind the end."""
    error = machine.error
    item = lists.at(machine, value, choose(less(index, length(value)), index, 0), "")
    machine.error = error
    return item


def _shortened(value: ListValue, count: Number) -> ListValue:
    if known(count) and count == value.size:
        return value
    segments, start = [], 0
    for segment in value.segments:
        mask = less(np.arange(start, start + segment.size, dtype=np.int32), count)
        segments.append(Segment(segment.elements, mask, segment.size))
        start += segment.size
    return ListValue(tuple(segments))


@native("sqrt", 1)
def _sqrt(machine: Machine, place: Place, value: Value) -> Value:
    given = as_number(value, place)
    message = f"{place}: sqrt of a negative number"
    if known(given):
        if given < 0:
            raise Failure(message)
        return number(math.isqrt(given))
    machine.fail_where(less(given, 0), message)
    # The root of a 32-bit integer by bits, which no rounding of floats can spoil.
    root: Number = 0
    for bit in range(15, -1, -1):
        candidate = add(root, 1 << bit)
        fits = both(less(candidate, 46341), invert(less(given, multiply(candidate, candidate))))
        root = choose(fits, candidate, root)
    return number(root)


@native("print", 1)
def _print(_: Machine, __: Place, value: Value) -> Value:
    return value


@native("abs", 1, ANY)
def _abs(_: Machine, place: Place, value: Value, *__: Value) -> Value:
    return number(absolute(as_number(value, place)))


def absolute(value: Number) -> Number:
    """The number without its sign."""
    return abs(value) if known(value) else jax.lax.abs(value)


@native("sign", 1, ANY)
def _sign(_: Machine, place: Place, value: Value, *__: Value) -> Value:
    return number(sign(as_number(value, place)))


def sign(value: Number) -> Number:
    """-1, 0 or 1."""
    return (value > 0) - (value < 0) if known(value) else jax.lax.sign(value)


@native("max", 2, ANY)
def _max(_: Machine, place: Place, left: Value, right: Value, *__: Value) -> Value:
    one, other = as_number(left, place), as_number(right, place)
    return number(choose(less(one, other), other, one))


@native("min", 2, ANY)
def _min(_: Machine, place: Place, left: Value, right: Value, *__: Value) -> Value:
    one, other = as_number(left, place), as_number(right, place)
    return number(choose(less(one, other), one, other))


@native("sum", 1, ANY)
def _sum(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
    total: Number = 0
    for segment in lists.alive(as_list(value, place)):
        if not isinstance(segment.elements, Scalar) or segment.elements.kind != "Number":
            raise Failure(f"{place}: sum takes a list of numbers")
        part = segment.elements.number
        if known(part):
            part = multiply(part, length(ListValue((segment,))))
        else:
            if segment.mask is not None:
                part = choose(segment.mask, part, 0)
            part = int(part.sum()) if isinstance(part, np.ndarray) else part.sum(dtype=np.int32)
        total = add(total, part)
    return number(total)


@native("in", 2, ANY)
def _in(machine: Machine, place: Place, item: Value, value: Value, *_: Value) -> Value:
    return truth(
        lists.any_holds(
            machine,
            as_list(value, place),
            lambda other: truth(equal_values(machine, other, item)),
            place,
        )
    )


@native("uniformChoice", 1, 2)
def _uniform_choice(machine: Machine, place: Place, value: Value, *more: Value) -> Value:
    choices = as_list(value, place)
    count = length(choices)
    message = f"{place}: uniformChoice from an empty list"
    machine.fail_where(equal(count, 0), message)
    if not lists.alive(choices):
        raise Failure(message)

    def choice(_: Value | None = None) -> Value:
        index = machine.random.draw(machine, count)
        error = machine.error
        item = lists.at(machine, choices, index, message)
        machine.error = error
        return item

    if not more:
        return choice()
    wanted = as_number(more[0], place)
    machine.fail_where(less(wanted, 1), f"{place}: uniformChoice of fewer than one")
    return _repeated(machine, place, wanted, choice)


def _repeated(machine: Machine, place: Place, count: Number, draw: object) -> ListValue:
    """A list of so many draws, one after the other."""
    assert callable(draw)
    if known(count) and count <= lists.SHORT:
        return lists.list_of([draw() for _ in range(count)])
    message = f"{place}: more draws than {machine.capacity}, the capacity for lists"
    rounds = lists.count_up(0, count, machine.capacity, machine, message)
    return lists.mapped(machine, rounds, draw)


@native("randomPositions", 2)
def _random_positions(machine: Machine, place: Place, size: Value, count: Value) -> Value:
    bound = as_number(size, place)
    machine.fail_where(less(bound, 0), f"{place}: randomPositions on a negative size")

    def draw(_: Value | None = None) -> Value:
        x = machine.random.draw(machine, bound)
        return position(machine, x, machine.random.draw(machine, bound))

    return _repeated(machine, place, as_number(count, place), draw)


@native("allPositions", 1, 2)
def _all_positions(machine: Machine, place: Place, *sizes: Value) -> Value:
    given = [as_number(size, place) for size in sizes]
    if not all(map(known, given)):
        raise ProgramError(
            f"{place}: the size of allPositions must be known before the program runs"
        )
    if min(given) < 0:
        raise Failure(f"{place}: allPositions of a negative size")
    width, height = given[0], given[-1]
    if not width * height:
        return EMPTY
    lists.require_room(width * height, f"{place}: allPositions")
    xs, ys = np.meshgrid(np.arange(width), np.arange(height), indexing="ij")
    pair = (xs.reshape(-1).astype(np.int32), ys.reshape(-1).astype(np.int32))
    return ListValue((Segment(position(machine, *pair), None, width * height),))
