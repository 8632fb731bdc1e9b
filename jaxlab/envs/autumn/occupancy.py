"""Which places the last picture covers; collisions are judged by it, not by the present.

A table covers the grid and a margin around it. What lies further out is compared with
every cell drawn, only in steps in which both a question and a cell lie that far out.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from jaxlab.envs.autumn.laziness import where_needed
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.scalars import (
    Number,
    add,
    any_of,
    array,
    both,
    choose,
    either,
    equal,
    invert,
    known,
    less,
    multiply,
    spread,
)

#: Places beyond each edge of the grid that the table covers.
MARGIN = 2


def table_side(grid_size: int) -> int:
    """Rows, and columns, of a table."""
    return grid_size + 2 * MARGIN


def inside(x: Number, y: Number, grid_size: int, margin: int = 0) -> Number:
    """Whether a place lies on the grid, or at most a margin beyond it."""
    result: Number = True
    for coordinate in (x, y):
        result = both(result, invert(less(coordinate, -margin)))
        result = both(result, less(coordinate, grid_size + margin))
    return result


def table_index(x: Number, y: Number, grid_size: int) -> Number:
    """Where a place inside the margin stands in a flat table."""
    side = table_side(grid_size)
    return add(multiply(add(y, MARGIN), side), add(x, MARGIN))


class Occupied:
    """The places covered by the last picture.

    `table` is `[side, side]`, bool; `far` the coordinates and presence of all cells drawn,
    where the program asks about places far outside.
    """

    def __init__(self, table: Any, grid_size: int, far: tuple[Any, Any, Any] | None):
        self.table = table
        self.grid_size = grid_size
        self.far = far
        self._holes: Any = None

    def covers(self, machine: Machine, x: Number, y: Number, *, on_grid: bool = False) -> Number:
        """Whether something is drawn at a place; `on_grid` where it cannot lie outside."""
        side = table_side(self.grid_size)
        near = True if on_grid else inside(x, y, self.grid_size, MARGIN)
        if known(near) and not near:
            covered: Number = False
        else:
            index = table_index(x, y, self.grid_size)
            covered = both(near, look_up(self.table.reshape(-1), index, side * side))
        if known(near) and near:
            return covered
        if self.far is None:
            machine.facts.far_cells = True
            return covered
        return either(covered, self._covers_far(x, y, invert(near)))

    def _covers_far(self, x: Number, y: Number, outside: Number) -> Number:
        xs, ys, there = self.far  # type: ignore[misc]
        if not np.shape(xs)[0]:
            return False
        # Two places beyond the margin can only be the same if they lie beyond the same edge.
        edges = choose(there, self._edges(xs, ys), 0)
        beyond = invert(equal(edges, 0))
        some = lax.reduce_or(spread(edges, np.shape(xs)), (0,))
        needed = both(outside, invert(equal(lax.bitwise_and(some, self._edge(x, y)), 0)))

        def search(xs: Any, ys: Any, beyond: Any, x: Any, y: Any) -> Any:
            size = np.shape(xs)
            return any_of(
                both(beyond, both(equal(xs, spread(x, size)), equal(ys, spread(y, size))))
            )

        def nothing(*_: Any) -> Any:
            return np.bool_(False)

        return where_needed(array(needed), search, nothing, xs, ys, beyond, array(x), array(y))

    def _edges(self, x: Number, y: Number) -> Number:
        """The edges beyond whose margin a place lies, as bits."""
        last = self.grid_size + MARGIN
        tests = (less(x, -MARGIN), less(y, -MARGIN), invert(less(x, last)), invert(less(y, last)))
        bits: Number = 0
        for index, test in enumerate(tests):
            bits = add(bits, choose(test, 1 << index, 0))
        return bits

    def _edge(self, x: Number, y: Number) -> Any:
        return array(self._edges(x, y))

    def flow(self, x: Number, y: Number) -> Number:
        """Where a liquid flows that cannot fall: -1, 0, 1, or 2 for nowhere.

        It is the direction to the nearest hole in the row below, one whose upper neighbour is
        free too; to the right where two are as near.
        """
        side = table_side(self.grid_size)
        near = inside(x, y, self.grid_size, MARGIN)
        holes = self._holes_now()
        if side > 32:
            index = table_index(x, y, self.grid_size)
            return choose(near, look_up(holes.reshape(-1), index, side * side), 2)
        row = look_up(holes, add(y, MARGIN), side)
        column = spread(add(x, MARGIN), ())
        column = lax.clamp(np.int32(0), column, np.int32(side - 1))
        column = lax.convert_element_type(column, np.uint32)
        here_and_right = lax.shift_right_logical(row, column)
        here_and_left = lax.shift_left(row, lax.sub(np.uint32(31), column))
        lower = lax.sub(here_and_right, np.uint32(1))
        to_right = lax.population_count(lax.bitwise_and(lax.bitwise_not(here_and_right), lower))
        to_left = lax.clz(here_and_left)
        direction = choose(lax.le(to_right, to_left), 1, -1)
        direction = choose(lax.eq(to_right, np.uint32(0)), 0, direction)
        nowhere = lax.ge(lax.min(to_right, to_left), np.uint32(32))
        return choose(near, choose(nowhere, 2, direction), 2)

    def prepare_liquids(self) -> None:
        """Find the holes here, outside of any loop that asks for them."""
        self._holes = self._holes_now()

    def _holes_now(self) -> Any:
        """For each row the columns with holes as bits, or directions where bits do not do."""
        if self._holes is not None:
            return self._holes
        hole = _holes(self.table, self.grid_size)
        side = table_side(self.grid_size)
        if side > 32:
            return _directions(hole, side)
        bits = np.left_shift(np.uint32(1), np.arange(side, dtype=np.uint32))
        words = choose(hole, np.broadcast_to(bits, (side, side)), np.zeros((side, side), np.uint32))
        return lax.reduce_sum(words, (1,))


def look_up(flat: Any, index: Number, size: int) -> Number:
    """An element of a flat table; an index outside gives any."""
    if known(index):
        return flat[min(max(index, 0), size - 1)]
    index = lax.clamp(np.int32(0), index, np.int32(size - 1))
    return lax.dynamic_index_in_dim(jax.numpy.asarray(flat), index, keepdims=False)


def _holes(table: Any, grid_size: int) -> Any:
    """The places of the grid that are free above a free place, bool as the table."""
    side = table_side(grid_size)
    free = lax.bitwise_not(jax.numpy.asarray(table))
    columns = np.arange(side) - MARGIN
    on_grid = (columns >= 0) & (columns < grid_size)
    # The row below the last of the grid does not count.
    below = np.arange(side) + 1 - MARGIN != grid_size
    shifted = lax.concatenate([free[1:], np.ones((1, side), bool)], 0)
    allowed = np.broadcast_to(on_grid[None, :] & below[:, None], (side, side))
    return lax.bitwise_and(lax.bitwise_and(free, shifted), allowed)


def _directions(hole: Any, side: int) -> Any:
    """The direction to the nearest hole of the row: -1, 0, 1, or 2 where it has none."""
    far = np.int32(4 * side)
    places = np.broadcast_to(np.arange(side, dtype=np.int32), (side, side))
    left = choose(hole, places, np.full((side, side), -far, np.int32))
    right = choose(hole, places, np.full((side, side), far, np.int32))
    step = 1
    while step < side:
        left = lax.max(left, _moved(left, step, -far))
        right = lax.min(right, _moved(right, -step, far))
        step *= 2
    to_left, to_right = lax.sub(places, left), lax.sub(right, places)
    nearer = choose(lax.le(to_right, to_left), _full(1, side), _full(-1, side))
    nearer = choose(hole, _full(0, side), nearer)
    nowhere = lax.gt(lax.min(to_left, to_right), np.full((side, side), side, np.int32))
    return choose(nowhere, _full(2, side), nearer)


def _full(value: int, side: int) -> Any:
    return np.full((side, side), value, np.int32)


def _moved(values: Any, by: int, filler: Any) -> Any:
    """Columns moved to the right by a number of places, to the left if it is negative."""
    padding = lax.pad(values, np.int32(filler), ((0, 0, 0), (by, -by, 0)))
    return padding
