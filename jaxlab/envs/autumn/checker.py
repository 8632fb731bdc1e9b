"""What can be said about a program before it runs: errors, and warnings.

An error is what no run of the program can survive, or what a compiled program cannot do.
A warning names what compiles but may surprise: lists that grow, names that functions share
under dynamic scoping, an order that the reference interpreter leaves open.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn import syntax
from jaxlab.envs.autumn.objects import TYPES
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.standard_library import natives

#: Variables that every program finds defined.
GIVEN = ("GRID_SIZE", "FRAME_RATE", "background", "click")
#: Functions whose result depends on the order of a list.
ORDERED = ("head", "tail", "at", "foldl", "uniformChoice")
#: Functions that list all objects, in an order that the reference interpreter leaves open.
UNORDERED = ("allObjs", "adjacentObjs", "adjacentObjsDiag")
RANDOM = ("uniformChoice", "randomPositions")
#: Functions that assign to names of their own, which are the caller's under dynamic scoping.
LOCALS = {
    "nextLiquid": ("nextRowPos", "holes", "closestHole", "dir", "movedObj"),
    "rect": ("xmin", "xmax", "ymin", "ymax", "rectPos"),
    "unitVector": ("delta", "sign_x", "sign_y"),
    "unitVectorObjPos": ("delta", "sign_x", "sign_y"),
    "unitVectorSinglePos": ("sign_x", "sign_y"),
    "moveRightNoCollision": ("wbound", "fr", "ret"),
    **dict.fromkeys(("sqdist", "closest", "closestPos", "adj", "adjacentObjs"), ("delta",)),
}


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """One finding about a program."""

    severity: Literal["error", "warning"]
    place: Place | None
    message: str

    def __str__(self) -> str:
        where = "" if self.place is None else f"{self.place}: "
        return f"{where}{self.message}"


def check(program: syntax.Program) -> tuple[Diagnostic, ...]:
    """All findings about a program, errors first."""
    checker = _Checker(program)
    found = [
        *checker.grid_size(),
        *checker.types(),
        *checker.names(),
        *checker.arities(),
        *checker.fields_in_place(),
        *checker.redefinitions(),
        *checker.growth(),
        *checker.shared_names(),
        *checker.open_order(),
        *checker.random_colours(),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != "error"))


def require_sound(program: syntax.Program) -> None:
    """Refuse a program with errors.

    Raises:
      ProgramError: names the first error, and how many there are.
    """
    errors = [finding for finding in check(program) if finding.severity == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ProgramError(f"{errors[0]}{more}")


class _Checker:
    def __init__(self, program: syntax.Program):
        self.program = program
        self.natives = natives()
        self.classes = {
            s.name: s for s in program.statements if isinstance(s, syntax.ObjectStatement)
        }
        self.expressions = [part for e in expressions_of(program) for part in syntax.walk(e)]
        self.assigned: dict[str, list[syntax.Assign]] = defaultdict(list)
        self.parameters: set[str] = set()
        for part in self.expressions:
            if isinstance(part, syntax.Assign):
                self.assigned[part.name].append(part)
            elif isinstance(part, syntax.Lambda):
                self.parameters |= set(part.parameters)
        self.globals = {s.name for s in program.statements if isinstance(s, syntax.Assign)}

    def _calls(self) -> Iterator[tuple[str, syntax.Call]]:
        for part in self.expressions:
            if isinstance(part, syntax.Call) and isinstance(part.callee, syntax.Variable):
                yield part.callee.name, part

    def grid_size(self) -> Iterator[Diagnostic]:
        if "GRID_SIZE" not in self.globals:
            yield _error(None, "the program sets no GRID_SIZE; add (= GRID_SIZE 16)")

    def types(self) -> Iterator[Diagnostic]:
        known = {*TYPES, *self.classes}
        declared = [p for p in self.expressions if isinstance(p, syntax.Declaration)]
        declared += [field for cls in self.classes.values() for field in cls.fields]
        for declaration in declared:
            kind: syntax.Type | None = declaration.type
            while kind is not None:
                if kind.name not in known and not (kind.name == "List" and kind.element):
                    yield _error(declaration.place, f"the type '{kind.name}' is not defined")
                kind = kind.element

    def names(self) -> Iterator[Diagnostic]:
        fields = {f.name for c in self.classes.values() for f in c.fields} | {"origin", "elems"}
        known = {*self.natives, *TYPES, *GIVEN, *self.classes}
        known |= {*self.assigned, *self.parameters, *fields}
        for part in self.expressions:
            if isinstance(part, syntax.Variable) and part.name not in known:
                yield _error(part.place, f"'{part.name}' is not defined")

    def arities(self) -> Iterator[Diagnostic]:
        for name, call in self._calls():
            count = len(call.arguments)
            if name in self.assigned or name in self.parameters:
                wanted = self._parameters_of(name)
                if wanted is not None and count < wanted:
                    yield _error(call.place, f"{name} takes {wanted} argument(s), got {count}")
            elif name in self.classes:
                wanted = len(self.classes[name].fields) + 1
                if count < wanted:
                    yield _error(
                        call.place,
                        f"{name} takes {wanted} argument(s), its fields and an origin, got {count}",
                    )
            elif name in self.natives:
                native = self.natives[name]
                if not native.least <= count <= native.most:
                    yield _error(
                        call.place,
                        f"{name} takes {_span(native.least, native.most)} argument(s), got {count}",
                    )

    def _parameters_of(self, name: str) -> int | None:
        """Parameters of a function that is assigned once and is no parameter."""
        values = [assign.value for assign in self.assigned.get(name, [])]
        if name in self.parameters or len(values) != 1:
            return None
        return len(values[0].parameters) if isinstance(values[0], syntax.Lambda) else None

    def fields_in_place(self) -> Iterator[Diagnostic]:
        for part in self.expressions:
            if isinstance(part, syntax.SetField):
                yield _error(
                    part.place,
                    f'a field cannot be changed in place; use (updateObj OBJECT "{part.field}" '
                    "VALUE)",
                )

    def redefinitions(self) -> Iterator[Diagnostic]:
        for name, assigns in self.assigned.items():
            if name in self.natives:
                yield _warning(
                    assigns[0].place,
                    f"'{name}' is a function of the standard library; other functions of the "
                    "library go on with theirs",
                )

    def growth(self) -> Iterator[Diagnostic]:
        for name, assigns in self.assigned.items():
            for assign in assigns:
                if name in self.globals and "addObj" in syntax.names_in(_running(assign.value)):
                    yield _warning(
                        assign.place, f"the list '{name}' may grow, up to the capacity for lists"
                    )
                    break

    def shared_names(self) -> Iterator[Diagnostic]:
        places: dict[str, list[tuple[int, Place]]] = defaultdict(list)
        lambdas = [part for part in self.expressions if isinstance(part, syntax.Lambda)]
        for index, function in enumerate(lambdas):
            inner = {id(p) for f in _inside(function.body) for p in syntax.walk(f.body)}
            for part in syntax.walk(function.body):
                if isinstance(part, syntax.Assign) and id(part) not in inner:
                    places[part.name].append((index, part.place))
        for name, found in places.items():
            if name in self.globals:
                yield _warning(
                    found[0][1], f"this assigns to the global '{name}', wherever it is called from"
                )
            elif len({index for index, _ in found}) > 1:
                yield _warning(
                    found[1][1],
                    f"several functions assign to '{name}'; where one calls the other they share it",
                )
        called = {name for name, _ in self._calls()} | {
            p.name for p in self.expressions if isinstance(p, syntax.Variable)
        }
        for function_name, names in LOCALS.items():
            for name in names:
                if function_name in called and name in self.assigned:
                    yield _warning(
                        self.assigned[name][0].place,
                        f"{function_name} assigns to '{name}' too, where it is visible",
                    )

    def open_order(self) -> Iterator[Diagnostic]:
        for name, call in self._calls():
            inside = (
                frozenset().union(*map(syntax.names_in, call.arguments)) if call.arguments else ()
            )
            if name in ORDERED and any(other in inside for other in UNORDERED):
                yield _warning(
                    call.place,
                    f"{name} of all objects: their order is that of definition here, and any in "
                    "the reference interpreter",
                )

    def random_colours(self) -> Iterator[Diagnostic]:
        for cls in self.classes.values():
            if any(name in syntax.names_in(cls.cells) for name in RANDOM):
                yield _warning(cls.place, f"cells of {cls.name} are random: drawn anew each time")


def expressions_of(program: syntax.Program) -> Iterator[syntax.Expression]:
    """The outermost expressions of a program."""
    for statement in program.statements:
        if isinstance(statement, syntax.ObjectStatement):
            yield statement.cells
        elif isinstance(statement, syntax.OnStatement):
            yield statement.condition
            yield statement.body
        else:
            yield statement


def _inside(expression: syntax.Expression) -> Iterator[syntax.Lambda]:
    for part in syntax.walk(expression):
        if isinstance(part, syntax.Lambda):
            yield part


def _running(expression: syntax.Expression) -> syntax.Expression:
    """What of an assignment runs in every step."""
    return expression.following if isinstance(expression, syntax.InitNext) else expression


def _span(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"at least {least}" if most > 9 else f"{least} to {most}"


def _error(place: Place | None, message: str) -> Diagnostic:
    return Diagnostic("error", place, message)


def _warning(place: Place | None, message: str) -> Diagnostic:
    return Diagnostic("warning", place, message)
