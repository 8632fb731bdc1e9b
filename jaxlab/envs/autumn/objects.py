"""Objects: their construction, their cells, and what those cells cover.

The arguments of a cell are evaluated when an object is made, in the variables of that
moment but without the object's own fields. What gives a number is frozen; anything else
is kept with the variables it mentions, and evaluated again, with the fields as they are
then, whenever the object is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn import lists, syntax
from jaxlab.envs.autumn.combining import Select, single
from jaxlab.envs.autumn.equality import same_identity
from jaxlab.envs.autumn.kinds import CELLS, OBJECT, type_name, type_of
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import Number, add, both, either, is_traced, known, negate
from jaxlab.envs.autumn.scopes import Binding, Failure, Frame
from jaxlab.envs.autumn.values import (
    CELL,
    ELEMENT,
    POSITION,
    Cells,
    Instance,
    ListValue,
    ObjectClass,
    Scalar,
    Segment,
    Thunk,
    Union,
    Value,
    element,
    leaves,
    number,
    truth,
)

#: Types that need no class of the program.
TYPES = ("Bool", "String", "Number", "Int", "Position", "Cell", "RenderedElem")
#: Cells that are kept one by one although they are not known while tracing.
MANY = 16
#: More cells of one object than this are a mistake.
MOST_CELLS = 2500

#: `evaluation.evaluate`, which rests on this module.
EVALUATE: list[Callable[[Machine, syntax.Expression], Value]] = []


def kind_of(instance: Instance) -> str:
    """The kind of identity that an instance has."""
    return OBJECT if instance.type.has_cells else instance.type.name


def position(machine: Machine, x: Number, y: Number) -> Instance:
    """A position."""
    return Instance(POSITION, {"x": number(x), "y": number(y)}, machine.fresh("Position"))


def coordinates(value: Value, place: Place, what: str = "a position") -> tuple[Number, Number]:
    """The two numbers of a position."""
    if isinstance(value, Instance):
        x, y = value.fields.get("x"), value.fields.get("y")
        if isinstance(x, Scalar) and isinstance(y, Scalar):
            return x.number, y.number
    raise Failure(f"{place}: expected {what}, got a {type_name(value)}")


def origin(value: Value, place: Place) -> tuple[Number, Number]:
    """The two numbers of an object's origin."""
    if not isinstance(value, Instance) or "origin" not in value.fields:
        raise Failure(f"{place}: expected an object, got a {type_name(value)}")
    return coordinates(value.fields["origin"], place)


def construct(machine: Machine, cls: ObjectClass, given: list[Value], place: Place) -> Value:
    """A new instance of a class."""
    for index, value in enumerate(given):
        if isinstance(value, Union):

            def again(option: Value, index: int = index) -> Value:
                return construct(machine, cls, [*given[:index], option, *given[index + 1 :]], place)

            return machine.over(value, again)
    exact = cls.has_cells
    if len(given) < len(cls.fields) or (not exact and len(given) > len(cls.fields)):
        raise Failure(
            f"{place}: {cls.name} takes {len(cls.fields)} argument(s) "
            f"({', '.join(cls.fields)}), got {len(given)}"
        )
    fields = dict(zip(cls.fields, given, strict=False))
    for name, declared in zip(cls.fields, cls.types, strict=True):
        kind = type_name(fields[name])
        if declared is not None and kind != type_of(declared):
            raise Failure(f"{place}: {name} of {cls.name} is a {declared.name}, got a {kind}")
    if cls.has_cells:
        fields["elems"] = _cells(machine, cls, fields, place)
    return Instance(cls, fields, machine.fresh(OBJECT if cls.has_cells else cls.name))


def _cells(machine: Machine, cls: ObjectClass, fields: dict[str, Value], place: Place) -> Cells:
    """The cells of a new object."""
    assert cls.cells is not None
    outer = machine.frame
    machine.frame = Frame({n: Binding(v) for n, v in fields.items()}, outer, is_instance=True)
    machine.frame = Frame({}, machine.frame)
    try:
        value = EVALUATE[0](machine, cls.cells)
    finally:
        machine.frame = outer
    return as_cells(machine, value, place, f"the cells of {cls.name}")


def as_cells(machine: Machine, value: Value, place: Place, what: str) -> Cells:
    """A cell, or a list of cells, as the cells of an object."""
    if isinstance(value, Union):
        raise ProgramError(f"{place}: {what} are of different kinds by a condition")
    segments = value.segments if isinstance(value, ListValue) else (single(value),)
    if any(segment.size > MANY and _traced(segment) for segment in segments):
        if not all(_are_cells(segment.elements) for segment in segments):
            raise Failure(f"{place}: {what} are no cells")
        return Cells((), (), machine.fresh(CELLS), ListValue(tuple(segments)))
    cells: list[Value] = []
    exists: list[Number] = []
    for segment in segments:
        if len(cells) + segment.size > MOST_CELLS:
            raise ProgramError(f"{place}: {what} are more than {MOST_CELLS}")
        for index in range(segment.size):
            cell_ = element(segment.elements, index)
            if not isinstance(cell_, Instance) or cell_.type is not CELL:
                raise Failure(f"{place}: {what} are no cells")
            there = True if segment.mask is None else element_of(segment.mask, index)
            cells.append(cell_)
            exists.append(there)
    return Cells(tuple(cells), tuple(exists), machine.fresh(CELLS))


