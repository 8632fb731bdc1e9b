"""Questions about the cells of objects: bounds, free places, clicks, common places."""

from __future__ import annotations

from collections.abc import Callable

from jaxlab.envs.autumn.lists import any_holds
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.objects import Drawn, any_drawn, coordinates, forced
from jaxlab.envs.autumn.occupancy import Occupied, inside
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.rendering import places
from jaxlab.envs.autumn.scalars import Number, both, equal, invert, known
from jaxlab.envs.autumn.values import Instance, ListValue, Scalar, Union, Value, leaves, truth

#: From so many places, and so many pairs of them, common places are found by a table.
LONG, MANY_PAIRS = 16, 2048

Test = Callable[[Drawn], Number]


def any_cell(machine: Machine, value: Value, test: Test, place: Place) -> Number:
    """Whether a test holds for any cell drawn for an object, or for a list of them."""
    if isinstance(value, Union):
        result = machine.over(value, lambda part: truth(any_cell(machine, part, test, place)))
        assert isinstance(result, Scalar)
        return result.number
    if isinstance(value, Instance):
        return any_drawn(machine, value, test, place)
    if isinstance(value, ListValue):
        return any_holds(
            machine, value, lambda part: truth(any_cell(machine, part, test, place)), place
        )
    return False


def within_bounds(machine: Machine, value: Value, place: Place) -> Number:
    """Whether all cells lie on the grid."""
    size = machine.grid_size
    return invert(
        any_cell(machine, value, lambda item: invert(inside(item.x, item.y, size)), place)
    )


def is_free(machine: Machine, x: Number, y: Number, *, on_grid: bool = False) -> Number:
    """Whether the last picture covers nothing at a place."""
    if machine.occupied is None:
        return True
    on_grid = on_grid or any(x is x2 and y is y2 for x2, y2 in machine.on_grid)
    return invert(machine.occupied.covers(machine, x, y, on_grid=on_grid))


def all_free(machine: Machine, value: Value, place: Place) -> Number:
    """Whether all places of the cells are free."""
    return invert(
        any_cell(machine, value, lambda item: invert(is_free(machine, item.x, item.y)), place)
    )


def _same_colour(machine: Machine, one: Drawn, other: Drawn) -> Number:
    left, right = one.spot.fields["color"], other.spot.fields["color"]
    if left is right and one.instance.fields is other.instance.fields:
        return True
    return equal(_colour(machine, left, one.instance), _colour(machine, right, other.instance))


def _colour(machine: Machine, thunk: Value, instance: Instance) -> Number:
    value = forced(machine, thunk, instance)
    return value.number if isinstance(value, Scalar) else -1


def free_except(
    machine: Machine, value: Value, before: Value, place: Place, *, in_bounds: Number = False
) -> Number:
    """Whether the cells are free that are none of another's, equal in place and colour.

    `in_bounds` tells where all cells are known to lie on the grid.
    """

    def blocked(item: Drawn) -> Number:
        taken = invert(is_free(machine, item.x, item.y, on_grid=in_bounds is not False))
        if known(taken) and not taken:
            return False

        def same(other: Drawn) -> Number:
            at_once = both(equal(item.x, other.x), equal(item.y, other.y))
            if known(at_once) and not at_once:
                return False
            return both(at_once, _same_colour(machine, item, other))

        return both(taken, invert(any_cell(machine, before, same, place)))

    return invert(any_cell(machine, value, blocked, place))


def covers_place(machine: Machine, value: Value, x: Number, y: Number, place: Place) -> Number:
    """Whether any cell lies at a place."""
    return any_cell(machine, value, lambda item: both(equal(item.x, x), equal(item.y, y)), place)


def intersect(machine: Machine, left: Value, right: Value, place: Place) -> Number:
    """Whether two objects, or lists of them, have a place in common."""
    for one, other in ((left, right), (right, left)):
        if isinstance(other, ListValue) and _pays(machine, one, other):
            covered = places(machine, other)

            def meets(item: Drawn, covered: Occupied = covered) -> Number:
                return covered.covers(machine, item.x, item.y)

            return any_cell(machine, one, meets, place)
    return any_cell(
        machine, left, lambda item: covers_place(machine, right, item.x, item.y, place), place
    )


def _pays(machine: Machine, asking: Value, value: ListValue) -> bool:
    """Whether a table of the places of a list costs less than comparing all pairs."""
    if value.size < LONG or any(map(machine.differs_by_lane, leaves(value))):
        return False
    count = asking.size if isinstance(asking, ListValue) else 1
    return machine.lanes * count * value.size >= MANY_PAIRS


def is_at(value: Value, other: Value, place: Place) -> Number:
    """Whether two positions are the same."""
    (x, y), (x2, y2) = coordinates(value, place), coordinates(other, place)
    return both(equal(x, x2), equal(y, y2))
