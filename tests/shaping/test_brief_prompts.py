"""What a small model is told, and what it may answer."""

import json

import jsonschema
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.llm.json_schema import compile_json_schema
from jaxlab.shaping.architect import Request
from jaxlab.shaping.brief_prompts import LONGEST_PROBLEM, BriefBriefing
from jaxlab.shaping.prompts import CURRICULUM_PROMPTS, Briefing
from tests.shaping import hill

SPACE = hill.space()


def told(briefing, **request):
    system, user = briefing.messages(Request(**({"seed": 0, "stage": 0} | request)))
    return system["content"], user["content"]


@pytest.mark.parametrize("variant", CURRICULUM_PROMPTS)
def test_it_is_short_and_names_every_part(variant):
    history = hill.history(0.4, 0.83456789)
    components = {"2 * slip": {"correlation": -0.5}, "height": {"correlation": 0.8}}
    brief = BriefBriefing(SPACE, variant)
    system, user = told(brief, stage=2, history=history, components=components)
    for part in SPACE.parts:
        assert part in system
    assert f"Stage {len(history)}" in user
    assert "success 0.83" in user
    assert "height went best with success (0.80), 2 * slip least (-0.50)" in user
    long = sum(map(len, told(Briefing(SPACE, variant), stage=2, history=history)))
    assert len(system) + len(user) < 0.7 * long


def test_the_prompts_differ_in_strategy():
    systems = {told(BriefBriefing(SPACE, variant))[0] for variant in CURRICULUM_PROMPTS}
    assert len(systems) == len(CURRICULUM_PROMPTS)
    with pytest.raises(ConfigError, match="prompt 'C' is unknown"):
        BriefBriefing(SPACE, "C")


def test_its_answers_are_designs_whose_rewards_have_the_right_sign():
    schema = BriefBriefing(SPACE, "A").schema
    jsonschema.Draft202012Validator.check_schema(schema)
    compile_json_schema(schema)  # it has a grammar
    terms = schema["properties"]["reward"]["properties"]["terms"]["items"]
    options = terms.get("anyOf", [terms])
    signs = dict(zip(SPACE.features.names, SPACE.features.signs, strict=True))
    for option in options:
        weight = option["properties"]["weight"]
        for name in option["properties"]["feature"]["enum"]:
            assert signs[name] == (-1 if weight["maximum"] < 0 else 1)
    text = json.dumps(schema)
    assert '"seed"' not in text
    assert '"description": {"type": "string"' not in text


def test_a_repair_tells_the_first_problem_in_few_words():
    brief = BriefBriefing(SPACE, "A")
    text = brief.repair(["slope: 77 is\ntoo much " * 50, "prior: no"])
    assert "slope: 77 is too much" in text
    assert "prior: no" not in text
    assert len(text) < LONGEST_PROBLEM + 100
