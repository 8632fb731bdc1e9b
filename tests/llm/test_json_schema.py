"""JSON schemas as automata, against `json` and `jsonschema`."""

import json
from fractions import Fraction

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError
from jaxlab.envs.traffic import default_environment
from jaxlab.envs.traffic.scenario_schema import scenario_schema
from jaxlab.llm import finite_automaton
from jaxlab.llm.decimal_numbers import decimals_between
from jaxlab.llm.finite_automaton import determinise
from jaxlab.llm.json_schema import JsonLayout, compile_json_schema
from tests.llm.test_regex import walk

SHORT = JsonLayout(longest_string=12)


def names():
    return st.text('ab"\\é', min_size=1, max_size=3)


def numbers(kind):
    value = (
        st.integers(-2000, 2000)
        if kind == "integer"
        else st.floats(-1e4, 1e4).map(lambda x: round(x, 3))
    )
    return st.tuples(value, value).map(
        lambda pair: {"type": kind, "minimum": min(pair), "maximum": max(pair)}
    )


def schemas():
    leaves = (
        numbers("integer")
        | numbers("number")
        | st.sampled_from(
            [{"type": "boolean"}, {"type": "null"}, {"type": ["integer", "string"], "maxLength": 3}]
        )
        | st.integers(0, 4).map(lambda n: {"type": "string", "maxLength": n})
        | st.lists(st.none() | st.booleans() | names() | st.integers(), min_size=1, max_size=3).map(
            lambda values: {"enum": values}
        )
        | (names() | st.floats(allow_nan=False, allow_infinity=False)).map(lambda v: {"const": v})
    )

    def extend(inner):
        return (
            st.tuples(st.dictionaries(names(), inner, max_size=4), st.data()).map(with_required)
            | st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
                lambda t: {
                    "type": "array",
                    "items": t[0],
                    "minItems": t[1],
                    "maxItems": t[1] + t[2],
                }
            )
            | st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})
        )

    def with_required(pair):
        properties, data = pair
        required = [name for name in properties if data.draw(st.booleans())]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    return st.recursive(leaves, extend, max_leaves=8)


@settings(max_examples=80)
@given(schemas(), st.integers(0, 99))
def test_every_text_validates(schema, seed):
    dfa = compile_json_schema(schema, SHORT)
    validator = jsonschema.Draft202012Validator(schema)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        if (text := walk(dfa, rng)) is not None:
            validator.validate(json.loads(text))


@settings(max_examples=40)
@given(st.integers(-30_000, 30_000), st.integers(0, 60_000), st.integers(0, 3), st.data())
def test_numbers_are_exactly_those_between_the_bounds(low, width, decimals, data):
    dfa, unit = determinise(decimals_between(low, low + width, decimals)), 10**decimals
    edges = [low + d for d in (-1, 0, 1)] + [low + width + d for d in (-1, 0, 1)] + [0]
    drawn = data.draw(st.lists(st.integers(-40_000, 100_000), max_size=20))
    for value in edges + drawn:
        for digits in range(decimals + 1):
            whole, part = divmod(abs(value), 10**digits)
            text = f"{'-' * (value < 0)}{whole}" + (f".{part:0{digits}d}" if digits else "")
            inside = Fraction(low, unit) <= Fraction(text) <= Fraction(low + width, unit)
            assert dfa.accepts(text) == inside, text
    for text in ("", "-", ".", "-0", "-0.0", "00", "01", "1.", ".5", "+1", "1e0", "0." + "0" * 5):
        assert not dfa.accepts(text)


def test_exact_languages():
    def texts(schema, candidates, **layout):
        dfa = compile_json_schema(schema, JsonLayout(**layout))
        return [text for text in candidates if dfa.accepts(text)]

    thing = {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
        "required": ["b"],
    }
    right = ['{"b": 2}', '{"a": 1, "b": 2}', '{"b": 2, "c": 3}', '{"a": 1, "b": 2, "c": 3}']
    wrong = ["{}", '{"a": 1}', '{"b": 2,}', '{, "b": 2}', '{"b": 2, "a": 1}', '{"b":2}']
    assert texts(thing, right + wrong) == right
    assert texts(thing, ['{"b":2,"c":3}', *right], separators=(",", ":")) == ['{"b":2,"c":3}']
    few = {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}
    assert texts(few, ["[]", "[true]", "[true, false]", "[true, true, true]"]) == [
        *("[true]", "[true, false]")
    ]
    word = {"type": "string", "minLength": 1, "maxLength": 2}
    candidates = ['""', '"a"', '"é😀"', '"abc"', '"\\""', '"\\n\\\\"', '"\n"', '"""', '"\x7f"']
    assert texts(word, candidates) == ['"a"', '"é😀"', '"\\""', '"\\n\\\\"']
    assert texts(word, candidates, characters="ascii") == ['"a"', '"\\""', '"\\n\\\\"']
    assert texts(word, candidates, longest_string=1) == ['"a"', '"\\""']
    edge = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.3}
    assert texts(edge, ["0", "0.0", "0.1", "0.10", "0.2", "0.29", "0.3", "0.299"], decimals=2) == [
        *("0.1", "0.10", "0.2", "0.29")
    ]
    point = {"type": "number", "minimum": 0.3, "maximum": 0.3}
    assert texts(point, ["0.3", "0.29", "0.31"], decimals=2) == ["0.3"]
    accents = {"enum": ["é", ["x", None]]}
    assert texts(accents, ['"é"', '["x", null]', '"\\u00e9"']) == ['"é"', '["x", null]']
    assert texts(accents, ['"é"', '"\\u00e9"'], characters="ascii") == ['"\\u00e9"']
    typed = {"enum": [1, True, "1"], "type": "integer"}
    assert texts(typed, ["1", "true", '"1"']) == ["1"]


