"""Changes of a program's rules, as edits of its text.

An edit guards one expression: until a clock reaches its time the expression is what it was,
then it is another one. The clock counts steps, clicks or arrows. So the changed program is the
old one until then, step by step and draw by draw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.reader import Atom, Form, Node, read

Counted = Literal["steps", "clicks", "arrows"]
COUNTED: tuple[Counted, ...] = ("steps", "clicks", "arrows")
#: What makes the clock go on, as conditions of the language.
_EVENTS = {
    "steps": "true",
    "clicks": "(& true clicked)",
    "arrows": "(| (| left right) (| up down))",
}
_SWAPS = (
    ("moveLeft", "moveRight"),
    ("moveUp", "moveDown"),
    ("moveLeftNoCollision", "moveRightNoCollision"),
    ("moveUpNoCollision", "moveDownNoCollision"),
    ("nextLiquid", "nextSolid"),
    ("left", "right"),
    ("up", "down"),
    ("min", "max"),
    ("head", "tail"),
)
_OTHERS = {a: b for pair in _SWAPS for a, b in (pair, pair[::-1])}
_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_ARITHMETIC = {"+": "-", "-": "+"}
_LOGICAL = {"&": "|", "&&": "||", "and": "or", "|": "&", "||": "&&", "or": "and"}
#: Functions of a first argument which, left out, leaves that argument as it is.
_EFFECTS = ("addObj", "removeObj", "updateObj", "move", "moveNoCollision")
#: Forms whose parts are no expressions.
_OPAQUE = (":", "object")


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One change of a rule.

    Attributes:
      kind: What is changed: constant, colour, truth, comparison, arithmetic, logic, direction,
        branch, effect, event, condition, rule.
      start, end: Where in the text the changed expression stands.
      replacement: What it becomes once the clock has run.
      is_condition: It is the condition of an `on` clause, which may be a bare event.
    """

    kind: str
    start: int
    end: int
    replacement: str
    is_condition: bool = False


def mutations(source: str) -> tuple[Mutation, ...]:
    """All changes of one rule of a program; where nothing is read from the text there are none.

    Raises:
      ProgramError: the text cannot be read.
    """
    nodes = read(source)
    if not nodes or not isinstance(nodes[0], Form):
        return ()
    return tuple(_Finder(source).program(nodes[0]))


def changed_source(
    source: str, mutation: Mutation, counted: Counted, after: int
) -> tuple[str, str, str]:
    """A program whose rule changes after `after` steps, clicks or acts with arrows.

    Returns:
      Its text, the name of its clock, and the condition under which the new rule holds.
    """
    clock = "changeClock"
    while clock in source:
        clock += "X"
    old = source[mutation.start : mutation.end]
    if mutation.is_condition:
        guarded = (
            f"(| (& (< {clock} {after}) {old}) (& (>= {clock} {after}) {mutation.replacement}))"
        )
    else:
        guarded = f"(if (< {clock} {after}) then {old} else {mutation.replacement})"
    counts = (
        f"  (: {clock} Number)\n  (= {clock} (initnext 0 (if {_EVENTS[counted]} then "
        f"(+ (prev {clock}) 1) else (prev {clock}))))\n"
    )
    spans = _Spans(source)
    end = spans.end_of_form(spans.offset(read(source)[0])) - 1
    # A comment at the end of the last line must not swallow what is added.
    text = source[: mutation.start] + guarded + source[mutation.end : end] + "\n" + counts + ")\n"
    return text, clock, f">= {clock} {after}"


class _Spans:
    """From places in lines and columns to offsets in the text."""

    def __init__(self, source: str):
        self.source = source
        self._lines = [0]
        for n, character in enumerate(source):
            if character == "\n":
                self._lines.append(n + 1)

    def offset(self, node: Node) -> int:
        return self._lines[node.place.line - 1] + node.place.column - 1

    def span(self, node: Node) -> tuple[int, int]:
        start = self.offset(node)
        if isinstance(node, Form):
            return start, self.end_of_form(start)
        if node.quoted:
            return start, self._end_of_string(start)
        return start, start + len(node.text)

    def text(self, node: Node) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def end_of_form(self, start: int) -> int:
        depth, at = 0, start
        while True:
            character = self.source[at]
            if character == '"':
                at = self._end_of_string(at)
                continue
            if character == ";":
                at = self.source.find("\n", at)
            depth += {"(": 1, ")": -1}.get(character, 0)
            at += 1
            if depth == 0:
                return at

    def _end_of_string(self, start: int) -> int:
        at = start + 1
        while self.source[at] != '"':
            at += 2 if self.source[at] == "\\" else 1
        return at + 1


