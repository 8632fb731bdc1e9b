"""What the state of a program holds: which variables, of which structures."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxlab.envs.autumn import syntax
from jaxlab.envs.autumn.kinds import aged
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.scalars import Number, known
from jaxlab.envs.autumn.structures import Join, canonical, equal_structures, varying
from jaxlab.envs.autumn.values import ObjectClass, Value

_FLAG = jax.ShapeDtypeStruct((), np.bool_)


@dataclasses.dataclass
class Layout:
    """Structures of the values of variables, and which of them may be undefined."""

    values: dict[str, Value]
    present: dict[str, Any]
    order: tuple[str, ...]
    classes: dict[str, ObjectClass]
    types: dict[str, syntax.Type]


def first_layout(machine: Machine) -> Layout:
    """What a program holds at its start."""
    bindings = machine.globals.bindings
    return Layout(
        {n: varying(canonical(b.value, machine.capacity)) for n, b in bindings.items()},
        {n: b.present if known(b.present) else _FLAG for n, b in bindings.items()},
        machine.order,
        machine.classes,
        machine.globals.types,
    )


def wider_layout(layout: Layout, machine: Machine) -> Layout:
    """A layout with room for what a step made of it."""
    join = Join(machine.capacity)
    values, present = dict(layout.values), dict(layout.present)
    for name, binding in machine.globals.bindings.items():
        if known(binding.present) and not binding.present:
            if name in present:
                present[name] = join.number(present[name], False)
            continue
        new = varying(aged(binding.value))
        if name not in values:
            values[name] = varying(canonical(new, machine.capacity))
            present[name] = _FLAG
            continue
        if present[name] is False:
            values[name] = varying(canonical(new, machine.capacity))
        else:
            values[name] = varying(join.value(values[name], new))
        present[name] = join.number(present[name], _or_flag(binding.present))
    return Layout(values, present, machine.order, machine.classes, layout.types)


def _or_flag(present: Number) -> Any:
    return present if known(present) else _FLAG


def same_layout(left: Layout, right: Layout) -> bool:
    """Whether two layouts hold the same."""
    if left.values.keys() != right.values.keys() or left.order != right.order:
        return False
    for name, value in left.values.items():
        one, other = left.present[name], right.present[name]
        if known(one) != known(other) or (known(one) and one != other):
            return False
        if not equal_structures(value, right.values[name]):
            return False
    return True


def changing(structure: Value, value: Value) -> tuple[Any, ...]:
    """The leaves of a value that its structure says may change."""
    marks, leaves = jax.tree.leaves(structure), jax.tree.leaves(value)
    return tuple(
        leaf
        for mark, leaf in zip(marks, leaves, strict=True)
        if isinstance(mark, jax.ShapeDtypeStruct)
    )


def filled(structure: Value, leaves: tuple[Any, ...]) -> Value:
    """The value of a structure with these leaves where it may change."""
    marks, tree = jax.tree.flatten(structure)
    given = iter(leaves)
    return jax.tree.unflatten(
        tree,
        [next(given) if isinstance(mark, jax.ShapeDtypeStruct) else mark for mark in marks],
    )
