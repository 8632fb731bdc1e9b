"""Reward texts that attack, break or cheat: all are refused, or harmless as data."""

import builtins
import pathlib
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.shaping import reward_source
from jaxlab.shaping.reward_checks import check_reward
from jaxlab.shaping.reward_language import parse_reward
from jaxlab.shaping.reward_program import RewardError
from jaxlab.shaping.stack_machine import LARGEST, evaluate
from tests.shaping.policies import RECORDINGS
from tests.shaping.programs import CATALOGUE


def body(text):
    return f"def reward(queue, speed, age):\n    return {text}\n"


def lines(*texts):
    return "def reward(queue, speed, age):\n" + "".join(f"    {t}\n" for t in texts)


REFUSED = {
    # Escapes through attributes, builtins and formats.
    "attribute": (body("np.tanh(queue)"), "attributes .* tanh"),
    "class": (body("queue.__class__"), "attributes"),
    "subclasses": (body("().__class__.__bases__[0].__subclasses__()"), "attributes"),
    "globals": (body("reward.__globals__['os'].system('true')"), "attributes"),
    "code object": (body("reward.__code__"), "attributes"),
    "format": (body("'{0.__class__}'.format(queue)"), "attributes"),
    "f-string": (body("f'{queue.__class__}'"), "no strings"),
    "percent format": (body("'%s' % queue"), "Mod|string"),
    "import function": (body("__import__('os').system('true')"), "attributes"),
    "import name": (body("__import__"), "name '__import__' is unknown"),
    "import statement": ("import os\n" + body("queue"), "Import is refused.*imported"),
    "import inside": (lines("import os", "return queue"), "Import is refused"),
    "import from": (lines("from os import system as tanh", "return queue"), "ImportFrom"),
    "eval": (body("eval('1')"), "function 'eval' is unknown"),
    "exec": (body("exec('1')"), "function 'exec' is unknown"),
    "open": (body("open('stolen')"), "function 'open' is unknown"),
    "getattr": (body("getattr(queue, speed)"), "function 'getattr' is unknown"),
    "builtins": (body("__builtins__"), "is unknown"),
    "call of a call": (body("tanh(queue)(speed)"), "Call is refused"),
    "call of a subscript": (body("[tanh][0](queue)"), "Subscript is refused"),
    "index": (body("queue[0]"), "nothing to index"),
    "string": (body("'queue'"), "a string is no number"),
    "bytes": (body("b'queue'"), "a string is no number"),
    "docstring": (lines("'''Rewards flow.'''", "return queue"), "use # for comments"),
    "print": (lines("print(queue)", "return queue"), "Expr is refused"),
    "global": (lines("global tanh", "return queue"), "Global is refused"),
    "nonlocal": (lines("nonlocal queue", "return queue"), "Nonlocal is refused"),
    "delete": (lines("del queue", "return speed"), "Delete is refused"),
    "function replaced": (lines("tanh = queue", "return tanh"), "'tanh' cannot be assigned"),
    "dunder": (lines("__x__ = queue", "return __x__"), "cannot be assigned"),
    "function as value": (body("tanh"), "'tanh' is a function; call it"),
    "decorator": ("@staticmethod\n" + body("queue"), "decorators"),
    "default": ("def reward(queue=open('f')):\n    return queue\n", "defaults"),
    "annotation": ("def reward(queue: open('f')):\n    return queue\n", "annotations"),
    "return annotation": ("def reward(queue) -> open('f'):\n    return queue\n", "annotations"),
    "annotated variable": (lines("x: open('f') = queue", "return x"), "annotation"),
    "class statement": ("class reward:\n    pass\n", "ClassDef is refused"),
    "code outside": (body("queue") + "reward(1, 2, 3)\n", "Expr is refused"),
    "async": ("async def reward(queue):\n    return queue\n", "AsyncFunctionDef is refused"),
    "yield": (lines("yield queue", "return queue"), "Expr is refused"),
    "await": (body("await queue"), "Await is refused"),
    "lambda": (body("(lambda: queue)()"), "no inner functions"),
    "inner function": (lines("def f(): return queue", "return f()"), "no inner functions"),
    "walrus": (body("(x := queue) + x"), "NamedExpr is refused"),
    "star": (body("max(*queue)"), "write the arguments out"),
    "keyword": (body("clip(queue, a_min=0, a_max=1)"), "without names"),
    "double star": (body("tanh(**queue)"), "without names"),
    "assert": (lines("assert queue", "return queue"), "Assert is refused"),
    "raise": (lines("raise queue", "return queue"), "Raise is refused"),
    "try": (lines("try:\n        pass\n    finally:\n        pass", "return queue"), "Try is"),
    "with": (lines("with queue: pass", "return queue"), "With is refused"),
    "match": (lines("match queue:\n        case 1: pass", "return queue"), "Match is refused"),
    "complex": (body("1j * queue"), "is no number"),
    "ellipsis": (body("..."), "is no number"),
    "none": (body("None"), "is no number"),
    "boolean": (body("True"), "is no number"),
    # Loops and bombs.
    "while": (lines("while 1: pass", "return queue"), "no loops"),
    "for": (lines("for i in queue: pass", "return queue"), "no loops"),
    "comprehension": (body("sum([x for x in queue])"), "no comprehensions"),
    "generator": (body("sum(x for x in queue)"), "no comprehensions"),
    "recursion": (body("reward(queue, speed, age)"), "function 'reward' is unknown"),
    "tower of powers": (body("9 ** 9 ** 9 ** 9"), r"only \*\* 2"),
    "shift": (body("1 << 1000"), "operator LShift"),
    "list bomb": (body("[0] * 1000"), "no lists"),
    "string bomb": (body("'a' * 1000"), "a string"),
    "huge integer": (body("9" * 500), "a constant is beyond 1000"),
    "integer beyond all digits": (body("9" * 3900), "beyond|not valid Python"),
    "infinite constant": (body("1e999"), "a constant is beyond"),
    "large constant": (body("1000.1 * queue"), "a constant is beyond"),
    "too many parentheses": (body("(" * 1500 + "queue" + ")" * 1500), "not valid Python|nest"),
    "deep unary": (body("-" * 3000 + "queue"), "nest"),
    "deep not": (body("not " * 900 + "queue > 0"), "nest|more than"),
    "long sum": (body(" + ".join(["queue"] * 300)), "more than 400 syntax nodes|levels"),
    "long chain of conditions": (body("queue if queue > 0 else " * 120 + "1"), "nodes|levels"),
    "deep calls": (body("tanh(" * 60 + "queue" + ")" * 60), "levels"),
    "doubling variables": (
        lines("x = queue + queue", *["x = x + x"] * 30, "return x"),
        "128 operations once local variables are written out",
    ),
    "tripling variables": (
        lines(*["queue = max(queue, queue, queue)"] * 30, "return queue"),
        "128",
    ),
    "too many constants": (
        body("max(" + ", ".join("1234567890" * 7)[:-2] + ")"),
        "constants|takes",
    ),
    "long source": (body("queue" + " " * 5000), "the limit is 4000"),
    "deep stack": (body("queue - (" * 17 + "queue" + ")" * 17), "values at a time|levels"),
    # Wrong shapes, names and arity.
    "empty": ("", "is empty"),
    "blank": (" \n\t", "is empty"),
    "no function": ("queue + speed", "Expr is refused"),
    "other name": ("def score(queue):\n    return queue\n", "exactly one function, reward"),
    "two functions": (body("queue") * 2, "exactly one function, reward"),
    "unknown feature": ("def reward(queue, money):\n    return money\n", "'money' is no feature"),
    "feature twice": ("def reward(queue, queue):\n    return queue\n", "occurs twice"),
    "variable arguments": ("def reward(*queue):\n    return queue\n", "plain parameters"),
    "keyword arguments": ("def reward(**queue):\n    return queue\n", "plain parameters"),
    "keyword only": ("def reward(*, queue):\n    return queue\n", "plain parameters"),
    "positional only": ("def reward(queue, /):\n    return queue\n", "plain parameters"),
    "not a parameter": ("def reward(queue):\n    return speed\n", "not among the parameters"),
    "unknown name": (body("velocity"), "name 'velocity' is unknown; features are queue"),
    "used before": (lines("x = y", "y = queue", "return x"), "name 'y' is unknown"),
    "no return": (lines("x = queue"), "last statement must return"),
    "bare return": (lines("return"), "return needs a number"),
    "tuple": (body("queue, speed"), "no tuples"),
    "dictionary": (body("{'total': queue}"), "Dict is refused"),
    "two returns": (lines("return queue", "return speed"), "one return only"),
    "if statement": (lines("if queue > 0: return 1", "return queue"), r"where\(condition, a, b\)"),
    "pass": (lines("pass", "return queue"), "Pass is refused"),
    "two targets": (lines("x = y = queue", "return x"), "Assign is refused"),
    "unpacking": (lines("x, y = queue, speed", "return x"), "no tuples"),
    "too few arguments": (body("where(queue > 0, 1)"), "where takes 3 arguments, not 2"),
    "too many arguments": (body("tanh(queue, speed)"), "tanh takes 1 arguments, not 2"),
    "no arguments": (body("max()"), "max takes 2 to 16 arguments, not 0"),
    "number as condition": (body("where(queue, 1, 0)"), "a condition must compare"),
    "number in and": (body("queue and speed"), "a condition must compare"),
    "negated number": (body("not queue"), "a condition must compare"),
    "membership": (body("queue in speed"), "comparison In"),
    "identity": (body("queue is speed"), "comparison Is"),
    "remainder": (body("queue % 2"), "operator Mod"),
    "whole division": (body("queue // 2"), "operator FloorDiv"),
    "matrix product": (body("queue @ speed"), "operator MatMult"),
    "bits": (body("queue & 1"), "operator BitAnd"),
    "inversion": (body("~queue"), "operator ~"),
    "unknown function": (body("softmax(queue)"), "function 'softmax' is unknown; there are where"),
    "syntax": ("def reward(queue)\n    return queue\n", "line 1: not valid Python"),
    "indentation": ("def reward(queue):\nreturn queue\n", "line 2: not valid Python"),
    "prose": ("Here is my reward:\n" + body("queue"), "line 1: not valid Python"),
    "half an answer": ("def reward(queue, speed):\n    return queue * (", "not valid Python"),
    # Unicode tricks.
    "null byte": (body("queue\x00"), r"U\+0000"),
    "text direction": (body("queue # \u202e deeps"), r"invisible character U\+202E"),
    "zero width": (body("que\u200bue"), r"U\+200B"),
    "byte order mark": (body("queue \ufeff"), r"U\+FEFF"),
    "soft hyphen": (body("que\u00adue"), r"U\+00AD"),
    "escape sequence": (body("queue # \x1b[2J"), r"U\+001B"),
    "lone surrogate": (body("queue # \ud800"), r"U\+D800"),
    "wide letters": (body("ｅｖａｌ(queue)"), "function 'eval' is unknown"),
    "wide underscores": (body("＿＿import＿＿"), "name '__import__' is unknown"),
    "look-alike": (body("qu\u0435ue"), "is unknown; features are queue"),
    "other digits": (body("٣ * queue"), "not valid Python"),
    "minus sign": (body("queue − speed"), "not valid Python"),
}


