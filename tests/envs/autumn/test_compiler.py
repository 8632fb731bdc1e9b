"""Compiled programs as pure functions: batches, capacities, errors, random numbers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.replay import replay
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.syntax import parse
from tests.envs.autumn.traces import golden

GROWING = """(program (= GRID_SIZE 5) (object A (Cell 0 0 "red"))
 (: as (List A)) (= as (initnext (list (A (Position 0 0))) (prev as)))
 (on clicked (= as (addObj (prev as) (A click))))
 (on left (= as (filter (--> a (!= (.. (.. a origin) x) 2)) (prev as)))))"""
WALKERS = """(program (= GRID_SIZE 9) (object A (Cell 0 0 "red"))
 (: as (List A)) (= as (initnext (map (--> p (A p)) (randomPositions 9 20))
   (updateObj (prev as) (--> a (updateObj a "origin" (uniformChoice (adjPositions (.. a origin)))))))))"""


def click(x, y):
    return ["click", x, y]


def cells_of(result, step):
    return [(x, y) for _, x, y, _ in result["cells"][step]]


def test_a_list_keeps_its_order_when_it_is_compacted():
    program = CompiledProgram(parse(GROWING), capacity=4)
    actions = [click(2, 0), click(1, 1), click(3, 3), ["left"], click(4, 4), ["noop"]]
    result = replay(program, actions, 0)
    assert result["error"] is None
    assert cells_of(result, 3) == [(0, 0), (2, 0), (1, 1), (3, 3)]
    assert cells_of(result, 4) == [(0, 0), (1, 1), (3, 3)]
    assert cells_of(result, 6) == [(0, 0), (1, 1), (3, 3), (4, 4)]


def test_a_list_beyond_its_capacity_is_an_error_and_freezes():
    program = CompiledProgram(parse(GROWING), capacity=2)
    result = replay(program, [click(1, 1), click(2, 2), click(3, 3)], 0)
    assert len(result["frames"]) == 2
    assert "more elements than its capacity" in result["error"]


def test_a_batch_runs_as_its_members_do():
    program = CompiledProgram(parse(GROWING), capacity=6)
    rows = jax.random.randint(jax.random.key(1), (8, 12, 3), 0, 5, jnp.int32)
    rows = rows.at[..., 0].set(jnp.where(rows[..., 0] != 1, ACTIONS.index("click"), rows[..., 0]))
    keys = jax.random.split(jax.random.key(0), 12)

    def roll(rows):
        state = jax.tree.map(jnp.asarray, program.init(jax.random.key(0)))

        def one(state, pair):
            after = program.step(pair[0], state, pair[1])
            return after, (after.frame, after.error)

        return jax.lax.scan(one, state, (keys, rows))[1]

    frames, errors = jax.jit(jax.vmap(roll))(rows)
    single = jax.jit(roll)
    for index in range(8):
        frame, error = single(rows[index])
        np.testing.assert_array_equal(frames[index], frame)
        np.testing.assert_array_equal(errors[index], error)
    assert 0 < int(jnp.sum(errors[:, -1] > 0)) < 8


def test_keys_decide_what_is_random():
    program = CompiledProgram(parse(WALKERS))
    first, again, other = (replay(program, [["noop"]] * 6, seed)["cells"] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    for before, after in itertools.pairwise(first):
        for (_, x, y, _), (_, x2, y2, _) in zip(before, after, strict=True):
            assert abs(x - x2) + abs(y - y2) == 1
            assert 0 <= x2 < 9
            assert 0 <= y2 < 9


def test_choices_from_keys_are_uniform():
    text = """(program (= GRID_SIZE 6) (object A (Cell 0 0 "red"))
      (: as (List A)) (= as (initnext (list)
        (map (--> n (A (Position n 0))) (uniformChoice (range 0 6) 36)))))"""
    result = replay(CompiledProgram(parse(text)), [["noop"]] * 60, 3)
    counts = np.bincount([x for cells in result["cells"] for _, x, _, _ in cells], minlength=6)
    chi_square = np.sum((counts - 360) ** 2 / 360)
    assert counts.sum() == 2160
    assert chi_square < 20.5  # p = 0.001 with 5 degrees of freedom


def test_seed_zero_of_the_reference_draws_zero_for_ever():
    program = CompiledProgram(parse(WALKERS), random="reference")
    result = replay(program, [["noop"]], 0)
    assert cells_of(result, 0) == [(0, 0)] * 20


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(/ 3 (- k k))", "'/' by zero"),
        ("(% 3 (- k k))", "'%' by zero"),
        ("(sqrt (- 0 k))", "sqrt of a negative number"),
        ("(+ 1 true)", "'+' takes two numbers"),
        ("(length k)", "expected a list"),
        ('(let (= k "red") 1)', "a String for 'k', which is declared as Number"),
        ("(.. (prev ghost) x)", "'ghost'"),
    ],
)
def test_a_failing_step_is_named_and_nothing_after_it_counts(expression, message):
    text = f"""(program (= GRID_SIZE 5) (object A (Cell 0 0 "red")) (= ghost 1)
      (: k Number) (= k (initnext 1 (+ (prev k) 1)))
      (: a A) (= a (initnext (A (Position 0 0)) (moveRight (prev a))))
      (on left (= a (A (Position {expression} 0)))))"""
    if "ghost" in expression:
        text = text.replace("(= ghost 1)", "").replace("(prev ghost)", '(prev "ghost")')
    result = replay(CompiledProgram(parse(text)), [["noop"], ["left"], ["noop"]], 0)
    assert cells_of(result, -1) == [(1, 0)]
    assert message in result["error"]


def test_next_expressions_run_in_the_order_asked_for():
    text = """(program (= GRID_SIZE 6) (object A (Cell 0 0 "red")) (object B (Cell 0 0 "blue"))
      (: a A) (= a (initnext (A (Position 0 0)) (moveRight (prev a))))
      (: b B) (= b (initnext (B (Position 0 3)) (B (Position (.. (.. a origin) x) 3)))))"""
    for order, x in ((("a", "b"), 1), (("b", "a"), 0)):
        result = replay(CompiledProgram(parse(text), next_order=order), [["noop"]], 0)
        assert cells_of(result, 1) == [(1, 0), (x, 3)]
    with pytest.raises(ProgramError, match="next_order"):
        CompiledProgram(parse(text), next_order=("a",))


def test_a_condition_is_judged_at_the_start_of_each_step():
    program = CompiledProgram(parse(GROWING), condition="> (length as) 2")
    state = jax.tree.map(jnp.asarray, program.init(jax.random.key(0)))
    seen = []
    for place in range(4):
        action = jnp.array([ACTIONS.index("click"), place, 0], jnp.int32)
        state = program.step(jax.random.key(0), state, action)
        seen.append(bool(state.triggered))
    assert seen == [False, False, True, True]


def test_what_never_changes_is_no_state():
    program = CompiledProgram(parse(golden("moves")))
    state = jax.eval_shape(program.init, jax.random.key(0))
    assert state.values["walls"] == ()
    assert state.values["background"] == ()
    assert [leaf.shape for leaf in state.values["block"]] == [(), ()]
