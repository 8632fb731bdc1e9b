"""The picture: cells in the order in which they are painted, and the grid they make."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxlab.envs.autumn.combining import mask_of
from jaxlab.envs.autumn.lists import alive, flattened
from jaxlab.envs.autumn.loops import for_each
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.objects import Drawn, drawn
from jaxlab.envs.autumn.occupancy import MARGIN, Occupied, inside, table_index, table_side
from jaxlab.envs.autumn.scalars import Number, both, choose, equal, known, spread
from jaxlab.envs.autumn.values import (
    ELEMENT,
    Cells,
    Identity,
    Instance,
    ListValue,
    Scalar,
    Segment,
    Union,
    Value,
    number,
    truth,
)

#: Colours that a painted value has room for.
COLOURS = 1024


@dataclasses.dataclass(frozen=True)
class Layer:
    """Cells of one variable in the order of painting, each `[cells]`."""

    variable: str
    x: Any
    y: Any
    colour: Any
    exists: Any


def layers(machine: Machine, order: list[str]) -> list[Layer]:
    """The cells of the variables in an order, what is empty left out."""
    result = []
    for name in order:
        binding = machine.globals.bindings.get(name)
        if binding is None or (known(binding.present) and not binding.present):
            continue
        for x, y, colour, exists in _painted(machine, binding.value):
            there = both(exists, binding.present)
            result.append(Layer(name, x, y, colour, there))
    return result


def _painted(
    machine: Machine, value: Value, *, shades: bool = True
) -> list[tuple[Any, Any, Any, Any]]:
    """Coordinates, colours and presence of the cells of a value, part by part."""
    if isinstance(value, Instance | Union):
        rows = _rows(machine, value, shades)
        return [tuple(_column(part, ()) for part in zip(*rows, strict=True))] if rows else []  # type: ignore
    if not isinstance(value, ListValue):
        return []
    parts = []
    for segment in alive(value):
        if isinstance(segment.elements, ListValue):
            if segment.elements.segments:
                inner = ListValue((flattened(segment),))
                parts += _painted(machine, inner, shades=shades)
            continue
        if not isinstance(segment.elements, Instance | Union):
            continue
        packed = for_each(machine, segment, lambda item: _packed(machine, item, shades))
        assert isinstance(packed, Instance)
        rows = _unpacked(packed)
        if rows:
            x, y, colour, exists = (
                _column(part, (segment.size,)) for part in zip(*rows, strict=True)
            )
            if segment.mask is not None:
                exists = both(exists, _repeated(segment.mask, len(x) // segment.size))
            parts.append((x, y, colour, exists))
    return parts


def _repeated(mask: Any, count: int) -> Any:
    if isinstance(mask, np.ndarray):
        return np.repeat(mask, count)
    size = mask.shape[0]
    return lax.reshape(lax.broadcast_in_dim(mask, (size, count), (0,)), (size * count,))


#: Coordinates, colour and presence: of a cell, or of `[cells]` at once.
Row = tuple[Any, Any, Any, Any]


def _rows(machine: Machine, value: Value, shades: bool) -> list[Row]:
    if isinstance(value, Union):
        return [
            (x, y, colour, both(exists, equal(value.tag, index)))
            for index, option in enumerate(value.options)
            for x, y, colour, exists in _rows(machine, option, shades)
        ]
    if not isinstance(value, Instance):
        return []
    cells = value.fields.get("elems")
    if isinstance(cells, Cells) and cells.many is not None:
        return [_strip(machine, value, segment, shades) for segment in alive(cells.many)]
    return [_row(item, shades) for item in drawn(machine, value)]


def _row(item: Drawn, shades: bool) -> Row:
    return item.x, item.y, item.colour() if shades else 0, item.exists


def _strip(machine: Machine, instance: Instance, segment: Segment, shades: bool) -> Row:
    """Many cells of one object at once."""

    def one(spot: Value) -> Value:
        return _as_value([_row(Drawn(machine, instance, spot, True), shades)])  # type: ignore[arg-type]

    packed = for_each(machine, segment, one)
    assert isinstance(packed, Instance)
    ((x, y, colour, _),) = _unpacked(packed)
    shape = (segment.size,)
    return spread(x, shape), spread(y, shape), spread(colour, shape), mask_of(segment)


_NOBODY = Identity(frozenset(), None)


def _packed(machine: Machine, value: Value, shades: bool) -> Instance:
    """The cells of one element as one value."""
    return _as_value(_rows(machine, value, shades))


def _as_value(rows: list[Row]) -> Instance:
    fields: dict[str, Value] = {}
    for index, (x, y, colour, exists) in enumerate(rows):
        fields[f"x{index}"], fields[f"y{index}"] = number(x), number(y)
        fields[f"colour{index}"], fields[f"exists{index}"] = number(colour), truth(exists)
    return Instance(ELEMENT, fields, _NOBODY)


def _unpacked(packed: Instance) -> list[Row]:
    def part(name: str) -> Number:
        value = packed.fields[name]
        assert isinstance(value, Scalar)
        return value.number

    count = len(packed.fields) // 4
    names = ("x", "y", "colour", "exists")
    return [tuple(part(f"{name}{index}") for name in names) for index in range(count)]  # type: ignore


def _column(parts: tuple[Any, ...], lead: tuple[int, ...]) -> Any:
    """Numbers `[*lead]`, or `[*lead, cells]`, side by side, flat."""
    columns = []
    for part in parts:
        if np.ndim(part) > len(lead):
            columns.append(part)
            continue
        column = spread(part, lead)
        columns.append(column.reshape((*lead, 1)))
    return joined(columns, len(lead)).reshape(-1)


def paint(machine: Machine, painted: list[Layer], background: Number) -> tuple[Any, Any]:
    """The grid of colours `[size, size]`, int32, and the table of covered places, bool."""
    size = machine.grid_size
    side = table_side(size)
    table = jax.numpy.full(side * side, -1, np.int32)
    if painted:
        x, y, colour, exists = (
            joined([getattr(layer, name) for layer in painted])
            for name in ("x", "y", "colour", "exists")
        )
        near = both(exists, inside(x, y, size, MARGIN))
        index = choose(near, table_index(x, y, size), side * side)
        places = np.arange(len(x), dtype=np.int32) * np.int32(COLOURS)
        table = table.at[index].max(
            lax.add(jax.numpy.asarray(places), jax.numpy.asarray(colour)), mode="drop"
        )
    table = table.reshape(side, side)
    covered = lax.ge(table, np.zeros((side, side), np.int32))
    inner = table[MARGIN:-MARGIN, MARGIN:-MARGIN]
    top = lax.bitwise_and(inner, np.full((size, size), COLOURS - 1, np.int32))
    blank = lax.lt(inner, np.zeros((size, size), np.int32))
    return choose(blank, spread(background, (size, size)), top), covered


def places(machine: Machine, value: Value) -> Occupied:
    """The places that the cells of a list of objects cover."""
    size = machine.grid_size
    side = table_side(size)
    parts = _painted(machine, value, shades=False)
    if not parts:
        return Occupied(np.zeros((side, side), bool), size, None)
    x, y, _, exists = (joined(list(part)) for part in zip(*parts, strict=True))
    near = both(exists, inside(x, y, size, MARGIN))
    index = choose(near, table_index(x, y, size), side * side)
    table = jax.numpy.zeros(side * side, bool).at[index].set(True, mode="drop")
    return Occupied(table.reshape(side, side), size, (x, y, exists))


def joined(parts: list[Any], axis: int = 0) -> Any:
    """Arrays one behind the other along an axis."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts, axis)
    return lax.concatenate([jax.numpy.asarray(part) for part in parts], axis)