class _Finder:
    def __init__(self, source: str):
        self.spans = _Spans(source)
        strings = dict.fromkeys(a.text for n in read(source) for a in _atoms(n) if a.quoted)
        used = [name for name in strings if name.strip().lower() in COLOURS]
        spare = [name for name in ("red", "blue", "green", "yellow") if name not in used]
        self.colours = [*used, *spare]
        self.used = used

    def program(self, program: Form) -> Iterator[Mutation]:
        for statement in program.items[1:]:
            head = _head(statement)
            if not isinstance(statement, Form) or head in _OPAQUE:
                continue
            if head == "on" and len(statement.items) >= 3:
                yield from self._clause(statement)
            elif head == "=" and len(statement.items) == 3:
                yield from self._definition(statement)

    def _clause(self, clause: Form) -> Iterator[Mutation]:
        condition, body = clause.items[1], clause.items[2]
        start, end = self.spans.span(condition)
        yield Mutation("event", start, end, "false", is_condition=True)
        for inner in self.expression(condition):
            text = (
                self.spans.source[start : inner.start]
                + inner.replacement
                + self.spans.source[inner.end : end]
            )
            yield Mutation(inner.kind, start, end, text, is_condition=True)
        yield from self.expression(body)

    def _definition(self, definition: Form) -> Iterator[Mutation]:
        name, value = definition.items[1:]
        head = _head(value)
        if not isinstance(value, Form) or not isinstance(name, Atom):
            return
        if head == "initnext" and len(value.items) == 3:
            following = value.items[2]
            start, end = self.spans.span(following)
            frozen = f"(prev {name.text})"
            if self.spans.text(following) != frozen:
                yield Mutation("rule", start, end, frozen)
                yield from self.expression(following)
        elif head in ("-->", "fn") and len(value.items) == 3:
            yield from self.expression(value.items[2])

    def expression(self, node: Node) -> Iterator[Mutation]:
        """Changes of an expression and of those inside it."""
        start, end = self.spans.span(node)
        if isinstance(node, Atom):
            yield from (Mutation(k, start, end, text) for k, text in self._of_atom(node))
            return
        head = _head(node)
        if head in _OPAQUE or not node.items:
            return
        yield from (Mutation(k, start, end, text) for k, text in self._of_form(node, head))
        yield from self._inside(node, head)

    def _inside(self, node: Form, head: str | None) -> Iterator[Mutation]:
        items = node.items
        if head == "..":
            parts = items[1:2]
        elif head in ("-->", "fn", "="):
            parts = items[2:3]
        elif head == "if":
            parts = tuple(items[n] for n in (1, 3, 5) if n < len(items))
        elif head == "updateObj" and len(items) > 3 and isinstance(items[2], Atom):
            parts = (items[1], *items[3:])
        elif head is None:
            parts = items
        else:
            parts = items[1:]
        for part in parts:
            # Functions cannot be chosen by a clock: the call around them is.
            if not (isinstance(part, Atom) and part.text in _OTHERS and not part.quoted):
                yield from self.expression(part)

    def _of_atom(self, atom: Atom) -> Iterator[tuple[str, str]]:
        if atom.quoted:
            if atom.text in self.used:
                others = [name for name in self.colours if name != atom.text]
                yield from (("colour", f'"{name}"') for name in others[:2])
        elif atom.text in ("true", "false"):
            yield "truth", "false" if atom.text == "true" else "true"
        elif atom.text.lstrip("+-").isdigit():
            value = int(atom.text)
            values = dict.fromkeys((value + 1, value - 1, -value))
            yield from (("constant", str(v)) for v in values if v != value)
        elif atom.text in _OTHERS:
            yield "direction", _OTHERS[atom.text]

    def _of_form(self, node: Form, head: str | None) -> Iterator[tuple[str, str]]:
        items = node.items
        for kind, table in (
            ("comparison", _COMPARISONS),
            ("arithmetic", _ARITHMETIC),
            ("logic", _LOGICAL),
        ):
            if head in table and len(items) == 3:
                yield kind, self._with(node, items[0], table[head])
        if head == "!" and len(items) == 2:
            yield "condition", self.spans.text(items[1])
        if head == "if" and len(items) >= 6:
            condition, on_true, on_false = (self.spans.text(items[n]) for n in (1, 3, 5))
            yield "branch", f"(if {condition} then {on_false} else {on_true})"
        if head in _EFFECTS and len(items) > 2:
            yield "effect", self.spans.text(items[1])
        for item in items:
            if isinstance(item, Atom) and not item.quoted and item.text in _OTHERS:
                yield "direction", self._with(node, item, _OTHERS[item.text])

    def _with(self, node: Form, part: Node, text: str) -> str:
        """The text of a form with one of its parts replaced."""
        start, end = self.spans.span(node)
        first, last = self.spans.span(part)
        return self.spans.source[start:first] + text + self.spans.source[last:end]


def _head(node: Node) -> str | None:
    if isinstance(node, Form) and node.items and isinstance(node.items[0], Atom):
        return None if node.items[0].quoted else node.items[0].text
    return None


def _atoms(node: Node) -> Iterator[Atom]:
    pending: list[Node] = [node]
    while pending:
        current = pending.pop(0)
        if isinstance(current, Form):
            pending = [*current.items, *pending]
        else:
            yield current
