"""Standard library: positions, distances, neighbours, and common places."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from jaxlab.envs.autumn import collisions, lists
from jaxlab.envs.autumn.combining import Select, fused, length, mask_of
from jaxlab.envs.autumn.equality import equal_values
from jaxlab.envs.autumn.library_lists import absolute, sign
from jaxlab.envs.autumn.library_objects import all_objects
from jaxlab.envs.autumn.loops import for_each
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.objects import coordinates, origin, position
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import (
    Number,
    add,
    at_most,
    both,
    choose,
    equal,
    known,
    multiply,
    subtract,
)
from jaxlab.envs.autumn.scopes import Failure
from jaxlab.envs.autumn.standard_library import ANY, alias, as_list, as_number, clobber, native
from jaxlab.envs.autumn.values import (
    EMPTY,
    Instance,
    ListValue,
    Scalar,
    Segment,
    Value,
    map_leaves,
    number,
    truth,
)

Pair = tuple[Number, Number]


def _field(value: Value, name: str, place: Place) -> Value:
    if isinstance(value, Instance) and name in value.fields:
        return value.fields[name]
    raise Failure(f"{place}: expected something with a {name}")


def _delta(machine: Machine, place: Place, start: Pair, end: Pair) -> Pair:
    """From one place to another, which the library's functions call `delta`."""
    pair = (subtract(end[0], start[0]), subtract(end[1], start[1]))
    if machine.visible("delta"):
        clobber(machine, place, {"delta": position(machine, *pair)})
    return pair


@native("movePos", 2, ANY)
def _move_pos(machine: Machine, place: Place, where: Value, by: Value, *_: Value) -> Value:
    (x, y), (dx, dy) = coordinates(where, place), coordinates(by, place)
    return position(machine, add(x, dx), add(y, dy))


def _step(name: str, dx: int, dy: int) -> None:
    @native(name, 1, ANY)
    def moved(machine: Machine, place: Place, where: Value, *_: Value) -> Value:
        x, y = coordinates(where, place)
        return position(machine, add(x, dx), add(y, dy))


for _direction, _dx, _dy in (("Left", -1, 0), ("Right", 1, 0), ("Up", 0, -1), ("Down", 0, 1)):
    _step(f"move{_direction}Pos", _dx, _dy)


@native("deltaPos", 2, ANY)
def _delta_pos(machine: Machine, place: Place, start: Value, end: Value, *_: Value) -> Value:
    (x, y), (x2, y2) = coordinates(start, place), coordinates(end, place)
    return position(machine, subtract(x2, x), subtract(y2, y))


alias("displacement", "deltaPos")


@native("deltaElem", 2, ANY)
def _delta_elem(machine: Machine, place: Place, start: Value, end: Value, *_: Value) -> Value:
    pair = [_field(value, "position", place) for value in (start, end)]
    return _delta_pos(machine, place, *pair)


@native("deltaObj", 2, ANY)
def _delta_obj(machine: Machine, place: Place, start: Value, end: Value, *_: Value) -> Value:
    pair = [_field(value, "origin", place) for value in (start, end)]
    return _delta_pos(machine, place, *pair)


@native("rect", 2, ANY)
def _rect(machine: Machine, place: Place, start: Value, end: Value, *_: Value) -> Value:
    (x, y), (x2, y2) = coordinates(start, place), coordinates(end, place)
    names = {"xmin": x, "xmax": x2, "ymin": y, "ymax": y2}
    clobber(machine, place, {name: number(value) for name, value in names.items()})
    # A rectangle of a size that is not known has room for the whole grid.
    widest = machine.grid_size + 1
    message = f"{place}: a rect of a changing size wider or higher than {widest}"
    xs, ys = (
        lists.count_up(low, high, widest, machine, message) for low, high in ((x, x2), (y, y2))
    )
    if not xs.size or not ys.size:
        return EMPTY
    (columns,), (rows,) = xs.segments, ys.segments
    shape = (rows.size, columns.size)
    size = rows.size * columns.size
    lists.require_room(size, f"{place}: rect")
    pair = [
        _grid(part.elements.number, axis, shape)  # type: ignore[attr-defined]
        for part, axis in ((columns, 1), (rows, 0))
    ]
    mask = None
    if rows.mask is not None or columns.mask is not None:
        mask = both(_grid(mask_of(rows), 0, shape), _grid(mask_of(columns), 1, shape))
    result = ListValue((Segment(position(machine, *pair), mask, size),))
    clobber(machine, place, {"rectPos": result})
    return result


