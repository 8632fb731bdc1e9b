"""Architects without a model: the rules and the draw; what a design must pass."""

import dataclasses
import json

import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError, ScenarioError
from jaxlab.llm.json_schema import compile_json_schema
from jaxlab.shaping.architect import Architect, Request
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.architects import ARCHITECTS, make_architect, sampling
from jaxlab.shaping.curricula import Rules, Space
from jaxlab.shaping.design_space import SITUATIONS, situation
from jaxlab.shaping.reward_template import prior_logits, shaping_value
from tests.shaping import hill

SPACE = hill.space()


def design(name, request, space=SPACE):
    (made,) = make_architect(name, space, ArchitectLog()).design([request])
    return made


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"scenario": {"slope": 41}}, ["scenario.slope: 41 is greater than the maximum of 40"]),
        ({"scenario": {"slope": "steep"}}, ["scenario.slope: 'steep' is not of type 'number'"]),
        (
            {"scenario": {"slopes": 3}},
            [
                "scenario: Additional properties are not allowed ('slopes' was unexpected)",
            ],
        ),
        ({"scenario": {"stones": [{}]}}, ["scenario.stones[0]: 'at' is a required property"]),
        ({"scenario": {"rain": float("nan")}}, ["scenario.rain: expected a finite number"]),
        (
            {"scenario": {"slope": 40, "rain": 0}},
            ["scenario: the robots are washed away: less slope, or no rain"],
        ),
        (
            {"reward": hill.reward(weight=-2)},
            ["reward.terms[0].weight: -2 is less than the minimum of -1.0"],
        ),
        (
            {"reward": hill.reward("speed")},
            ["reward.terms[0].feature: 'speed' is not one of ['slip', 'grip']"],
        ),
        ({"reward": hill.reward(weight=0.5)}, ["reward: it pays for slipping"]),
        ({"reward": hill.reward(weight=0.5, form="potential")}, []),
        ({"prior": {"uphill": 3.5}}, ["prior.uphill: 3.5 is greater than the maximum of 3.0"]),
        ({"reason": None}, ["reason: None is not of type 'string'"]),
    ],
)
def test_what_is_wrong_with_a_design_is_named(change, expected):
    assert SPACE.problems(hill.GOOD | change) == expected


def test_all_parts_are_checked_and_required():
    wrong = {"scenario": {"slope": 40, "rain": 0}, "reward": hill.reward(weight=1)}
    assert len(SPACE.problems(hill.GOOD | wrong)) == 2
    for part in ("reason", "scenario", "reward", "prior"):
        (problem,) = SPACE.problems({k: v for k, v in hill.GOOD.items() if k != part})
        assert problem == f"at the top: '{part}' is a required property"


def test_a_reward_may_be_written_as_a_source():
    def answer(source):
        return hill.GOOD | {"reward": {"source": source, "form": "direct"}}

    assert SPACE.problems(answer(hill.SOURCE), sources=True) == []
    (problem,) = SPACE.problems(answer("import os"), sources=True)
    assert problem.startswith("reward: ")
    assert SPACE.problems(answer("def reward(slip):\n    return 0.5 * slip"), sources=True) == [
        "reward: it pays for slipping"
    ]
    assert "reward" in SPACE.problems(answer(hill.SOURCE))[0]


def test_designs_can_be_written_with_a_grammar():
    grammar = compile_json_schema(SPACE.schema())
    assert grammar.accepts(json.dumps(hill.GOOD))
    assert not grammar.accepts(json.dumps(hill.GOOD | {"reward": hill.reward(weight=1.5)}))
    written = hill.GOOD | {"reward": {"source": hill.SOURCE, "form": "direct"}}
    assert compile_json_schema(SPACE.schema(sources=True)).accepts(json.dumps(written))


def test_a_design_becomes_programs_for_the_compiled_step():
    features = jnp.array([[0.25, 1.0], [0.5, 0.0]], jnp.float32)
    template = SPACE.template(hill.reward(form="potential"), {"uphill": 1.5}, (0.5, 2.0))
    shaping = template.arrays()
    np.testing.assert_allclose(shaping_value(shaping, features), [-0.125, -0.25])
    assert bool(shaping.potential)
    actions = jnp.array([[[1.0], [-1.0], [0.0]]], jnp.float32)
    logits = prior_logits(shaping, actions, jnp.ones((1, 3), bool))
    np.testing.assert_allclose(logits, [[1.5, -1.5, 0.0]])
    empty = SPACE.template(None, {})
    assert (empty.reward, empty.prior, empty.potential) == (None, None, False)