@pytest.fixture
def nothing_runs(monkeypatch):
    """Whatever would execute, compile, import or open fails the test."""

    def forbidden(*args, **kwargs):
        raise AssertionError(f"something was executed: {args[:1]}")

    for name in ("eval", "exec", "open"):
        monkeypatch.setattr(builtins, name, forbidden)
    monkeypatch.setattr(pathlib.Path, "open", forbidden)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, nothing_runs):
    source, message = REFUSED[name]
    begin = time.process_time()
    with pytest.raises(RewardError, match=f"(?s){message}") as refusal:
        parse_reward(source, CATALOGUE)
    assert time.process_time() - begin < 2
    assert len(str(refusal.value)) < 400


def test_there_are_many():
    assert len(REFUSED) + len(HARMLESS) + len(CHEATS) >= 120
    assert len({source for source, _ in REFUSED.values()}) == len(REFUSED)


def test_syntax_refused_is_said_to_be_out_of_scope():
    for name in ("while", "lambda", "class statement", "try", "import function"):
        with pytest.raises(RewardError, match="free-form Python is out of scope"):
            parse_reward(REFUSED[name][0], CATALOGUE)
    assert "free-form Python" in reward_source.SCOPE


#: Accepted, and harmless: every value and slope is finite and bounded.
HARMLESS = {
    "division by zero": body("queue / 0"),
    "nothing by nothing": body("(queue - queue) / (queue - queue)"),
    "infinity less infinity": body("exp(exp(exp(9))) - exp(exp(exp(9)))"),
    "infinity by infinity": body("exp(1000) / exp(1000)"),
    "logarithm of nothing": body("log(0) + log(-1) + log1p(-1)"),
    "root of less than nothing": body("sqrt(-1) * sqrt(queue - 1)"),
    "slope of a root at nothing": body("sqrt(queue - queue) / sqrt(queue)"),
    "power by power": lines("x = 1000 ** 2", "x = x ** 2", "x = x ** 2", "return x ** 2"),
    "tiny divisors": lines("x = 0.001 ** 2", "x = x ** 2", "return 1 / x / x / x"),
    "tiny constant": body("1e-320 / 1e-320"),
    "negative zero": body("1 / -0.0"),
    "nan by where": body("where(queue > 0.5, 1 / (queue - queue), log(0))"),
    "clip turned round": body("clip(queue, 1, -1)"),
    "chain of comparisons": body("0 < queue < speed < age < 1"),
    "wide letters of a feature": body("ｑｕｅｕｅ"),
    "comment in another script": body("queue  # 渋滞を減らす, é"),
    "deep parentheses": body("(" * 150 + "queue" + ")" * 150),
    "windows line ends": body("queue").replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name):
    program = parse_reward(HARMLESS[name], CATALOGUE).program()
    rows = [[0] * 4, [1] * 4, [0.5] * 4, [-1] * 4, [3e38] * 4, [-3e38] * 4, [1e-40] * 4]
    value, gradient = both(program, jnp.asarray(np.array(rows, np.float32)))
    assert np.isfinite(value).all()
    assert (np.abs(value) <= LARGEST).all()
    assert np.isfinite(gradient).all()


