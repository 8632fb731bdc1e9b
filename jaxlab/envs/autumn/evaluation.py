"""Expressions to values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn import objects, syntax
from jaxlab.envs.autumn.equality import equal_values
from jaxlab.envs.autumn.lists import list_of
from jaxlab.envs.autumn.machine import Machine
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import (
    add,
    at_most,
    choose,
    divide,
    equal,
    invert,
    known,
    less,
    multiply,
    negate,
    remainder,
    subtract,
)
from jaxlab.envs.autumn.scopes import Binding, Failure, Frame
from jaxlab.envs.autumn.values import (
    CELL,
    NOTHING,
    Constructor,
    Function,
    Instance,
    Method,
    Native,
    Scalar,
    Thunk,
    Union,
    Value,
    number,
    truth,
)

_COMPARISONS = {
    "<": less,
    ">": lambda left, right: less(right, left),
    "<=": at_most,
    ">=": lambda left, right: at_most(right, left),
}
_SUMS = {"+": add, "-": subtract, "*": multiply}


def evaluate(machine: Machine, expression: syntax.Expression) -> Value:
    """The value of an expression in the scopes of the machine."""
    return _RULES[type(expression)](machine, expression)


def call(machine: Machine, callee: Value, arguments: list[Value], place: Place) -> Value:
    """The value of a function on arguments."""
    if isinstance(callee, Union):
        return machine.over(callee, lambda option: call(machine, option, arguments, place))
    machine.enter(place)
    try:
        return _called(machine, callee, arguments, place)
    finally:
        machine.depth -= 1


def _called(machine: Machine, callee: Value, arguments: list[Value], place: Place) -> Value:
    if isinstance(callee, Function):
        lambda_ = callee.expression
        if len(arguments) < len(lambda_.parameters):
            raise Failure(
                f"{place}: a function of {len(lambda_.parameters)} parameter(s) is called with "
                f"{len(arguments)} argument(s)"
            )
        bindings = {
            name: Binding(value) for name, value in zip(lambda_.parameters, arguments, strict=False)
        }
        return scoped(machine, bindings, lambda: evaluate(machine, lambda_.body))
    if isinstance(callee, Native):
        return _native(machine, callee, arguments, place)
    if isinstance(callee, Method):
        return objects.rendered(machine, callee.instance)
    raise Failure(f"{place}: only functions and classes can be called")


def _native(machine: Machine, callee: Native, arguments: list[Value], place: Place) -> Value:
    if len(arguments) < callee.least or len(arguments) > callee.most:
        wanted = str(callee.least)
        if callee.most != callee.least:
            wanted += f" to {callee.most}"
        raise Failure(f"{place}: {callee.name} takes {wanted} argument(s), got {len(arguments)}")
    for index, argument in enumerate(arguments):
        if isinstance(argument, Union):

            def again(option: Value, index: int = index) -> Value:
                given = [*arguments[:index], option, *arguments[index + 1 :]]
                return _native(machine, callee, given, place)

            return machine.over(argument, again)
    return callee.body(machine, place, *arguments)


def scoped(
    machine: Machine,
    bindings: dict[str, Binding],
    body: Callable[[], Value],
    *,
    is_instance: bool = False,
) -> Value:
    """A body in a scope of its own inside the present one."""
    outer = machine.frame
    machine.frame = Frame(bindings, outer, is_instance=is_instance)
    try:
        return body()
    finally:
        machine.frame = outer


def _literal(machine: Machine, expression: syntax.Literal) -> Value:
    value = expression.value
    if isinstance(value, bool):
        return truth(value)
    return number(value) if isinstance(value, int) else machine.text(value)


def _variable(machine: Machine, expression: syntax.Variable) -> Value:
    return machine.lookup(expression.name, expression.place)


def _unary(machine: Machine, expression: syntax.Unary) -> Value:
    operator, place = expression.operator, expression.place

    def apply(value: Value) -> Value:
        kind = "Bool" if operator == "!" else "Number"
        if not isinstance(value, Scalar) or value.kind != kind:
            wanted = "truth value" if operator == "!" else "number"
            raise Failure(f"{place}: '{operator}' takes a {wanted}")
        if operator == "!":
            return truth(invert(value.number))
        return number(negate(value.number)) if operator == "-" else value

    return machine.over(evaluate(machine, expression.operand), apply)


def _binary(machine: Machine, expression: syntax.Binary) -> Value:
    left = evaluate(machine, expression.left)
    right = evaluate(machine, expression.right)
    operator, place = expression.operator, expression.place
    if operator in ("==", "!="):
        same = equal_values(machine, left, right)
        return truth(same if operator == "==" else invert(same))

    def apply(one: Value, other: Value) -> Value:
        for value in (one, other):
            if not isinstance(value, Scalar) or value.kind != "Number":
                raise Failure(f"{place}: '{operator}' takes two numbers")
        assert isinstance(one, Scalar)
        assert isinstance(other, Scalar)
        return _arithmetic(machine, operator, one.number, other.number, place)

    return machine.over(left, lambda one: machine.over(right, lambda other: apply(one, other)))


def _arithmetic(machine: Machine, operator: str, left: Any, right: Any, place: Place) -> Value:
    if operator in _SUMS:
        return number(_SUMS[operator](left, right))
    if operator in _COMPARISONS:
        return truth(_COMPARISONS[operator](left, right))
    zero = equal(right, 0)
    machine.fail_where(zero, f"{place}: '{operator}' by zero")
    right = right if known(right) else choose(zero, 1, right)
    return number(divide(left, right) if operator == "/" else remainder(left, right))


def _logical(machine: Machine, expression: syntax.Logical) -> Value:
    def operand(part: syntax.Expression) -> Any:
        value = evaluate(machine, part)
        if isinstance(value, Function | Native | Method):
            value = call(machine, value, [], part.place)
        return machine.truthy(value, part.place)

    def right() -> Value:
        return truth(operand(expression.right))

    left = operand(expression.left)
    if expression.operator == "and":
        return machine.branch(left, right, lambda: truth(False))
    return machine.branch(left, lambda: truth(True), right)


def _if(machine: Machine, expression: syntax.If) -> Value:
    condition = machine.truthy(evaluate(machine, expression.condition), expression.place)
    return machine.branch(
        condition,
        lambda: evaluate(machine, expression.on_true),
        lambda: evaluate(machine, expression.on_false),
    )


def _let(machine: Machine, expression: syntax.Let) -> Value:
    def body() -> Value:
        value: Value = NOTHING
        for part in expression.body:
            value = evaluate(machine, part)
        return value

    return scoped(machine, {}, body)


def _lambda(_: Machine, expression: syntax.Lambda) -> Value:
    return Function(expression)


def _list(machine: Machine, expression: syntax.ListOf) -> Value:
    return list_of([evaluate(machine, item) for item in expression.items])


def _get(machine: Machine, expression: syntax.Get) -> Value:
    place, field = expression.place, expression.field

    def apply(value: Value) -> Value:
        if not isinstance(value, Instance):
            raise Failure(f"{place}: only instances have fields")
        if field == "render" and value.type.has_cells:
            return Method(value)
        if field not in value.fields:
            raise Failure(f"{place}: {value.type.name} has no field '{field}'")
        if field == "elems":
            return objects.cell_list(machine, value)
        return value.fields[field]

    return machine.over(evaluate(machine, expression.instance), apply)


def _assign(machine: Machine, expression: syntax.Assign) -> Value:
    if isinstance(expression.value, syntax.InitNext):
        raise ProgramError(f"{expression.place}: initnext stands only at the top of a program")
    value = evaluate(machine, expression.value)
    if value is NOTHING:
        raise Failure(f"{expression.place}: no value for '{expression.name}'")
    return machine.assign(expression.name, value, expression.place)


def _set_field(_: Machine, expression: syntax.SetField) -> Value:
    raise ProgramError(
        f"{expression.place}: a field cannot be changed in place; use "
        f'(updateObj OBJECT "{expression.field}" VALUE)'
    )


def _initnext(_: Machine, expression: syntax.InitNext) -> Value:
    raise ProgramError(f"{expression.place}: initnext stands only in (= NAME (initnext ...))")


def _declaration(machine: Machine, expression: syntax.Declaration) -> Value:
    check_type(machine, expression.type, expression.place)
    frame = machine.frame
    frame.types = {**frame.types, expression.name: expression.type}
    return NOTHING


def check_type(machine: Machine, declared: syntax.Type, place: Place) -> None:
    """Fail where a type is neither one of the language's nor a class of the program."""
    if declared.element is not None:
        return check_type(machine, declared.element, place)
    if declared.name not in objects.TYPES and declared.name not in machine.classes:
        raise Failure(f"{place}: the type '{declared.name}' is not defined")
    return None


