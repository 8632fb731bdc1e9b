"""A function on every element of a list: known, side by side, or one after the other.

Elements that are known while tracing are walked one by one, so that what they give is
known too. Else the rounds run side by side in a `vmap`, unless one round changes what the
next one sees (a variable, the reference generator's state): then they follow each other,
unrolled where they are few and in a `scan` where they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn.combining import fused, mask_of, single
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.randomness import KeyRandom, LaneRandom, NoLaneRandom, OrderMatters
from jaxlab.envs.autumn.scalars import (
    add,
    any_of,
    array,
    choose,
    equal,
    is_traced,
    known,
    multiply,
    plain,
)
from jaxlab.envs.autumn.scopes import Binding, Failure
from jaxlab.envs.autumn.structures import Fitting, Join, equal_structures, varying
from jaxlab.envs.autumn.values import (
    ELEMENT,
    NOTHING,
    Identity,
    Instance,
    ListValue,
    Scalar,
    Segment,
    Value,
    element,
    leaves,
    map_leaves,
)

Body = Callable[[Value], Value]

#: Known elements that are walked one by one, and rounds that are unrolled.
MOST_KNOWN = 1024
FEW = 8


def for_each(machine: Machine, segment: Segment, body: Body) -> Value:
    """The values of `body` on the elements of a segment, with a leading axis of its size.

    Where an element is not alive its value means nothing, and it has no effect.
    """
    if segment.size == 1:
        return _one(machine, segment, body)
    start = machine.save()
    if _is_known(segment) and segment.size <= MOST_KNOWN:
        values = _while_known(machine, segment, body)
        if values is not None:
            return values
        machine.restore(start)
    try:
        return _side_by_side(machine, segment, body)
    except OrderMatters as effect:
        machine.restore(start)
        changed = effect.args[0] if effect.args else frozenset()
    if segment.size <= FEW:
        return _unrolled(machine, segment, body)
    return _in_order(machine, segment, body, changed, None)[0]


def fold(
    machine: Machine, value: ListValue, first: Value, body: Callable[[Value, Value], Value]
) -> Value:
    """The last of the values that `body` makes of the one before and the next element."""
    total = first
    for segment in value.segments:
        if segment.size <= FEW or (_is_known(segment) and segment.size <= 64):
            for index in range(segment.size):
                total = _folded(machine, segment, index, total, body)
        else:
            total = _in_order(machine, segment, body, frozenset(), total)[1]
    return total


def _folded(
    machine: Machine,
    segment: Segment,
    index: int,
    total: Value,
    body: Callable[[Value, Value], Value],
) -> Value:
    item = element(segment.elements, index)
    alive = True if segment.mask is None else plain(segment.mask[index])
    return machine.branch(alive, lambda: body(total, item), lambda: total)


def _is_known(segment: Segment) -> bool:
    mask = segment.mask
    if mask is not None and not (isinstance(mask, np.ndarray) and mask.all()):
        return False
    return not any(map(is_traced, leaves(segment.elements)))


def _one(machine: Machine, segment: Segment, body: Body) -> Value:
    item = element(segment.elements, 0)
    alive = True if segment.mask is None else plain(segment.mask[0])
    value = machine.only_if(alive, lambda: body(item))
    return single(value).elements


def _while_known(machine: Machine, segment: Segment, body: Body) -> Value | None:
    """The values one by one as long as they are known and change nothing."""
    values = []
    scopes = machine.save().scopes
    for index in range(segment.size):
        values.append(body(element(segment.elements, index)))
        if any(map(is_traced, leaves(values[-1]))) or _touched(scopes, machine.save().scopes):
            return None
    return fused(ListValue(tuple(map(single, values)))).elements


def _touched(before: Any, after: Any) -> frozenset[tuple[Any, str]]:
    """The variables that differ between two snapshots of the same scopes."""
    changed = set()
    for (frame, old, _), (_, new, _) in zip(before, after, strict=True):
        if old is not new:
            names = {**old, **new}
            changed |= {(frame, name) for name in names if old.get(name) is not new.get(name)}
    return frozenset(changed)


def _unrolled(machine: Machine, segment: Segment, body: Body) -> Value:
    parts = []
    for index in range(segment.size):
        mask = None if segment.mask is None else segment.mask[index : index + 1]
        place = single(element(segment.elements, index)).elements
        parts.append(Segment(_one(machine, Segment(place, mask, 1), body), None, 1))
    return fused(ListValue(tuple(parts))).elements


def _side_by_side(machine: Machine, segment: Segment, body: Body) -> Value:
    size, start = segment.size, machine.save()
    outer = (machine.random, machine.lanes, machine.lane, machine.lane_traces)
    mask = mask_of(segment)
    sides: dict[str, Any] = {}

    def run(words: list[Any] | None) -> tuple[Value, Any]:
        def one(item: Value, index: Any, drawn: Any) -> tuple[Value, Any]:
            machine.restore(start)
            machine.error = 0
            machine.random = NoLaneRandom() if outer[0].in_order else LaneRandom(drawn)
            machine.lanes = outer[1] * size
            machine.lane_traces = (*outer[3], getattr(index, "_trace", None))
            machine.lane = index if outer[2] is None else add(multiply(outer[2], size), index)
            value = _resolved(machine, body(item))
            after = machine.save()
            changed = _touched(start.scopes, after.scopes)
            if changed:
                raise OrderMatters(changed)
            sides["random"], sides["error"] = machine.random, machine.error
            return value, array(machine.error)

        indices = np.arange(size, dtype=np.int32)
        return jax.vmap(one, axis_size=size)(segment.elements, indices, words)

    try:
        value, errors = run(None)
        plan = getattr(sides["random"], "plan", [])
        if plan:
            assert isinstance(outer[0], KeyRandom)
            words = [outer[0].bits(machine, (size, *shape)) for shape in plan]
            value, errors = run(words)
    except Failure as failure:
        machine.restore(start)
        machine.fail_where(any_of(mask), str(failure))
        return NOTHING
    finally:
        machine.random, machine.lanes, machine.lane, machine.lane_traces = outer
        machine.restore(start)
    if not known(sides["error"]) or sides["error"]:
        _note(machine, choose(mask, errors, 0))
    return value


def _note(machine: Machine, codes: Any) -> None:
    """Note the error of any of the rounds."""
    worst = lax.reduce_max(codes, (0,))
    machine.error = choose(equal(machine.error, 0), worst, machine.error)


def _resolved(machine: Machine, value: Value) -> Value:
    """An object with its cells as they were rotated in this round."""
    if not machine.turned or not isinstance(value, Instance) or "elems" not in value.fields:
        return value
    cells = machine.current(value.fields["elems"])  # type: ignore[arg-type]
    return Instance(value.type, {**value.fields, "elems": cells}, value.identity)


_NOBODY = Identity(frozenset(), None)


def _in_order(
    machine: Machine,
    segment: Segment,
    body: Callable[..., Value],
    changed: frozenset[tuple[Any, str]],
    total: Value | None,
) -> tuple[Value, Value]:
    """The values of the rounds, and the total of a fold, in a `scan`."""
    start = machine.save()
    outer = (machine.lanes, machine.lane)
    names = sorted(changed, key=lambda pair: pair[1])
    carry = _carried(machine, names, total)
    structure = varying(_without_constants(carry))
    mask = mask_of(segment)
    indices = np.arange(segment.size, dtype=np.int32)

    def one(before: Value, item: Value, alive: Any, index: Any) -> tuple[Value, Value]:
        machine.restore(start)
        machine.lane = index if outer[1] is None else add(multiply(outer[1], segment.size), index)
        assert isinstance(before, Instance)
        _put_back(machine, names, before)
        if total is None:
            value = machine.only_if(alive, lambda: body(item))
            return _carried(machine, names, None), _resolved(machine, value)
        now = before.fields["total"]
        now = machine.branch(alive, lambda: body(now, item), lambda: now)
        return _carried(machine, names, now), NOTHING

    def trace(state: Value) -> Value:
        found: list[Value] = []

        def probe(before: Value, item: Value, alive: Any, index: Any) -> tuple[Any, ...]:
            after, _ = one(before, item, alive, index)
            found.append(varying(Join(machine.capacity).value(state, after)))
            return ()

        first = map_leaves(lambda leaf: leaf[0], (segment.elements, mask, indices))
        jax.eval_shape(probe, state, *first)
        return found[0]

    try:
        for _ in range(6):
            wider = trace(structure)
            if equal_structures(structure, wider):
                break
            structure = wider
        else:
            raise ProgramError("a loop changes the kind of a variable in every round")
        fitting = Fitting()
        init = fitting.value(carry, structure)

        def step(before: Value, xs: Any) -> tuple[Value, Value]:
            after, value = one(before, *xs)
            return map_leaves(jax.numpy.asarray, Fitting().value(after, structure)), value

        init = map_leaves(jax.numpy.asarray, init)
        last, values = lax.scan(step, init, (segment.elements, mask, indices))
    finally:
        machine.restore(start)
        machine.lanes, machine.lane = outer
    _put_back(machine, names, last)
    return values, last.fields.get("total", NOTHING)


def _without_constants(carry: Value) -> Value:
    return map_leaves(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), carry)


def _carried(machine: Machine, names: list[tuple[Any, str]], total: Value | None) -> Instance:
    """All that a round may change, as one value."""
    fields: dict[str, Value] = {"error": Scalar("Number", machine.error)}
    if machine.random_state is not None:
        fields["random"] = Scalar("Number", machine.random_state)
    for index, (frame, name) in enumerate(names):
        binding = frame.bindings.get(name)
        if binding is None:
            raise ProgramError(f"a loop over a long list defines the new variable '{name}'")
        fields[f"value {index}"] = binding.value
        fields[f"present {index}"] = Scalar("Bool", binding.present)
        fields[f"updated {index}"] = Scalar("Bool", machine.updated.get(name, False))
    if total is not None:
        fields["total"] = total
    return Instance(ELEMENT, fields, _NOBODY)


def _put_back(machine: Machine, names: list[tuple[Any, str]], carry: Any) -> None:
    machine.error = carry.fields["error"].number
    if "random" in carry.fields:
        machine.random_state = carry.fields["random"].number
    for index, (frame, name) in enumerate(names):
        value, present, updated = (
            carry.fields[f"{part} {index}"] for part in ("value", "present", "updated")
        )
        frame.bindings = {**frame.bindings, name: Binding(value, present.number)}
        if frame is machine.globals:
            machine.updated = {**machine.updated, name: updated.number}