def _traced(segment: Segment) -> bool:
    return any(map(is_traced, leaves(segment)))


def _are_cells(value: Value) -> bool:
    return isinstance(value, Instance) and value.type is CELL


def element_of(mask: Any, index: int) -> Number:
    """One truth value of an array."""
    value = element(Scalar("Bool", mask), index)
    assert isinstance(value, Scalar)
    return value.number


def cell(machine: Machine, expression: syntax.Call) -> Value:
    """A new cell; its arguments see the variables they mention, an object's fields apart."""
    if len(expression.arguments) != 3:
        raise Failure(f"{expression.place}: Cell takes x, y and a colour")
    mentioned = frozenset().union(*(_mentioned(part) for part in expression.arguments))
    seen = _visible_without_fields(machine, mentioned)
    arguments: dict[str, Value] = {}
    for name, argument in zip(CELL.fields, expression.arguments, strict=True):
        arguments[name] = _argument(machine, argument, seen)
    return Instance(CELL, arguments, machine.fresh("Cell"))


def _mentioned(expression: syntax.Expression) -> frozenset[str]:
    return syntax.names_in(expression)


def _visible_without_fields(machine: Machine, names: frozenset[str]) -> dict[str, Value]:
    """Variables among `names`, the outermost scope of an instance left out."""
    frames, frame = [], machine.frame
    while frame is not None:
        frames.append(frame)
        frame = frame.parent  # type: ignore[assignment]
    seen, left_out = {}, False
    for frame in reversed(frames):
        if frame.is_instance and not left_out:
            left_out = True
            continue
        for name in names:
            binding = frame.bindings.get(name)
            if binding is not None and binding.present is True:
                seen[name] = binding.value
    return seen


def _argument(machine: Machine, expression: syntax.Expression, seen: dict[str, Value]) -> Thunk:
    """An argument of a cell: frozen where it gives a number without the fields."""
    outer, depth, error = machine.frame, machine.depth, machine.error
    machine.frame = Frame({name: Binding(value) for name, value in seen.items()}, None)
    try:
        value = EVALUATE[0](machine, expression)
    except Failure:
        machine.error = error
    else:
        if isinstance(value, Scalar) and value.kind == "Number":
            return Thunk(expression, {}, value)
    finally:
        machine.frame, machine.depth = outer, depth
    own = {name: seen[name] for name in sorted(_mentioned(expression)) if name in seen}
    return Thunk(expression, own)


def forced(machine: Machine, thunk: Value, instance: Instance | None) -> Value:
    """The value of a cell's argument, in the fields of its object as they are now."""
    if isinstance(thunk, Union):
        return machine.over(thunk, lambda option: forced(machine, option, instance))
    assert isinstance(thunk, Thunk)
    if thunk.frozen is not None:
        return thunk.frozen
    outer = machine.frame
    if instance is not None:
        fields = {name: Binding(value) for name, value in instance.fields.items()}
        machine.frame = Frame(fields, outer, is_instance=True)
    seen = {name: Binding(value) for name, value in thunk.seen.items()}
    machine.frame = Frame(seen, machine.frame)
    try:
        return EVALUATE[0](machine, thunk.expression)
    finally:
        machine.frame = outer


class Drawn:
    """A cell where it is drawn; `exists` says whether it is there, `colour()` its colour."""

    def __init__(self, machine: Machine, instance: Instance, spot: Instance, exists: Number):
        self.machine, self.instance, self.spot, self.exists = machine, instance, spot, exists
        base = instance.fields["origin"]
        assert isinstance(base, Instance)
        self.x = add(*(self._part(base.fields["x"]), self._offset("x")))
        self.y = add(*(self._part(base.fields["y"]), self._offset("y")))

    def _part(self, value: Value) -> Number:
        if not isinstance(value, Scalar) or value.kind != "Number":
            raise Failure(f"the origin of a {self.instance.type.name} is no position")
        return value.number

    def _offset(self, name: str) -> Number:
        value = forced(self.machine, self.spot.fields[name], self.instance)
        if not isinstance(value, Scalar) or value.kind != "Number":
            raise Failure(f"the {name} of a cell of {self.instance.type.name} is no number")
        return value.number

    def colour(self) -> Number:
        """Index of the colour's name."""
        value = forced(self.machine, self.spot.fields["color"], self.instance)
        if not isinstance(value, Scalar) or value.kind != "String":
            raise Failure(f"the colour of a cell of {self.instance.type.name} is no string")
        return value.number