def _call(machine: Machine, expression: syntax.Call) -> Value:
    place = expression.place
    callee = evaluate(machine, expression.callee)
    if isinstance(callee, Constructor):
        if callee.type is CELL:
            return objects.cell(machine, expression)
        given = [evaluate(machine, argument) for argument in expression.arguments]
        return objects.construct(machine, callee.type, given, place)
    if isinstance(callee, Thunk):
        return objects.forced(machine, callee, None)
    if isinstance(callee, Native) and callee.name == "prev" and len(expression.arguments) == 1:
        (argument,) = expression.arguments
        if isinstance(argument, syntax.Variable):
            return callee.body(machine, place, machine.text(argument.name))
    given = [evaluate(machine, argument) for argument in expression.arguments]
    return call(machine, callee, given, place)


_RULES: dict[type, Callable[..., Value]] = {
    syntax.Literal: _literal,
    syntax.Variable: _variable,
    syntax.Unary: _unary,
    syntax.Binary: _binary,
    syntax.Logical: _logical,
    syntax.If: _if,
    syntax.Let: _let,
    syntax.Lambda: _lambda,
    syntax.ListOf: _list,
    syntax.Get: _get,
    syntax.Assign: _assign,
    syntax.SetField: _set_field,
    syntax.InitNext: _initnext,
    syntax.Declaration: _declaration,
    syntax.Call: _call,
}
objects.EVALUATE.append(evaluate)
