"""Automata over tokens: what they allow is what the grammar says, token by token."""

import json
import re

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError, TokenizerError
from jaxlab.llm.automaton import TokenAutomaton
from jaxlab.llm.json_schema import JsonLayout, compile_json_schema
from jaxlab.llm.regex import compile_regex
from tests.llm.test_regex import patterns

WORDS = [
    "true",
    "false",
    '": ',
    ', "',
    '{"',
    "}",
    "ab",
    "abb",
    "bb",
    "12",
    "0.",
    "road_",
    "é",
    "é€",
]
BYTES = [bytes([b]) for b in range(256)]
SCHEMA = {
    "type": "object",
    "properties": {
        "speed": {"type": "number", "minimum": -1.5, "maximum": 20},
        "road": {"enum": ["road_1", "road_12", "é"]},
        "lanes": {"type": "array", "items": {"type": "integer", "maximum": 3}, "maxItems": 3},
        "name": {"type": "string", "maxLength": 6},
    },
    "required": ["speed"],
}


def vocabulary(size=0, seed=0):
    """Single bytes, some words, and random pieces of ASCII; the first token ends, the second
    is special."""
    rng = np.random.default_rng(seed)
    pieces = [bytes(rng.integers(32, 127, rng.integers(2, 9)).tolist()) for _ in range(size)]
    return [b"", b"", *BYTES, *(w.encode() for w in WORDS), *pieces]


def sampler(longest):
    """A function of automaton and key to the tokens of a random walk; longer ones are cut."""

    @jax.jit
    def walk(automaton, key):
        def body(carry):
            state, n, tokens = carry
            scores = jax.random.gumbel(jax.random.fold_in(key, n), (automaton.vocab_size,))
            token = jnp.argmax(jnp.where(automaton.allowed(state), scores, -jnp.inf))
            token = token.astype(jnp.int32)
            return automaton.advance(state, token), n + 1, tokens.at[n].set(token)

        def going_on(carry):
            return (carry[0] != automaton.finished) & (carry[1] < longest)

        tokens = jnp.full(longest, -1, jnp.int32)
        return jax.lax.while_loop(going_on, body, (automaton.start(), jnp.int32(0), tokens))

    return walk


allowed, advance = jax.jit(lambda a, s: a.allowed(s)), jax.jit(lambda a, s, t: a.advance(s, t))


def test_random_walks_parse_and_validate():
    tokens = vocabulary(500)
    automaton = TokenAutomaton.build(compile_json_schema(SCHEMA), tokens, 0)
    walk = jax.jit(jax.vmap(sampler(80), in_axes=(None, 0)))
    states, counts, chosen = walk(automaton, jax.random.split(jax.random.key(0), 200))
    assert (np.asarray(states) == automaton.finished).all()
    validator = jsonschema.Draft202012Validator(SCHEMA)
    texts = []
    for count, row in zip(counts.tolist(), chosen.tolist(), strict=True):
        assert row[count - 1] == 0
        texts.append(b"".join(tokens[t] for t in row[: count - 1]).decode())
        validator.validate(json.loads(texts[-1]))
    assert len(set(texts)) > 100


@settings(max_examples=30)
@given(patterns(), st.lists(st.integers(0, 10**6), max_size=12))
def test_allowed_and_advance_are_those_of_the_bytes(pattern, choices):
    """Along any path of tokens the masks are what running the bytes says."""
    tokens, dfa = vocabulary(), compile_regex(pattern)
    automaton = TokenAutomaton.build(dfa, tokens, 0)
    byte_class = dfa.byte_class

    def run(state, text):
        for byte in text:
            state = -1 if state < 0 else int(dfa.transitions[state, byte_class[byte]])
        return state

    here, state, text = 0, automaton.start(), b""
    for choice in choices:
        after = [run(here, t) if t else -1 for t in tokens]
        expected = np.array(after) >= 0
        expected[0] = dfa.accepting[here]
        np.testing.assert_array_equal(np.asarray(allowed(automaton, state)), expected)
        assert expected.any()
        legal = np.flatnonzero(expected)
        token = int(legal[choice % len(legal)])
        state = advance(automaton, state, jnp.int32(token))
        if token == 0:
            assert int(state) == automaton.finished
            assert re.fullmatch(pattern, text.decode(), re.ASCII)
            break
        here, text = after[token], text + tokens[token]
        assert int(state) == here


def test_after_the_end_and_after_mistakes():
    automaton = TokenAutomaton.build(compile_regex("ab?"), vocabulary(), 0)
    word = {t: n for n, t in enumerate(vocabulary()) if t}

    def follow(*tokens):
        state = automaton.start()
        for token in tokens:
            state = advance(automaton, state, jnp.int32(token))
        return int(state), np.flatnonzero(allowed(automaton, state)).tolist()

    a, b, ab, special = word[b"a"], word[b"b"], word[b"ab"], 1
    assert follow()[1] == sorted([a, ab])
    assert follow(a)[1] == sorted([0, b])
    assert follow(ab)[1] == [0]
    assert follow(a, 0) == (automaton.finished, [0])
    assert follow(ab, 0, 0) == (automaton.finished, [0])
    for mistake in ((0,), (b,), (special,), (a, special), (ab, b), (a, 0, a), (a, 0, special)):
        assert follow(*mistake) == (automaton.dead, [])
        assert follow(*mistake, a) == (automaton.dead, [])
        assert follow(*mistake, 0) == (automaton.dead, [])


