"""Automata over the tokens of a language model, for decoding that cannot leave a grammar.

A `ByteDfa` says which bytes may follow; lifted to a vocabulary it says which tokens may.
Decoding that samples only allowed tokens ends in a text of the language:

    state = automaton.start()
    logits = jnp.where(automaton.allowed(state), logits, -jnp.inf)
    state = automaton.advance(state, token)

Masks are computed once per state when the automaton is built (tokens that share a prefix
share its steps), kept as bits, and equal ones kept once. A token's bytes are run through the
table of transitions when it is taken, so no table of states times tokens is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Int

from jaxlab.core.errors import ConfigError, TokenizerError
from jaxlab.llm.finite_automaton import ByteDfa

#: States beside those of the grammar: after the end token, and after a token not allowed.
_EXTRA = 2


@struct.dataclass
class TokenAutomaton:
    """Which tokens may follow, as arrays for use inside a compiled decoding step.

    Attributes:
      byte_class: Class of each byte, `[256]`, int32.
      transitions: Next state by class, `[states + 2, classes]`, int32. The last two states
        are `finished` (only the end token is allowed, so a batch can wait for its last
        member) and `dead` (nothing is allowed), from which nothing leads back.
      accepting: Whether the end token is allowed, `[states + 2]`, bool.
      mask_of: Row of `masks` of each state, `[states + 2]`, int32.
      masks: Allowed tokens, one bit each, lowest first, `[masks, ceil(vocab / 8)]`, uint8.
      token_bytes: Bytes of all tokens one after the other, uint8.
      token_offset: Where each token starts, `[vocab + 1]`, int32.
      eos_id: The end token.
    """

    byte_class: jax.Array
    transitions: jax.Array
    accepting: jax.Array
    mask_of: jax.Array
    masks: jax.Array
    token_bytes: jax.Array
    token_offset: jax.Array
    eos_id: int = struct.field(pytree_node=False)

    @classmethod
    def build(
        cls,
        dfa: ByteDfa,
        token_bytes: Sequence[bytes],
        eos_id: int,
        *,
        drop_missing: bool = False,
    ) -> TokenAutomaton:
        """Lift an automaton over bytes to tokens.

        Args:
          dfa: The grammar, from `compile_regex` or `compile_json_schema`.
          token_bytes: Bytes of each token id; empty for those that are never text
            (special and unused ids).
          eos_id: The token that ends an answer, allowed exactly where the grammar accepts.
          drop_missing: Leave out answers with bytes that no token has instead of raising.

        Raises:
          ConfigError: `eos_id` is not an id.
          TokenizerError: No token has a byte that the grammar uses, no token can start an
            answer, or some tokens lead to where none leads on.
        """
        if not 0 <= eos_id < len(token_bytes):
            raise ConfigError(f"eos_id {eos_id}: expected 0 to {len(token_bytes) - 1}")
        tokens = [b"" if n == eos_id else bytes(text) for n, text in enumerate(token_bytes)]
        dfa = _spelled(dfa, tokens, drop_missing)
        masks = _token_masks(dfa, tokens, eos_id)
        spelled = {text[0] for text in tokens if len(text) == 1}
        # With a token for every byte each byte's step is a token's too: nothing can go wrong.
        if not spelled.issuperset(dfa.bytes_used().tolist()):
            _require_ways_on(dfa, tokens, masks, eos_id)
        dead = dfa.num_states + 1
        table = np.where(dfa.transitions >= 0, dfa.transitions, dead)
        table = np.pad(table, ((0, _EXTRA), (0, 0)), constant_values=dead)
        extra = np.zeros((_EXTRA, masks.shape[1]), np.uint8)
        extra[0, eos_id // 8] = 1 << (eos_id % 8)
        masks, mask_of = _distinct(np.concatenate([masks, extra]))
        offset = np.cumsum([0, *map(len, tokens)])
        return cls(
            byte_class=jnp.asarray(dfa.byte_class.astype(np.int32)),
            transitions=jnp.asarray(table.astype(np.int32)),
            accepting=jnp.asarray(np.append(dfa.accepting, [True, False])),
            mask_of=jnp.asarray(mask_of.astype(np.int32)),
            masks=jnp.asarray(masks),
            token_bytes=jnp.asarray(np.frombuffer(b"".join(tokens) or b"\0", np.uint8)),
            token_offset=jnp.asarray(offset.astype(np.int32)),
            eos_id=int(eos_id),
        )

    @property
    def vocab_size(self) -> int:
        return self.token_offset.shape[0] - 1

    @property
    def finished(self) -> int:
        """The state after the end token."""
        return self.transitions.shape[0] - _EXTRA

    @property
    def dead(self) -> int:
        """The state after a token that was not allowed."""
        return self.transitions.shape[0] - _EXTRA + 1

    def start(self) -> Int[Array, ""]:
        """The state before the first token."""
        return jnp.int32(0)

    def allowed(self, state: Int[Array, ""]) -> Bool[Array, " vocab"]:
        """Tokens that may come next."""
        row = self.masks[self.mask_of[state]]
        bits = (row[:, None] >> jnp.arange(8, dtype=jnp.uint8)) & jnp.uint8(1)
        return bits.reshape(-1)[: self.vocab_size] != 0

    def advance(self, state: Int[Array, ""], token: Int[Array, ""]) -> Int[Array, ""]:
        """The state after a token."""
        begin, end = self.token_offset[token], self.token_offset[token + 1]

        def step(place: jax.Array, state: jax.Array) -> jax.Array:
            return self.transitions[state, self.byte_class[self.token_bytes[place]]]

        state = jnp.asarray(state, jnp.int32)
        after = jax.lax.fori_loop(begin, end, step, state)
        after = jnp.where(end > begin, after, jnp.int32(self.dead))
        ended = jnp.where(self.accepting[state], self.finished, self.dead).astype(jnp.int32)
        return jnp.where(token == self.eos_id, ended, after)


def _spelled(dfa: ByteDfa, tokens: list[bytes], drop_missing: bool) -> ByteDfa:
    """The grammar as far as the tokens have its bytes."""
    missing = np.setdiff1d(dfa.bytes_used(), np.unique(np.frombuffer(b"".join(tokens), np.uint8)))
    if not missing.size:
        return dfa
    names = ", ".join(f"0x{byte:02x}" for byte in missing[:8])
    if not drop_missing:
        raise TokenizerError(
            f"tokenizer: no token has the byte{'s' * (missing.size > 1)} {names}"
            f"{', ...' * (missing.size > 8)} that the grammar uses; narrow the grammar (ASCII "
            "text, say) or leave such answers out with drop_missing=True"
        )
    try:
        return dfa.without(missing)
    except ConfigError as error:
        raise TokenizerError(
            f"tokenizer: it can spell no answer of the grammar, no token has {names}; take "
            "another tokenizer or grammar"
        ) from error


def _walk(
    dfa: ByteDfa, tokens: list[bytes], starts: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For each token that some state allows: its id, those states, and where it leads."""
    step = dfa.transitions[:, dfa.byte_class]
    columns = np.ascontiguousarray(step.T)
    order = sorted((text, n) for n, text in enumerate(tokens) if text)
    # States alive after each prefix of the last token, which a sorted neighbour shares.
    path: list[tuple[np.ndarray, np.ndarray]] = [(starts, starts)]
    before = b""
    for text, n in order:
        shared = 0
        while shared < min(len(text), len(before)) and text[shared] == before[shared]:
            shared += 1
        del path[shared + 1 :]
        before = text
        while len(path) <= len(text):
            origin, here = path[-1]
            if not here.size:
                break
            there = columns[text[len(path) - 1]][here]
            alive = there >= 0
            path.append((origin[alive], there[alive]))
        origin, there = path[-1]
        if len(path) > len(text) and there.size:
            yield n, origin, there


