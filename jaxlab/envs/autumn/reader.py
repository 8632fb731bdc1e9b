"""Reader of s-expressions: text to nested nodes that remember line and column.

An atom ends at white space or a parenthesis; a string is in double quotes on one
line; a semicolon begins a comment. Size and depth are bounded, and the reader keeps
its own stack, so no text makes it crash or hang.
"""

from __future__ import annotations

import dataclasses

from jaxlab.core.errors import ProgramError

#: A program longer than this is a mistake: those of the benchmark have some 5,000 characters.
MOST_CHARACTERS = 1_000_000
#: Deepest nesting of parentheses.
MOST_DEPTH = 200

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where something stands in the text, from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclasses.dataclass(frozen=True, eq=False)
class Atom:
    """A word, an operator, a number, or a string (`quoted`, without its quotes)."""

    text: str
    place: Place
    quoted: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """What stands between two parentheses."""

    items: tuple[Atom | Form, ...]
    place: Place


Node = Atom | Form


def read(text: str) -> tuple[Node, ...]:
    """The nodes of a text.

    Raises:
      ProgramError: a parenthesis or a quote is not closed, a parenthesis closes nothing, the
        text is too long, or it is nested too deeply.
    """
    if len(text) > MOST_CHARACTERS:
        raise ProgramError(
            f"the program has {len(text)} characters; expected at most {MOST_CHARACTERS}"
        )
    return _Reader(text).nodes()


class _Reader:
    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.line = 1
        self.line_start = 0

    @property
    def place(self) -> Place:
        return Place(self.line, self.at - self.line_start + 1)

    def nodes(self) -> tuple[Node, ...]:
        open_forms: list[tuple[Place, list[Node]]] = []
        items: list[Node] = []
        while self._skip():
            character, place = self.text[self.at], self.place
            if character == "(":
                if len(open_forms) == MOST_DEPTH:
                    raise ProgramError(f"{place}: parentheses nest deeper than {MOST_DEPTH}")
                open_forms.append((place, items))
                items = []
                self.at += 1
            elif character == ")":
                if not open_forms:
                    raise ProgramError(f"{place}: this parenthesis closes none; remove it")
                opened, outer = open_forms.pop()
                outer.append(Form(tuple(items), opened))
                items = outer
                self.at += 1
            elif character == '"':
                items.append(self._string(place))
            else:
                items.append(self._word(place))
        if open_forms:
            raise ProgramError(f"{open_forms[-1][0]}: this parenthesis is not closed")
        return tuple(items)

    def _skip(self) -> bool:
        """Pass over white space and comments; whether anything follows."""
        text = self.text
        while self.at < len(text):
            character = text[self.at]
            if character == "\n":
                self.line += 1
                self.line_start = self.at + 1
            elif character == ";":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
                continue
            elif not character.isspace():
                return True
            self.at += 1
        return False

    def _string(self, place: Place) -> Atom:
        text = self.text
        characters: list[str] = []
        self.at += 1
        while self.at < len(text) and text[self.at] != "\n":
            character = text[self.at]
            self.at += 1
            if character == '"':
                return Atom("".join(characters), place, quoted=True)
            if character == "\\" and self.at < len(text):
                character = _ESCAPES.get(text[self.at], text[self.at])
                self.at += 1
            characters.append(character)
        raise ProgramError(f"{place}: this string is not closed on its line")

    def _word(self, place: Place) -> Atom:
        start = self.at
        while self.at < len(self.text) and not (
            self.text[self.at] in "()" or self.text[self.at].isspace()
        ):
            self.at += 1
        return Atom(self.text[start : self.at], place)
