"""Standard library: objects that move, stop at others, fall and flow."""

from __future__ import annotations

import numpy as np

from jaxlab.envs.autumn import collisions, lists
from jaxlab.envs.autumn.combining import Select
from jaxlab.envs.autumn.kinds import OBJECT
from jaxlab.envs.autumn.library_objects import _clicked, updated
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.objects import coordinates, origin, position, rotated
from jaxlab.envs.autumn.occupancy import Occupied, table_side
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import Number, add, both, choose, either, equal, invert
from jaxlab.envs.autumn.standard_library import (
    ANY,
    alias,
    as_instance,
    as_list,
    as_number,
    clobber,
    native,
)
from jaxlab.envs.autumn.values import Instance, Value, truth

DIRECTIONS = {"Left": (-1, 0), "Right": (1, 0), "Up": (0, -1), "Down": (0, 1)}


def moved(machine: Machine, value: Value, dx: Number, dy: Number, place: Place) -> Instance:
    """An object somewhere else."""
    x, y = origin(value, place)
    where = position(machine, add(x, dx), add(y, dy))
    return updated(machine, as_instance(value, place), "origin", where, place)


@native("move", 2, ANY)
def _move(machine: Machine, place: Place, value: Value, by: Value, *_: Value) -> Value:
    return moved(machine, value, *coordinates(by, place), place)


def _moves(name: str, dx: int, dy: int) -> None:
    @native(f"move{name}", 1, ANY)
    def plain(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
        return moved(machine, value, dx, dy, place)

    @native(f"move{name}NoCollision", 1, ANY)
    def careful(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
        after = moved(machine, value, dx, dy, place)
        bounds = collisions.within_bounds(machine, after, place)
        _name_elements(machine, place, after, value)
        free = collisions.free_except(machine, after, value, place, in_bounds=True)
        result = Select(both(bounds, free)).value(after, value)
        if name == "Right":
            clobber(machine, place, {"wbound": truth(bounds), "fr": truth(free), "ret": result})
        return result


for _name, _by in DIRECTIONS.items():
    _moves(_name, *_by)
alias("nextSolid", "moveDownNoCollision")


def _name_elements(machine: Machine, place: Place, after: Value, before: Value) -> None:
    """The names by which `isFreeExcept` calls the elements of both objects."""
    clobber(machine, place, {"prev_elems": None, "curr_elems": None, "filtered_elems": None})


@native("moveNoCollision", 3, ANY)
def _move_no_collision(
    machine: Machine, place: Place, value: Value, dx: Value, dy: Value, *_: Value
) -> Value:
    return _unless_taken(machine, place, value, dx, dy, value)


@native("moveCanCollision", 4, ANY)
def _move_can_collision(
    machine: Machine, place: Place, value: Value, dx: Value, dy: Value, other: Value, *_: Value
) -> Value:
    return _unless_taken(machine, place, value, dx, dy, lists.list_of([value, other]))


def _unless_taken(
    machine: Machine, place: Place, value: Value, dx: Value, dy: Value, except_for: Value
) -> Value:
    after = moved(machine, value, as_number(dx, place), as_number(dy, place), place)
    _name_elements(machine, place, after, except_for)
    free = collisions.free_except(machine, after, except_for, place)
    return Select(free).value(after, value)


@native("rotateNoCollision", 1, ANY)
def _rotate_no_collision(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
    instance = as_instance(value, place)
    bounds = collisions.within_bounds(machine, rotated(machine, instance, place), place)

    def if_free() -> Value:
        after = rotated(machine, instance, place)
        _name_elements(machine, place, after, instance)
        return truth(collisions.free_except(machine, after, instance, place))

    free = machine.branch(bounds, if_free, lambda: truth(False))
    return machine.branch(
        machine.truthy(free, place), lambda: rotated(machine, instance, place), lambda: instance
    )


@native("isFree", 1, ANY)
def _is_free(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
    return truth(collisions.all_free(machine, value, place))


@native("isFreeExcept", 2, ANY)
def _is_free_except(
    machine: Machine, place: Place, value: Value, before: Value, *_: Value
) -> Value:
    _name_elements(machine, place, value, before)
    return truth(collisions.free_except(machine, value, before, place))


@native("isFreePosExceptObj", 2, ANY)
def _is_free_pos_except(
    machine: Machine, place: Place, where: Value, value: Value, *_: Value
) -> Value:
    x, y = coordinates(where, place)
    free = collisions.is_free(machine, x, y)
    return truth(either(free, collisions.covers_place(machine, value, x, y, place)))


@native("isFreeRangeExceptObj", 3, ANY)
def _is_free_range_except(
    machine: Machine, place: Place, start: Value, end: Value, value: Value, *_: Value
) -> Value:
    names = ("allCheckedPos", "prev_elems", "filtered_pos")
    clobber(machine, place, dict.fromkeys(names))
    message = f"{place}: a range longer than {machine.capacity}, the capacity for lists"
    first, last = as_number(start, place), as_number(end, place)
    columns = lists.count_up(first, last, machine.capacity, machine, message)

    def taken(column: Value) -> Value:
        x = as_number(column, place)
        free = collisions.is_free(machine, x, 0)
        return truth(invert(either(free, collisions.covers_place(machine, value, x, 0, place))))

    return truth(invert(lists.any_holds(machine, columns, taken, place)))


@native("objClicked", 1, ANY)
def _obj_clicked(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
    return lists.filtered(
        machine,
        as_list(value, place),
        lambda item: _clicked(machine, place, item),
        place,
        keep=True,
    )


@native("nextLiquid", 1, ANY)
def _next_liquid(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
    instance = as_instance(value, place)
    x, y = origin(instance, place)
    edge = machine.grid_size
    below = moved(machine, instance, 0, 1, place)
    falls = both(invert(equal(y, edge - 1)), collisions.all_free(machine, below, place))
    clobber(machine, place, dict.fromkeys(("nextRowPos", "holes", "closestHole")))
    slide = _slide(machine, x, y)
    aside = moved(machine, instance, slide, 0, place)
    flows = both(
        invert(equal(slide, 2)),
        both(
            collisions.is_free(machine, add(x, slide), y, on_grid=True),
            collisions.within_bounds(machine, aside, place),
        ),
    )
    clobber(machine, place, dict.fromkeys(("dir", "movedObj")))
    dx = choose(falls, 0, choose(flows, slide, 0))
    where = position(machine, add(x, dx), choose(falls, add(y, 1), y))
    if OBJECT not in machine.facts.identified:
        return updated(machine, instance, "origin", where, place)
    after = updated(machine, instance, "origin", where, place)
    return Select(either(falls, flows)).value(after, instance)


def _slide(machine: Machine, x: Number, y: Number) -> Number:
    """Where a liquid flows that cannot fall: -1, 0, 1, or 2 for nowhere."""
    edge = machine.grid_size
    occupied = machine.occupied
    if occupied is None:
        side = table_side(edge)
        occupied = Occupied(np.zeros((side, side), bool), edge, None)
    machine.facts.liquids = True
    return occupied.flow(x, y)
