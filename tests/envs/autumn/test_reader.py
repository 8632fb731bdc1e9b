"""Texts that are programs, and texts that are none."""

import contextlib
import string

import hypothesis
import hypothesis.strategies as st
import pytest

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn import reader, syntax
from jaxlab.envs.autumn.checker import check
from tests.envs.autumn.traces import GOLDEN

PIECES = (
    *("(", ")", "(program", "(object A", "(on", "(=", "(let", "(if", "then", "else", "(-->", "(fn"),
    *("(initnext", "(..", "(:", "(list", "(List", "(Cell 0 0", '"red"', '"', ";", "\n", " ", "x"),
    *("true", "-1", "2.5", "99999999999", "&&", "!", "+", "(prev x)", "click", "é", "\x00", "'"),
)


@hypothesis.given(st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join))
def test_any_text_is_a_program_or_a_program_error(text):
    for candidate in (text, f"(program {text})"):
        with contextlib.suppress(ProgramError):
            check(syntax.parse(candidate))


@hypothesis.given(
    st.sampled_from(sorted(path.name for path in GOLDEN.glob("*.sexp"))),
    st.integers(0, 4000),
    st.integers(0, 30),
    st.text(string.printable, max_size=5),
)
@hypothesis.settings(max_examples=60)
def test_a_damaged_program_is_a_program_or_a_program_error(name, start, length, replacement):
    text = (GOLDEN / name).read_text()
    damaged = text[:start] + replacement + text[start + length :]
    with contextlib.suppress(ProgramError):
        check(syntax.parse(damaged))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(program\n (= a 1", "line 2, column 2: this parenthesis is not closed"),
        ("(program) )", "line 1, column 11: this parenthesis closes none"),
        ('(program (= a "red))', "line 1, column 15: this string is not closed"),
        ("", "line 1, column 1: expected (program"),
        ("program", "line 1, column 1: expected (program"),
        ("(program x)", "line 1, column 10: expected a statement"),
        ("(program (= 1 2))", "only a name or a field can be assigned"),
        ("(program (= a))", "line 1, column 10: expected (= NAME VALUE)"),
        ("(program (= a (+ 1 2 3)))", "'+' takes two operands, got 3"),
        ("(program (= a (! 1 2)))", "'!' takes one operand, got 2"),
        ("(program (= a (if true then 1)))", "expected (if CONDITION then VALUE else VALUE)"),
        ("(program (= a ()))", "line 1, column 15: expected an expression"),
        ("(program (object A))", "expected (object NAME FIELD ... CELLS)"),
        ("(program (object A (: n Number)))", "the class A has no cells"),
        ("(program (= a 4294967296))", "outside 32 bits"),
        ("(program " + "(" * 300, "parentheses nest deeper than"),
        ("(program (= a (--> 3 a)))", "expected the name of a parameter"),
    ],
)
def test_an_error_says_where(text, message):
    with pytest.raises(ProgramError) as error:
        syntax.parse(text)
    assert message in str(error.value)


def test_a_text_may_not_be_endless():
    with pytest.raises(ProgramError, match="expected at most"):
        reader.read(" " * (reader.MOST_CHARACTERS + 1))


def test_the_dialect():
    program = syntax.parse(
        "(program (= a 2.9) ; a comment (\n (= b (f)) (= c ((f))) (= d -7) (on a b c d))"
    )
    numbers = [statement.value for statement in program.statements[:4]]
    assert numbers[0].value == 2
    assert isinstance(numbers[1], syntax.Variable)
    assert isinstance(numbers[2], syntax.Call)
    assert numbers[3].value == -7
    clause = program.statements[4]
    assert (clause.condition.name, clause.body.name) == ("a", "b")