@jax.jit
def both(program, features):
    value, back = jax.vjp(lambda x: evaluate(program, x), features)
    return value, back(jnp.ones_like(value))[0]


#: Well-formed, and paying for the wrong thing: the checks refuse them.
CHEATS = {
    "paid for nothing": (body("0.5"), "nearly constant"),
    "paid for nothing, hidden": (body("queue - queue + 1"), "nearly constant"),
    "hardly anything": (body("0.0001 * speed"), "nearly constant"),
    "paid for jams": (body("queue"), "more queue is worse"),
    "paid for the largest jams": (body("where(queue > 0.9, 1.0, -queue)"), "more queue is worse"),
    "paid for standing": (body("-speed"), "less speed is worse"),
    "far too large": (body("1000 * speed"), "the reward reaches 1e\\+03"),
    "explodes somewhere": (body("speed - 1 / (1 - queue)"), "the reward reaches"),
    "paid for never switching": (body("age"), "as well as a good one"),
    "paid for holding green": (body("age - 0.1 * queue"), "never_switch .* as well|as well"),
    "paid for switching": (body("1 - age"), "as well as a good one"),
    "blind": (body("where(speed > 2, speed, age)"), "as well as a good one"),
    "too small": (body("0.02 * speed"), "make it larger"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_found(name):
    source, message = CHEATS[name]
    function = parse_reward(source, CATALOGUE)
    verdict = check_reward(function, CATALOGUE, recordings=RECORDINGS, weight=0.5)
    assert not verdict.accepted
    assert any(re.search(message, sentence) for sentence in verdict.rejections), verdict.text()


def test_an_honest_reward_passes():
    function = parse_reward(body("0.3 * speed - tanh(queue)"), CATALOGUE)
    verdict = check_reward(function, CATALOGUE, recordings=RECORDINGS, weight=0.5)
    assert verdict.accepted, verdict.text()
