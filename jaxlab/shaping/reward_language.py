"""The language of reward functions: a small part of Python, read and never executed.

    def reward(queue, speed):
        jam = where(queue > 0.5, queue, 0.0)
        return 0.3 * speed - tanh(2.0 * jam)

One function over features that the environment offers by name. It may assign local
variables and must end with one return. Expressions are made of numbers, features, local
variables, `+ - * /`, `** 2`, `** 0.5`, comparisons, `and or not`, `a if condition else b`,
and the functions of `FUNCTIONS`. Everything else in Python is out of scope, and refused
with a message that says what to write instead.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_program import Instruction, Op, RewardFunction
from jaxlab.shaping.reward_source import (
    ADVICE,
    Limits,
    normalised,
    only_function,
    refused,
    syntax_tree,
)

#: Functions with the smallest and largest number of arguments.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "where": (3, 3),
    "min": (2, 16),
    "max": (2, 16),
    "clip": (3, 3),
    "tanh": (1, 1),
    "exp": (1, 1),
    "log": (1, 1),
    "log1p": (1, 1),
    "sqrt": (1, 1),
    "abs": (1, 1),
    "mean": (1, 16),
    "sum": (1, 16),
}
_BINARY: dict[type[ast.AST], Op] = {
    ast.Add: Op.ADD,
    ast.Sub: Op.SUBTRACT,
    ast.Mult: Op.MULTIPLY,
    ast.Div: Op.DIVIDE,
}
_SINGLE = {name: Op[name.upper()] for name in ("tanh", "exp", "log", "log1p", "sqrt", "abs")}


def parse_reward(
    source: str,
    catalogue: FeatureCatalogue,
    *,
    name: str = "reward",
    limits: Limits | None = None,
) -> RewardFunction:
    """Read a reward function and lower it to a program.

    Args:
      source: Python text with one function `name` whose parameters are features.
      catalogue: The features there are.
      name: Name of the function.
      limits: Sizes.

    Raises:
      RewardError: The text is not in the language or too large. The message names the line
        and what to write instead, fit to be put into the next prompt.
    """
    limits = limits or Limits()
    source = normalised(source, limits)
    function = only_function(syntax_tree(source, limits), name)
    value = _Reader(catalogue, limits).body(function)
    return RewardFunction(source, catalogue.names, _instructions(value))


def reward_terms(
    source: str,
    catalogue: FeatureCatalogue,
    *,
    name: str = "reward",
    limits: Limits | None = None,
) -> dict[str, RewardFunction]:
    """The summands of what a reward function returns, by their text, for statistics of each.

    Raises:
      RewardError: As `parse_reward` does.
    """
    limits = limits or Limits()
    source = normalised(source, limits)
    function = only_function(syntax_tree(source, limits), name)
    reader, terms = _Reader(catalogue, limits), {}
    reader.body(function)
    reader.constants = 0
    for term in _summands(function.body[-1].value):  # type: ignore[attr-defined]
        text = ast.unparse(term)
        instructions = _instructions(reader.expression(term))
        terms[text] = RewardFunction(text, catalogue.names, instructions)
    return terms


def _summands(node: ast.expr, negative: bool = False) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        flipped = negative != isinstance(node.op, ast.Sub)
        return _summands(node.left, negative) + _summands(node.right, flipped)
    if not negative:
        return [node]
    return [ast.copy_location(ast.UnaryOp(ast.USub(), node), node)]


@dataclasses.dataclass(frozen=True)
class _Value:
    """An expression; parts are shared, so sizes are counted without writing it out.

    Attributes:
      truth: Whether it is a truth value, 0 or 1.
      size: Instructions it takes.
    """

    op: Op
    parts: tuple[_Value, ...] = ()
    value: float | int = 0
    truth: bool = False

    @functools.cached_property
    def size(self) -> int:
        return 1 + sum(part.size for part in self.parts)


def _instructions(value: _Value) -> tuple[Instruction, ...]:
    parts = [instruction for part in value.parts for instruction in _instructions(part)]
    return (*parts, (value.op, value.value))


class _Reader:
    def __init__(self, catalogue: FeatureCatalogue, limits: Limits):
        self.catalogue, self.limits = catalogue, limits
        self.names: dict[str, _Value] = {}
        self.constants = 0

    def body(self, function: ast.FunctionDef) -> _Value:
        for parameter in function.args.args:
            if parameter.arg not in self.catalogue.names:
                raise refused(
                    parameter,
                    f"parameter '{parameter.arg}' is no feature; "
                    f"there are {', '.join(self.catalogue.names)}",
                )
            if parameter.arg in self.names:
                raise refused(parameter, f"parameter '{parameter.arg}' occurs twice")
            column = self.catalogue.names.index(parameter.arg)
            self.names[parameter.arg] = _Value(Op.FEATURE, value=column)
        *assignments, final = function.body
        for statement in assignments:
            self.assign(statement)
        if not isinstance(final, ast.Return):
            raise refused(final, "the last statement must return a number")
        if final.value is None:
            raise refused(final, "return needs a number")
        return self.expression(final.value)

    def assign(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return):
            raise refused(statement, "one return only, as the last statement")
        if isinstance(statement, ast.AugAssign):
            left = ast.copy_location(ast.Name("", ast.Load()), statement)
            left.id = getattr(statement.target, "id", "")
            target: ast.expr = statement.target
            value: ast.expr = ast.copy_location(
                ast.BinOp(left, statement.op, statement.value), statement
            )
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        else:
            raise refused(statement)
        if not isinstance(target, ast.Name):
            raise refused(target)
        if target.id in FUNCTIONS or target.id.startswith("_"):
            raise refused(target, f"'{target.id}' cannot be assigned; take another name")
        self.names[target.id] = self.expression(value)

    def expression(self, node: ast.expr) -> _Value:
        readers: dict[type[ast.AST], Callable[[Any], _Value]] = {
            ast.Constant: self.constant,
            ast.Name: self.variable,
            ast.BinOp: self.binary,
            ast.UnaryOp: self.unary,
            ast.BoolOp: self.logical,
            ast.Compare: self.comparison,
            ast.IfExp: lambda n: self.where(n.test, n.body, n.orelse),
            ast.Call: self.call,
        }
        if type(node) not in readers:
            raise refused(node)
        value = readers[type(node)](node)
        if value.size > self.limits.instructions:
            raise refused(
                node,
                f"this takes more than {self.limits.instructions} operations once local "
                "variables are written out; use them less often",
            )
        return value

    def truth(self, node: ast.expr) -> _Value:
        value = self.expression(node)
        if not value.truth:
            raise refused(node, "a condition must compare, as in queue > 0.5")
        return value

    def constant(self, node: ast.Constant) -> _Value:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            kind = "a string" if isinstance(value, str | bytes) else repr(value)[:20]
            raise refused(node, f"{kind} is no number; write a plain number such as 0.5")
        largest = self.limits.largest_constant
        # NaN cannot be written; an int too large for a float compares all the same.
        if not abs(value) <= largest:
            raise refused(node, f"a constant is beyond {largest:g}; features are about 0 to 1")
        self.constants += 1
        if self.constants > self.limits.constants:
            raise refused(node, f"more than {self.limits.constants} constants; use fewer")
        return _Value(Op.CONSTANT, value=float(np.float32(value)))

    def variable(self, node: ast.Name) -> _Value:
        if node.id in self.names:
            return self.names[node.id]
        if node.id in self.catalogue.names:
            raise refused(node, f"feature '{node.id}' is not among the parameters; add it")
        if node.id in FUNCTIONS:
            raise refused(node, f"'{node.id}' is a function; call it")
        known = ", ".join(self.catalogue.names)
        raise refused(node, f"name '{node.id[:40]}' is unknown; features are {known}")

    def binary(self, node: ast.BinOp) -> _Value:
        if isinstance(node.op, ast.Pow):
            exponent = node.right.value if isinstance(node.right, ast.Constant) else None
            if isinstance(exponent, bool) or exponent not in (2, 0.5):
                raise refused(node, "only ** 2 and ** 0.5 exist; write x * x * x, or exp")
            op = Op.SQUARE if exponent == 2 else Op.SQRT
            return _Value(op, (self.expression(node.left),))
        if type(node.op) not in _BINARY:
            kind = type(node.op).__name__
            raise refused(node, f"operator {kind} is refused; there are + - * / ** 2 ** 0.5")
        left, right = self.expression(node.left), self.expression(node.right)
        return _Value(_BINARY[type(node.op)], (left, right))

    def unary(self, node: ast.UnaryOp) -> _Value:
        if isinstance(node.op, ast.Not):
            return _negation(self.truth(node.operand))
        if isinstance(node.op, ast.Invert):
            raise refused(node, "operator ~ is refused; write not")
        value = self.expression(node.operand)
        if isinstance(node.op, ast.UAdd):
            return dataclasses.replace(value, truth=False)
        if value.op == Op.CONSTANT:
            return _Value(Op.CONSTANT, value=-value.value)
        return _Value(Op.NEGATE, (value,))

    def logical(self, node: ast.BoolOp) -> _Value:
        op = Op.MIN if isinstance(node.op, ast.And) else Op.MAX
        values = [self.truth(value) for value in node.values]
        return functools.reduce(lambda a, b: _Value(op, (a, b), truth=True), values)

    def comparison(self, node: ast.Compare) -> _Value:
        operands = [self.expression(value) for value in (node.left, *node.comparators)]
        parts = [
            self.compared(node, op, a, b)
            for op, a, b in zip(node.ops, operands, operands[1:], strict=False)
        ]
        return functools.reduce(lambda a, b: _Value(Op.MIN, (a, b), truth=True), parts)

    def compared(self, node: ast.expr, op: ast.cmpop, a: _Value, b: _Value) -> _Value:
        if isinstance(op, ast.Lt | ast.LtE):
            kind = Op.LESS if isinstance(op, ast.Lt) else Op.LESS_EQUAL
            return _Value(kind, (a, b), truth=True)
        if isinstance(op, ast.Gt | ast.GtE):
            kind = Op.LESS if isinstance(op, ast.Gt) else Op.LESS_EQUAL
            return _Value(kind, (b, a), truth=True)
        if isinstance(op, ast.Eq):
            return _Value(Op.EQUAL, (a, b), truth=True)
        if isinstance(op, ast.NotEq):
            return _negation(_Value(Op.EQUAL, (a, b), truth=True))
        name = type(op).__name__
        raise refused(node, f"comparison {name} is refused; there are < <= > >= == !=")

    def where(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> _Value:
        condition, yes, no = self.truth(test), self.expression(body), self.expression(orelse)
        return _Value(Op.WHERE, (condition, yes, no), truth=yes.truth and no.truth)

    def call(self, node: ast.Call) -> _Value:
        if not isinstance(node.func, ast.Name):
            raise refused(node.func)
        name = node.func.id
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise refused(node, f"function '{name[:40]}' is unknown; there are {known}")
        if node.keywords:
            raise refused(node, f"{name} takes its arguments by position, without names")
        least, most = FUNCTIONS[name]
        for argument in node.args:
            if type(argument) in ADVICE:
                raise refused(argument)
        if not least <= len(node.args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise refused(node, f"{name} takes {wanted} arguments, not {len(node.args)}")
        if name == "where":
            return self.where(*node.args)
        values = [self.expression(argument) for argument in node.args]
        if name in _SINGLE:
            return _Value(_SINGLE[name], (values[0],))
        if name == "clip":
            return _Value(Op.MIN, (_Value(Op.MAX, (values[0], values[1])), values[2]))
        op = {"min": Op.MIN, "max": Op.MAX}.get(name, Op.ADD)
        total = functools.reduce(lambda a, b: _Value(op, (a, b)), values)
        if name == "mean":
            count = _Value(Op.CONSTANT, value=float(len(values)))
            return _Value(Op.DIVIDE, (total, count))
        return dataclasses.replace(total, truth=False)


def _negation(value: _Value) -> _Value:
    one = _Value(Op.CONSTANT, value=1.0)
    return _Value(Op.SUBTRACT, (one, value), truth=True)
