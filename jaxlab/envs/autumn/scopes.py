"""Scopes of a program at trace time, and what a branch makes of two of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlab.envs.autumn.combining import Select
from jaxlab.envs.autumn.scalars import Number, choose, known
from jaxlab.envs.autumn.syntax import Type
from jaxlab.envs.autumn.values import Cells, Value


class Failure(Exception):
    """The program fails here whenever it comes here."""


@dataclasses.dataclass(frozen=True, eq=False)
class Binding:
    """A value under a name, there where `present` holds."""

    value: Value
    present: Number = True


class Frame:
    """A scope: `bindings` is replaced, never changed, so that a copy costs nothing."""

    __slots__ = ("bindings", "is_instance", "parent", "types")

    def __init__(
        self,
        bindings: dict[str, Binding],
        parent: Frame | None,
        *,
        is_instance: bool = False,
    ):
        self.bindings = bindings
        self.parent = parent
        self.types: dict[str, Type] = {}
        self.is_instance = is_instance


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """All that a branch may change."""

    frame: Frame
    scopes: tuple[tuple[Frame, dict[str, Binding], dict[str, Type]], ...]
    updated: dict[str, Number]
    order: tuple[str, ...]
    turned: dict[Cells, Cells]
    previous: dict[str, Binding] | None
    error: Number
    random_state: Any


def merged(
    select: Select, lefts: dict[str, Binding], rights: dict[str, Binding]
) -> dict[str, Binding]:
    """The variables of two sides of a branch, selected name by name."""
    result = {}
    for name in {**lefts, **rights}:
        left, right = lefts.get(name), rights.get(name)
        if left is right:
            result[name] = left
            continue
        if left is None:
            left = Binding(right.value, False)  # type: ignore[union-attr]
        if right is None:
            right = Binding(left.value, False)
        absent_left = known(left.present) and not left.present
        absent_right = known(right.present) and not right.present
        if absent_left or absent_right:
            value = right.value if absent_left else left.value
        else:
            value = select.value(left.value, right.value)
        result[name] = Binding(value, choose(select.condition, left.present, right.present))
    return result  # type: ignore[return-value]