def test_the_default_playbook_and_the_default_checks_agree():
    space = hill.space(playbook=None, check_reward=None)
    for name in SITUATIONS:
        entry = space.playbook[name]
        assert [(t["feature"], np.sign(t["weight"])) for t in entry["reward"]["terms"]] == [
            ("slip", -1),
            ("grip", 1),
        ]
        assert entry["prior"]["uphill"] > 0
    problems = space.problems(hill.GOOD | {"reward": hill.reward("grip", -1)})
    assert problems
    assert all(line.startswith("reward") for line in problems)


def test_features_without_signs_need_a_playbook():
    unsigned = dataclasses.replace(SPACE.features, signs=(0, 0))
    with pytest.raises(ConfigError, match=r"'start' is refused: reward\.terms"):
        hill.space(features=unsigned, playbook=None)
    assert hill.space(features=unsigned).playbook == hill.PLAYBOOK


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["reason", "scenario", "reward", "prior", "slope", "x"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_judged_and_only_whole_designs_pass(document):
    problems = SPACE.problems(document)
    assert all(isinstance(line, str) and line for line in problems)
    if not problems:
        jsonschema.validate(document, SPACE.schema())


def test_parts_that_are_not_designed_are_not_asked_for():
    space = hill.space(parts=("scenario",), playbook={}, features=None, prior_features=None)
    assert set(space.schema()["properties"]) == {"reason", "scenario"}
    for name in ("rules", "random"):
        made = design(name, Request(0, 0), space)
        assert (made.reward, made.source, made.prior) == (None, "", {})
    space = hill.space(parts=("reward",))
    for name in ("rules", "random"):
        made = design(name, Request(0, 0), space)
        assert made.scenario == {}
        assert made.source
        assert made.prior == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parts": ("scenario", "weather")}, "weather"),
        ({"features": None}, "to design the reward, features are needed"),
        ({"prior_features": None}, "to design the prior, prior_features are needed"),
        ({"playbook": {}}, "no entry for 'start'"),
        (
            {"playbook": {n: {"reward": hill.reward()} for n in SITUATIONS}},
            "'start' is refused: prior",
        ),
        (
            {"playbook": {n: {"reward": hill.reward(weight=1), "prior": {}} for n in SITUATIONS}},
            "'start' is refused: reward: it pays for slipping",
        ),
    ],
)
def test_a_space_that_is_incomplete_or_whose_playbook_does_not_pass_is_refused(changes, expected):
    with pytest.raises(ConfigError, match=expected):
        hill.space(**changes)


def test_equal_entries_of_a_playbook_are_checked_once():
    asked = []

    def check(function, potential):
        asked.append(function.source)
        return []

    entry = {"reward": hill.reward(), "prior": {}}
    hill.space(playbook=dict.fromkeys(SITUATIONS, entry), check_reward=check)
    assert asked == [hill.SOURCE]


@pytest.mark.parametrize(
    ("successes", "expected"),
    [
        ([], "start"),
        ([0.3], "failing"),
        ([0.3, 0.7], "steady"),
        ([0.3, 0.9], "succeeding"),
        ([0.6, 0.6, 0.5, 0.6], "stalled"),
        ([0.3, 0.2, 0.3, 0.1], "stalled"),
        ([0.6, 0.6, 0.7, 0.6], "steady"),
        ([0.6, 0.6, 0.6], "steady"),
        ([float("nan")], "steady"),
    ],
)
def test_situations_follow_from_the_successes(successes, expected):
    assert situation(hill.history(*successes)) == expected


def test_a_training_that_holds_its_success_on_harder_scenarios_does_not_stall():
    records = hill.history(0.6, 0.6, 0.6, 0.6)
    for n, record in enumerate(records):
        record["difficulty"] = 0.1 * n
    assert situation(records) == "steady"


@pytest.mark.parametrize("successes", [[], [0.3], [0.7], [0.9], [0.6] * 4])
def test_rules_design_by_the_curriculum_and_the_playbook(successes):
    told = hill.history(*successes)
    made = design("rules", Request(5, len(told), told))
    entry = SPACE.playbook[situation(told)]
    assert made.proposal == Rules(SPACE.scenarios, 5)(told)
    assert (made.reward, made.prior) == (entry["reward"], entry["prior"])
    assert made.source == SPACE.source(entry["reward"])
    assert (made.architect, made.verdict) == ("rules", "accepted")
    assert json.loads(json.dumps(made._asdict())) == made._asdict()


