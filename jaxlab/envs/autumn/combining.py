"""Two values made one: by a condition, one after the other, or as one structure.

All three walk two values side by side and differ in what they do with two leaves.
`Select` takes the left value where a condition holds (`if`, `on`), `Chain` puts values
with a leading axis one behind the other (lists), and `structures.Join` finds the
structure that holds both (what the state of a program must have room for). Values of
different kinds become a `Union`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxlab.envs.autumn.scalars import (
    Number,
    add,
    array,
    both,
    choose,
    equal,
    invert,
    known,
    plain,
    spread,
    sum_of,
)
from jaxlab.envs.autumn.values import (
    EMPTY,
    Cells,
    Identity,
    Instance,
    ListValue,
    Method,
    Scalar,
    Segment,
    Thunk,
    Union,
    Value,
    map_leaves,
    same_kind,
)


class Combination:
    """The walk; subclasses say what becomes of two numbers and of two lists."""

    def number(self, left: Any, right: Any) -> Any:
        """Two numbers in one place."""
        raise NotImplementedError

    def lists(self, left: ListValue, right: ListValue) -> Value:
        """Two lists in one place."""
        raise NotImplementedError

    def only_left(self, value: Value) -> Value:
        """An option that the right value does not have."""
        return value

    def only_right(self, value: Value) -> Value:
        """An option that the left value does not have."""
        return value

    def resolve(self, left: Cells, right: Cells) -> tuple[Cells, Cells]:
        """The cells as they are now on both sides."""
        return left, right

    def value(self, left: Value, right: Value) -> Value:
        """Two values in one place."""
        if isinstance(left, Union) or isinstance(right, Union) or not same_kind(left, right):
            return self._union(left, right)
        if isinstance(left, Scalar):
            return Scalar(left.kind, self.number(left.number, right.number))  # type: ignore[attr-defined]
        if isinstance(left, Instance):
            assert isinstance(right, Instance)
            fields = {
                name: self.value(field, right.fields[name]) for name, field in left.fields.items()
            }
            return Instance(left.type, fields, self.identity(left.identity, right.identity))
        if isinstance(left, ListValue):
            return self.lists(left, right)  # type: ignore[arg-type]
        if isinstance(left, Cells):
            return self._cells(left, right)  # type: ignore[arg-type]
        if isinstance(left, Thunk):
            return self._thunk(left, right)  # type: ignore[arg-type]
        if isinstance(left, Method):
            return Method(self.value(left.instance, right.instance))  # type: ignore
        return left

    def identity(self, left: Identity, right: Identity) -> Identity:
        """Two identities in one place."""
        numbers = (left.number, right.number)
        number = None if None in [n if n is None else 0 for n in numbers] else self.number(*numbers)
        return Identity(left.origins | right.origins, number)

    def _thunk(self, left: Thunk, right: Thunk) -> Thunk:
        if left.frozen is not None:
            return Thunk(left.expression, {}, self.value(left.frozen, right.frozen))  # type: ignore
        seen = {name: self.value(value, right.seen[name]) for name, value in left.seen.items()}
        return Thunk(left.expression, seen)

    def _cells(self, left: Cells, right: Cells) -> Cells:
        if left is not right:
            left, right = self.resolve(left, right)
        if left.many is not None or right.many is not None:
            many = self.lists(left.listed(), right.listed())
            lineage = self.identity(left.lineage, right.lineage)
            return Cells((), (), lineage, many)  # type: ignore[arg-type]
        shared = min(len(left.cells), len(right.cells))
        cells = [
            self.value(*pair)
            for pair in zip(left.cells[:shared], right.cells[:shared], strict=True)
        ]
        exists = [
            self.number(*pair)
            for pair in zip(left.exists[:shared], right.exists[:shared], strict=True)
        ]
        for cell, there in zip(left.cells[shared:], left.exists[shared:], strict=True):
            cells.append(self.only_left(cell))
            exists.append(self.number(there, False))
        for cell, there in zip(right.cells[shared:], right.exists[shared:], strict=True):
            cells.append(self.only_right(cell))
            exists.append(self.number(False, there))
        lineage = self.identity(left.lineage, right.lineage)
        return Cells(tuple(cells), tuple(exists), lineage)

    def _union(self, left: Value, right: Value) -> Value:
        (left_tag, lefts), (right_tag, rights) = _options(left), _options(right)
        options: list[Value] = list(lefts)
        met: set[int] = set()
        places = []
        for option in rights:
            place = next((n for n, other in enumerate(lefts) if same_kind(other, option)), None)
            if place is None:
                place = len(options)
                options.append(self.only_right(option))
            else:
                options[place] = self.value(options[place], option)
                met.add(place)
            places.append(place)
        for place in range(len(lefts)):
            if place not in met:
                options[place] = self.only_left(options[place])
        return Union(self.number(left_tag, relabelled(right_tag, places)), tuple(options))


def _options(value: Value) -> tuple[Number, tuple[Value, ...]]:
    return (value.tag, value.options) if isinstance(value, Union) else (0, (value,))


def relabelled(tag: Number, places: list[int]) -> Number:
    """The number at index `tag` of a short list."""
    if known(tag):
        return places[tag]
    if places == list(range(len(places))):
        return tag
    result: Number = places[-1]
    for old, new in list(enumerate(places))[-2::-1]:
        result = choose(equal(tag, old), new, result)
    return result


class Select(Combination):
    """The left value where `condition` `[]` holds, else the right one."""

    def __init__(
        self,
        condition: Number,
        cells: tuple[Callable[[Cells], Cells], Callable[[Cells], Cells]] | None = None,
        lead: tuple[int, ...] = (),
    ):
        self.condition = condition
        self.cells_now = cells
        self.lead = lead

    def number(self, left: Any, right: Any) -> Any:
        chosen = choose(self.condition, left, right)
        if not known(chosen) and np.ndim(chosen) < len(self.lead):
            return spread(chosen, self.lead)
        return chosen

    def resolve(self, left: Cells, right: Cells) -> tuple[Cells, Cells]:
        if self.cells_now is None:
            return left, right
        return self.cells_now[0](left), self.cells_now[1](right)

    def value(self, left: Value, right: Value) -> Value:
        if known(self.condition):
            return left if self.condition else right
        return left if left is right else super().value(left, right)

    def lists(self, left: ListValue, right: ListValue) -> Value:
        lefts, rights, segments = list(left.segments), list(right.segments), []
        while lefts and rights and _alike(lefts[0], rights[0]):
            segments.append(self._segment(lefts.pop(0), rights.pop(0)))
        if lefts and rights:
            kinds = [segment.elements for segment in (*lefts, *rights)]
            if all(same_kind(kinds[0], kind) for kind in kinds[1:]):
                size = max(sum(s.size for s in lefts), sum(s.size for s in rights))
                pair = [padded(fused(ListValue(tuple(s))), size) for s in (lefts, rights)]
                return ListValue((*segments, self._segment(*pair)))
        segments += [masked(segment, self.condition) for segment in lefts]
        segments += [masked(segment, invert(self.condition)) for segment in rights]
        return ListValue(tuple(segments))

    def _segment(self, left: Segment, right: Segment) -> Segment:
        inner = Select(self.condition, self.cells_now, (*self.lead, left.size))
        elements = inner.value(left.elements, right.elements)
        if left.mask is None and right.mask is None:
            return Segment(elements, None, left.size)
        mask = choose(self.condition, *(mask_of(segment) for segment in (left, right)))
        return Segment(elements, mask, left.size)


def _alike(left: Segment, right: Segment) -> bool:
    return left.size == right.size and same_kind(left.elements, right.elements)


class Chain(Combination):
    """Elements of `sizes[0]` places before those of `sizes[1]`."""

    def __init__(self, sizes: tuple[int, int], inner: tuple[int, ...] = ()):
        self.sizes = sizes
        self.inner = inner

    def number(self, left: Any, right: Any) -> Any:
        if known(left) and known(right) and type(left) is type(right) and left == right:
            return left
        left, right = array(left), array(right)
        tail = (np.shape(left) or np.shape(right))[1:] or self.inner
        pair = [
            spread(part, (size, *tail))
            for part, size in zip((left, right), self.sizes, strict=True)
        ]
        if all(isinstance(part, np.ndarray) for part in pair):
            return np.concatenate(pair)
        return lax.concatenate(pair, 0)

    def only_left(self, value: Value) -> Value:
        return map_leaves(lambda leaf: _resized(leaf, self.sizes[1], after=True), value)

    def only_right(self, value: Value) -> Value:
        return map_leaves(lambda leaf: _resized(leaf, self.sizes[0], after=False), value)

    def lists(self, left: ListValue, right: ListValue) -> Value:
        if not left.size and not right.size:
            return EMPTY
        left = left if left.size else _dead(right, self.sizes[0])
        right = right if right.size else _dead(left, self.sizes[1])
        sizes = [[segment.size for segment in value.segments] for value in (left, right)]
        if sizes[0] != sizes[1]:
            most = max(left.size, right.size)
            left, right = (
                _inner_fused(v, most, n) for v, n in zip((left, right), self.sizes, strict=True)
            )
        return ListValue(tuple(map(self._segment, left.segments, right.segments)))

    def _segment(self, left: Segment, right: Segment) -> Segment:
        inner = Chain(self.sizes, (*self.inner, left.size))
        elements = inner.value(left.elements, right.elements)
        if left.mask is None and right.mask is None:
            return Segment(elements, None, left.size)
        masks = (np.ones(left.size, bool) if s.mask is None else s.mask for s in (left, right))
        pair = [
            mask if np.ndim(mask) == 2 else np.broadcast_to(mask, (size, left.size))
            for mask, size in zip(masks, self.sizes, strict=True)
        ]
        return Segment(elements, self.number(*pair), left.size)


def _dead(value: ListValue, count: int) -> ListValue:
    """`count` lists of the kind of others, with nothing alive in them."""

    def zeros(leaf: Any) -> Any:
        return np.zeros((count, *np.shape(leaf)[1:]), leaf.dtype)

    return ListValue(
        tuple(
            Segment(map_leaves(zeros, s.elements), np.zeros((count, s.size), bool), s.size)
            for s in value.segments
        )
    )


def _inner_fused(value: ListValue, size: int, count: int) -> ListValue:
    """`count` lists side by side, each with one segment of `size` places."""
    full = map_leaves(lambda leaf: leaf, value)

    def one(inner: ListValue) -> ListValue:
        return ListValue((padded(fused(inner), size),))

    return jax.vmap(one, axis_size=count)(full)


def _resized(leaf: Any, size: int, *, after: bool) -> Any:
    filler = np.zeros((size, *np.shape(leaf)[1:]), leaf.dtype)
    pair = [leaf, filler] if after else [filler, leaf]
    return np.concatenate(pair) if isinstance(leaf, np.ndarray) else lax.concatenate(pair, 0)


def mask_of(segment: Segment) -> Any:
    """Which places of a segment are alive, `[size]`."""
    return np.ones(segment.size, bool) if segment.mask is None else segment.mask


def masked(segment: Segment, condition: Number) -> Segment:
    """A segment of which nothing is alive unless a condition `[]` (or `[size]`) holds."""
    if known(condition) and condition:
        return segment
    if known(condition):
        return Segment(segment.elements, np.zeros(segment.size, bool), segment.size)
    mask = spread(condition, (segment.size,)) if np.ndim(condition) == 0 else condition
    if segment.mask is not None:
        mask = both(segment.mask, mask)
    return Segment(segment.elements, mask, segment.size)


def padded(segment: Segment, size: int) -> Segment:
    """A segment with dead places behind it."""
    extra = size - segment.size
    if extra <= 0:
        return segment
    elements = map_leaves(lambda leaf: _resized(leaf, extra, after=True), segment.elements)
    mask = _resized(mask_of(segment), extra, after=True)
    return Segment(elements, mask, size)


def fused(value: ListValue) -> Segment:
    """A list that is not empty as one segment."""

    def two(left: Segment, right: Segment) -> Segment:
        chain = Chain((left.size, right.size))
        mask = None
        if left.mask is not None or right.mask is not None:
            mask = chain.number(mask_of(left), mask_of(right))
        elements = chain.value(left.elements, right.elements)
        return Segment(elements, mask, left.size + right.size)

    segments = list(value.segments)
    while len(segments) > 1:
        pairs = [segments[n : n + 2] for n in range(0, len(segments), 2)]
        segments = [functools.reduce(two, pair) for pair in pairs]
    return segments[0]


def single(value: Value) -> Segment:
    """A segment of one place."""

    def lift(leaf: Any) -> Any:
        return leaf[None] if isinstance(leaf, np.ndarray) else lax.expand_dims(leaf, (0,))

    return Segment(map_leaves(lift, value), None, 1)


def length(value: ListValue) -> Number:
    """Number of elements that are alive."""
    count: Number = 0
    for segment in value.segments:
        if segment.mask is None:
            count = add(count, segment.size)
        elif segment.size == 1:
            count = add(count, choose(plain(segment.mask[0]), 1, 0))
        else:
            count = add(count, sum_of(segment.mask))
    return count
