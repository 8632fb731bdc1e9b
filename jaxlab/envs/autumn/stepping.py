"""A program's start and one step of it, in a machine."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence

import jax
import numpy as np
from jax import lax

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn import syntax
from jaxlab.envs.autumn.evaluation import call, check_type, evaluate
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.scalars import Number, both, choose, equal, invert, known
from jaxlab.envs.autumn.scopes import Binding, Failure
from jaxlab.envs.autumn.values import (
    CELL,
    ELEMENT,
    NOTHING,
    POSITION,
    Cells,
    Function,
    Instance,
    Method,
    Native,
    ObjectClass,
    Scalar,
    Value,
)

#: Kinds of action, by their number in an action `[kind, x, y]`.
ACTIONS = ("noop", "left", "right", "up", "down", "click")

#: A state variable: its name, its first value, and its value in later steps.
StateVariable = tuple[str, syntax.Expression, syntax.Expression]


def begin(machine: Machine, program: syntax.Program, states: list[StateVariable]) -> None:
    """Run the statements, then the first values of the state variables."""
    machine.classes = {"Position": POSITION, "Cell": CELL, "RenderedElem": ELEMENT}
    try:
        for statement in program.statements:
            _execute(machine, statement)
        for name, initial, _ in states:
            value = evaluate(machine, initial)
            if value is NOTHING:
                raise Failure(f"{initial.place}: no first value for '{name}'")
            machine.define(machine.globals, name, value)
    except Failure as failure:
        raise ProgramError(f"the program fails at its start: {failure}") from None
    _turn(machine)
    # It must be known from the start.
    _ = machine.grid_size


def advance(
    machine: Machine,
    clauses: list[syntax.OnStatement],
    states: list[StateVariable],
    condition: syntax.Expression | None,
    action: jax.Array,
) -> Number:
    """One step: the clauses in their order, then the next-expressions.

    Returns whether the condition, if there is one, holds at the start.
    """
    kinds = {name: lax.eq(action[0], np.int32(n)) for n, name in enumerate(ACTIONS)}
    machine.inputs = types.SimpleNamespace(
        clicked=kinds["click"],
        x=action[1],
        y=action[2],
        click=None,
        **{name: kinds[name] for name in ("left", "right", "up", "down")},
    )
    triggered: Number = False
    try:
        if condition is not None:
            value = evaluate(machine, condition)
            triggered = machine.truthy(value, condition.place)
        for clause in clauses:
            body = functools.partial(evaluate, machine, clause.body)
            machine.only_if(_holds(machine, clause), body)
        for name, _, following in states:
            _next(machine, name, following)
    except Failure as failure:
        machine.frame = machine.globals
        code = machine.facts.message(str(failure))
        machine.error = choose(equal(machine.error, 0), code, machine.error)
    _turn(machine)
    return triggered


def _holds(machine: Machine, clause: syntax.OnStatement) -> Number:
    place = clause.condition.place

    def boolean(value: Value) -> Value:
        if isinstance(value, Function | Native | Method):
            value = call(machine, value, [], place)
        if not isinstance(value, Scalar) or value.kind != "Bool":
            raise Failure(f"{place}: the condition of an on clause is no truth value")
        return value

    result = machine.over(evaluate(machine, clause.condition), boolean)
    assert isinstance(result, Scalar)
    return result.number


def _next(machine: Machine, name: str, following: syntax.Expression) -> None:
    binding = machine.globals.bindings.get(name)
    if binding is None:
        return
    runs = both(invert(machine.updated.get(name, False)), binding.present)

    def assign() -> Value:
        value = evaluate(machine, following)
        if value is NOTHING:
            raise Failure(f"{following.place}: no next value for '{name}'")
        return machine.assign(name, value, following.place, declared=False)

    if not (known(runs) and not runs):
        machine.only_if(runs, assign)


def _turn(machine: Machine) -> None:
    """Leave the rotations of this step in the objects."""
    if not machine.turned:
        return

    def turned(value: Value) -> Value:
        if isinstance(value, Instance) and isinstance(value.fields.get("elems"), Cells):
            cells = machine.current(value.fields["elems"])  # type: ignore[arg-type]
            return Instance(value.type, {**value.fields, "elems": cells}, value.identity)
        return value

    machine.globals.bindings = {
        name: Binding(turned(binding.value), binding.present)
        for name, binding in machine.globals.bindings.items()
    }
    machine.turned = {}


def _execute(machine: Machine, statement: syntax.Statement) -> None:
    """A statement at the start of a program."""
    if isinstance(statement, syntax.OnStatement):
        return
    if isinstance(statement, syntax.ObjectStatement):
        for field in statement.fields:
            check_type(machine, field.type, field.place)
        machine.classes[statement.name] = _class_of(statement)
        return
    if isinstance(statement, syntax.Assign) and isinstance(statement.value, syntax.InitNext):
        return
    evaluate(machine, statement)


@functools.lru_cache(maxsize=4096)
def _class_of(statement: syntax.ObjectStatement) -> ObjectClass:
    """The class that a statement describes: one object, however often it is executed."""
    names = (*(field.name for field in statement.fields), "origin")
    kinds = (*(field.type for field in statement.fields), syntax.Type("Position"))
    return ObjectClass(statement.name, names, kinds, statement.cells)


def declared(program: syntax.Program) -> list[tuple[str, syntax.Expression, syntax.Expression]]:
    """State variables in the order of their declaration."""
    return [
        (s.name, s.value.initial, s.value.following)
        for s in program.statements
        if isinstance(s, syntax.Assign) and isinstance(s.value, syntax.InitNext)
    ]


def state_variables(
    program: syntax.Program, order: Sequence[str] | None
) -> list[tuple[str, syntax.Expression, syntax.Expression]]:
    found = declared(program)
    if order is None:
        return found
    names = [name for name, *_ in found]
    if sorted(order) != sorted(names):
        raise ProgramError(
            f"next_order: expected the state variables {', '.join(names)}, each once, "
            f"got {', '.join(order)}"
        )
    return sorted(found, key=lambda state: list(order).index(state[0]))
