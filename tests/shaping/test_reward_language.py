"""What the reward language reads, what it makes of it, and how it is stored."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError
from jaxlab.envs.traffic.features import ACTION_FEATURES, JUNCTION_FEATURES
from jaxlab.llm.json_schema import compile_json_schema
from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_filling import (
    MOST_TERMS,
    SHAPES,
    reward_guide,
    reward_schema,
    write_reward,
)
from jaxlab.shaping.reward_language import parse_reward, reward_terms
from jaxlab.shaping.reward_program import Op, RewardError, RewardFunction
from jaxlab.shaping.reward_source import Limits
from jaxlab.shaping.stack_machine import evaluate
from tests.llm.test_regex import walk
from tests.shaping.programs import CATALOGUE, functions

JAM = """
def reward(queue, speed):
    # Jams are worse than they look.
    jam = where(queue > 0.5, queue, 0.0)
    jam += 1
    return 0.3 * speed - tanh(2.0 * jam)
"""


run = jax.jit(evaluate)


def value(function, features):
    return np.asarray(run(function.program(), jnp.asarray(features, jnp.float32)))


def test_lowering():
    function = parse_reward(JAM, CATALOGUE)
    assert function.used == ("queue", "speed")
    ops = [op for op, _ in function.instructions]
    # queue > 0.5 is 0.5 < queue; the local variable is written out.
    assert ops == [
        *(Op.CONSTANT, Op.FEATURE, Op.MULTIPLY, Op.CONSTANT),
        *(Op.CONSTANT, Op.FEATURE, Op.LESS, Op.FEATURE, Op.CONSTANT, Op.WHERE),
        *(Op.CONSTANT, Op.ADD, Op.MULTIPLY, Op.TANH, Op.SUBTRACT),
    ]
    features = [[0.75, 1.0, 0, 0], [0.25, 0.5, 0, 0]]
    expected = [0.3 - np.tanh(3.5), 0.15 - np.tanh(2.0)]
    np.testing.assert_allclose(value(function, features), expected, rtol=1e-6)


def test_parameters_are_found_by_name():
    for source in ("def reward(age, queue): return age", "def reward(age): return age"):
        function = parse_reward(source, CATALOGUE)
        assert value(function, [[1.0, 2.0, 3.0, 4.0]]).tolist() == [4.0]


def test_names_can_be_assigned_anew():
    source = "def reward(queue):\n  queue = queue * 2\n  queue -= 1\n  return -queue\n"
    assert value(parse_reward(source, CATALOGUE), [[1.0, 0, 0, 0]]).tolist() == [-1.0]


@settings(max_examples=40)
@given(functions())
def test_stored_and_read_again(source):
    try:
        function = parse_reward(source, CATALOGUE)
    except RewardError:
        return
    document = json.loads(json.dumps(function.to_json()))
    assert RewardFunction.from_json(document) == function
    again = parse_reward(document["source"], CATALOGUE)
    assert again.digest == function.digest
    assert again.source == function.source


def test_the_digest_is_of_the_meaning():
    digest = parse_reward(JAM, CATALOGUE).digest
    assert (
        parse_reward(JAM.replace("jam", "mess").replace("# J", "#  J"), CATALOGUE).digest == digest
    )
    assert parse_reward(JAM.replace("0.3", "0.4"), CATALOGUE).digest != digest
    assert digest == "".join(c for c in digest if c in "0123456789abcdef")
    other = FeatureCatalogue(
        CATALOGUE.names[::-1], CATALOGUE.descriptions, CATALOGUE.ranges, CATALOGUE.signs
    )
    assert parse_reward(JAM, other).digest != digest


def document(**changes):
    return parse_reward(JAM, CATALOGUE).to_json() | changes


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (None, "expected format 1"),
        ([], "expected format 1"),
        ({}, "expected format 1"),
        (document(format=2), "format 2: expected format 1"),
        (document(digest="0" * 64), "was changed"),
        (document(digest=None), "was changed"),
        (document(features=["a", "b"]), "malformed"),
        (document(program=[["feature", "queue"]]), "was changed"),
        (document(program=[["feature", "nobody"]]), "malformed"),
        (document(program=[["launch"]]), "malformed"),
        (document(program=[["nothing"]]), "values at a time"),
        (document(program=[["add"]]), "takes more values"),
        (document(program=[["constant", 1.0]] * 2), "leaves 2 values"),
        (document(program=[["constant", "many"]]), "malformed"),
        (document(program=[["constant", float("nan")]]), "not a finite number"),
        (document(program=[["constant", 10**400]]), "malformed"),
        (document(program=[]), "takes 0 operations"),
        (document(program=[[]]), "malformed"),
        (document(program=7), "malformed"),
        (document(program=[["negate"]] * 5000), "takes 5000 operations"),
    ],
)
def test_damaged_records(record, message):
    with pytest.raises(RewardError, match=message):
        RewardFunction.from_json(record)


def test_terms_for_statistics():
    source = (
        "def reward(queue, speed, age):\n  jam = tanh(queue)\n"
        "  return speed - (2 * jam - age) + 0.5\n"
    )
    terms = reward_terms(source, CATALOGUE)
    assert list(terms) == ["speed", "-(2 * jam)", "age", "0.5"]
    features = np.random.default_rng(0).uniform(0, 1, (5, 4))
    total = sum(value(term, features) for term in terms.values())
    np.testing.assert_allclose(total, value(parse_reward(source, CATALOGUE), features), rtol=1e-5)


def test_limits_can_be_set():
    source = "def reward(queue): return 1 + 2 * queue"
    for limits, message in (
        (Limits(characters=10), "39 characters, the limit is 10"),
        (Limits(nodes=5), "more than 5 syntax nodes"),
        (Limits(depth=3), "more than 3 levels"),
        (Limits(constants=1), "more than 1 constants"),
        (Limits(largest_constant=1), "beyond 1"),
        (Limits(instructions=3), "more than 3 operations"),
    ):
        with pytest.raises(RewardError, match=message):
            parse_reward(source, CATALOGUE, limits=limits)


def test_the_name_of_the_function_can_be_set():
    source = "def prior(queue): return queue"
    assert parse_reward(source, CATALOGUE, name="prior").used == ("queue",)
    with pytest.raises(RewardError, match="exactly one function, reward"):
        parse_reward(source, CATALOGUE)


def test_the_example_of_the_guide_is_a_reward():
    guide = reward_guide(CATALOGUE)
    example = guide[guide.index("Example:\n") + len("Example:\n") :]
    assert parse_reward(example, CATALOGUE).used == ("queue", "speed")
    assert all(name in guide for name in CATALOGUE.names)


terms = st.fixed_dictionaries(
    {
        "feature": st.sampled_from(CATALOGUE.names),
        "shape": st.sampled_from(list(SHAPES)),
        "weight": st.floats(-1, 1).map(lambda x: round(x, 2)),
    }
)


@settings(max_examples=40)
@given(st.lists(terms, min_size=1, max_size=MOST_TERMS))
def test_filled_forms_are_rewards(chosen):
    function = parse_reward(write_reward({"terms": chosen, "form": "direct"}, CATALOGUE), CATALOGUE)
    features = np.random.default_rng(0).uniform([0, 0, -1, 0], 1, (5, 4))
    shapes = {
        "linear": lambda u: u,
        "square": np.square,
        "root": np.sqrt,
        "saturating": lambda u: np.tanh(3 * u),
        "excess": lambda u: np.maximum(u - 0.5, 0),
    }
    scaled = {name: features[:, n] for n, name in enumerate(CATALOGUE.names)}
    scaled["pressure"] = (scaled["pressure"] + 1) / 2
    expected = sum(t["weight"] * shapes[t["shape"]](scaled[t["feature"]]) for t in chosen)
    np.testing.assert_allclose(value(function, features), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "filled",
    [
        None,
        {},
        {"terms": []},
        {"terms": [{"feature": "queue", "shape": "linear", "weight": 0.1}] * 5},
        {"terms": [{"feature": "nobody", "shape": "linear", "weight": 0.1}]},
        {"terms": [{"feature": "queue", "shape": "spiral", "weight": 0.1}]},
        {"terms": [{"feature": "queue", "shape": "linear", "weight": float("nan")}]},
        {"terms": [{"feature": "queue", "shape": "linear", "weight": "__import__('os')"}]},
        {"terms": [{"feature": "queue", "shape": "linear"}]},
        {"terms": ["queue"]},
    ],
)
def test_bad_forms(filled):
    with pytest.raises(RewardError, match="reward: "):
        write_reward(filled, CATALOGUE)


def test_the_schema_of_the_form():
    schema = reward_schema(CATALOGUE)
    term = schema["properties"]["terms"]["items"]["properties"]
    assert term["feature"]["enum"] == list(CATALOGUE.names)
    assert schema["required"] == ["terms", "form"]


def test_a_grammar_fills_forms_validly():
    """Random texts of the form's grammar are rewards over the features of traffic signals."""
    features = FeatureCatalogue.of(JUNCTION_FEATURES)
    grammar = compile_json_schema(reward_schema(features))
    rng = np.random.default_rng(0)
    used = set()
    for _ in range(60):
        if (text := walk(grammar, rng, longest=300)) is not None:
            source = write_reward(json.loads(text), features)
            used.update(parse_reward(source, features).used)
    assert used == set(features.names)


