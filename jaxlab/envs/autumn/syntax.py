"""Grammar of the language: nodes of the reader to statements and expressions.

The dialect is the one of the reference interpreter: `(f)` is the variable `f`, a call
without arguments is `((f))`, operators take two operands, `then` and `else` only mark
places, and whatever follows the first body of an `on` clause is ignored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn.reader import Atom, Form, Node, Place, read

BINARY = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=")
LOGICAL = {"&": "and", "&&": "and", "and": "and", "|": "or", "||": "or", "or": "or"}
UNARY = ("-", "+", "!")
KEYWORDS = ("object", "on", "program", "then", "else", "nil")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"([+-]?)([0-9]+)(\.[0-9]*)?")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Expression:
    """Base of expressions; `place` is where it stands."""

    place: Place


@dataclasses.dataclass(frozen=True, eq=False)
class Literal(Expression):
    """An integer, a truth value or a string."""

    value: int | bool | str


@dataclasses.dataclass(frozen=True, eq=False)
class Variable(Expression):
    """A name."""

    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class Unary(Expression):
    """`-`, `+` or `!` of one operand."""

    operator: str
    operand: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class Binary(Expression):
    """Arithmetic or comparison."""

    operator: str
    left: Expression
    right: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class Logical(Expression):
    """`and` or `or`, which leave out the right side where the left one decides."""

    operator: str
    left: Expression
    right: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class If(Expression):
    """One of two expressions."""

    condition: Expression
    on_true: Expression
    on_false: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class Let(Expression):
    """A sequence in a scope of its own; its value is the last one's."""

    body: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Lambda(Expression):
    """A function; it keeps no environment."""

    parameters: tuple[str, ...]
    body: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class ListOf(Expression):
    """A list of the values of expressions."""

    items: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Get(Expression):
    """A field of an instance."""

    instance: Expression
    field: str


@dataclasses.dataclass(frozen=True, eq=False)
class Assign(Expression):
    """A value for a name."""

    name: str
    value: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class SetField(Expression):
    """A value for a field, in place."""

    instance: Expression
    field: str
    value: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class InitNext(Expression):
    """First value of a state variable, and its value at every later step."""

    initial: Expression
    following: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class Call(Expression):
    """A function, or the name of a class, on arguments."""

    callee: Expression
    arguments: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True)
class Type:
    """A type by name; `element` is the type of the elements of a `List`."""

    name: str
    element: Type | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Declaration(Expression):
    """`(: name Type)`."""

    name: str
    type: Type


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectStatement:
    """A class of objects: fields with types, and the expression of its cells."""

    name: str
    fields: tuple[Declaration, ...]
    cells: Expression
    place: Place


@dataclasses.dataclass(frozen=True, eq=False)
class OnStatement:
    """What happens where a condition holds."""

    condition: Expression
    body: Expression
    place: Place


Statement = ObjectStatement | OnStatement | Expression


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """The statements of a program, in their order."""

    statements: tuple[Statement, ...]
    source: str


def parse(text: str) -> Program:
    """The program of a text `(program STATEMENT ...)`.

    Raises:
      ProgramError: the text is no program; the message begins with line and column.
    """
    nodes = read(text)
    if not nodes or not isinstance(nodes[0], Form) or not nodes[0].items:
        place = nodes[0].place if nodes else Place(1, 1)
        raise ProgramError(f"{place}: expected (program STATEMENT ...)")
    return Program(tuple(_statement(node) for node in nodes[0].items[1:]), text)


def parse_expression(text: str) -> Expression:
    """The expression of a text, outer parentheses or none around its parts.

    Raises:
      ProgramError: the text is no expression.
    """
    nodes = read(text)
    if not nodes:
        raise ProgramError("line 1, column 1: expected an expression")
    return _expression(nodes[0] if len(nodes) == 1 else Form(nodes, nodes[0].place))


def _head(node: Node) -> str | None:
    """The word that a form begins with."""
    if isinstance(node, Form) and node.items and isinstance(node.items[0], Atom):
        atom = node.items[0]
        return None if atom.quoted else atom.text
    return None


def _statement(node: Node) -> Statement:
    if not isinstance(node, Form) or not node.items:
        raise ProgramError(f"{node.place}: expected a statement in parentheses")
    head = _head(node)
    if head == "object":
        return _object(node)
    if head == "on":
        _count(node, 3, None, "(on CONDITION BODY)")
        return OnStatement(_expression(node.items[1]), _expression(node.items[2]), node.place)
    return _expression(node)


def _object(node: Form) -> ObjectStatement:
    _count(node, 3, None, "(object NAME FIELD ... CELLS)")
    name = _name(node.items[1], "the name of a class")
    fields, cells = [], None
    for item in node.items[2:]:
        part = _expression(item)
        if isinstance(part, Declaration):
            fields.append(part)
        else:
            cells = part
    if cells is None:
        raise ProgramError(f"{node.place}: the class {name} has no cells; add (Cell X Y COLOUR)")
    return ObjectStatement(name, tuple(fields), cells, node.place)


def _count(node: Form, least: int, most: int | None, form: str) -> None:
    count = len(node.items)
    if count < least or (most is not None and count > most):
        raise ProgramError(f"{node.place}: expected {form}, got {count - 1} part(s) after its head")


def _name(node: Node, what: str) -> str:
    if isinstance(node, Atom) and not node.quoted:
        match = _NAME.match(node.text)
        if match:
            return match.group()
    raise ProgramError(f"{node.place}: expected {what}")