def _token_masks(dfa: ByteDfa, tokens: list[bytes], eos_id: int) -> np.ndarray:
    """Bits of the tokens that each state allows, `[states, ceil(vocab / 8)]`, uint8."""
    masks = np.zeros((dfa.num_states, -(-len(tokens) // 8)), np.uint8)
    for n, states, _ in _walk(dfa, tokens, np.arange(dfa.num_states)):
        masks[states, n // 8] |= np.uint8(1 << (n % 8))
    masks[dfa.accepting, eos_id // 8] |= np.uint8(1 << (eos_id % 8))
    return masks


def _distinct(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each mask once, and which of them each state has."""
    known: dict[bytes, int] = {}
    mask_of = np.array([known.setdefault(row.tobytes(), len(known)) for row in masks])
    first = np.unique(mask_of, return_index=True)[1]
    return masks[first], mask_of


def _require_ways_on(dfa: ByteDfa, tokens: list[bytes], masks: np.ndarray, eos_id: int) -> None:
    """From every state that tokens can reach, tokens must be able to reach the end."""
    if not masks[0].any():
        first = _names(dfa, 0)
        raise TokenizerError(
            f"tokenizer: no token can start an answer of the grammar, which starts with {first}; "
            "take another tokenizer or grammar"
        )
    reached, edges, prefix = {0}, [], {0: b""}
    frontier = np.array([0])
    while frontier.size:
        fresh: dict[int, bytes] = {}
        for n, origins, targets in _walk(dfa, tokens, frontier):
            for origin, target in zip(origins.tolist(), targets.tolist(), strict=True):
                edges.append((origin, target))
                if target not in reached:
                    fresh.setdefault(target, prefix[origin] + tokens[n])
        reached.update(fresh)
        prefix |= fresh
        frontier = np.array(sorted(fresh), int)
    live = {s for s in reached if dfa.accepting[s]}
    backwards: dict[int, set[int]] = {}
    for origin, target in edges:
        backwards.setdefault(target, set()).add(origin)
    stack = list(live)
    while stack:
        for origin in backwards.get(stack.pop(), ()):
            if origin not in live:
                live.add(origin)
                stack.append(origin)
    if stuck := sorted(reached - live):
        state = min(stuck, key=lambda s: len(prefix[s]))
        text = prefix[state].decode(errors="backslashreplace")[-60:]
        raise TokenizerError(
            f"tokenizer: after {text!r} no tokens lead to the end of an answer; the grammar goes "
            f"on with {_names(dfa, state)}; take a tokenizer with a token for every byte"
        )


def _names(dfa: ByteDfa, state: int) -> str:
    following = np.flatnonzero(dfa.transitions[state, dfa.byte_class] >= 0)
    shown = " ".join(repr(chr(b)) if 32 <= b < 127 else f"0x{b:02x}" for b in following[:6])
    return shown + " ..." * (following.size > 6)
