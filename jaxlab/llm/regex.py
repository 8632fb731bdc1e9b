r"""Regular expressions compiled to automata over UTF-8 bytes.

An expression describes the whole answer, as with `re.fullmatch(pattern, text, re.ASCII)`.
It may have literals, `.` (all but a newline), classes `[a-z]`, `[^a-z]`, the escapes `\d
\w \s` (ASCII) and `\D \W \S`, `\n \t \r \f \v`, `\xHH`, `\uHHHH`, `\UHHHHHHHH`, groups
`(...)` and `(?:...)`, `|`, and the quantifiers `* + ? {m} {m,} {,n} {m,n}`. Anchors,
lazy quantifiers, back references and look-around are refused with a message.
"""

from __future__ import annotations

from jaxlab.core.errors import ConfigError
from jaxlab.llm.finite_automaton import (
    ByteDfa,
    Choice,
    Node,
    Repeat,
    Sequence,
    code_points,
    determinise,
    literal,
)

_LARGEST_REPEAT, _DEEPEST, _LONGEST = 4096, 50, 20_000
_LAST = 0x10FFFF
Ranges = list[tuple[int, int]]
_DIGIT: Ranges = [(48, 57)]
_WORD: Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACE: Ranges = [(9, 13), (32, 32)]
_CONTROL = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11}


def compile_regex(pattern: str) -> ByteDfa:
    """The automaton of a regular expression.

    Raises:
      ConfigError: The expression is malformed, uses something outside the subset, matches
        nothing, or is too large; the message names the place.
    """
    return determinise(parse_regex(pattern), f"regular expression {pattern[:60]!r}")


def parse_regex(pattern: str) -> Node:
    """The tree of a regular expression, see `compile_regex`."""
    if len(pattern) > _LONGEST:
        raise ConfigError(
            f"regular expression of {len(pattern)} characters; the limit is {_LONGEST}"
        )
    parser = _Parser(pattern)
    node = parser.choice(0)
    if parser.place < len(pattern):
        raise parser.error("unbalanced ')'", "escape it: \\)")
    return node


def _complement(ranges: Ranges) -> Ranges:
    gaps, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    return [*gaps, (start, _LAST)] if start <= _LAST else gaps


class _Parser:
    def __init__(self, pattern: str):
        self.pattern, self.place = pattern, 0

    def error(self, problem: str, advice: str) -> ConfigError:
        return ConfigError(
            f"regular expression {self.pattern[:60]!r}, character {self.place}: {problem}; {advice}"
        )

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.place)

    def take(self, text: str) -> bool:
        found = self.peek(text)
        self.place += len(text) * found
        return found

    def choice(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self.error(f"more than {_DEEPEST} nested groups", "nest less")
        options = [self.sequence(depth)]
        while self.take("|"):
            options.append(self.sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self, depth: int) -> Node:
        parts = []
        while self.place < len(self.pattern) and not (self.peek("|") or self.peek(")")):
            parts.append(self.quantified(self.atom(depth)))
        return Sequence(tuple(parts))

    def quantified(self, node: Node) -> Node:
        repeated = self.quantifier()
        if repeated is None:
            return node
        if any(self.peek(c) for c in "*+?{"):
            raise self.error(
                "a second quantifier", "lazy and possessive ones do not exist here; use a group"
            )
        return Repeat(node, *repeated)

    def quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        if not self.peek("{"):
            return None
        end = self.pattern.find("}", self.place)
        least, comma, most = self.pattern[self.place + 1 : max(end, 0)].partition(",")
        valid = all(not n or (n.isascii() and n.isdigit()) for n in (least, most))
        if end < 0 or not valid or not (least or most):
            raise self.error("malformed quantifier", "write {m}, {m,n}, or \\{ for a brace")
        low = int(least or 0)
        high = int(most) if most else None if comma else low
        if max(low, high or 0) > _LARGEST_REPEAT or (high is not None and high < low):
            raise self.error(
                f"repetition {{{least}{comma}{most}}}", f"0 <= m <= n <= {_LARGEST_REPEAT} holds"
            )
        self.place = end + 1
        return low, high

    def atom(self, depth: int) -> Node:
        if self.take("("):
            if self.peek("?") and not self.peek("?:"):
                raise self.error("group extension (?...)", "only (...) and (?:...) exist here")
            self.take("?:")
            node = self.choice(depth + 1)
            if not self.take(")"):
                raise self.error("missing ')'", "close the group")
            return node
        if self.take("["):
            return self.character_class()
        if self.take("."):
            return code_points(_complement([(10, 10)]))
        character = self.pattern[self.place]
        if character in "^$":
            raise self.error(
                f"anchor '{character}'", "the whole answer is matched; leave it out or escape it"
            )
        if character in "*+?{":
            raise self.error(f"nothing to repeat before '{character}'", "escape it for a literal")
        if character == "\\":
            return code_points(self.escape())
        return literal(self.encodable(character))

    def encodable(self, character: str) -> str:
        if 0xD800 <= ord(character) <= 0xDFFF:
            raise self.error("lone surrogate", "it has no UTF-8 form")
        self.place += 1
        return character

    def escape(self) -> Ranges:
        self.place += 1
        if self.place >= len(self.pattern):
            raise self.error("backslash at the end", "write \\\\ for a backslash")
        letter = self.pattern[self.place]
        for name, ranges in (("d", _DIGIT), ("w", _WORD), ("s", _SPACE)):
            if letter.lower() == name:
                self.place += 1
                return ranges if letter == name else _complement(ranges)
        if letter in "xuU":
            digits = {"x": 2, "u": 4, "U": 8}[letter]
            code = self.pattern[self.place + 1 : self.place + 1 + digits]
            if len(code) < digits or any(c not in "0123456789abcdefABCDEF" for c in code):
                raise self.error(f"\\{letter} without {digits} hexadecimal digits", "complete it")
            self.place += digits
            if int(code, 16) > _LAST:
                raise self.error(f"no character U+{code}", f"the last is U+{_LAST:X}")
            self.encodable(chr(int(code, 16)))
            return [(int(code, 16), int(code, 16))]
        if letter.isalnum():
            if letter not in _CONTROL:
                raise self.error(
                    f"escape \\{letter}", "known are \\d \\w \\s \\n \\t \\r \\f \\v \\x \\u \\U"
                )
            self.place += 1
            return [(_CONTROL[letter], _CONTROL[letter])]
        self.encodable(letter)
        return [(ord(letter), ord(letter))]

    def character_class(self) -> Node:
        negated, ranges = self.take("^"), []
        if self.peek("]"):
            raise self.error("empty class", "write [\\]] for a bracket")
        while not self.take("]"):
            low = self.class_member()
            if not (self.peek("-") and not self.peek("-]")):
                ranges += low
                continue
            self.place += 1
            high = self.class_member()
            ends = [r[0][0] for r in (low, high) if len(r) == 1 and r[0][0] == r[0][1]]
            if len(ends) < 2 or ends[0] > ends[1]:
                raise self.error("bad range in a class", "write [low-high] with two characters")
            ranges.append((ends[0], ends[1]))
        return code_points(_complement(ranges) if negated else ranges)

    def class_member(self) -> Ranges:
        if self.place >= len(self.pattern):
            raise self.error("missing ']'", "close the class")
        if self.peek("\\"):
            return self.escape()
        code = ord(self.encodable(self.pattern[self.place]))
        return [(code, code)]
