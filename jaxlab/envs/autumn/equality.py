"""`==`: structural, and asymmetric between numbers and truth values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxlab.envs.autumn.combining import fused, length, mask_of
from jaxlab.envs.autumn.kinds import CELLS
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.scalars import Number, any_of, both, choose, either, equal, invert, known
from jaxlab.envs.autumn.values import (
    Cells,
    Identity,
    Instance,
    ListValue,
    Scalar,
    Thunk,
    Union,
    Value,
    truth,
)


def equal_values(machine: Machine, left: Value, right: Value) -> Number:
    """Whether two values are the same in all their parts; classes do not count."""
    if isinstance(left, Union) or isinstance(right, Union):
        result = machine.over(
            left,
            lambda one: machine.over(right, lambda other: truth(equal_values(machine, one, other))),
        )
        assert isinstance(result, Scalar)
        return result.number
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        return _scalars(left, right)
    if isinstance(left, Instance) and isinstance(right, Instance):
        if left.fields.keys() != right.fields.keys():
            return False
        same: Number = True
        for name, field in left.fields.items():
            same = both(same, equal_values(machine, field, right.fields[name]))
            if known(same) and not same:
                return False
        return same
    if isinstance(left, Cells) and isinstance(right, Cells):
        return _cells(machine, left, right)
    if isinstance(left, Thunk) and isinstance(right, Thunk):
        return left.frozen is None and left.expression is right.expression
    if isinstance(left, ListValue) and isinstance(right, ListValue):
        return _lists(machine, left, right)
    return left is right


def _scalars(left: Scalar, right: Scalar) -> Number:
    if left.kind == right.kind:
        return equal(left.number, right.number)
    if left.kind == "Number" and right.kind == "Bool":
        return equal(left.number, choose(right.number, 1, 0))
    return False


def same_identity(machine: Machine, left: Identity, right: Identity, kind: str) -> Number:
    """Whether two instances (or the cells of two objects) are one and the same."""
    if not left.origins & right.origins:
        return False
    if left is right or (left.number is right.number and left.number is not None):
        return True
    if left.origins == right.origins and len(left.origins) == 1:
        (origin,) = left.origins
        if isinstance(origin, int):
            return True
    if left.number is None or right.number is None:
        # The trace in which numbers are missing is thrown away.
        machine.facts.identified |= {kind}
        return left.origins == right.origins
    return equal(left.number, right.number)


def _cells(machine: Machine, left: Cells, right: Cells) -> Number:
    """Whether the cells are those of one construction; a frozen number equals no other one."""
    if left is right:
        return True
    if left.many is not None or right.many is not None:
        return same_identity(machine, left.lineage, right.lineage, CELLS)
    if not left.cells and not right.cells:
        return True
    one = same_identity(machine, left.lineage, right.lineage, CELLS)
    if known(one) and one:
        return True
    if len(left.cells) != len(right.cells):
        return one
    alike: Number = True
    for cell, other in zip(left.cells, right.cells, strict=True):
        alike = both(alike, equal_values(machine, cell, other))
    return either(one, alike)


def _lists(machine: Machine, left: ListValue, right: ListValue) -> Number:
    same = equal(length(left), length(right))
    if (known(same) and not same) or not left.size or not right.size:
        return same
    plain = all(s.mask is None for s in (*left.segments, *right.segments))
    if not plain:
        left, right = (_dense(value) for value in (left, right))
    one, other = fused(left), fused(right)
    count = min(one.size, other.size)
    pairs = jax.vmap(
        lambda a, b: np.bool_(s) if known(s := equal_values(machine, a, b)) else s,
        axis_size=count,
    )(*(_front(segment.elements, count) for segment in (one, other)))
    there = both(mask_of(one)[:count], mask_of(other)[:count])
    return both(same, invert(any_of(both(there, invert(pairs)))))


def _front(elements: Value, count: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[:count], elements)


def _dense(value: ListValue) -> ListValue:
    """The list with its elements at the front."""
    from jaxlab.envs.autumn.structures import Fitting, Join, varying

    segment = fused(value)
    structure = varying(Join(segment.size).value(value, ListValue((segment,))))
    fitting = Fitting()
    (target,) = structure.segments  # type: ignore[attr-defined]
    return ListValue((fitting.compacted(fitting.resized(segment, target), target),))
