"""Standard library: objects and lists of them, what was before, and what the player does."""

from __future__ import annotations

import numpy as np

from jaxlab.envs.autumn import collisions, lists
from jaxlab.envs.autumn.combining import Select, masked, single
from jaxlab.envs.autumn.equality import same_identity
from jaxlab.envs.autumn.evaluation import call
from jaxlab.envs.autumn.kinds import type_name
from jaxlab.envs.autumn.machine import ROUNDS, Machine
from jaxlab.envs.autumn.objects import as_cells, coordinates, kind_of, position, rendered, rotated
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import Number, add, both, either, equal, invert, known
from jaxlab.envs.autumn.scopes import Binding, Failure
from jaxlab.envs.autumn.standard_library import (
    ANY,
    as_function,
    as_instance,
    as_list,
    as_name,
    native,
)
from jaxlab.envs.autumn.values import (
    POSITION,
    Function,
    Identity,
    Instance,
    ListValue,
    Method,
    Native,
    Segment,
    Union,
    Value,
    truth,
)


@native("updateObj", 2, 3)
def _update(machine: Machine, place: Place, target: Value, what: Value, *more: Value) -> Value:
    if isinstance(target, ListValue):
        function = as_function(what, place)
        condition = as_function(more[0], place) if more else None

        def change(item: Value) -> Value:
            if condition is None:
                return call(machine, function, [item], place)
            chosen = machine.truthy(call(machine, condition, [item], place), place)
            return machine.branch(
                chosen, lambda: call(machine, function, [item], place), lambda: item
            )

        return lists.mapped(machine, target, change)
    instance = as_instance(target, place)
    if not more:
        return call(machine, as_function(what, place), [instance], place)
    return updated(machine, instance, as_name(machine, what, place), more[0], place)


def updated(
    machine: Machine, instance: Instance, name: str, value: Value, place: Place
) -> Instance:
    """A copy of an instance with another value of a field."""
    if name not in instance.fields:
        raise Failure(f"{place}: {instance.type.name} has no field '{name}'")
    if name == "elems":
        value = as_cells(machine, value, place, "the cells")
    return Instance(
        instance.type,
        {**instance.fields, name: value},
        machine.fresh(kind_of(instance)),
    )


@native("addObj", 2)
def _add(machine: Machine, place: Place, value: Value, new: Value) -> Value:
    old = ListValue(tuple(_copied(machine, part) for part in as_list(value, place).segments))
    if isinstance(new, ListValue):
        return ListValue((*old.segments, *new.segments))
    return ListValue((*old.segments, single(as_instance(new, place))))


def _copied(machine: Machine, segment: Segment) -> Segment:
    """Copies of the elements, each with an identity of its own."""

    def copy(value: Value) -> Value:
        if isinstance(value, Union):
            return Union(value.tag, tuple(map(copy, value.options)))
        if not isinstance(value, Instance):
            return value
        identity = machine.fresh(kind_of(value))
        origin = "early" if machine.first_identity is None else "now"
        number = identity.number
        if number is not None:
            number = add(number, np.arange(segment.size, dtype=np.int32) % ROUNDS)
        return Instance(value.type, value.fields, Identity(frozenset([origin]), number))

    return Segment(copy(segment.elements), segment.mask, segment.size)


@native("removeObj", 1, 2)
def _remove(machine: Machine, place: Place, target: Value, *more: Value) -> Value:
    if not more:
        _undefine(machine, target)
        return target
    value, what = as_list(target, place), more[0]
    if isinstance(what, Function | Native | Method):
        return lists.filtered(
            machine, value, lambda item: call(machine, what, [item], place), place, keep=False
        )
    if isinstance(what, Instance):
        return lists.filtered(
            machine, value, lambda item: truth(_same(machine, item, what)), place, keep=False
        )
    gone = as_list(what, place)

    def among(item: Value) -> Value:
        return truth(
            lists.any_holds(machine, gone, lambda other: truth(_same(machine, item, other)), place)
        )

    return lists.filtered(machine, value, among, place, keep=False)