def test_the_features_of_traffic_signals_make_catalogues():
    for records in (JUNCTION_FEATURES, ACTION_FEATURES):
        made = FeatureCatalogue.of(records)
        source = f"def reward({', '.join(made.names)}):\n    return {made.names[0]}\n"
        assert parse_reward(source, made).used == ("queue",)
        assert made.text().count("\n") == len(records) - 1


def catalogue(**changes):
    whole = {
        "names": ("a", "b"),
        "descriptions": ("", ""),
        "ranges": ((0.0, 1.0), (0.0, 1.0)),
        "signs": (0, 0),
    }
    return FeatureCatalogue(**(whole | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("a",)}, "must be as many"),
        ({"names": ("a", "a")}, "feature 'a'"),
        ({"names": ("a", "_b")}, "feature '_b'"),
        ({"names": ("a", "b c")}, "feature 'b c'"),
        ({"ranges": ((0.0, 1.0), (1.0, 1.0))}, "low < high"),
        ({"ranges": ((0.0, 1.0), (0.0, float("inf")))}, "low < high"),
        ({"signs": (0, 2)}, "sign"),
    ],
)
def test_bad_catalogues(changes, message):
    with pytest.raises(ConfigError, match=message):
        catalogue(**changes)


def test_catalogues_from_records():
    class Record:
        name, description, low, high, sign = "flow", "vehicles per second", 0, 2, 1

    made = FeatureCatalogue.of([Record])
    assert made.names == ("flow",)
    assert made.text() == "flow: vehicles per second (0 to 2; more is better)"
    with pytest.raises(ConfigError, match="not none"):
        FeatureCatalogue.of([])
