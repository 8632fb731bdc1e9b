"""What the state of a program must have room for, and values fitted into it.

A structure is a value whose leaves say `jax.ShapeDtypeStruct`, where they change while a
program runs, or are constants, where they never do. A list has one segment; one that grew
gets the capacity for lists, and what does not fit raises a flag.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxlab.envs.autumn.combining import (
    Combination,
    Segment,
    fused,
    mask_of,
    relabelled,
)
from jaxlab.envs.autumn.scalars import (
    Number,
    any_of,
    array,
    both,
    choose,
    either,
    known,
    less,
    spread,
)
from jaxlab.envs.autumn.values import (
    EMPTY,
    Cells,
    Identity,
    Instance,
    ListValue,
    Scalar,
    Thunk,
    Union,
    Value,
    map_leaves,
    same_kind,
)

#: Elements appended one by one; more go through a compaction.
FEW = 8


def _shape(leaf: Any, lead: tuple[int, ...]) -> tuple[int, ...]:
    return lead + tuple(np.shape(leaf))[len(lead) :]


class Join(Combination):
    """The structure with room for both sides; `capacity` is what a list gets that grows."""

    def __init__(self, capacity: int, lead: tuple[int, ...] = ()):
        self.capacity = capacity
        self.lead = lead

    def number(self, left: Any, right: Any) -> Any:
        if left is right:
            return left
        if known(left) and known(right) and type(left) is type(right) and left == right:
            return left
        constants = isinstance(left, np.ndarray) and isinstance(right, np.ndarray)
        if constants and left.shape == right.shape and np.array_equal(left, right):
            return left
        shapes = [_shape(part, self.lead) for part in (left, right) if not known(part)]
        shape = max(shapes, key=len) if shapes else self.lead
        dtypes = [array(part).dtype for part in (left, right)]
        return jax.ShapeDtypeStruct(shape, dtypes[0])

    def only_left(self, value: Value) -> Value:
        return map_leaves(self._dynamic, value)

    only_right = only_left

    def _dynamic(self, leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(_shape(leaf, self.lead), leaf.dtype)

    def lists(self, left: ListValue, right: ListValue) -> Value:
        if not left.size and not right.size:
            return EMPTY
        size = left.size
        if right.size > size:
            size = max(size, self.capacity) if not self.lead or size else right.size
        inner = Join(self.capacity, (*self.lead, size))
        elements = None
        for segment in (*left.segments, *right.segments):
            if segment.size:
                part = segment.elements
                elements = part if elements is None else inner.value(elements, part)
        assert elements is not None
        masks = [segment.mask for segment in (*left.segments, *right.segments)]
        same = left.size == right.size and all(mask is None for mask in masks)
        if not same or size != left.size:
            elements = inner.only_left(elements) if size != left.size else elements
            mask = jax.ShapeDtypeStruct((*self.lead, size), np.bool_)
            return ListValue((Segment(elements, mask, size),))
        return ListValue((Segment(elements, None, size),))


def canonical(value: Value, capacity: int) -> Value:
    """A value as a structure on its own: lists in one segment, the rest constant."""
    if isinstance(value, ListValue):
        if not value.size:
            return EMPTY
        segment = fused(value)
        if isinstance(segment.mask, np.ndarray) and segment.mask.all():
            segment = Segment(segment.elements, None, segment.size)
        return ListValue((segment,))
    return value


def varying(value: Value) -> Value:
    """A value as a structure: what is no constant may change."""

    def mark(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | jax.ShapeDtypeStruct):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

    return map_leaves(mark, value)


class Fitting:
    """Values fitted into structures; `overflow` tells whether a list had too many elements."""

    def __init__(self) -> None:
        self.overflow: Number = False

    def number(self, value: Any, structure: Any) -> Any:
        """A number as the structure holds it."""
        if isinstance(structure, jax.ShapeDtypeStruct):
            return spread(value, structure.shape)
        return structure

    def value(self, value: Value, structure: Value) -> Value:
        """A value as the structure holds it."""
        if isinstance(structure, Union):
            return self._union(value, structure)
        if isinstance(structure, Scalar):
            return Scalar(structure.kind, self.number(value.number, structure.number))  # type: ignore
        if isinstance(structure, Instance):
            fields = {
                name: self.value(value.fields[name], field)  # type: ignore[attr-defined]
                for name, field in structure.fields.items()
            }
            return Instance(
                structure.type,
                fields,
                self._identity(value.identity, structure.identity),  # type: ignore[attr-defined]
            )  # type: ignore
        if isinstance(structure, ListValue):
            return self._list(value, structure)  # type: ignore[arg-type]
        if isinstance(structure, Cells):
            return self._cells(value, structure)  # type: ignore[arg-type]
        if isinstance(structure, Thunk):
            if structure.frozen is not None:
                frozen = self.value(value.frozen, structure.frozen)  # type: ignore
                return Thunk(structure.expression, {}, frozen)  # type: ignore[arg-type]
            seen = {n: self.value(value.seen[n], part) for n, part in structure.seen.items()}  # type: ignore
            return Thunk(structure.expression, seen)
        return structure

    def _identity(self, value: Identity, structure: Identity) -> Identity:
        number = None
        if structure.number is not None:
            number = self.number(value.number, structure.number)
        return Identity(structure.origins, number)

    def _cells(self, value: Cells, structure: Cells) -> Cells:
        if structure.many is not None:
            many = self._list(value.listed(), structure.many)
            return Cells((), (), self._identity(value.lineage, structure.lineage), many)
        cells, exists = [], []
        for n, (cell, there) in enumerate(zip(structure.cells, structure.exists, strict=True)):
            if n < len(value.cells):
                cells.append(self.value(value.cells[n], cell))
                exists.append(self.number(value.exists[n], there))
            else:
                cells.append(empty(cell))
                exists.append(self.number(False, there))
        return Cells(tuple(cells), tuple(exists), self._identity(value.lineage, structure.lineage))

    def _union(self, value: Value, structure: Union) -> Union:
        tag, given = (value.tag, value.options) if isinstance(value, Union) else (0, (value,))
        options, places = [empty(option) for option in structure.options], []
        for option in given:
            place = next(n for n, s in enumerate(structure.options) if same_kind(s, option))
            options[place] = self.value(option, structure.options[place])
            places.append(place)
        return Union(self.number(relabelled(tag, places), structure.tag), tuple(options))

    def _list(self, value: ListValue, structure: ListValue) -> ListValue:
        if not structure.segments:
            return EMPTY
        (target,) = structure.segments
        if not value.size:
            elements = empty(target.elements)
            mask = np.zeros(_mask_shape(target), bool)
            return ListValue((Segment(elements, mask, target.size),))
        parts = [segment for segment in value.segments if segment.size]
        nested = isinstance(target.mask, jax.ShapeDtypeStruct) and len(target.mask.shape) > 1
        if nested:
            return self._nested(value, structure)
        if parts[0].size != target.size or sum(s.size for s in parts) - target.size > FEW:
            parts = [fused(ListValue(tuple(parts)))]
        fitted = [self.resized(part, target) for part in parts]
        return ListValue((self._placed(fitted, target),))

    def _nested(self, value: ListValue, structure: ListValue) -> ListValue:
        """Lists that are elements of a list: each is fitted on its own."""
        (target,) = structure.segments
        inner = ListValue(
            (Segment(_without_lead(target.elements), _without_lead(target.mask), target.size),)
        )

        def one(part: ListValue) -> tuple[ListValue, Any]:
            fitting = Fitting()
            fitted = fitting._list(part, inner)
            return fitted, array(fitting.overflow)

        fitted, over = jax.vmap(one, axis_size=target.mask.shape[0])(value)
        self.overflow = either(self.overflow, any_of(over))
        return fitted

    def resized(self, segment: Segment, target: Segment) -> Segment:
        """The elements of a segment fitted to those of another, in as many places as it has."""

        def as_long(leaf: Any) -> Any:
            if isinstance(leaf, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct((segment.size, *leaf.shape[1:]), leaf.dtype)
            return leaf

        elements = self.value(segment.elements, map_leaves(as_long, target.elements))
        return Segment(elements, segment.mask, segment.size)

    def _placed(self, parts: list[Segment], target: Segment) -> Segment:
        """Segments, the first as long as the target or the only one, in the target's places."""
        size = target.size
        if len(parts) == 1 and parts[0].size == size:
            mask = parts[0].mask
            if target.mask is not None:
                mask = mask_of(parts[0])
            return Segment(parts[0].elements, mask, size)
        if len(parts) == 1:
            return self.compacted(parts[0], target)
        return self._appended(parts[0], parts[1:], target)

    def _appended(self, base: Segment, extras: list[Segment], target: Segment) -> Segment:
        """A few elements written behind the last one that is alive."""
        size = target.size
        places = np.arange(size, dtype=np.int32)
        alive = mask_of(base)
        end = lax.reduce_max(choose(alive, places + 1, np.zeros(size, np.int32)), (0,))
        elements, mask = base.elements, alive
        wanted: Number = False
        for extra in extras:
            for n in range(extra.size):
                there = True if extra.mask is None else extra.mask[n]
                here = both(lax.eq(places, spread(end, (size,))), spread(there, (size,)))
                newcomer = map_leaves(functools.partial(_place, n), extra.elements)
                elements = _written(here, newcomer, elements)
                mask = either(mask, here)
                end = lax.add(end, spread(choose(there, 1, 0), ()))
                wanted = end
        late = less(size, wanted)
        everything = fused(ListValue((base, *extras)))
        compact = self._when(late, everything, Segment(elements, mask, size), target)
        return compact

    def _when(
        self, late: Number, everything: Segment, otherwise: Segment, target: Segment
    ) -> Segment:
        """The compacted list where the last place is passed, which is seldom."""
        from jaxlab.envs.autumn.laziness import where_needed

        def compacted(whole: Segment, _: Segment) -> tuple[Segment, Any]:
            fitting = Fitting()
            segment = fitting.compacted(whole, target)
            return segment, array(fitting.overflow)

        def plain(_: Segment, other: Segment) -> tuple[Segment, Any]:
            return other, np.bool_(False)

        segment, over = where_needed(array(late), compacted, plain, everything, otherwise)
        self.overflow = either(self.overflow, over)
        return segment

    def compacted(self, segment: Segment, target: Segment) -> Segment:
        """The elements that are alive moved to the front, as many as there is room for."""
        # No array constants here: `where_needed` would hand them to `cond` as operands, which
        # an outer batched `switch` batches, and `custom_vmap` does not take that.
        size, places = target.size, segment.size
        alive = lax.full((places,), True) if segment.mask is None else segment.mask
        ones = lax.convert_element_type(alive, np.int32)
        count = lax.reduce_sum(ones, (0,))
        rank = lax.cumsum(ones) - np.int32(1)
        goal = lax.select(alive, rank, lax.full((places,), np.int32(size)))
        sources = lax.full((size,), np.int32(0))
        sources = sources.at[goal].set(lax.iota(np.int32, places), mode="drop")
        elements = map_leaves(lambda leaf: jax.numpy.asarray(leaf)[sources], segment.elements)
        mask = lax.lt(lax.iota(np.int32, size), lax.broadcast(count, (size,)))
        self.overflow = either(self.overflow, less(size, count))
        return Segment(elements, mask, size)


