"""The bank of states, the probes, and what a filled template does in a step."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError
from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_checks import (
    CheckLimits,
    Recording,
    bank_of_states,
    check_reward,
    probe_rejections,
)
from jaxlab.shaping.reward_language import parse_reward
from jaxlab.shaping.reward_program import RewardError
from jaxlab.shaping.reward_template import (
    LARGEST_LOGIT,
    LARGEST_REWARD,
    RewardTemplate,
    difficulty_weight,
    linear_prior,
    prior_logits,
    shaping_reward,
)
from tests.shaping.policies import RECORDINGS
from tests.shaping.programs import CATALOGUE

ACTIONS = FeatureCatalogue(
    names=("load", "is_current"),
    descriptions=("vehicles served", "1 for the phase shown"),
    ranges=((0.0, 1.0), (0.0, 1.0)),
    signs=(0, 0),
)


def reward(body):
    return parse_reward(
        f"def reward({', '.join(CATALOGUE.names)}):\n    return {body}\n", CATALOGUE
    )


def checked(body, **options):
    return check_reward(reward(body), CATALOGUE, **options)


def test_the_bank_has_the_corners():
    bank = bank_of_states(CATALOGUE, random=100)
    low, high = CATALOGUE.bounds
    assert bank.shape == (2 + 4 + 4 + 100, 4)
    assert bank.dtype == np.float32
    assert ((bank >= low) & (bank <= high)).all()
    rows = {tuple(row) for row in bank.tolist()}
    assert {tuple(low), tuple(high), (1, 0, -1, 0), (1, 0, 1, 1), (1, 1, -1, 1)} <= rows
    # A good share of the random states is at the ends of the ranges.
    assert 0.1 < np.isin(bank[10:], [-1, 0, 1]).mean() < 0.5
    np.testing.assert_array_equal(bank, bank_of_states(CATALOGUE, random=100))
    assert (bank != bank_of_states(CATALOGUE, seed=1, random=100)).any()


def test_statistics():
    verdict = checked("0.5 * speed - queue")
    assert verdict.accepted, verdict.text()
    assert verdict.text() == ""
    statistics = verdict.statistics
    assert (statistics["min"], statistics["max"]) == (-1.0, 0.5)
    assert statistics["sensitivity"] == pytest.approx({"queue": 1.0, "speed": 0.5}, rel=1e-5)
    assert statistics["std"] > 0.1
    json.dumps(statistics)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("9 * pressure", "reaches -9 at pressure = -1; keep it within \\+-5"),
        ("1.0", "nearly constant: its standard deviation .* is 0,"),
        ("queue * queue - queue", "more queue is worse, but queue = .* raises the reward"),
        ("tanh(pressure) - abs(speed - 0.5)", "less speed is worse"),
        ("speed * pressure", "less speed is worse"),
        ("where(queue > 0.5, -0.5, -2.0 * queue)", "more queue is worse"),
    ],
)
def test_rejections_on_the_bank(body, message):
    verdict = checked(body)
    assert len(verdict.rejections) == 1
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(verdict.text())


def test_monotone_in_every_way_is_accepted():
    for body in ("-queue", "speed ** 2", "-exp(queue)", "-(queue > 0.5)", "min(speed, 1 - queue)"):
        assert checked(body).accepted, body
    # Features without a sign may count either way.
    for body in ("pressure", "-pressure", "abs(pressure)", "age * (1 - age)"):
        assert checked(body).accepted, body


def test_limits_of_the_bank_can_be_set():
    assert not checked("speed", limits=CheckLimits(largest=0.5)).accepted
    assert not checked("speed", limits=CheckLimits(spread=0.9)).accepted
    assert checked("9 * speed", limits=CheckLimits(largest=10)).accepted


def test_probes():
    verdict = checked("-queue", recordings=RECORDINGS, weight=0.5)
    assert verdict.accepted, verdict.text()
    scores = verdict.statistics["scores"]
    for name, recording in RECORDINGS.items():
        assert scores[name] == pytest.approx(-recording.features[..., 0].mean(), rel=1e-5)
    environment = np.concatenate([r.reward.ravel() for r in RECORDINGS.values()])
    queue = np.concatenate([r.features[..., 0].ravel() for r in RECORDINGS.values()])
    expected = 0.5 * queue.mean() / np.abs(environment).mean()
    assert verdict.statistics["ratio"] == pytest.approx(expected, rel=1e-5)
    correlation = np.corrcoef(-queue, environment)[0, 1]
    assert verdict.statistics["correlation"] == pytest.approx(correlation, rel=1e-4)


def test_a_table_of_scores_comes_back():
    verdict = checked("age", recordings=RECORDINGS)
    assert "max_pressure 0.4" in verdict.text()
    assert "max pressure must be clearly above random and never switch" in verdict.text()
    good = {"max_pressure": 1.0, "random": 0.5, "never_switch": 0.2}
    assert probe_rejections(good) == []
    assert probe_rejections(good, margin=0.4) == []
    assert probe_rejections(good, margin=0.6) != []
    for name in good:
        assert probe_rejections(good | {name: float("nan")}) != []
    assert probe_rejections(good | {"random": 1.0}) != []
    with pytest.raises(ConfigError, match="no score of never_switch"):
        probe_rejections({"max_pressure": 1.0, "random": 0.0})


def test_size_and_correlation():
    for weight, change in ((0.0, "larger"), (0.001, "larger"), (100.0, "smaller")):
        verdict = checked("-queue", recordings=RECORDINGS, weight=weight)
        assert f"make it {change}" in verdict.text()
    limits = CheckLimits(correlation=(0.9, 1.0))
    assert (
        "pays for the wrong thing"
        in checked("0.6 * age - age ** 2", recordings=RECORDINGS, limits=limits).text()
    )
    # Of a potential the differences count, as they are paid.
    verdict = checked("-queue", recordings=RECORDINGS, potential=True, discount=1.0)
    differences = [np.diff(r.features[..., 0], axis=0).ravel() for r in RECORDINGS.values()]
    environment = np.concatenate([r.reward.ravel() for r in RECORDINGS.values()])
    expected = 10 * np.abs(np.concatenate(differences)).mean() / np.abs(environment).mean()
    assert verdict.statistics["ratio"] == pytest.approx(expected, rel=1e-4)


def test_mistakes_of_the_caller():
    with pytest.raises(ConfigError, match="the same features in the same order"):
        check_reward(reward("-queue"), ACTIONS)
    only = {"max_pressure": RECORDINGS["max_pressure"]}
    with pytest.raises(ConfigError, match="no score of random, never_switch"):
        checked("-queue", recordings=only)


def test_recordings_of_several_runs_stack():
    stacked = {
        name: Recording(np.stack([r.features] * 2), np.stack([r.reward] * 2))
        for name, r in RECORDINGS.items()
    }
    scores = checked("-queue", recordings=RECORDINGS).statistics["scores"]
    twice = {
        n: Recording(r.features.reshape(-1, 3, 4), r.reward.reshape(-1, 3))
        for n, r in stacked.items()
    }
    assert checked("-queue", recordings=twice).statistics["scores"] == pytest.approx(scores)


# Templates


def state(*rows):
    return jnp.asarray(rows, jnp.float32)


def test_shaping_of_a_step():
    before, after = state([0.5, 0, 0, 0], [1, 0, 0, 0]), state([0.25, 0, 0, 0], [1, 0, 0, 0])
    for potential, discount, expected in (
        (False, 0.9, [-0.5, -2.0]),
        (True, 0.9, [10 * (0.9 * -0.5 + 1.0), 10 * (0.9 * -2 + 2)]),
        (True, 0.0, [10.0, 20.0]),  # an episode that ends gives its potential back
    ):
        shaping = RewardTemplate(reward("-2 * queue"), potential=potential).arrays()
        value = jax.jit(shaping_reward)(shaping, before, after, discount)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        assert value.dtype == jnp.float32
    each = jnp.asarray([0.9, 0.0], jnp.float32)
    np.testing.assert_allclose(shaping_reward(shaping, before, after, each), [5.5, 20.0], rtol=1e-6)
    large = RewardTemplate(reward("-100 * queue")).arrays()
    assert shaping_reward(large, before, after, 0.9).tolist() == [-LARGEST_REWARD] * 2


def test_no_shaping_adds_nothing_and_prefers_nothing():
    shaping = RewardTemplate().arrays()
    assert shaping_reward(shaping, state([1, 1, 1, 1]), state([0, 1, 1, 1]), 0.9).tolist() == [0]
    logits = prior_logits(shaping, jnp.ones((2, 3, 2), jnp.float32), jnp.ones((2, 3), bool))
    assert logits.tolist() == [[0] * 3] * 2


def test_potential_differences_telescope():
    """The discounted sum over an episode depends on its first state alone."""
    shaping = RewardTemplate(reward("tanh(queue) - speed"), potential=True).arrays()
    rng = np.random.default_rng(0)
    states = jnp.asarray(rng.uniform(0, 1, (6, 3, 4)), jnp.float32)
    total = 0.0
    for t in range(5):
        discount = 0.9 if t < 4 else 0.0
        total += 0.9**t * shaping_reward(shaping, states[t], states[t + 1], discount)
    first = np.asarray(states[0])
    np.testing.assert_allclose(total, 10 * (first[:, 1] - np.tanh(first[:, 0])), rtol=1e-4)


@settings(max_examples=40)
@given(
    st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=2),
    st.integers(0, 10**6),
)
def test_prior_logits_are_centred_and_bounded(weights, seed):
    prior = linear_prior(dict(zip(ACTIONS.names, weights, strict=True)), ACTIONS)
    rng = np.random.default_rng(seed)
    features = rng.uniform(-2, 2, (4, 5, 2)).astype(np.float32)
    legal = rng.random((4, 5)) < 0.7
    logits = np.asarray(
        compiled_prior(RewardTemplate(prior=prior).arrays(), jnp.asarray(features), legal)
    )
    assert (logits[~legal] == 0).all()
    assert (np.abs(logits) <= LARGEST_LOGIT * (1 + 1e-6)).all()
    for row, allowed, given_features in zip(logits, legal, features, strict=True):
        np.testing.assert_allclose(row.sum(), 0, atol=1e-4)
        if allowed.any():
            raw = (given_features @ np.array(weights, np.float32))[allowed]
            centred = raw - raw.mean()
            centred *= LARGEST_LOGIT / max(np.abs(centred).max(), LARGEST_LOGIT)
            np.testing.assert_allclose(row[allowed], centred, rtol=1e-3, atol=1e-4)


compiled_prior = jax.jit(prior_logits)


def test_priors_may_be_programs():
    source = "def prior(load, is_current):\n    return where(load > 0.5, 1.0, -1.0) + is_current\n"
    prior = parse_reward(source, ACTIONS, name="prior")
    features = jnp.asarray([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], jnp.float32)
    logits = compiled_prior(RewardTemplate(prior=prior).arrays(), features, jnp.ones((1, 3), bool))
    np.testing.assert_allclose(logits, [[1, 0, -1]], rtol=1e-5)


def test_weights_by_difficulty():
    for weight, expected in (((0.0, 1.0), [0, 0.5, 1, 1]), ((2.0, 1.0), [2, 1.5, 1, 1])):
        shaping = RewardTemplate(weight=weight).arrays()
        values = [float(difficulty_weight(shaping, d)) for d in (-1.0, 0.5, 1.0, 3.0)]
        assert values == pytest.approx(expected)


def test_candidates_are_one_batch():
    """Templates of all kinds, stacked with that of no shaping, run as one program."""
    templates = [
        RewardTemplate(),
        RewardTemplate(reward("-queue"), linear_prior({"load": 2.0}, ACTIONS)),
        RewardTemplate(reward("speed"), potential=True, weight=(0.0, 2.0)),
    ]
    stacked = jax.tree.map(lambda *x: np.stack(x), *(t.arrays() for t in templates))
    before, after = state([0.5, 0.5, 0, 0]), state([0.25, 1.0, 0, 0])
    traces = []

    @jax.jit
    def step(stacked):
        traces.append(1)

        def one(shaping):
            added = difficulty_weight(shaping, 0.5) * shaping_reward(shaping, before, after, 0.5)
            features = jnp.asarray([[[1.0, 0], [0, 0]]], jnp.float32)
            return added, prior_logits(shaping, features, jnp.ones((1, 2), bool))

        return jax.vmap(one)(stacked)

    added, logits = step(stacked)
    np.testing.assert_allclose(added[:, 0], [0, -0.25, 0.0], atol=1e-7)
    np.testing.assert_allclose(logits[:, 0], [[0, 0], [1, -1], [0, 0]], atol=1e-6)
    step(jax.tree.map(lambda x: x[::-1].copy(), stacked))
    assert len(traces) == 1


def test_templates_are_stored_and_read_again():
    template = RewardTemplate(
        reward("-queue"), linear_prior({"load": 2, "is_current": -0.5}, ACTIONS), True, (0.5, 1.0)
    )
    document = json.loads(json.dumps(template.to_json()))
    assert RewardTemplate.from_json(document) == template
    assert RewardTemplate.from_json(RewardTemplate().to_json()) == RewardTemplate()
    for changes in ({"format": 9}, {"weight": [1]}, {"potential": "yes"}, {"reward": "queue"}):
        with pytest.raises(RewardError, match=r"expected|malformed|no truth value"):
            RewardTemplate.from_json(document | changes)
    with pytest.raises(RewardError, match="expected format"):
        RewardTemplate.from_json(None)


def test_linear_priors():
    assert linear_prior({}, ACTIONS) is None
    assert linear_prior({"load": 0.0}, ACTIONS) is None
    assert linear_prior({"load": 1}, ACTIONS).used == ("load",)
    for weights, message in (
        ({"queue": 1.0}, "'queue' is no feature of an action; there are load, is_current"),
        ({"load": 3.5}, "the weight of load is 3.5"),
        ({"load": float("nan")}, "is nan"),
        ({"load": "1"}, "is '1'"),
        ({"load": True}, "is True"),
    ):
        with pytest.raises(RewardError, match=message):
            linear_prior(weights, ACTIONS)


@pytest.mark.parametrize("weight", [(-1.0, 1.0), (0.0, float("nan")), (float("inf"), 0.0)])
def test_bad_weights(weight):
    with pytest.raises(ConfigError, match="two numbers of 0 or more"):
        RewardTemplate(weight=weight)