def _grid(values: Any, axis: int, shape: tuple[int, int]) -> Any:
    """Values along one axis of a grid, spread over it, row by row."""
    if isinstance(values, np.ndarray):
        spread = values[:, None] if axis == 0 else values[None, :]
        return np.broadcast_to(spread, shape).reshape(-1)
    return lax.reshape(lax.broadcast_in_dim(values, shape, (axis,)), (shape[0] * shape[1],))


def manhattan(machine: Machine, place: Place, start: Pair, end: Pair) -> Number:
    """Sum of the distances along both axes."""
    dx, dy = _delta(machine, place, start, end)
    return add(absolute(dx), absolute(dy))


def _touching(machine: Machine, place: Place, start: Pair, end: Pair) -> Number:
    """Whether both distances are at most 1."""
    dx, dy = _delta(machine, place, start, end)
    return both(at_most(absolute(dx), 1), at_most(absolute(dy), 1))


@native("adjacentElem", 2, ANY)
def _adjacent_elem(machine: Machine, place: Place, left: Value, right: Value, *_: Value) -> Value:
    pair = [coordinates(_field(value, "position", place), place) for value in (left, right)]
    return truth(equal(manhattan(machine, place, *pair), 1))


@native("adjacentPoss", 3, ANY)
def _adjacent_poss(
    machine: Machine, place: Place, left: Value, right: Value, unit: Value, *_: Value
) -> Value:
    pair = [coordinates(value, place) for value in (left, right)]
    return truth(at_most(manhattan(machine, place, *pair), as_number(unit, place)))


@native("adjacentTwoObjs", 3, ANY)
def _adjacent_two(
    machine: Machine, place: Place, left: Value, right: Value, unit: Value, *_: Value
) -> Value:
    distance = manhattan(machine, place, origin(left, place), origin(right, place))
    return truth(at_most(distance, as_number(unit, place)))


@native("adjacentPossDiag", 2, ANY)
def _adjacent_poss_diag(
    machine: Machine, place: Place, left: Value, right: Value, *_: Value
) -> Value:
    pair = [coordinates(value, place) for value in (left, right)]
    return truth(_touching(machine, place, *pair))


@native("adjacentTwoObjsDiag", 2, ANY)
def _adjacent_two_diag(
    machine: Machine, place: Place, left: Value, right: Value, *_: Value
) -> Value:
    return truth(_touching(machine, place, origin(left, place), origin(right, place)))


@native("adj", 3, ANY)
def _adj(
    machine: Machine, place: Place, one: Value, others: Value, unit: Value, *_: Value
) -> Value:
    return truth(
        lists.any_holds(
            machine,
            as_list(others, place),
            lambda other: _adjacent_two(machine, place, one, other, unit),
            place,
        )
    )


@native("adjacentObjs", 2, ANY)
def _adjacent_objs(machine: Machine, place: Place, around: Value, unit: Value, *_: Value) -> Value:
    return _neighbours(
        machine, place, around, lambda a, b: _adjacent_two(machine, place, a, b, unit)
    )


@native("adjacentObjsDiag", 1, ANY)
def _adjacent_objs_diag(machine: Machine, place: Place, around: Value, *_: Value) -> Value:
    return _neighbours(
        machine, place, around, lambda a, b: _adjacent_two_diag(machine, place, a, b)
    )


def _neighbours(machine: Machine, place: Place, around: Value, test: object) -> Value:
    """All objects next to an object or to any of a list, those themselves among them."""
    assert callable(test)

    def near(other: Value) -> Value:
        if not isinstance(around, ListValue):
            return test(around, other)
        return truth(lists.any_holds(machine, around, lambda one: test(one, other), place))

    return lists.filtered(machine, all_objects(machine), near, place, keep=True)


@native("sqdist", 2, ANY)
def _sqdist(machine: Machine, place: Place, left: Value, right: Value, *_: Value) -> Value:
    return number(squared(machine, place, coordinates(left, place), coordinates(right, place)))


def squared(machine: Machine, place: Place, start: Pair, end: Pair) -> Number:
    """Squared distance."""
    dx, dy = _delta(machine, place, start, end)
    return add(multiply(dx, dx), multiply(dy, dy))


