"""What is wrong with a JSON value, in words."""

import pytest

from jaxlab.core.json_schemas import json_problems

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["slope"],
    "properties": {
        "slope": {"type": "number", "minimum": 0},
        "stones": {"type": "array", "items": {"type": "number", "maximum": 3}},
        "ground": {
            "oneOf": [
                {
                    "properties": {"kind": {"const": kind}, "depth": {"maximum": most}},
                    "required": ["kind", "depth"],
                }
                for kind, most in (("sand", 1), ("snow", 9))
            ]
        },
    },
}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"slope": 1, "stones": [1, 2.5]}, []),
        ([], ["at the top: [] is not of type 'object'"]),
        ({}, ["at the top: 'slope' is a required property"]),
        ({"slope": -1}, ["slope: -1 is less than the minimum of 0"]),
        ({"slope": float("nan")}, ["slope: expected a finite number"]),
        ({"slope": 1, "stones": [0, float("-inf")]}, ["stones[1]: expected a finite number"]),
        (
            {"slope": 1, "ground": {"kind": "sand", "depth": 4}},
            ["ground.depth: 4 is greater than the maximum of 1"],
        ),
    ],
)
def test_problems_name_the_place_and_the_rule(document, expected):
    assert json_problems(SCHEMA, document) == expected


def test_all_problems_are_named():
    problems = json_problems(SCHEMA, {"slope": "steep", "stones": [1, 5, 7]})
    assert sorted(problems) == [
        "slope: 'steep' is not of type 'number'",
        "stones[1]: 5 is greater than the maximum of 3",
        "stones[2]: 7 is greater than the maximum of 3",
    ]