def _same(machine: Machine, left: Value, right: Value) -> Number:
    """Whether two values are one and the same instance."""
    if isinstance(left, Union):
        result = machine.over(left, lambda option: truth(_same(machine, option, right)))
        return result.number  # type: ignore[attr-defined]
    if isinstance(left, Instance) and isinstance(right, Instance):
        if left.type is not right.type:
            return False
        return same_identity(machine, left.identity, right.identity, kind_of(left))
    return left is right


def _undefine(machine: Machine, target: Value) -> None:
    """Remove the variable that holds an instance; for other values, the variable it came from."""
    frame = machine.globals
    left: Number = True
    for name, binding in frame.bindings.items():
        if isinstance(target, Instance):
            hit = _same(machine, binding.value, target)
        else:
            before = (machine.previous or {}).get(name)
            hit = target is binding.value or (before is not None and target is before.value)
        hit = both(left, both(hit, binding.present))
        if known(hit) and not hit:
            continue
        gone = Binding(binding.value, both(binding.present, invert(hit)))
        frame.bindings = {**frame.bindings, name: gone}
        left = both(left, invert(hit))
        if known(left) and not left:
            return


@native("prev", 1)
def _previous(machine: Machine, place: Place, what: Value) -> Value:
    if machine.previous is None:
        raise Failure(f"{place}: nothing is before the first step")
    if isinstance(what, Instance):
        return _previous_instance(machine, place, what)
    name = as_name(machine, what, place)
    binding = machine.previous.get(name)
    if binding is None:
        if name in machine.library:
            return machine.library[name]
        raise Failure(f"{place}: no variable '{name}' was there before this step")
    machine.fail_where(
        invert(binding.present), f"{place}: no variable '{name}' was there before this step"
    )
    return binding.value


def _previous_instance(machine: Machine, place: Place, what: Instance) -> Value:
    found: Number = False
    result: Value | None = None
    for binding in (machine.previous or {}).values():
        hit = both(_same(machine, binding.value, what), binding.present)
        if known(hit) and not hit:
            continue
        value, old = binding.value, result
        result = value if old is None else Select(hit).value(value, old)
        found = either(found, hit)
    message = f"{place}: this {type_name(what)} was in no variable before this step"
    if result is None:
        raise Failure(message)
    machine.fail_where(invert(found), message)
    return result


@native("defined", 1)
def _defined(machine: Machine, place: Place, what: Value) -> Value:
    name = as_name(machine, what, place)
    binding = machine.globals.bindings.get(name)
    return truth(name in machine.library if binding is None else binding.present)


@native("clicked", 0, 1)
def _clicked(machine: Machine, place: Place, *target: Value) -> Value:
    inputs = machine.inputs
    if inputs is None:
        return truth(False)
    _define_click(machine)
    if not target:
        return truth(inputs.clicked)
    there = collisions.covers_place(machine, target[0], inputs.x, inputs.y, place)
    return truth(both(inputs.clicked, there))


def _define_click(machine: Machine) -> None:
    """The variable `click`, which keeps the place of the last click that was asked about."""
    inputs = machine.inputs
    old = machine.globals.bindings.get("click")
    if old is not None and old.value is inputs.click:
        return
    new = position(machine, inputs.x, inputs.y)
    machine.define(machine.globals, "click", new, inputs.clicked)
    inputs.click = machine.globals.bindings["click"].value
    if isinstance(inputs.click, Instance) and inputs.click.type is POSITION:
        machine.on_grid.append(coordinates(inputs.click, Place(0, 0)))


def _arrow(name: str) -> None:
    @native(name, 0, ANY)
    def pressed(machine: Machine, _: Place, *__: Value) -> Value:
        return truth(False if machine.inputs is None else getattr(machine.inputs, name))


for _name in ("left", "right", "up", "down"):
    _arrow(_name)


@native("isFreePos", 1)
def _is_free_pos(machine: Machine, place: Place, where: Value) -> Value:
    if not isinstance(where, Instance) or where.type is not POSITION:
        raise Failure(f"{place}: isFreePos takes a Position, got a {type_name(where)}")
    return truth(collisions.is_free(machine, *coordinates(where, place)))


