"""Distributions over whole numbers from digits, entropies, and scores of series.

Hierarchy-PDF after Liu, Boulle, Sarfati and Earls, "LLMs learn governing principles of
dynamical systems", arXiv 2402.00795: the probability of a number is the product of the
probabilities of its digits, each among digits alone, along the tree of prefixes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError, PromptError
from jaxlab.llm.decoder import Decoder, DecodeSteps
from jaxlab.llm.generation import PROMPT_MULTIPLE
from jaxlab.llm.numbers import NumberCodec
from jaxlab.llm.sampling import Sampling, entropy, filtered, masked
from jaxlab.llm.series import SeriesCodec, masks

#: Rows of logits that are in memory at once.
ROWS_AT_ONCE = 64


def hierarchy_pdf(levels: Sequence[Array]) -> Float[Array, "*batch numbers"]:
    """Probabilities of all numbers of some digits; they sum to one.

    Args:
      levels: Logits of digits at each node of the tree: `[..., base]` at the root, then
        `[..., base, base]` by the first digit, and so on. They need not be normalised.
    """
    log_probs = jax.nn.log_softmax(levels[0], axis=-1)
    for depth, level in enumerate(levels[1:], 1):
        if level.shape[-1 - depth :] != (levels[0].shape[-1],) * (depth + 1):
            raise ConfigError(
                f"level {depth} of a tree of digits: shape {level.shape}, expected one axis more "
                "than the level above, of the same length"
            )
        log_probs = log_probs[..., None] + jax.nn.log_softmax(level, axis=-1)
    flat = log_probs.reshape(*levels[0].shape[:-1], -1)
    return jax.nn.softmax(flat, axis=-1)


def value_distribution(
    decoder: Decoder,
    steps: DecodeSteps,
    codec: NumberCodec,
    prompt: Any,
) -> Float[Array, " numbers"]:
    """Probability of every number after a prompt, `[base ** width]`, by walking the whole tree.

    One token a number takes the prompt alone; digits take `1 + 10 + 100` nodes of three, each
    level one step of a batch that shares the cache of the prompt.

    Raises:
      PromptError: The prompt and the digits do not fit into the context.
    """
    prompt = np.asarray(prompt, np.int32)
    if prompt.shape[0] + codec.width > decoder.config.context_length:
        raise PromptError(
            f"a prompt of {prompt.shape[0]} tokens and {codec.width} digits: the model's context "
            f"holds {decoder.config.context_length}"
        )
    room = decoder.config.context_length - codec.width
    time = min(-(-len(prompt) // PROMPT_MULTIPLE) * PROMPT_MULTIPLE, room)
    padded = np.concatenate([np.zeros(time - len(prompt), np.int32), prompt])
    return _walk(decoder, steps, codec, padded, np.int32(len(prompt)))


@jax.jit
def _walk(
    decoder: Decoder, steps: DecodeSteps, codec: NumberCodec, prompt: Array, length: Array
) -> Array:
    room = prompt.shape[0] + codec.width
    logits, cache = decoder.prefill(prompt[None], length[None], room)
    levels = [logits[0, codec.symbols]]
    for depth in range(1, codec.width):
        cache = cache.repeat(codec.base)
        logits, cache = steps(jnp.tile(codec.symbols, codec.base ** (depth - 1)), cache)
        levels.append(logits[:, codec.symbols].reshape((codec.base,) * (depth + 1)))
    return hierarchy_pdf(levels)


@struct.dataclass
class Entropies:
    """Entropies of the next token in nats, each `[...]`.

    Attributes:
      raw: Of the model's own distribution over the vocabulary.
      allowed: Among the allowed tokens, at temperature 1.
      processed: Of the distribution that is sampled: allowed tokens, temperature, top-k and
        top-p, as the paper's. For greedy options as `allowed`.
    """

    raw: jax.Array
    allowed: jax.Array
    processed: jax.Array


def entropies(
    logits: Float[Array, "*batch vocab"], allowed: Bool[Array, " vocab"], options: Sampling
) -> Entropies:
    """The three entropies of logits; uniform logits over k tokens give ln k."""
    restricted = masked(logits.astype(jnp.float32), jnp.broadcast_to(allowed, logits.shape))
    return Entropies(
        raw=entropy(jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)),
        allowed=entropy(jax.nn.log_softmax(restricted, axis=-1)),
        processed=entropy(jax.nn.log_softmax(filtered(restricted, options), axis=-1)),
    )


@struct.dataclass
class SeriesScores:
    """What a model thinks of a series under teacher forcing, `[batch, rows, columns]` float32.

    Entries before which the model has seen no token are NaN.

    Attributes:
      log_prob: Log-probability of each number, its symbols among symbols alone, in nats.
      entropy: Sums over a number's tokens of the conditional entropies along the text:
        unbiased for the entropy of the number where the text was drawn from the model.
      number_mass: Probability of symbols at the places of symbols, of the raw distribution,
        the product over a number's tokens.
      separator_mass: Probability of the separator behind the number.
      greedy: The most likely number if its first digits were those of the text, int32.
    """

    log_prob: jax.Array
    entropy: Entropies
    number_mass: jax.Array
    separator_mass: jax.Array
    greedy: jax.Array


def score_series(
    decoder: Decoder,
    codec: SeriesCodec,
    numbers: Int[Array, "batch rows columns"],
    options: Sampling,
    grammar: str = "strict",
) -> SeriesScores:
    """Score every number of series in one forward pass each: the in-context curve of all rows.

    Args:
      decoder: The model.
      codec: Of its tokeniser.
      numbers: Integers of series of one shape.
      options: What `Entropies.processed` is of.
      grammar: What `Entropies.allowed` is among: symbols of numbers (`strict`), or those and
        the separator of numbers (`free`).

    Raises:
      PromptError: A series is longer than the context.
    """
    rows, columns = numbers.shape[-2:]
    length = len(codec.prefix) + rows * columns * codec.stride
    if length > decoder.config.context_length:
        raise PromptError(
            f"series of {rows} rows and {columns} columns: {length} tokens, but the model's "
            f"context holds {decoder.config.context_length}; take fewer rows or columns"
        )
    number, space, _ = masks(codec)
    allowed = np.zeros(decoder.config.vocab_size, bool)
    allowed[: codec.vocab_size] = number | space if grammar == "free" else number
    return _score(decoder, codec, jnp.asarray(numbers, jnp.int32), options, jnp.asarray(allowed))


@functools.partial(jax.jit)
def _score(
    decoder: Decoder, codec: SeriesCodec, numbers: Array, options: Sampling, allowed: Array
) -> SeriesScores:
    batch, rows, columns = numbers.shape
    tokens = codec.encode(numbers)
    front = np.broadcast_to(np.array(codec.prefix, np.int32), (batch, len(codec.prefix)))
    whole = jnp.concatenate([jnp.asarray(front), tokens], axis=1)
    stream, _ = decoder.run(whole)
    # The stream before each token; the very first has none.
    before = stream[:, len(codec.prefix) - 1 : -1] if codec.prefix else stream[:, :-1]
    if not codec.prefix:
        before = jnp.concatenate([stream[:, :1], before], axis=1)
    flat, targets = before.reshape(-1, before.shape[-1]), tokens.reshape(-1)

    def look(pair: tuple[Array, Array]) -> dict[str, Any]:
        logits = decoder.logits(pair[0])
        log_probs = jax.nn.log_softmax(logits, axis=-1)
        among = codec.numbers.log_probs(logits)
        symbol = codec.numbers.values[pair[1]]
        return {
            "entropies": entropies(logits, allowed, options),
            "chosen": among[jnp.maximum(symbol, 0)],
            "mass": jax.nn.logsumexp(log_probs[codec.numbers.symbols]),
            "token": log_probs[pair[1]],
            "best": jax.lax.argmax(among, 0, jnp.int32),
        }

    looked = jax.lax.map(look, (flat, targets), batch_size=ROWS_AT_ONCE)
    shaped = jax.tree.map(lambda x: x.reshape(batch, rows, columns, codec.stride), looked)
    symbols = jax.tree.map(lambda x: x[..., :-1], shaped)
    summed = jax.tree.map(lambda x: jnp.sum(x, axis=-1), symbols["entropies"])
    width, base = codec.numbers.width, codec.numbers.base
    powers = jnp.asarray(base ** np.arange(width - 1, -1, -1), jnp.int32)
    found = SeriesScores(
        log_prob=jnp.sum(symbols["chosen"], axis=-1),
        entropy=summed,
        number_mass=jnp.exp(jnp.sum(symbols["mass"], axis=-1)),
        separator_mass=jnp.exp(shaped["token"][..., -1]),
        greedy=jnp.sum(symbols["best"] * powers, axis=-1, dtype=jnp.int32),
    )
    if codec.prefix:
        return found
    first = np.zeros((rows, columns), bool)
    first[0, 0] = True
    known = jnp.asarray(~first)
    kept = jax.tree.map(
        lambda x: jnp.where(known, x, jnp.nan),
        (found.log_prob, found.entropy, found.number_mass),
    )
    return dataclasses.replace(found, log_prob=kept[0], entropy=kept[1], number_mass=kept[2])