def _expression(node: Node) -> Expression:
    if isinstance(node, Atom):
        return _atom(node)
    if not node.items:
        raise ProgramError(f"{node.place}: expected an expression between the parentheses")
    head = node.items[0]
    if isinstance(head, Form):
        callee = _expression(head)
        if not isinstance(callee, Get | Variable):
            raise ProgramError(f"{head.place}: only a name or a field can be called")
        return Call(callee, tuple(map(_expression, node.items[1:])), place=node.place)
    if head.quoted or _NUMBER.fullmatch(head.text):
        return _atom(head)
    special = _SPECIAL.get(head.text)
    if special is not None:
        return special(node)
    if head.text in BINARY or head.text in LOGICAL or head.text in UNARY:
        return _operation(node, head.text)
    if len(node.items) == 1:
        return _atom(head)
    callee = Variable(_name(head, "a function, a class or an operator"), place=head.place)
    if callee.name in KEYWORDS:
        raise ProgramError(f"{head.place}: '{head.text}' cannot stand here")
    return Call(callee, tuple(map(_expression, node.items[1:])), place=node.place)


def _atom(atom: Atom) -> Expression:
    if atom.quoted:
        return Literal(atom.text, place=atom.place)
    if atom.text in ("true", "false"):
        return Literal(atom.text == "true", place=atom.place)
    number = _NUMBER.fullmatch(atom.text)
    if number:
        value = int(number.group(2))
        if value >= 2**31:
            raise ProgramError(f"{atom.place}: {atom.text} is outside 32 bits")
        return Literal(-value if number.group(1) == "-" else value, place=atom.place)
    if atom.text == "list":
        return ListOf((), place=atom.place)
    name = _name(atom, "an expression")
    if name in KEYWORDS or name in ("let", "if", "fn", "initnext", "and", "or"):
        raise ProgramError(f"{atom.place}: '{name}' cannot stand here")
    return Variable(name, place=atom.place)


def _operation(node: Form, operator: str) -> Expression:
    count = len(node.items) - 1
    if count == 2 and operator in LOGICAL:
        left, right = map(_expression, node.items[1:])
        return Logical(LOGICAL[operator], left, right, place=node.place)
    if count == 2 and operator in BINARY:
        left, right = map(_expression, node.items[1:])
        return Binary(operator, left, right, place=node.place)
    if count == 1 and operator in UNARY:
        return Unary(operator, _expression(node.items[1]), place=node.place)
    operands = "one operand" if operator == "!" else "two operands"
    raise ProgramError(f"{node.place}: '{operator}' takes {operands}, got {count}")


def _let(node: Form) -> Expression:
    _count(node, 2, None, "(let EXPRESSION ...)")
    return Let(tuple(map(_expression, node.items[1:])), place=node.place)


def _if(node: Form) -> Expression:
    _count(node, 6, None, "(if CONDITION then VALUE else VALUE)")
    parts = (_expression(node.items[index]) for index in (1, 3, 5))
    return If(*parts, place=node.place)


def _lambda(node: Form) -> Expression:
    _count(node, 3, None, "(--> PARAMETERS BODY)")
    given = node.items[1]
    names = given.items if isinstance(given, Form) else (given,)
    parameters = tuple(_name(name, "the name of a parameter") for name in names)
    return Lambda(parameters, _expression(node.items[2]), place=node.place)


def _initnext(node: Form) -> Expression:
    _count(node, 3, None, "(initnext FIRST NEXT)")
    return InitNext(_expression(node.items[1]), _expression(node.items[2]), place=node.place)


def _assign(node: Form) -> Expression:
    _count(node, 3, None, "(= NAME VALUE)")
    target, value = _expression(node.items[1]), _expression(node.items[2])
    if isinstance(target, Variable):
        return Assign(target.name, value, place=node.place)
    if isinstance(target, Get):
        return SetField(target.instance, target.field, value, place=node.place)
    raise ProgramError(f"{node.place}: only a name or a field can be assigned")


def _get(node: Form) -> Expression:
    _count(node, 3, None, "(.. INSTANCE FIELD)")
    field = node.items[2]
    if not isinstance(field, Atom):
        raise ProgramError(f"{field.place}: expected the name of a field")
    return Get(_expression(node.items[1]), field.text, place=node.place)


def _list(node: Form) -> Expression:
    return ListOf(tuple(map(_expression, node.items[1:])), place=node.place)


def _declaration(node: Form) -> Expression:
    _count(node, 3, None, "(: NAME TYPE)")
    name = _name(node.items[1], "the name of a variable or field")
    return Declaration(name, _type(node.items[2]), place=node.place)


def _type(node: Node) -> Type:
    if isinstance(node, Form):
        if _head(node) == "List" and len(node.items) >= 2:
            return Type("List", _type(node.items[1]))
        raise ProgramError(f"{node.place}: expected a type, NAME or (List TYPE)")
    return Type(_name(node, "a type, NAME or (List TYPE)"))


_SPECIAL = {
    ":": _declaration,
    "let": _let,
    "if": _if,
    "initnext": _initnext,
    "=": _assign,
    "..": _get,
    "list": _list,
    "fn": _lambda,
    "-->": _lambda,
}


def children(expression: Expression) -> Iterator[Expression]:
    """The expressions directly inside one."""
    for field in dataclasses.fields(expression):
        value = getattr(expression, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Expression):
                yield part


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all those inside it."""
    pending = [expression]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(children(current))


def names_in(expression: Expression) -> frozenset[str]:
    """Names that an expression mentions, those of fields after `..` among them."""
    names = set()
    for part in walk(expression):
        if isinstance(part, Variable):
            names.add(part.name)
        elif isinstance(part, Get):
            names.add(part.field)
    return frozenset(names)
