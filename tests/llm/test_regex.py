"""Regular expressions over bytes, against Python's `re`."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError
from jaxlab.llm import finite_automaton
from jaxlab.llm.finite_automaton import code_points, determinise
from jaxlab.llm.regex import compile_regex

ALPHABET = "ab09_ -]\n.é€😀"
ATOMS = [
    *map(re.escape, ALPHABET),
    "\\d",
    "\\w",
    "\\s",
    "\\D",
    "\\W",
    "\\S",
    ".",
    "\\x41",
    "\\u20ac",
]
CLASSES = ["[ab]", "[^ab]", "[a-f0-9]", "[^\\d_]", "[\\w-]", "[é-€]", "[^é-😀]", "[a\\]]", "[-a]"]


def patterns():
    """Expressions of the subset."""
    base = st.sampled_from(ATOMS + CLASSES)

    def extend(inner):
        group = inner.map(lambda p: f"(?:{p})")
        counts = st.tuples(st.integers(0, 2), st.integers(0, 2))
        quantifier = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{,2}"]) | counts.map(
            lambda c: f"{{{c[0]},{sum(c)}}}"
        )
        return (
            st.lists(inner, min_size=1, max_size=3).map("".join)
            | st.lists(inner, min_size=2, max_size=3).map(lambda ps: f"({'|'.join(ps)})")
            | st.tuples(group, quantifier).map("".join)
        )

    return st.recursive(base, extend, max_leaves=6)


def walk(dfa, rng, longest=40):
    """Bytes of a random text of the language."""
    state, text = 0, []
    while not (dfa.accepting[state] and (len(text) >= longest or rng.random() < 0.2)):
        following = np.flatnonzero(dfa.transitions[state, dfa.byte_class] >= 0)
        if not following.size or len(text) > 10 * longest:
            break
        byte = int(rng.choice(following))
        text.append(byte)
        state = dfa.transitions[state, dfa.byte_class[byte]]
    return bytes(text) if dfa.accepting[state] else None


@settings(max_examples=80)
@given(patterns(), st.data())
def test_agrees_with_re(pattern, data):
    dfa, reference = compile_regex(pattern), re.compile(pattern, re.ASCII)
    for text in data.draw(st.lists(st.text(ALPHABET, max_size=6), max_size=15)):
        assert dfa.accepts(text) == bool(reference.fullmatch(text)), text
    assert dfa.accepts(data.draw(st.from_regex(reference, fullmatch=True)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    for _ in range(5):
        text = walk(dfa, rng)
        assert text is None or reference.fullmatch(text.decode())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 0x10FFFF)), max_size=3))
def test_ranges_of_characters_are_exact(pairs):
    ranges = [(min(p), max(p)) for p in pairs]
    ends = {e + d for r in ranges for e in r for d in (-1, 0, 1)}
    ends |= {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}
    inside = {e for e in ends if any(low <= e <= high for low, high in ranges)}
    real = {e for e in ends if 0 <= e <= 0x10FFFF and not 0xD800 <= e <= 0xDFFF}
    if not any(low <= e <= high for e in real for low, high in ranges):
        return
    dfa = determinise(code_points(ranges))
    assert {e for e in real if dfa.accepts(chr(e))} == inside & real


def test_small_automata_are_minimal():
    assert compile_regex("(a|b)*abb").num_states == 4
    assert compile_regex("(cat|dog|cow)s?").num_states == 8
    assert compile_regex("x{0,100}").num_states == 101
    # Roads whose names differ in the middle share their ends.
    names = "|".join(f"road_{i}_{j}" for i in range(5) for j in range(5))
    assert compile_regex(f"({names})").num_states == len("road_0_0") + 1


def test_every_state_can_end():
    dfa = compile_regex("a[^\\x00-\\U0010ffff]|b")
    assert dfa.accepts("b")
    assert not dfa.accepts("a")
    assert dfa.num_states == 2


def test_bytes_can_be_left_out():
    dfa = compile_regex("(caf\u00e9|tea|[a-c]x)")
    assert set(b"tea") < set(dfa.bytes_used().tolist())
    rest = dfa.without(np.array([0xC3, ord("a")]))
    assert [rest.accepts(t) for t in ("café", "tea", "ax", "bx", "cx")] == [False] * 3 + [True] * 2
    with pytest.raises(ConfigError, match="no text at all"):
        dfa.without(np.arange(256))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a$", "character 1: anchor '\\$'"),
        ("^a", "anchor"),
        ("a*?", "second quantifier"),
        ("a**", "second quantifier"),
        ("*a", "nothing to repeat"),
        ("(?P<n>a)", "group extension"),
        ("a(?=b)", "group extension"),
        ("(a)\\1", "escape \\\\1"),
        ("\\bword", "escape \\\\b"),
        ("\\p{L}", "escape \\\\p"),
        ("(a", "missing '\\)'"),
        ("a)", "unbalanced"),
        ("[a", "missing '\\]'"),
        ("[]", "empty class"),
        ("[z-a]", "bad range"),
        ("[\\d-z]", "bad range"),
        ("a{2", "malformed quantifier"),
        ("a{}", "malformed quantifier"),
        ("a{3,2}", "repetition"),
        ("a{5000}", "repetition"),
        ("\\xg0", "hexadecimal"),
        ("\\U00110000", "no character"),
        ("\\ud800", "lone surrogate"),
        ("\ud800", "lone surrogate"),
        ("a\\", "backslash at the end"),
        ("[^\\x00-\\U0010ffff]", "no text at all"),
        ("(" * 60 + ")" * 60, "nested groups"),
        ("a" * 20_001, "limit is 20000"),
        ("((a{99}){99}){99}", "automaton would have more than"),
        ("((a?){999}){999}", "automaton would have more than"),
        ("(a|b)*a(a|b){20}", "automaton would have more than"),
    ],
)
def test_bad_expressions(pattern, message, monkeypatch):
    for limit, size in (("_MAX_STATES", 2000), ("_MAX_PLACES", 5000), ("_MAX_WORK", 20_000)):
        monkeypatch.setattr(finite_automaton, limit, size)
    with pytest.raises(ConfigError, match=message):
        compile_regex(pattern)