def _mask_shape(segment: Segment) -> tuple[int, ...]:
    return segment.mask.shape if segment.mask is not None else (segment.size,)


def _without_lead(structure: Any) -> Any:
    def strip(leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
        return leaf

    return map_leaves(strip, structure)


def _place(index: int, leaf: Any) -> Any:
    return leaf[index]


def _written(here: Any, newcomer: Value, elements: Value) -> Value:
    """Elements `[size]` with another one where `here` `[size]` holds; equal structures."""

    def write(new: Any, old: Any) -> Any:
        new = spread_front(array(new), np.shape(old))
        return choose(here, new, old)

    return jax.tree.map(write, newcomer, elements)


def spread_front(value: Any, shape: tuple[int, ...]) -> Any:
    """A number or array broadcast to a shape; its own axes come last."""
    if isinstance(value, np.ndarray | np.generic):
        return np.broadcast_to(value, shape)
    own = tuple(range(len(shape) - np.ndim(value), len(shape)))
    return lax.broadcast_in_dim(value, shape, own)


def empty(structure: Value) -> Value:
    """Any value of a structure: zeros where it may change."""

    def zeros(leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return np.zeros(leaf.shape, leaf.dtype)
        return leaf

    return map_leaves(zeros, structure)


def equal_structures(left: Value, right: Value) -> bool:
    """Whether two structures hold the same, constants compared by value."""
    left_leaves, left_tree = jax.tree.flatten(left)
    right_leaves, right_tree = jax.tree.flatten(right)
    if left_tree != right_tree:  # type: ignore[operator]
        return False
    for one, other in zip(left_leaves, right_leaves, strict=True):
        if isinstance(one, np.ndarray) != isinstance(other, np.ndarray):
            return False
        if isinstance(one, np.ndarray):
            if not np.array_equal(one, other):
                return False
        elif one.shape != other.shape:
            return False
    return True
