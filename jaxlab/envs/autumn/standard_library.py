"""The standard library: a table of functions by name, filled by the modules beside it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeVar

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn.facts import Facts
from jaxlab.envs.autumn.kinds import type_name
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import Number
from jaxlab.envs.autumn.scopes import Failure
from jaxlab.envs.autumn.values import (
    Function,
    Instance,
    ListValue,
    Method,
    Native,
    Scalar,
    Value,
    number,
)

Body = TypeVar("Body", bound=Callable[..., Value])

#: Functions that are themselves written in the language take more arguments and ignore them.
ANY = 99

_NATIVES: dict[str, Native] = {}
_MODULES = ("library_lists", "library_objects", "library_geometry", "library_moves")


def native(name: str, least: int, most: int | None = None) -> Callable[[Body], Body]:
    """Register a function `body(machine, place, *arguments)` under a name of the language."""

    def register(body: Body) -> Body:
        _NATIVES[name] = Native(name, body, least, least if most is None else most)
        return body

    return register


def alias(name: str, other: str) -> None:
    """Register a function under a second name."""
    _NATIVES[name] = _NATIVES[other]


def natives() -> dict[str, Native]:
    """The functions of the standard library by name."""
    for module in _MODULES:
        importlib.import_module(f"jaxlab.envs.autumn.{module}")
    return _NATIVES


def library(facts: Facts) -> dict[str, Value]:
    """What every program finds defined: functions, and three variables."""
    return {
        **natives(),
        "GRID_SIZE": number(16),
        "FRAME_RATE": number(8),
        "background": Scalar("String", facts.string("black")),
    }


def clobber(machine: Machine, place: Place, values: dict[str, Value | None]) -> None:
    """Assign what a function of the language's own library calls by these names.

    Its local names are those of whoever calls it, since scopes are dynamic; a program that
    has none of them notices nothing.
    """
    for name, value in values.items():
        if not machine.visible(name):
            continue
        if value is None:
            raise ProgramError(
                f"{place}: the standard library assigns to a variable '{name}' of its own here, "
                f"and under dynamic scoping to yours; rename it"
            )
        machine.assign(name, value, place)


# Arguments with their types.


def as_number(value: Value, place: Place) -> Number:
    """A number."""
    if isinstance(value, Scalar) and value.kind == "Number":
        return value.number
    raise Failure(f"{place}: expected a number, got a {type_name(value)}")


def as_list(value: Value, place: Place) -> ListValue:
    """A list."""
    if isinstance(value, ListValue):
        return value
    raise Failure(f"{place}: expected a list, got a {type_name(value)}")


def as_function(value: Value, place: Place) -> Value:
    """A function."""
    if isinstance(value, Function | Native | Method):
        return value
    raise Failure(f"{place}: expected a function, got a {type_name(value)}")


def as_instance(value: Value, place: Place) -> Instance:
    """An instance."""
    if isinstance(value, Instance):
        return value
    raise Failure(f"{place}: expected an object, got a {type_name(value)}")


def as_name(machine: Machine, value: Value, place: Place) -> str:
    """A string that is known while tracing."""
    if isinstance(value, Scalar) and value.kind == "String":
        if isinstance(value.number, int):
            return machine.facts.names.strings[value.number]
        raise ProgramError(f"{place}: a name that is chosen while the program runs")
    raise Failure(f"{place}: expected a string, got a {type_name(value)}")
