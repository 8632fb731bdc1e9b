"""Values of the language at trace time, as pytrees.

What is known while tracing (a class, the name of a field, a constant) is structure; what
is not is a leaf. A value with a leading axis on all its leaves stands for the elements of
a list; a constant inside stands for the same constant in all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxlab.envs.autumn import syntax
from jaxlab.envs.autumn.scalars import Number, known, plain


class Value:
    """Base of values."""

    __slots__ = ()


def _pytree(*, leaves: tuple[str, ...]) -> Callable[[type], type]:
    """Make a dataclass a pytree: fields in `leaves` are children unless they are plain."""

    def register(cls: type) -> type:
        names = tuple(field.name for field in dataclasses.fields(cls))

        def flatten(value: Any) -> tuple[tuple[Any, ...], Any]:
            kept, inside = [], []
            for name in names:
                part = getattr(value, name)
                is_leaf = name in leaves and not isinstance(part, bool | int | type(None))
                inside.append(is_leaf)
                kept.append(part)
            children = tuple(part for part, leaf in zip(kept, inside, strict=True) if leaf)
            rest = tuple(
                _Inside if leaf else _Typed(part) for part, leaf in zip(kept, inside, strict=True)
            )
            return children, rest

        def unflatten(rest: Any, children: Any) -> Any:
            parts, following = [], iter(children)
            for part in rest:
                parts.append(next(following) if part is _Inside else part.value)
            value: Any = object.__new__(cls)
            for name, part in zip(names, parts, strict=True):
                object.__setattr__(value, name, part)
            return value

        jax.tree_util.register_pytree_node(cls, flatten, unflatten)
        return cls

    return register


class _Inside:
    """Marks a child in the structure of a value."""


class _Typed:
    """A constant that equals another only with its type: `1` is not `true`."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Typed)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


def _alone(leaf: Any) -> Any:
    """A leaf, or what its structure says of it, with an axis of one place before its own."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype)
    return leaf.reshape((1, *np.shape(leaf)))


@_pytree(leaves=("number",))
@dataclasses.dataclass(frozen=True, eq=False)
class Scalar(Value):
    """A number, a truth value or a string, by `kind`; a string is its index in a table."""

    kind: str
    number: Number


@dataclasses.dataclass(frozen=True, eq=False)
class Nothing(Value):
    """The value of a declaration, and of a step that cannot be reached."""


jax.tree_util.register_pytree_node(Nothing, lambda _: ((), None), lambda *_: NOTHING)
NOTHING: Nothing = Nothing()


@_pytree(leaves=("number",))
@dataclasses.dataclass(frozen=True, eq=False)
class Identity:
    """Which instance one is: `number`, where a program asks for it.

    `origins` are the places where it may have been made. Those of the start of an episode
    made one instance each, so that often nothing need be compared in the compiled program.
    """

    origins: frozenset[Any]
    number: Number | None


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectClass:
    """A class by name, its fields with their types, the origin last, and its cells."""

    name: str
    fields: tuple[str, ...]
    types: tuple[syntax.Type | None, ...]
    cells: syntax.Expression | None = None

    @property
    def has_cells(self) -> bool:
        """Whether its instances are drawn."""
        return self.cells is not None


POSITION = ObjectClass("Position", ("x", "y"), (syntax.Type("Number"),) * 2)
CELL = ObjectClass("Cell", ("x", "y", "color"), (None,) * 3)
ELEMENT = ObjectClass(
    "RenderedElem", ("position", "color"), (syntax.Type("Position"), syntax.Type("String"))
)


@dataclasses.dataclass(frozen=True, eq=False)
class Instance(Value):
    """An instance of a class; an object's cells are its field `elems`."""

    type: ObjectClass
    fields: dict[str, Value]
    identity: Identity