def drawn(machine: Machine, instance: Instance) -> list[Drawn]:
    """The cells of an object, in order; none of what is no object."""
    cells = _cells_now(machine, instance)
    if cells is None:
        return []
    return [
        Drawn(machine, instance, spot, there)  # type: ignore[arg-type]
        for spot, there in zip(cells.cells, cells.exists, strict=True)
        if there is not False
    ]


def rendered(machine: Machine, instance: Instance) -> ListValue:
    """The elements drawn for an object, as values of the language."""
    cells = _cells_now(machine, instance)
    if cells is not None and cells.many is not None:
        return lists.mapped(
            machine,
            cells.many,
            lambda spot: _element(machine, Drawn(machine, instance, spot, True)),  # type: ignore
        )
    segments = []
    for item in drawn(machine, instance):
        part = single(_element(machine, item))
        mask = None if item.exists is True else item.exists.reshape((1,))
        segments.append(Segment(part.elements, mask, 1))
    return ListValue(tuple(segments))


def _element(machine: Machine, item: Drawn) -> Instance:
    fields: dict[str, Value] = {
        "position": position(machine, item.x, item.y),
        "color": Scalar("String", item.colour()),
    }
    return Instance(ELEMENT, fields, machine.fresh("RenderedElem"))


def _cells_now(machine: Machine, instance: Instance) -> Cells | None:
    """The cells of an object as they are now; None for what is no object."""
    if not instance.type.has_cells:
        return None
    cells = instance.fields["elems"]
    assert isinstance(cells, Cells)
    return machine.current(cells)


def cell_list(machine: Machine, instance: Instance) -> ListValue:
    """The field `elems` of an object, as a list."""
    cells = _cells_now(machine, instance)
    assert cells is not None
    return cells.listed()


def any_drawn(
    machine: Machine, instance: Instance, test: Callable[[Drawn], Number], place: Place
) -> Number:
    """Whether a test holds for any cell of an object."""
    cells = _cells_now(machine, instance)
    if cells is not None and cells.many is not None:

        def holds(spot: Value) -> Value:
            return truth(test(Drawn(machine, instance, spot, True)))  # type: ignore[arg-type]

        return lists.any_holds(machine, cells.many, holds, place)
    found: Number = False
    for item in drawn(machine, instance):
        found = either(found, both(item.exists, test(item)))
        if known(found) and found:
            return True
    return found


def rotated(machine: Machine, instance: Instance, place: Place) -> Instance:
    """An object a quarter turn further; all that share its cells turn with it."""
    cells = instance.fields.get("elems")
    if not isinstance(cells, Cells):
        raise Failure(f"{place}: only objects rotate")

    def turn(spot: Value) -> Value:
        assert isinstance(spot, Instance)
        x, y = spot.fields["x"], spot.fields["y"]
        return Instance(
            CELL, {**spot.fields, "x": _negated(machine, y, place), "y": x}, spot.identity
        )

    def turned(now: Cells) -> Cells:
        if now.many is not None:
            raise ProgramError(f"{place}: an object with a changing number of cells cannot rotate")
        return Cells(tuple(map(turn, now.cells)), now.exists, now.lineage)

    for other in _sharing(machine, instance.type):
        if other is cells:
            continue
        same = same_identity(machine, other.lineage, cells.lineage, CELLS)
        if not (known(same) and not same):
            now = machine.current(other)
            after = turned(now) if known(same) else Select(same).value(turned(now), now)
            machine.turned = {**machine.turned, other: after}  # type: ignore[dict-item]
    machine.turned = {**machine.turned, cells: turned(machine.current(cells))}
    return Instance(instance.type, instance.fields, machine.fresh(kind_of(instance)))


def _sharing(machine: Machine, cls: ObjectClass) -> list[Cells]:
    """Cells of objects of a class that variables hold, each once."""
    found: dict[Cells, None] = {}
    for bindings in (machine.globals.bindings, machine.previous or {}):
        for binding in bindings.values():
            if isinstance(binding.value, Instance) and binding.value.type is cls:
                found[binding.value.fields["elems"]] = None  # type: ignore[index]
    return list(found)


def _negated(machine: Machine, thunk: Value, place: Place) -> Value:
    if isinstance(thunk, Union):
        return Union(thunk.tag, tuple(_negated(machine, part, place) for part in thunk.options))
    assert isinstance(thunk, Thunk)
    expression = syntax.Unary("-", thunk.expression, place=place)
    if thunk.frozen is not None:
        return Thunk(expression, {}, number(negate(thunk.frozen.number)))
    return Thunk(expression, thunk.seen)
