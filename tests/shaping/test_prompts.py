"""What a language model is told."""

import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.shaping.architect import Request
from jaxlab.shaping.prompts import CURRICULUM_PROMPTS, Briefing, schema_lines
from tests.shaping import hill

SPACE = hill.space()


def told(request, space=SPACE, variant="A", **options):
    """System and user message."""
    system, user = Briefing(space, variant, **options).messages(request)
    assert (system["role"], user["role"]) == ("system", "user")
    return system["content"], user["content"]


@pytest.mark.parametrize("variant", CURRICULUM_PROMPTS)
def test_a_model_is_told_all_it_needs(variant):
    request = Request(
        seed=0,
        stage=2,
        history=hill.history(0.4, 0.83456789),
        components={"2 * slip": {"mean": 0.123456, "values": [0.0, 1.0]}},
        rejections=("it pays for\nstanding still",),
    )
    system, user = told(request, variant=variant)
    for text in (
        "Eight robots climb a hill.",
        '{"robots": 8}',
        "- slope: number from 0 to 40. Of the hill, degrees.",
        "- ground: one of sand, snow",
        "- stones: list of 0 to 3 items",
        "- at (required): integer from 0 to 9",
        "- terms (required): list of 1 to 4 items. The terms.",
        "- feature (required): one of slip, grip",
        "- weight (required): number from -1 to 1",
        "- form (required): one of direct, potential",
        "- slip: slip of the wheels (0 to 1; more is worse)",
        "- uphill: number from -3 to 3. how far up an action leads.",
        '{"reason": ..., "scenario": ..., "reward": ..., "prior": ...}',
    ):
        assert text in system
    for text in (
        '"return": 0.8346',
        "Stage 1:",
        "Target difficulty of the new stage: 0.3 ",
        "above 0.8",
        "below 0.5",
        "Success of the last stage: 0.8346.",
        '- 2 * slip: {"mean": 0.1235, "values": [0, 1]}',
        "nearly constant",
        "- it pays for standing still",
    ):
        assert text in user


def test_the_first_stage_has_no_past():
    system, user = told(Request(0, 0))
    assert "nothing has been trained" in user
    assert "Target difficulty of the new stage: 0.2 " in user
    for text in ("Success of the last", "Terms of the last", "refused", "nan"):
        assert text not in user
    assert system == told(Request(0, 2, hill.history(0.4, 0.4)))[0]


@pytest.mark.parametrize(("records", "shown"), [(3, [2, 3, 4]), (1, [4]), (9, [0, 1, 2, 3, 4])])
def test_the_last_records_are_told(records, shown):
    _, user = told(Request(0, 5, hill.history(0.4, 0.5, 0.6, 0.7, 0.75)), records=records)
    assert [n for n in range(6) if f"Stage {n}:" in user] == shown


def test_numbers_that_are_missing_are_told_as_such():
    _, user = told(Request(0, 1, hill.history(float("nan"))))
    assert '"return": null' in user
    assert "Success of the last stage: unknown." in user


def test_parts_that_are_not_designed_are_not_mentioned():
    system, _ = told(Request(0, 0), hill.space(parts=("scenario",)))
    for word in ("`reward`", "`prior`", "slip", "uphill"):
        assert word not in system
    assert '{"reason": ..., "scenario": ...}' in system


def test_the_reward_language_is_explained_where_sources_are_written():
    assert "def reward(" not in told(Request(0, 0))[0]
    system, _ = told(Request(0, 0), sources=True)
    assert "def reward(slip, grip):" in system
    assert "- source (required): string. The function" in system
    assert "slip of the wheels" in system


def test_variants_state_the_same_facts():
    a, b = (told(Request(0, 0), variant=variant)[0] for variant in CURRICULUM_PROMPTS)
    differing = [(x, y) for x, y in zip(a.splitlines(), b.splitlines(), strict=True) if x != y]
    assert len(differing) == 1
    with pytest.raises(ConfigError, match="choose from A, B"):
        Briefing(SPACE, "Z")


def test_long_lists_are_shortened_where_asked():
    schema = {
        "type": "object",
        "properties": {
            "road": {"enum": [f"road_{n}" for n in range(20)]},
            "origins": {
                "type": "object",
                "properties": {
                    f"road_{n}": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 5,
                        "description": f"Entering on road_{n}.",
                    }
                    for n in range(9)
                },
            },
            "shape": {
                "description": "Over time.",
                "oneOf": [
                    {"type": "object", "properties": {"shape": {"const": "flat"}}},
                    {
                        "type": "object",
                        "properties": {
                            "values": {
                                "type": "array",
                                "minItems": 12,
                                "maxItems": 12,
                                "items": {"type": "number"},
                            },
                            "seed": {"type": "integer", "minimum": 0, "maximum": 2147483647},
                        },
                        "required": ["values"],
                    },
                ],
            },
        },
    }
    assert schema_lines(schema, "x", longest_list=2) == [
        "- x: object",
        "  - road: one of road_0, road_1 and 18 more of this kind",
        "  - origins: object Any of road_0, road_1 and 7 more of this kind, each:",
        "    - value: number from 0 to 5",
        "  - shape: one of. Over time.",
        "    - form 1: object",
        '      - shape: always "flat"',
        "    - form 2: object",
        "      - values (required): list of 12 items",
        "        - item: number",
        "      - seed: integer from 0 to 2147483647",
    ]
    assert "road_19" in "\n".join(schema_lines(schema, "x"))


def test_a_repair_names_every_problem():
    assert Briefing(SPACE, "A").repair(["slope: 77 is too much", "prior: no"]).splitlines()[
        1:3
    ] == [
        "- slope: 77 is too much",
        "- prior: no",
    ]