@native("isWithinBounds", 1)
def _within_bounds(machine: Machine, place: Place, value: Value) -> Value:
    return truth(collisions.within_bounds(machine, value, place))


@native("adjPositions", 1)
def _adjacent_positions(machine: Machine, place: Place, where: Value) -> Value:
    if not isinstance(where, Instance) or where.type is not POSITION:
        raise Failure(f"{place}: adjPositions takes a Position, got a {type_name(where)}")
    x, y = coordinates(where, place)
    edge = machine.grid_size
    sides = (
        ((add(x, -1), y), _between(x, 1, edge, y)),
        ((add(x, 1), y), _between(x, -1, edge - 2, y)),
        ((x, add(y, -1)), _between(y, 1, edge, x)),
        ((x, add(y, 1)), _between(y, -1, edge - 2, x)),
    )
    segments = []
    for pair, there in sides:
        there = both(there, _side_on_grid(pair, edge))
        segments.append(masked(single(position(machine, *pair)), there))
    return ListValue(tuple(segments))


def _between(value: Number, least: int, most: int, _: Number) -> Number:
    from jaxlab.envs.autumn.scalars import less

    return both(invert(less(value, least)), invert(less(most, value)))


def _side_on_grid(pair: tuple[Number, Number], edge: int) -> Number:
    from jaxlab.envs.autumn.occupancy import inside

    return inside(*pair, edge)


@native("allObjs", 0, ANY)
def _all_objects(machine: Machine, _: Place, *__: Value) -> Value:
    return all_objects(machine)


def all_objects(machine: Machine) -> ListValue:
    """The objects in all variables of the program, in the order of their definition."""
    segments: list[Segment] = []
    for name in machine.order:
        binding = machine.globals.bindings.get(name)
        if binding is not None and not (known(binding.present) and not binding.present):
            segments += [masked(part, binding.present) for part in _objects_in(binding.value)]
    return ListValue(tuple(segments))


def _objects_in(value: Value) -> list[Segment]:
    if isinstance(value, Instance) and value.type.has_cells:
        return [single(value)]
    if isinstance(value, Union):
        return [
            masked(part, equal(value.tag, index))
            for index, option in enumerate(value.options)
            for part in _objects_in(option)
        ]
    if not isinstance(value, ListValue):
        return []
    segments = []
    for segment in lists.alive(value):
        elements = segment.elements
        if isinstance(elements, Instance) and elements.type.has_cells:
            segments.append(segment)
        elif isinstance(elements, Union):
            segments += _options_of(segment, elements)
        elif isinstance(elements, ListValue) and elements.segments:
            segments += _objects_in(ListValue((lists.flattened(segment),)))
    return segments


def _options_of(segment: Segment, elements: Union) -> list[Segment]:
    """The places of a mixed list, class by class."""
    parts = []
    for index, option in enumerate(elements.options):
        if isinstance(option, Instance) and option.type.has_cells:
            here = equal(elements.tag, index)
            mask = np.full(segment.size, here) if known(here) else here
            parts.append(masked(Segment(option, segment.mask, segment.size), mask))
    return parts


@native("renderAll", 0, ANY)
def _render_all(machine: Machine, place: Place, *_: Value) -> Value:
    return rendered_list(machine, all_objects(machine), place)


@native("renderValue", 1, ANY)
def _render_value(machine: Machine, place: Place, value: Value, *_: Value) -> Value:
    return rendered_list(machine, value, place)


def rendered_list(machine: Machine, value: Value, place: Place) -> ListValue:
    """The elements drawn for an object or for the objects in a list."""
    if isinstance(value, ListValue):
        parts = lists.mapped(machine, value, lambda item: rendered_list(machine, item, place))
        return lists.concatenated(machine, parts, f"{place}: only objects are drawn")
    if isinstance(value, Union):
        result = machine.over(value, lambda option: rendered_list(machine, option, place))
        return as_list(result, place)
    return rendered(machine, as_instance(value, place))


@native("rotate", 1)
def _rotate(machine: Machine, place: Place, value: Value) -> Value:
    return rotated(machine, as_instance(value, place), place)
