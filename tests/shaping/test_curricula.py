"""Curricula over a scenario space that has nothing to do with any environment."""

import json
import math

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.core.errors import CapacityError, ConfigError, ScenarioError
from jaxlab.shaping import curricula
from jaxlab.shaping.curricula import CURRICULA, Proposal, Space, make_curriculum, mixture, record

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "slope": {
            "type": "number",
            "minimum": 0,
            "maximum": 40,
            "difficulty": {"easy": [0, 10], "hard": [20, 40]},
        },
        "friction": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "difficulty": {"easy": [0.8, 0.8], "hard": [0.2, 0.2]},
        },
        "colour": {"enum": ["red", "blue"]},
        "mass": {"type": "number", "minimum": 1, "maximum": 2},
        "ground": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": kind}, "depth": {"type": "integer"} | depth},
                    "required": ["kind", "depth"],
                }
                for kind, depth in (
                    ("sand", {"minimum": 1, "maximum": 3}),
                    ("never", {"minimum": 0, "maximum": 0}),
                    ("snow", {"minimum": 4, "maximum": 9}),
                )
            ],
            "difficulty": {"options": [0, 2]},
        },
        "obstacles": {
            "type": "array",
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {"at": {"type": "number", "minimum": 0, "maximum": 9}},
                "required": ["at"],
            },
            "difficulty": {"easy": [0, 0], "hard": [2, 4]},
        },
    },
}
SPACE = Space(SCHEMA)
GOOD, FAIR, POOR = (
    {"return": -10.0, "reference": -9.0},
    {"return": -10.0, "reference": -6.5},
    {"return": -10.0, "reference": -2.0},
)


def played(curriculum, metrics):
    """History of a curriculum whose scenarios ended with given metrics."""
    history = []
    for result in metrics:
        history.append(record(curriculum(history), result))
    return history


@pytest.mark.parametrize("name", CURRICULA)
def test_scenarios_keep_to_the_schema_and_are_json(name):
    curriculum = make_curriculum(name, SPACE, seed=3, stages=6)
    for stage in played(curriculum, [GOOD, POOR, FAIR, GOOD, GOOD, GOOD, GOOD]):
        jsonschema.validate(stage["scenario"], SCHEMA)
        assert json.loads(json.dumps(stage)) == stage
        assert 0 <= stage["difficulty"] <= 1
        assert "colour" not in stage["scenario"]
        assert "mass" not in stage["scenario"]
        assert stage["scenario"].get("ground", {}).get("kind") != "never"


@pytest.mark.parametrize("name", CURRICULA)
def test_a_history_read_back_from_json_goes_on_alike(name):
    history = played(make_curriculum(name, SPACE, seed=3), [GOOD, POOR, FAIR])
    restored = json.loads(json.dumps(history))
    again = make_curriculum(name, SPACE, seed=3)
    assert again(restored) == make_curriculum(name, SPACE, seed=3)(history)
    if name != "none":
        assert make_curriculum(name, SPACE, seed=4)(history).scenario != again(history).scenario


def test_no_curriculum_stays_with_the_base():
    assert make_curriculum("none", SPACE)([]) == Proposal({}, 0.0)


def test_the_static_ladder_climbs_from_easy_to_hard_and_stays_there():
    history = played(make_curriculum("static", SPACE, stages=5), [POOR] * 7)
    assert [stage["difficulty"] for stage in history] == [0, 0.25, 0.5, 0.75, 1, 1, 1]
    friction = [stage["scenario"]["friction"] for stage in history]
    np.testing.assert_allclose(friction, [0.8, 0.65, 0.5, 0.35, 0.2, 0.2, 0.2])
    assert 0 <= history[0]["scenario"]["slope"] <= 10
    assert 20 <= history[-1]["scenario"]["slope"] <= 40
    assert history[0]["scenario"]["obstacles"] == []
    assert 2 <= len(history[-1]["scenario"]["obstacles"]) <= 4


def test_rules_move_the_difficulty_by_the_band_of_success():
    rules = curricula.Rules(SPACE, start=0.2, step=0.1)
    history = played(rules, [GOOD, GOOD, FAIR, POOR, POOR, POOR, POOR, GOOD])
    steps = [stage["difficulty"] for stage in history]
    np.testing.assert_allclose(steps, [0.2, 0.3, 0.4, 0.4, 0.3, 0.2, 0.1, 0.0])
    np.testing.assert_allclose(rules(history).difficulty, 0.1)


def test_rules_stay_between_zero_and_one_and_hold_without_a_measurement():
    rules = curricula.Rules(SPACE, start=0.95, step=0.1)
    history = played(rules, [GOOD, GOOD])
    assert rules(history).difficulty == 1
    unknown = {"return": math.nan, "reference": -1.0}
    assert rules([*history, record(rules(history), unknown)]).difficulty == 1
    # NaN comes back from JSON as null.
    lost = {"scenario": {}, "difficulty": 0.5, "metrics": {"return": None, "reference": -1.0}}
    assert rules([lost]).difficulty == 0.5


