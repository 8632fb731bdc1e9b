"""What is said about a program before it runs."""

import pytest

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn.checker import check
from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.syntax import parse

START = """(= GRID_SIZE 6) (object A (: n Number) (Cell 0 0 "red"))
(: a A) (= a (initnext (A 1 (Position 0 0)) (prev a)))
(: as (List A)) (= as (initnext (list) (prev as)))"""


def program(text):
    return parse(f"(program {START} {text})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(on left (= a (jump a)))", "'jump' is not defined"),
        ("(on left (= a (move a)))", "move takes at least 2 argument(s), got 1"),
        ("(on left (= as (head)))", None),
        ("(on left (= a (head as as)))", "head takes 1 argument(s), got 2"),
        ("(on left (= a (A (Position 0 0))))", "A takes 2 argument(s), its fields and an origin"),
        ("(= f (--> (x y) x)) (on left (= a (f a)))", "f takes 2 argument(s), got 1"),
        ("(on left (= (.. a n) 3))", "a field cannot be changed in place"),
        ("(: b Ghost)", "the type 'Ghost' is not defined"),
    ],
)
def test_errors_are_found_before_anything_runs(text, message):
    errors = [str(f) for f in check(program(text)) if f.severity == "error"]
    if message is None:
        assert not errors
        return
    assert message in errors[0]
    with pytest.raises(ProgramError) as error:
        CompiledProgram(program(text))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(on clicked (= as (addObj as a)))", "the list 'as' may grow"),
        ("(= f (--> x (= a x)))", "assigns to the global 'a'"),
        ("(= f (--> x (= t x))) (= g (--> x (= t (f x))))", "several functions assign to 't'"),
        ("(on left (= a (head ((allObjs)))))", "order"),
        ("(= delta 1) (on left (= a (closest a as)))", "closest assigns to 'delta' too"),
        ("(= abs (--> x x))", "'abs' is a function of the standard library"),
        ('(object B (Cell 0 0 (uniformChoice (list "red" "blue"))))', "cells of B are random"),
    ],
)
def test_warnings_name_what_may_surprise(text, message):
    warnings = [str(f) for f in check(program(text)) if f.severity == "warning"]
    assert any(message in warning for warning in warnings)


def test_a_plain_program_has_no_findings():
    assert check(program("(on left (= a (moveLeft (prev a))))")) == ()


def test_a_program_needs_a_grid_size():
    with pytest.raises(ProgramError, match="sets no GRID_SIZE"):
        CompiledProgram(parse('(program (object A (Cell 0 0 "red")))'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(= b (prev a))", "nothing is before the first step"),
        ("(on left (= GRID_SIZE 9))", "GRID_SIZE must be one positive integer"),
        ("(= f (--> x (f x))) (on left (= a (f a)))", "a function that calls itself"),
        ("(= b (range 0 99999999))", "a list has at most"),
        ("(= b (allPositions 5000))", "a list has at most"),
        (
            " ".join(f"(= f{n} (--> x (+ (f{n - 1} x) (f{n - 1} x))))" for n in range(1, 40))
            + " (= f0 (--> x x)) (= b (f39 1))",
            "too large to be compiled",
        ),
        ("(= background 3)", "fails at its start"),
        ("(on left (let (= holes 1) (= a (nextLiquid a))))", "'holes'"),
    ],
)
def test_what_cannot_be_compiled_says_why(text, message):
    with pytest.raises(ProgramError, match=message):
        CompiledProgram(program(text))