jax.tree_util.register_pytree_node(
    Instance,
    lambda v: ((tuple(v.fields.values()), v.identity), (v.type, tuple(v.fields))),
    lambda aux, c: Instance(aux[0], dict(zip(aux[1], c[0], strict=True)), c[1]),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Thunk(Value):
    """An argument of a cell: an expression with the variables it saw, or a number."""

    expression: syntax.Expression
    seen: dict[str, Value]
    frozen: Scalar | None = None


jax.tree_util.register_pytree_node(
    Thunk,
    lambda v: ((tuple(v.seen.values()), v.frozen), (v.expression, tuple(v.seen))),
    lambda aux, c: Thunk(aux[0], dict(zip(aux[1], c[0], strict=True)), c[1]),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Cells(Value):
    """The cells of an object, one by one with `exists` that says which are there.

    Where they are many and not known while tracing they are a list, `many`, instead.
    `lineage` is the identity of the object's first ancestor, whose cells they are.
    """

    cells: tuple[Value, ...]
    exists: tuple[Number, ...]
    lineage: Identity
    many: ListValue | None = None

    def listed(self) -> ListValue:
        """The cells as a list."""
        if self.many is not None:
            return self.many
        segments = []
        for cell, there in zip(self.cells, self.exists, strict=True):
            mask = None if there is True else _alone(np.bool_(there) if known(there) else there)
            segments.append(Segment(map_leaves(_alone, cell), mask, 1))
        return ListValue(tuple(segments))


jax.tree_util.register_pytree_node(
    Cells,
    lambda v: (
        (v.cells, tuple(Scalar("Bool", e) for e in v.exists), v.lineage, v.many),
        None,
    ),
    lambda _, c: Cells(c[0], tuple(e.number for e in c[1]), c[2], c[3]),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Function(Value):
    """A function of the program."""

    expression: syntax.Lambda


@dataclasses.dataclass(frozen=True, eq=False)
class Native(Value):
    """A function of the standard library, for `least` to `most` arguments."""

    name: str
    body: Callable[..., Value]
    least: int
    most: int


@dataclasses.dataclass(frozen=True, eq=False)
class Constructor(Value):
    """The name of a class, called."""

    type: ObjectClass


for _constant in (Function, Native, Constructor):
    jax.tree_util.register_pytree_node(_constant, lambda v: ((), v), lambda v, _: v)


@dataclasses.dataclass(frozen=True, eq=False)
class Method(Value):
    """`(.. object render)`."""

    instance: Instance


jax.tree_util.register_pytree_node(Method, lambda v: ((v.instance,), None), lambda _, c: Method(*c))


@dataclasses.dataclass(frozen=True, eq=False)
class Segment:
    """Part of a list: `size` places of one kind of element, those with `mask` alive.

    `elements` has a leading axis of `size`; `mask` is `[size]`, or None where all live.
    """

    elements: Value
    mask: Any
    size: int


jax.tree_util.register_pytree_node(
    Segment,
    lambda v: ((v.elements, v.mask), v.size),
    lambda size, c: Segment(c[0], c[1], size),
)


@dataclasses.dataclass(frozen=True, eq=False)
class ListValue(Value):
    """A list: its segments one after the other."""

    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        """Number of places, alive or not."""
        return sum(segment.size for segment in self.segments)


jax.tree_util.register_pytree_node(
    ListValue, lambda v: ((v.segments,), None), lambda _, c: ListValue(*c)
)
EMPTY = ListValue(())


@dataclasses.dataclass(frozen=True, eq=False)
class Union(Value):
    """One of several values of different kinds: the one at index `tag`."""

    tag: Number
    options: tuple[Value, ...]


jax.tree_util.register_pytree_node(
    Union,
    lambda v: ((Scalar("Number", v.tag), v.options), None),
    lambda _, c: Union(c[0].number, c[1]),
)


def number(value: Number) -> Scalar:
    """A number of the language."""
    return Scalar("Number", value)


def truth(value: Number) -> Scalar:
    """A truth value of the language."""
    return Scalar("Bool", value)


def same_kind(left: Value, right: Value) -> bool:
    """Whether two values differ in leaves alone, so that one can be selected per leaf."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Scalar):
        return left.kind == right.kind  # type: ignore[attr-defined]
    if isinstance(left, Instance):
        return left.type is right.type  # type: ignore[attr-defined]
    if isinstance(left, Thunk):
        assert isinstance(right, Thunk)
        if (left.frozen is None) != (right.frozen is None):
            return False
        if left.frozen is not None:
            return True
        return left.expression is right.expression and left.seen.keys() == right.seen.keys()
    if isinstance(left, Function):
        return left.expression is right.expression  # type: ignore[attr-defined]
    if isinstance(left, Native | Constructor):
        return left is right
    return True


def leaves(value: Any) -> list[Any]:
    """The leaves of a value: numpy arrays, arrays and tracers."""
    return jax.tree.leaves(value)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """A value with a function applied to its leaves."""
    return jax.tree.map(function, value)


def element(elements: Value, index: int) -> Value:
    """The element at a known index of values with a leading axis."""

    def pick(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return plain(leaf[index])
        return jax.lax.index_in_dim(leaf, index, keepdims=False)

    return map_leaves(pick, elements)