def test_randomisation_varies_each_property_by_itself():
    many = [make_curriculum("domain_randomisation", SPACE, seed=n)([]).scenario for n in range(200)]
    friction = np.array([scenario["friction"] for scenario in many])
    slope = np.array([scenario["slope"] for scenario in many])
    assert friction.min() < 0.25
    assert friction.max() > 0.75
    assert abs(friction.mean() - 0.5) < 0.05
    assert abs(np.corrcoef(friction, slope)[0, 1]) < 0.2


@pytest.mark.parametrize(
    ("achieved", "reference", "expected"),
    [
        (-10, -8, 0.8),
        (-5, -10, 2.0),
        (8, 10, 0.8),
        (0, 0, 1.0),
        (-1, 0, 0.0),
        (0, -1, math.inf),
        (1, -1, math.inf),
        (-1, 1, 0.0),
    ],
)
def test_success_is_relative_to_the_reference_whatever_the_sign(achieved, reference, expected):
    assert curricula.success({"return": achieved, "reference": reference}) == expected


@given(better=st.floats(-100, 100), worse=st.floats(-100, 100), reference=st.floats(-100, 100))
def test_success_never_prefers_the_worse_return(better, worse, reference):
    better, worse = max(better, worse), min(better, worse)
    score = [curricula.success({"return": r, "reference": reference}) for r in (worse, better)]
    assert score[0] <= score[1]


def test_impossible_scenarios_are_drawn_again():
    refused = []

    def check(scenario):
        if scenario["slope"] > 30:
            refused.append(scenario)
            raise CapacityError("too steep")

    space = Space(SCHEMA, check)
    for seed in range(20):
        ladder = curricula.StaticLadder(space, seed, stages=2)
        proposal = ladder([{"scenario": {}, "difficulty": 0.0, "metrics": GOOD}])
        assert proposal.scenario["slope"] <= 30
        assert proposal.difficulty == 1
    assert refused


def test_a_space_without_possible_scenarios_is_an_error():
    def check(scenario):
        raise ScenarioError("flat earth")

    with pytest.raises(ScenarioError, match="flat earth"):
        make_curriculum("rules", Space(SCHEMA, check))([])


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match="none, static, domain_randomisation, rules"):
        make_curriculum("magic", SPACE)


def test_the_first_mixture_is_the_new_scenario_and_the_base():
    scenarios, weights, parts = mixture([], Proposal({"slope": 3}, 0.1), new=3, earlier=2)
    assert scenarios == ({"slope": 3},) * 3 + ({},) * 3
    np.testing.assert_allclose(weights, [0.3, 0.3, 0.3, 0.1, 0, 0])
    assert parts == ("new",) * 3 + ("base",) * 3


def test_a_mixture_holds_the_shares_and_keeps_its_size():
    history = [{"scenario": {"slope": n}, "difficulty": 0.1, "metrics": GOOD} for n in range(1, 6)]
    for length in range(1, 6):
        scenarios, weights, parts = mixture(
            history[:length], Proposal({"slope": 9}, 0.1), new=2, earlier=3
        )
        share = {p: sum(w for w, q in zip(weights, parts, strict=True) if q == p) for p in parts}
        assert len(scenarios) == 6
        assert share == pytest.approx({"new": 0.7, "earlier": 0.2, "base": 0.1})
        replayed = [s["slope"] for s, p in zip(scenarios, parts, strict=True) if p == "earlier"]
        assert len(set(replayed)) == min(length, 3)
        assert set(replayed) <= set(range(1, length + 1))


def test_scenarios_without_success_are_replayed_more_often():
    history = [
        {"scenario": {"slope": n}, "difficulty": 0.1, "metrics": POOR if n == 2 else GOOD}
        for n in range(4)
    ]
    drawn = [
        mixture(history, Proposal({"slope": 9}, 0.1), new=1, earlier=1, seed=seed).scenarios[1]
        for seed in range(200)
    ]
    count = np.bincount([scenario["slope"] for scenario in drawn], minlength=4)
    # Chances are 0.1 + (1 - success): 0.9 of it against 0.2 for each other one.
    assert 90 < count[2] < 150


def test_mixtures_and_histories_do_not_share_memory():
    history = [{"scenario": {"slope": 1}, "difficulty": 0.1, "metrics": GOOD}]
    mixed = mixture(history, Proposal({"slope": 9}, 0.1), new=1, earlier=1)
    mixed.scenarios[1]["slope"] = 7
    assert history[0]["scenario"]["slope"] == 1


def test_a_schema_that_cannot_be_drawn_from_is_an_error():
    rng = np.random.default_rng(0)
    with pytest.raises(ScenarioError, match="cannot draw"):
        curricula.draw({"type": "string"}, rng, 0.5)
    with pytest.raises(ScenarioError, match="'maximum' is missing"):
        curricula.draw({"type": "number"}, rng, 0.5)
