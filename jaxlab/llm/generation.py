"""Answers from a decoder: one pass over the prompts, then a compiled loop over tokens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError, PromptError
from jaxlab.llm.cache import Cache
from jaxlab.llm.decoder import Decoder, DecodeSteps
from jaxlab.llm.sampling import Sampling, draw, entropy, filtered, masked

#: Prompts are padded to a multiple of this, so that few lengths are compiled.
PROMPT_MULTIPLE = 32


@runtime_checkable
class Automaton(Protocol):
    """A grammar over tokens as a pytree of arrays, for one row; it is mapped over a batch."""

    def start(self) -> jax.Array:
        """The state before the first token, int32 `[]`."""

    def allowed(self, state: jax.Array) -> jax.Array:
        """Which tokens may come next, bool `[vocab]`."""

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        """The state after a token."""


@struct.dataclass
class Generation:
    """Answers, row by row; entries from `lengths` on are padding, zero in all floats.

    Attributes:
      tokens: Token ids, int32 `[batch, new]`; the token that stopped a row is included.
      log_probs: Log-probability of each token among those allowed, at temperature 1,
        float32 `[batch, new]`.
      sampled_log_probs: The same in the distribution that was sampled, after temperature,
        top-k and top-p; for greedy choices as `log_probs`.
      entropies: Entropy in nats of the distribution of `log_probs`, float32 `[batch, new]`.
      lengths: Number of tokens, int32 `[batch]`.
      stopped: Whether a row ended by itself, bool `[batch]`; otherwise it was cut off.
      logits: What each token was chosen from before any mask, float32 `[batch, new, vocab]`;
        None unless asked for.
    """

    tokens: jax.Array
    log_probs: jax.Array
    sampled_log_probs: jax.Array
    entropies: jax.Array
    lengths: jax.Array
    stopped: jax.Array
    logits: jax.Array | None = None


@struct.dataclass
class _Progress:
    """The carry of the loop; `written` answers, `state` of the automaton, next logits."""

    written: Generation
    cache: Cache
    state: Any
    token: jax.Array
    time: jax.Array


def generate(
    decoder: Decoder,
    steps: DecodeSteps,
    tokens: Int[Array, "prompts time"],
    lengths: Int[Array, " prompts"],
    key: Array,
    options: Sampling,
    *,
    max_new_tokens: int,
    stop_ids: tuple[int, ...],
    pad_id: int,
    automaton: Automaton | None = None,
    samples: int = 1,
    keep_logits: bool = False,
) -> Generation:
    """Answer prompts; a pure function that may be part of a larger compiled one.

    Args:
      decoder: Reads the prompts.
      steps: The same weights, of `decode_steps`.
      tokens: Prompts with padding on the left.
      lengths: Their lengths, at least 1.
      key: Row `i` draws its token `t` from `fold_in(fold_in(key, i), t)`; a key for each row,
        `[batch]`, stands in place of the inner fold.
      options: Of `sampling`.
      max_new_tokens: Length at which answers are cut.
      stop_ids: Tokens that end an answer.
      pad_id: Fills the rest of a row.
      automaton: What answers may look like. A row without an allowed token ends.
      samples: Answers to each prompt, side by side: `batch = prompts * samples`.
      keep_logits: Return the logits too, `vocab` floats a token.
    """
    logits, cache = decoder.prefill(tokens, lengths, tokens.shape[1] + max_new_tokens)
    logits, cache = jnp.repeat(logits, samples, axis=0), cache.repeat(samples)
    batch, vocab = logits.shape
    keys = key
    if key.ndim == 0:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(batch, dtype=jnp.uint32))
    stops = jnp.asarray(np.array(stop_ids, np.int32))

    def choose(progress: _Progress, logits: Array) -> _Progress:
        done, state, time = progress.written.stopped, progress.state, progress.time
        restricted, stuck = logits, jnp.zeros(batch, bool)
        if automaton is not None:
            allowed = _allowed(automaton, state, vocab)
            stuck = ~jnp.any(allowed, axis=-1)
            restricted = masked(logits, allowed | stuck[:, None])
        own = jax.vmap(jax.random.fold_in, (0, None))(keys, time.astype(jnp.uint32))
        sampled = filtered(restricted, options)
        token = draw(own, sampled, options)
        over = done | stuck
        token = jnp.where(over, jnp.int32(pad_id), token)
        if automaton is not None:
            after = jax.vmap(automaton.advance)(state, token)
            state = jax.tree.map(lambda a, b: jnp.where(over, b, a), after, state)
        written = _written(progress.written, time, token, logits, restricted, sampled, over)
        stopped = over | jnp.any(token[:, None] == stops, axis=-1)
        return progress.replace(
            written=written.replace(stopped=stopped), state=state, token=token, time=time + 1
        )

    def goes_on(progress: _Progress) -> Array:
        return (progress.time < max_new_tokens) & ~jnp.all(progress.written.stopped)

    def advance(progress: _Progress) -> _Progress:
        logits, cache = steps(progress.token, progress.cache)
        return choose(progress.replace(cache=cache), logits)

    first = _Progress(
        written=_blank(batch, max_new_tokens, vocab, pad_id, keep_logits),
        cache=cache,
        state=None if automaton is None else _everywhere(automaton.start(), batch),
        token=jnp.zeros(batch, jnp.int32),
        time=jnp.zeros((), jnp.int32),
    )
    return jax.lax.while_loop(goes_on, advance, choose(first, logits)).written


def _everywhere(state: Any, batch: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *jnp.shape(x))), state)


def _allowed(automaton: Automaton, state: Any, vocab: int) -> Bool[Array, "batch vocab"]:
    """The automaton's masks; rows of the embedding that are no token are never allowed."""
    allowed = jax.vmap(automaton.allowed)(state)
    if allowed.shape[-1] > vocab:
        raise ConfigError(
            f"the grammar knows {allowed.shape[-1]} tokens, the model only {vocab}; compile "
            "it with the tokenizer of the model"
        )
    return jnp.pad(allowed, ((0, 0), (0, vocab - allowed.shape[-1])))


