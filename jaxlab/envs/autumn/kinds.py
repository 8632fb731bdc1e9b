"""Types of values by name, and their identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxlab.envs.autumn.syntax import Type
from jaxlab.envs.autumn.values import (
    Constructor,
    Function,
    Identity,
    Instance,
    ListValue,
    Method,
    Native,
    Scalar,
    Union,
    Value,
)

#: Kinds of identity apart from the language's own classes.
OBJECT, CELLS = "object", "cells"


def relabelled_identities(function: Callable[[Any], Any], value: Value) -> Value:
    """A value with a function applied to the identities in it."""
    return jax.tree.map(
        lambda part: function(part) if isinstance(part, Identity) else part,
        value,
        is_leaf=lambda part: isinstance(part, Identity),
    )


def aged(value: Value) -> Value:
    """A value as the next step finds it: what was made now was made in some earlier step."""

    def age(identity: Identity) -> Identity:
        if "now" not in identity.origins:
            return identity
        return Identity(identity.origins - {"now"} | {"later"}, identity.number)

    return relabelled_identities(age, value)


def type_of(declared: Type) -> str:
    """The name under which values have a declared type."""
    return "Number" if declared.name == "Int" else declared.name


def type_name(value: Value) -> str | None:
    """The name of a value's type, None where it is not known while tracing."""
    if isinstance(value, Scalar):
        return value.kind
    if isinstance(value, Instance):
        return value.type.name
    if isinstance(value, ListValue):
        return "List"
    if isinstance(value, Function | Native | Method):
        return "Function"
    if isinstance(value, Constructor):
        return value.type.name
    return None if isinstance(value, Union) else "nothing"