def test_draws_keep_to_the_schema_pass_the_checks_and_repeat():
    requests = [Request(seed, stage) for seed in range(4) for stage in range(5)]
    made = make_architect("random", SPACE, ArchitectLog()).design(requests)
    again = make_architect("random", SPACE, ArchitectLog()).design(requests[::-1])[::-1]
    assert made == again
    for one in made:
        document = {name: getattr(one, name) for name in ("reason", "scenario", "reward", "prior")}
        assert SPACE.problems(document) == []
        assert one.verdict == "accepted"
    assert len({json.dumps(one.scenario) for one in made}) > 15
    assert len({one.source for one in made}) > 15


def test_draws_do_not_look_at_the_metrics():
    one, other = (
        design("random", Request(3, 2, hill.history(*successes)))
        for successes in ([0.1, 0.1], [0.95, 0.95])
    )
    assert one._replace(difficulty=0) == other._replace(difficulty=0)
    refused = design("random", Request(3, 2, hill.history(0.1, 0.1), rejections=("bad",)))
    assert refused != one


def test_draws_cover_the_bounds_evenly():
    rng = np.random.default_rng(0)
    drawn = [sampling.sample(SPACE.part_schema("scenario"), rng, 0.5) for _ in range(400)]
    slopes = np.array([one["slope"] for one in drawn if "slope" in one])
    assert 160 < len(slopes) < 240
    assert slopes.min() < 2
    assert slopes.max() > 38
    assert abs(slopes.mean() - 20) < 2
    assert {one["ground"] for one in drawn if "ground" in one} == {"sand", "snow"}
    assert not any("name" in one for one in drawn)
    stones = [one["stones"] for one in drawn if "stones" in one]
    assert {len(some) for some in stones} == {0, 1, 2, 3}
    assert {stone["at"] for some in stones for stone in some} == set(range(10))


def test_a_part_that_cannot_be_drawn_is_left_to_the_rules_and_counted():
    entry = {"reward": hill.reward(), "prior": {}}
    space = hill.space(
        check_reward=lambda function, potential: [] if function.source == hill.SOURCE else ["no"],
        playbook=dict.fromkeys(SITUATIONS, entry),
    )
    log = ArchitectLog()
    (made,) = make_architect("random", space, log).design([Request(0, 0)])
    assert made.verdict == "fallback"
    assert made.source == hill.SOURCE
    assert log.summary()["fallback"] == 1


def test_a_schema_without_bounds_cannot_be_drawn_from():
    rng = np.random.default_rng(0)
    for schema in ({"type": "number", "minimum": 0}, {"type": "array", "items": {}}, {}):
        with pytest.raises(ScenarioError, match="cannot draw"):
            sampling.sample(schema, rng, 0.5)


def test_impossible_scenarios_are_drawn_again():
    def no_rain(scenario):
        if "rain" in scenario:
            raise ValueError("it must not rain")

    space = hill.space(scenarios=Space(hill.SCHEMA, no_rain))
    requests = [Request(seed, 0) for seed in range(20)]
    made = make_architect("random", space, ArchitectLog()).design(requests)
    assert all("rain" not in one.scenario and one.verdict == "accepted" for one in made)


def test_requests_and_spaces_are_told_apart():
    request = Request(0, 1, hill.history(0.5))
    digests = {
        request.digest(SPACE),
        Request(1, 1, hill.history(0.5)).digest(SPACE),
        Request(0, 2, hill.history(0.5)).digest(SPACE),
        Request(0, 1, hill.history(0.6)).digest(SPACE),
        dataclasses.replace(request, components={"slip": {"mean": 1.0}}).digest(SPACE),
        dataclasses.replace(request, rejections=("no",)).digest(SPACE),
        request.digest(hill.space(card={})),
        request.digest(hill.space(parts=("scenario", "reward"))),
    }
    assert len(digests) == 8
    assert request.digest(SPACE) == Request(0, 1, hill.history(0.5)).digest(hill.space())


def test_architects_are_built_by_name():
    for name in ("rules", "random"):
        assert isinstance(make_architect(name, SPACE, ArchitectLog()), Architect)
    with pytest.raises(ConfigError, match=", ".join(ARCHITECTS)):
        make_architect("magic", SPACE, ArchitectLog())
    with pytest.raises(ConfigError, match="needs the log"):
        make_architect("recorded", SPACE, ArchitectLog())
    with pytest.raises(ConfigError, match="needs a model"):
        make_architect("smollm2", SPACE, ArchitectLog())