def _blank(batch: int, new: int, vocab: int, pad_id: int, keep_logits: bool) -> Generation:
    floats = jnp.zeros((batch, new), jnp.float32)
    return Generation(
        tokens=jnp.full((batch, new), pad_id, jnp.int32),
        log_probs=floats,
        sampled_log_probs=floats,
        entropies=floats,
        lengths=jnp.zeros(batch, jnp.int32),
        stopped=jnp.zeros(batch, bool),
        logits=jnp.zeros((batch, new, vocab), jnp.float32) if keep_logits else None,
    )


def _written(
    written: Generation,
    time: Array,
    token: Array,
    logits: Array,
    restricted: Array,
    sampled: Array,
    over: Array,
) -> Generation:
    """The answers with one more token in each row that is not over."""
    log_probs = jax.nn.log_softmax(restricted, axis=-1)
    of_sampled = log_probs if sampled is restricted else jax.nn.log_softmax(sampled, axis=-1)

    def at_token(values: Array) -> Array:
        picked = jnp.take_along_axis(values, token[:, None], axis=-1)[:, 0]
        return jnp.where(over, jnp.float32(0.0), picked)

    def put(column: Array, values: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(column, values, time, 1)

    kept = written.logits
    if kept is not None:
        kept = put(kept, jnp.where(over[:, None], jnp.float32(0.0), logits))
    entropies = jnp.where(over, jnp.float32(0.0), entropy(log_probs))
    return written.replace(
        tokens=put(written.tokens, token),
        log_probs=put(written.log_probs, at_token(log_probs)),
        sampled_log_probs=put(written.sampled_log_probs, at_token(of_sampled)),
        entropies=put(written.entropies, entropies),
        lengths=written.lengths + (~over).astype(jnp.int32),
        logits=kept,
    )


compiled_generate = functools.partial(
    jax.jit,
    static_argnames=("max_new_tokens", "stop_ids", "pad_id", "samples", "keep_logits"),
)(generate)


def pad_prompts(
    prompts: Sequence[Sequence[int]],
    *,
    vocab_size: int,
    room: int,
    pad_id: int,
    multiple: int = PROMPT_MULTIPLE,
) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as one array, padded on the left to a multiple of some tokens.

    Args:
      prompts: Token ids, prompt by prompt.
      vocab_size: Ids must lie below it.
      room: Most tokens of a prompt.
      pad_id: Fills the left.
      multiple: Lengths that are compiled are multiples of it.

    Returns:
      Tokens int32 `[prompts, time]`, lengths int32 `[prompts]`.

    Raises:
      PromptError: There is no prompt, or one is empty, too long or has unknown ids.
    """
    if not prompts:
        raise PromptError("no prompts: expected at least one")
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    for row, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise PromptError(f"prompt {row}: empty; expected at least one token")
        if len(prompt) > room:
            raise PromptError(
                f"prompt {row}: {len(prompt)} tokens, but the context leaves room for {room}; "
                "shorten it or ask for fewer new tokens"
            )
        if not all(0 <= token < vocab_size for token in prompt):
            raise PromptError(f"prompt {row}: token ids must lie between 0 and {vocab_size - 1}")
    longest = int(lengths.max())
    time = min(-(-longest // multiple) * multiple, room)
    tokens = np.full((len(prompts), time), pad_id, np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, time - len(prompt) :] = prompt
    return tokens, lengths


def token_log_probs(
    decoder: Decoder,
    tokens: Int[Array, "batch time"],
    *,
    valid: Bool[Array, "batch time"] | None = None,
    remat: bool = False,
) -> tuple[Float[Array, "batch time-1"], Float[Array, "batch time-1"]]:
    """Log-probability of each token after those before it, and the entropy there, in nats.

    Differentiable; teacher forcing in one pass.

    Args:
      decoder: The model.
      tokens: Token ids.
      valid: False at padding.
      remat: Recompute activations in the backward pass.
    """
    logits = decoder(tokens, valid=valid, remat=remat)[:, :-1]
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    chosen = jnp.take_along_axis(log_probs, tokens[:, 1:, None], axis=-1)[..., 0]
    return chosen, entropy(log_probs)