def _unit(machine: Machine, place: Place, delta: Pair, *, diagonals: bool) -> Instance:
    """The signs of a difference; without diagonals those collapse to the x part."""
    x, y = sign(delta[0]), sign(delta[1])
    clobber(machine, place, {"sign_x": number(x), "sign_y": number(y)})
    if not diagonals:
        y = choose(equal(x, 0), y, 0)
    return position(machine, x, y)


@native("unitVector", 2, ANY)
def _unit_vector(machine: Machine, place: Place, one: Value, target: Value, *_: Value) -> Value:
    delta = _delta(machine, place, origin(one, place), origin(target, place))
    return _unit(machine, place, delta, diagonals=False)


@native("unitVectorObjPos", 2, ANY)
def _unit_vector_pos(machine: Machine, place: Place, one: Value, target: Value, *_: Value) -> Value:
    delta = _delta(machine, place, origin(one, place), coordinates(target, place))
    return _unit(machine, place, delta, diagonals=False)


@native("unitVectorSinglePos", 1, ANY)
def _unit_vector_single(machine: Machine, place: Place, by: Value, *_: Value) -> Value:
    return _unit(machine, place, coordinates(by, place), diagonals=True)


@native("closest", 2, ANY)
def _closest(machine: Machine, place: Place, one: Value, others: Value, *_: Value) -> Value:
    start = origin(one, place)
    return _nearest(
        machine,
        as_list(others, place),
        one,
        lambda other: squared(machine, place, origin(other, place), start),
    )


@native("closestPos", 2, ANY)
def _closest_pos(machine: Machine, place: Place, one: Value, others: Value, *_: Value) -> Value:
    start = origin(one, place)
    return _nearest(
        machine,
        as_list(others, place),
        _field(one, "origin", place),
        lambda other: squared(machine, place, coordinates(other, place), start),
    )


def _nearest(machine: Machine, value: ListValue, otherwise: Value, distance: object) -> Value:
    """The element at the least distance, the later one of two; `otherwise` for no element."""
    assert callable(distance)
    parts = lists.alive(value)
    if not parts:
        return otherwise

    def measured(item: Value) -> Value:
        result = machine.over(item, lambda option: number(distance(option)))
        assert isinstance(result, Scalar)
        return result

    measures = ListValue(
        tuple(Segment(for_each(machine, s, measured), s.mask, s.size) for s in parts)
    )
    whole, lengths = fused(ListValue(tuple(parts))), fused(measures)
    assert isinstance(lengths.elements, Scalar)
    size, far = whole.size, 2**31 - 1
    there = mask_of(whole)
    apart = choose(there, lengths.elements.number, far)
    apart = np.full(size, apart, np.int32) if known(apart) else jax.numpy.asarray(apart)
    least = lax.broadcast(lax.reduce_min(apart, (0,)), (size,))
    hits = both(equal(apart, least), there)
    index = lax.reduce_max(choose(hits, np.arange(size, dtype=np.int32), -1), (0,))
    index = lax.max(index, np.int32(0))
    found = map_leaves(
        lambda leaf: lax.dynamic_index_in_dim(jax.numpy.asarray(leaf), index, keepdims=False),
        whole.elements,
    )
    return Select(equal(length(value), 0)).value(otherwise, found)


@native("intersects", 2, ANY)
def _intersects(machine: Machine, place: Place, left: Value, right: Value, *_: Value) -> Value:
    return truth(collisions.intersect(machine, left, right, place))


@native("intersectsElems", 2, ANY)
def _intersects_elems(
    machine: Machine, place: Place, left: Value, right: Value, *_: Value
) -> Value:
    def meets(one: Value) -> Value:
        return _intersects_pos_elems(machine, place, _field(one, "position", place), right)

    return truth(lists.any_holds(machine, as_list(left, place), meets, place))


@native("intersectsPosElems", 2, ANY)
def _intersects_pos_elems(
    machine: Machine, place: Place, where: Value, elements: Value, *_: Value
) -> Value:
    def meets(other: Value) -> Value:
        return truth(equal_values(machine, _field(other, "position", place), where))

    return truth(lists.any_holds(machine, as_list(elements, place), meets, place))


@native("intersectsPosPoss", 2, ANY)
def _intersects_pos_poss(
    machine: Machine, place: Place, where: Value, places: Value, *_: Value
) -> Value:
    def meets(other: Value) -> Value:
        return truth(equal_values(machine, where, other))

    return truth(lists.any_holds(machine, as_list(places, place), meets, place))
