"""The stack machine against numpy on the same sources, and what it promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jaxlab.shaping import stack_machine
from jaxlab.shaping.reward_language import parse_reward
from jaxlab.shaping.reward_program import LENGTH, STACK_DEPTH, Op, RewardError, arity, assemble
from jaxlab.shaping.stack_machine import evaluate
from tests.shaping.programs import CATALOGUE, functions
from tests.shaping.reward_reference import Reference

TRACES = []


@jax.jit
def run(program, features):
    TRACES.append(features.dtype)
    return evaluate(program, features)


@jax.jit
def slope(program, features):
    return jax.grad(lambda x: jnp.sum(evaluate(program, x)))(features)


def parsed(source):
    try:
        return parse_reward(source, CATALOGUE)
    except RewardError as error:
        assert "operations" in str(error) or "at a time" in str(error)  # noqa: PT017
        assume(False)


def reward(body, names=CATALOGUE.names):
    return parse_reward(f"def reward({', '.join(names)}):\n    return {body}\n", CATALOGUE)


@settings(max_examples=120)
@given(functions(), st.integers(0, 10**6))
def test_agrees_with_numpy(source, seed):
    program = parsed(source).program()
    features = np.random.default_rng(seed).uniform(-1.5, 1.5, (16, 4))
    features[:3] = [[0] * 4, [1] * 4, [0.5, 0, -1, 0.25]]
    with jax.enable_x64(True):
        value = np.asarray(run(program, jnp.asarray(features, jnp.float64)))
    assert value.dtype == np.float64
    expected = Reference(source, CATALOGUE.names, features)
    assume(expected.margin > 1e-9)
    np.testing.assert_allclose(value, expected.value, rtol=1e-6, atol=1e-6)


EXTREME = [0.0, -0.0, 1.0, -1.0, 1e-3, -1e-3, 1e-30, -1e-8, 1e-45, 1e6, -1e6, 1e30, -3e38, 3e38]


@settings(max_examples=80)
@given(functions(), st.lists(st.sampled_from(EXTREME), min_size=32, max_size=32))
def test_finite_with_finite_gradients(source, values):
    program = parsed(source).program()
    features = jnp.asarray(np.array(values, np.float32).reshape(8, 4))
    value, gradient = run(program, features), slope(program, features)
    assert value.dtype == jnp.float32
    assert not value.weak_type
    assert np.isfinite(value).all()
    assert (np.abs(value) <= stack_machine.LARGEST).all()
    assert np.isfinite(gradient).all()


def test_one_compilation_serves_all_programs_and_agents():
    sources = ["queue", "1.0 - speed", "tanh(queue) * speed", "where(age > 0.5, 1.0, pressure)"]
    programs = [reward(body).program() for body in sources]
    features = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (5, 4)), jnp.float32)
    traces = []

    def counted(program, features):
        traces.append(1)
        return evaluate(program, features)

    everything = jax.jit(jax.vmap(jax.vmap(counted, (None, 0)), (0, None)))
    for order in (programs, programs[::-1]):
        stacked = jax.tree.map(lambda *x: np.stack(x), *order)
        value = everything(stacked, jnp.stack([features, features[::-1]]))
        assert value.shape == (4, 2, 5)
        for row, program in zip(value, order, strict=True):
            np.testing.assert_allclose(row[0], run(program, features), rtol=1e-6)
            np.testing.assert_allclose(row[1], run(program, features)[::-1], rtol=1e-6)
    assert len(traces) == 1


def value_of(body, **features):
    row = jnp.asarray([[features.get(name, 0.0) for name in CATALOGUE.names]], jnp.float32)
    return float(run(reward(body).program(), row)[0])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("queue / (speed - speed)", 0.5 / 1e-3),
        ("queue / (0.0 - 0.0005)", -0.5 / 1e-3),
        ("1.0 / pressure", 1e3),
        ("log(pressure)", np.log(1e-3)),
        ("log1p(-2.0 * speed)", np.log(1e-3)),
        ("sqrt(-speed)", 0.0),
        ("(-speed) ** 0.5", 0.0),
        ("exp(1000)", 1e6),
        ("1000 * 1000 * 1000", 1e6),
        ("-1000 * 1000 * 1000 + 1000", -1e6 + 1000),
        ("queue - 2 * speed", -1.5),
        ("(queue > 0.4) + (queue > 0.6)", 1.0),
        ("0.4 < queue < 0.6 and not queue == speed", 1.0),
        ("clip(queue, 0.6, 0.8) - mean(queue, speed, 0)", 0.1),
        ("min(queue, speed, 0.2) + max(queue, speed)", 1.2),
        ("sum(queue)", 0.5),
        ("sum(1, 2, 3, 4)", 10.0),
        ("speed if queue > 0.5 else -speed", -1.0),
        ("+(queue >= 0.5)", 1.0),
        ("abs(-queue) ** 2", 0.25),
        ("(queue < 1) == (speed < 2)", 1.0),
    ],
)
def test_known_values(body, expected):
    assert value_of(body, queue=0.5, speed=1.0) == pytest.approx(expected, rel=1e-5)


def test_the_deepest_stack_and_the_longest_program():
    deep = "queue" + " - (queue" * (STACK_DEPTH - 1) + ")" * (STACK_DEPTH - 1)
    assert value_of(deep, queue=1.0) == 0.0
    with pytest.raises(RewardError, match=f"more than {STACK_DEPTH} values"):
        reward(f"queue - ({deep})")
    square = [(Op.FEATURE, 0), *[(Op.NEGATE, 0)] * (LENGTH - 1)]
    program = assemble(square, 4)
    assert float(run(program, jnp.full((1, 4), 0.25, jnp.float32))[0]) == -0.25
    with pytest.raises(RewardError, match=f"the limit is {LENGTH}"):
        assemble([*square, (Op.NEGATE, 0)], 4)


def test_padding_changes_nothing():
    function = reward("tanh(queue) + speed / 2")
    features = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (6, 4)), jnp.float32)
    exact = function.program(len(function.instructions))
    assert len(exact.code) == 6
    np.testing.assert_array_equal(evaluate(exact, features), run(function.program(), features))


def test_every_operation_is_used_and_counted():
    assert [arity(op) for op in Op] == [0] * 3 + [2] * 9 + [3] + [1] * 8
    bodies = ["-queue + abs(speed) / exp(age)", "sqrt(log(queue)) - log1p(queue) * tanh(queue)"]
    bodies += ["where(queue <= 1, queue ** 2, 2)", "min(queue, 1) + max(queue, speed == age)"]
    bodies += ["queue < 1"]
    used = {op for body in bodies for op, _ in reward(body).instructions}
    assert used == set(Op) - {Op.NOTHING}


def test_one_trace_per_precision():
    TRACES.clear()
    for body in ("queue", "speed + 1", "exp(age)"):
        run(reward(body).program(), jnp.zeros((3, 4), jnp.float32))
    assert len(TRACES) == 1