def test_one_trace_for_grammars_of_one_size():
    traces = []

    @jax.jit
    def step(automaton, state, token):
        traces.append(1)
        return automaton.allowed(state), automaton.advance(state, token)

    for pattern in ("[ab]c", "[xy]z"):
        automaton = TokenAutomaton.build(compile_regex(pattern), vocabulary(), 0)
        mask, state = step(automaton, automaton.start(), jnp.int32(2 + ord(pattern[1])))
        assert mask.dtype == bool
        assert state.dtype == jnp.int32
        assert int(mask.sum()) == 2
    assert len(traces) == 1


def test_a_vocabulary_of_full_size():
    """49,152 tokens and the grammar of a nested schema: a few megabytes."""
    rng = np.random.default_rng(1)
    tokens = vocabulary(49_152 - 258 - len(WORDS), seed=1)
    order = [0, *(1 + rng.permutation(len(tokens) - 1)).tolist()]
    tokens = [tokens[n] for n in order]
    schema = {"type": "array", "items": SCHEMA, "minItems": 2, "maxItems": 8}
    automaton = TokenAutomaton.build(compile_json_schema(schema), tokens, 0)
    assert automaton.vocab_size == 49_152
    assert automaton.transitions.shape[0] > 500
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(automaton))
    assert held < 8e6
    state, count, chosen = sampler(400)(automaton, jax.random.key(3))
    assert int(state) == automaton.finished
    text = b"".join(tokens[t] for t in chosen[: int(count)].tolist()).decode()
    jsonschema.validate(json.loads(text), schema)


def test_bytes_that_no_token_has():
    tokens = [b"" if b in (b"\xc3", b"\xf1") else b for b in vocabulary()]
    tokens = [b.replace("é".encode(), b"e") for b in tokens]
    grammar = compile_json_schema({"enum": ["é", "tea"]})
    with pytest.raises(TokenizerError, match="no token has the byte 0xc3 that the grammar uses"):
        TokenAutomaton.build(grammar, tokens, 0)
    automaton = TokenAutomaton.build(grammar, tokens, 0, drop_missing=True)
    _, count, chosen = sampler(9)(automaton, jax.random.key(0))
    assert b"".join(tokens[t] for t in chosen[: int(count)].tolist()) == b'"tea"'
    with pytest.raises(TokenizerError, match="can spell no answer"):
        TokenAutomaton.build(compile_regex("é+"), tokens, 0, drop_missing=True)
    # Strings of JSON do without the lead bytes of unassigned planes, which many lack.
    TokenAutomaton.build(
        compile_json_schema({"type": "string"}),
        [b"" if b == b"\xf1" else b for b in vocabulary()],
        0,
    )


def test_tokens_that_lead_nowhere():
    with pytest.raises(TokenizerError, match=r"no token can start .* starts with 'a'"):
        TokenAutomaton.build(compile_regex("ab"), [b"", b"b", b"ba"], 0)
    with pytest.raises(TokenizerError, match=r"after 'xa' no tokens lead .* goes on with 'b'"):
        TokenAutomaton.build(compile_regex("xab|xc"), [b"", b"x", b"a", b"c", b"xab"], 0)
    # Tokens of several bytes are enough where they fit together.
    automaton = TokenAutomaton.build(compile_regex("(ab|cd)+"), [b"ab", b"cd", b"bc", b""], 3)
    assert np.asarray(automaton.allowed(automaton.start())).tolist() == [True, True, False, False]


def test_a_loop_without_end_is_found():
    with pytest.raises(TokenizerError, match="no tokens lead to the end"):
        TokenAutomaton.build(compile_regex("(aa)*ab|c"), [b"", b"aa", b"c", b"bb"], 0)


@pytest.mark.parametrize("eos_id", [-1, 3])
def test_the_end_token_must_exist(eos_id):
    with pytest.raises(ConfigError, match="expected 0 to 2"):
        TokenAutomaton.build(compile_regex("a"), [b"a", b"b", b""], eos_id)


def test_longest_string_bounds_answers():
    layout = JsonLayout(longest_string=3, characters="ascii")
    automaton = TokenAutomaton.build(
        compile_json_schema({"type": "string"}, layout), vocabulary(), 0
    )
    walk = jax.vmap(sampler(12), in_axes=(None, 0))
    states, _, _ = walk(automaton, jax.random.split(jax.random.key(1), 50))
    assert (np.asarray(states) == automaton.finished).all()