def test_traffic_scenarios():
    schema = scenario_schema(default_environment())
    dfa = compile_json_schema(schema)
    assert dfa.num_states < 6000
    validator = jsonschema.Draft202012Validator(schema)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(100):
        text = walk(dfa, rng, longest=1500)
        if text is not None:
            scenario = json.loads(text)
            validator.validate(scenario)
            seen.update(scenario)
    assert seen >= {"demand", "profile", "surges", "seed"}
    designed = {
        "name": "evening rush",
        "demand": 0.95,
        "origins": {},
        "profile": {"shape": "peak", "time": 1800, "width": 600.5, "height": 2},
        "surges": [{"origin": "west", "start": 0, "duration": 300, "factor": 2.5}],
        "signals": {"min_green": 5.0},
        "seed": 7,
    }
    validator.validate(designed)
    assert dfa.accepts(json.dumps(designed))
    assert not dfa.accepts(json.dumps(designed | {"demand": 9}))


NUMBER = {"type": "number", "minimum": 0, "maximum": 1}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string", "pattern": "a+"}, r"\$: keyword 'pattern' is not supported for string"),
        (
            {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}},
            r"\$\.x: keyword 'uniqueItems'",
        ),
        ({"$ref": "#/$defs/a"}, "'\\$ref'"),
        ({"type": "number", "multipleOf": 2}, "'multipleOf'"),
        ({"type": "object", "patternProperties": {}}, "'patternProperties'"),
        ({"allOf": [NUMBER]}, "no type, only 'allOf'"),
        ({}, "no type, only nothing"),
        (True, "is not an object"),
        ({"type": "date"}, "type 'date'"),
        ({"type": []}, "empty list of types"),
        ({"type": "object", "required": ["x"]}, "required 'x' is not in properties"),
        ({"type": "array", "items": NUMBER}, "without maxItems"),
        ({"type": "array", "items": NUMBER, "minItems": 3, "maxItems": 2}, "minItems 3 above"),
        ({"type": "array", "maxItems": 2}, r"\$\[\]: True is not an object"),
        ({"type": "array", "items": NUMBER, "maxItems": -1}, "maxItems is -1"),
        ({"type": "string", "minLength": 300}, "minLength 300 above"),
        ({"type": "string", "maxLength": True}, "maxLength is True"),
        ({"type": "number", "minimum": 2, "maximum": 1}, "no number"),
        ({"type": "number", "minimum": 1 / 3, "maximum": 1 / 3}, "at most 4 decimals"),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "no number"),
        ({"type": "number", "minimum": "0"}, "minimum is '0'"),
        ({"type": "number", "maximum": float("nan")}, "maximum is nan"),
        ({"enum": []}, "no value is possible"),
        ({"const": 1, "type": "string"}, "no value is possible"),
        ({"const": float("inf")}, "is no JSON value"),
        ({"const": 1, "minimum": 0}, "'minimum' beside"),
        ({"anyOf": [NUMBER], "type": "number"}, "'type' beside anyOf"),
        ({"anyOf": []}, "without options"),
        ({"oneOf": [NUMBER, {"type": "integer"}]}, r"oneOf\[1\]: overlaps"),
        ({"oneOf": [{"const": 1}, {"enum": [2, 1.0]}]}, "overlaps"),
        (
            {
                "oneOf": [
                    {"type": "object", "properties": {"a": {"const": n}}, "required": ["a"] * n}
                    for n in (0, 1)
                ]
            },
            "overlaps",
        ),
    ],
)
def test_bad_schemas(schema, message):
    with pytest.raises(ConfigError, match=message):
        compile_json_schema(schema)


def test_too_deep_or_too_large(monkeypatch):
    monkeypatch.setattr(finite_automaton, "_MAX_PLACES", 20_000)
    deep = NUMBER
    for _ in range(50):
        deep = {"type": "array", "items": deep, "maxItems": 1}
    with pytest.raises(ConfigError, match="levels"):
        compile_json_schema(deep)
    wide = NUMBER
    for _ in range(8):
        wide = {"type": "array", "items": wide, "minItems": 9, "maxItems": 9}
    with pytest.raises(ConfigError, match="JSON schema: the automaton would have more than"):
        compile_json_schema(wide)


def test_options_that_cannot_overlap():
    options = [
        {"type": "object", "properties": {"kind": {"const": k}}, "required": ["kind"]}
        for k in ("a", "b")
    ]
    dfa = compile_json_schema({"oneOf": [*options, {"type": "string"}, NUMBER]})
    assert dfa.accepts('{"kind": "b"}')
    assert dfa.accepts("0.5")


@pytest.mark.parametrize(
    "layout",
    [{"decimals": 18}, {"longest_string": -1}, {"characters": "latin"}, {"separators": (";", ":")}],
)
def test_bad_layouts(layout):
    with pytest.raises(ConfigError, match="expected"):
        JsonLayout(**layout)
