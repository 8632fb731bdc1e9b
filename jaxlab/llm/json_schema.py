"""JSON schemas compiled to automata whose every text parses and validates.

The texts are a subset of what a schema allows: one layout (that of `json.dumps`),
properties in the order of the schema, numbers in plain decimals, bounded lengths. They
can be read by any JSON parser and hold against the schema by construction.

Supported: `type` (one or a list), `properties`, `required`, `additionalProperties` (no
property beyond the listed is ever produced), `items`, `minItems`, `maxItems`, `minimum`,
`maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `minLength`, `maxLength`, `enum`, `const`,
`anyOf`, and `oneOf` where the options cannot overlap. Anything else is an error.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from jaxlab.core.errors import ConfigError
from jaxlab.llm.decimal_numbers import decimals_between
from jaxlab.llm.finite_automaton import (
    ByteDfa,
    Bytes,
    Choice,
    Listing,
    Node,
    Repeat,
    Sequence,
    code_points,
    determinise,
    literal,
)

Json = Mapping[str, Any]

_ANNOTATIONS = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples"}
    | {"deprecated", "readOnly", "writeOnly", "difficulty"}
)
#: Keywords by the type they belong to; of a type that is not allowed they have no effect.
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "string": {"minLength", "maxLength"},
    "boolean": set(),
    "null": set(),
}
#: Numbers without bounds have at most twelve digits before the point.
_LARGEST = Fraction(10**12 - 1)
_DEEPEST = 40
# Assigned characters end in plane 3; tokenisers often lack the lead bytes of those beyond.
_PLAIN = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E))
_CHARACTERS = {"ascii": _PLAIN, "unicode": (*_PLAIN, (0xA0, 0xD7FF), (0xE000, 0x3FFFF))}


@dataclasses.dataclass(frozen=True)
class JsonLayout:
    """What a schema leaves open.

    Attributes:
      decimals: Digits after the point, at most.
      longest_string: Characters of a string, at most, whatever its `maxLength`.
      characters: Of strings: "unicode" or "ascii".
      separators: Between items and after names, as for `json.dumps`.
    """

    decimals: int = 4
    longest_string: int = 200
    characters: str = "unicode"
    separators: tuple[str, str] = (", ", ": ")

    def __post_init__(self) -> None:
        if not 0 <= self.decimals <= 17 or self.longest_string < 0:
            raise ConfigError(
                f"decimals {self.decimals} and longest_string {self.longest_string}: expected 0 to "
                "17 and no negative length"
            )
        if self.characters not in _CHARACTERS:
            raise ConfigError(f"characters '{self.characters}': expected unicode or ascii")
        marks = [separator.strip(" ") for separator in self.separators]
        if marks != [",", ":"]:
            raise ConfigError(f"separators {self.separators}: expected a comma and a colon")


def compile_json_schema(schema: Json | bool, layout: JsonLayout | None = None) -> ByteDfa:
    """The automaton of the JSON texts of a schema.

    Raises:
      ConfigError: A keyword is not supported, the schema is inconsistent or open (an array
        without `maxItems`), or the automaton would be too large; the message names the place.
    """
    node = _Compiler(layout or JsonLayout()).value(schema, "$", 0)
    return determinise(node, "JSON schema")


class _Compiler:
    def __init__(self, layout: JsonLayout):
        self.layout = layout
        self.comma, self.colon = map(literal, layout.separators)
        escape = Sequence((literal("\\"), Bytes(sum(1 << b for b in b'"\\/bfnrt'))))
        self.character = Choice((code_points(_CHARACTERS[layout.characters]), escape))

    def value(self, schema: Any, place: str, depth: int) -> Node:
        if not isinstance(schema, Mapping):
            raise _error(place, f"{schema!r:.40} is not an object with a type", "say what it is")
        if depth > _DEEPEST:
            raise _error(place, f"more than {_DEEPEST} levels", "nest less")
        given = {name: rule for name, rule in schema.items() if name not in _ANNOTATIONS}
        for name in ("anyOf", "oneOf"):
            if name in given:
                return self.options(name, given, place, depth)
        if "const" in given or "enum" in given:
            return self.constants(given, place)
        types = _types(given, place)
        allowed = {"type"}.union(*(_KEYWORDS[name] for name in types))
        if unknown := sorted(set(given) - allowed):
            raise _error(
                place,
                f"keyword {', '.join(map(repr, unknown))} is not supported for {' or '.join(types)}",
                "leave it out or write it with the supported ones",
            )
        nodes = [getattr(self, f"_{name}")(given, place, depth) for name in types]
        return nodes[0] if len(nodes) == 1 else Choice(tuple(nodes))

    def options(self, name: str, given: Json, place: str, depth: int) -> Node:
        _alone(given, {name}, place)
        options = given[name]
        if not isinstance(options, list) or not options:
            raise _error(place, f"{name} without options", "give a list of schemas")
        nodes = [self.value(o, f"{place}.{name}[{n}]", depth + 1) for n, o in enumerate(options)]
        if name == "oneOf":
            for n, option in enumerate(options):
                for other in options[:n]:
                    if not _disjoint(option, other):
                        raise _error(
                            f"{place}.oneOf[{n}]",
                            "overlaps with another option",
                            "use anyOf, or a required property with a constant of its own",
                        )
        return Choice(tuple(nodes))

    def constants(self, given: Json, place: str) -> Node:
        _alone(given, {"const", "enum", "type"}, place)
        values = given.get("enum", [given.get("const")])
        if "const" in given and "enum" in given:
            values = [v for v in values if _same(v, given["const"])]
        if "type" in given:
            types = _types(given, place)
            values = [v for v in values if any(_is_of(v, name) for name in types)]
        if not values:
            raise _error(place, "no value is possible", "give one that fits the other keywords")
        texts = []
        for value in values:
            try:
                texts.append(
                    json.dumps(
                        value,
                        ensure_ascii=self.layout.characters == "ascii",
                        separators=self.layout.separators,
                        allow_nan=False,
                    ).encode()
                )
            except (TypeError, ValueError) as error:
                raise _error(place, f"{value!r:.60} is no JSON value", "use JSON") from error
        return Choice(tuple(map(literal, texts)))

    def _object(self, given: Json, place: str, depth: int) -> Node:
        properties, required = given.get("properties", {}), set(given.get("required", ()))
        if unknown := sorted(required - set(properties)):
            raise _error(place, f"required {unknown[0]!r} is not in properties", "describe it")
        items = []
        for name, schema in properties.items():
            key = literal(json.dumps(name, ensure_ascii=self.layout.characters == "ascii"))
            value = self.value(schema, f"{place}.{name}", depth + 1)
            items.append((Sequence((key, self.colon, value)), name in required))
        return Sequence((literal("{"), Listing(tuple(items), self.comma), literal("}")))

    def _array(self, given: Json, place: str, depth: int) -> Node:
        least, most = _count(given, "minItems", place, 0), _count(given, "maxItems", place, None)
        if most is None:
            raise _error(place, "array without maxItems", "give the largest number of items")
        if least > most:
            raise _error(place, f"minItems {least} above maxItems {most}", "lower it")
        if most == 0:
            return literal("[]")
        item = self.value(given.get("items", True), f"{place}[]", depth + 1)
        more = Repeat(Sequence((self.comma, item)), max(least - 1, 0), most - 1)
        filled = Sequence((literal("["), item, more, literal("]")))
        return filled if least else Choice((literal("[]"), filled))

    def _string(self, given: Json, place: str, depth: int) -> Node:
        least = _count(given, "minLength", place, 0)
        most = _count(given, "maxLength", place, self.layout.longest_string)
        most = min(most, self.layout.longest_string)
        if least > most:
            raise _error(
                place,
                f"minLength {least} above the largest length {most}",
                "lower it or raise maxLength and longest_string",
            )
        return Sequence((literal('"'), Repeat(self.character, least, most), literal('"')))

    def _number(self, given: Json, place: str, depth: int) -> Node:
        return self._decimal(given, place, self.layout.decimals)

    def _integer(self, given: Json, place: str, depth: int) -> Node:
        return self._decimal(given, place, 0)

    def _decimal(self, given: Json, place: str, decimals: int) -> Node:
        low = _bound(given, "minimum", place, -_LARGEST)
        high = _bound(given, "maximum", place, _LARGEST)
        unit = Fraction(1, 10**decimals)
        first, last = math.ceil(low / unit), math.floor(high / unit)
        if "exclusiveMinimum" in given:
            edge = _bound(given, "exclusiveMinimum", place, low)
            first = max(first, math.floor(edge / unit) + 1)
        if "exclusiveMaximum" in given:
            edge = _bound(given, "exclusiveMaximum", place, high)
            last = min(last, math.ceil(edge / unit) - 1)
        if first > last:
            raise _error(
                place,
                f"no number with at most {decimals} decimals lies within the bounds",
                "widen them or allow more decimals",
            )
        return decimals_between(first, last, decimals)

    def _boolean(self, given: Json, place: str, depth: int) -> Node:
        return Choice((literal("true"), literal("false")))

    def _null(self, given: Json, place: str, depth: int) -> Node:
        return literal("null")


def _error(place: str, problem: str, advice: str) -> ConfigError:
    return ConfigError(f"JSON schema, {place}: {problem}; {advice}")


def _alone(given: Json, allowed: set[str], place: str) -> None:
    if others := sorted(set(given) - allowed):
        raise _error(
            place,
            f"keyword {', '.join(map(repr, others))} beside {' or '.join(sorted(allowed))} is not "
            "supported",
            "move it into the options or leave it out",
        )


def _types(given: Json, place: str) -> list[str]:
    types = given.get("type")
    if types is None:
        keywords = ", ".join(map(repr, given)) or "nothing"
        raise _error(place, f"no type, only {keywords}", "say which type it has")
    types = [types] if isinstance(types, str) else list(types)
    if unknown := [name for name in types if name not in _KEYWORDS]:
        raise _error(place, f"type {unknown[0]!r}", f"known are {', '.join(_KEYWORDS)}")
    if not types:
        raise _error(place, "an empty list of types", "name one")
    return types


def _count(given: Json, name: str, place: str, default: int | None) -> Any:
    value = given.get(name, default)
    if value is not None and (isinstance(value, bool) or value != int(value) or value < 0):
        raise _error(place, f"{name} is {value!r}", "give a number of 0 or more")
    return value if value is None else int(value)


def _bound(given: Json, name: str, place: str, default: Fraction) -> Fraction:
    value = given.get(name, default)
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _error(place, f"{name} is {value!r}", "give a finite number")
    # The decimal that is printed, not the binary number: 0.3 must be within bounds of 0.3.
    return Fraction(repr(value))


def _same(a: Any, b: Any) -> bool:
    """Equality as JSON has it: true is not 1, but 1.0 is."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return a == b


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool) or value is None:
        return name == ("boolean" if value is not None else "null")
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds = {"number": int | float, "string": str, "array": list, "object": dict}
    return name in kinds and isinstance(value, kinds[name])


def _disjoint(a: Json, b: Json) -> bool:
    """Whether it is plain that no value holds against both schemas."""
    for one, other in ((a, b), (b, a)):
        for name in ("anyOf", "oneOf"):
            if name in one:
                return all(_disjoint(option, other) for option in one[name])
    values = [s["enum"] if "enum" in s else [s["const"]] if "const" in s else None for s in (a, b)]
    if values[0] is not None and values[1] is not None:
        return not any(_same(x, y) for x in values[0] for y in values[1])
    types = [_value_types(s, v) for s, v in zip((a, b), values, strict=True)]
    if not types[0] & types[1]:
        return True
    if types[0] & types[1] != {"object"} or values != [None, None]:
        return False
    common = set(a.get("required", ())) & set(b.get("required", ()))
    return any(_disjoint(a["properties"][name], b["properties"][name]) for name in common)


def _value_types(schema: Json, values: list[Any] | None) -> set[str]:
    """Types a value may have, integers counted among numbers."""
    if values is not None:
        names = [next(n for n in _KEYWORDS if _is_of(value, n)) for value in values]
    else:
        types = schema["type"]
        names = [types] if isinstance(types, str) else list(types)
    return {"number" if name == "integer" else name for name in names}
