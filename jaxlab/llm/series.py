"""Fields in time as digits: scaling to integers, text with separators, tokens, and back.

The serialisation of Bao et al., arXiv 2509.06322: a field is scaled to 150 .. 850, so that
every number has three digits with room on both sides; numbers of a row are joined by ","
and rows by ";".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Int

from jaxlab.core.errors import DataError, PromptError, TokenizerError
from jaxlab.llm.numbers import NumberCodec, number_codec
from jaxlab.llm.tokenizer import Tokenizer

#: Integers that the least and the greatest value become, and one for a field without range.
LOWEST, HIGHEST, MIDDLE = 150, 850, 500
#: Integers that three digits can write.
LARGEST = 999
DIGITS = 3
SPACE, TIME = ",", ";"


@struct.dataclass
class Scale:
    """The values that become 150 and 850, each `[...]`, one for each series."""

    low: Any
    high: Any


def fit_scale(data: Any, *, context_rows: int | None = None, constant: bool = False) -> Scale:
    """The range of each series.

    Args:
      data: `[..., rows, columns]`, finite.
      context_rows: Look at so many first rows only, so that nothing of the target is seen;
        by default at all, as the paper does.
      constant: Allow series without range, which become 500 everywhere.

    Raises:
      DataError: There are too few rows, values that are not finite, or a series whose range
        its precision does not resolve.
    """
    values = np.asarray(data)
    if values.ndim < 2 or 0 in values.shape:
        raise DataError(f"series of shape {values.shape}: expected [..., rows, columns]")
    if context_rows is not None and not 1 <= context_rows <= values.shape[-2]:
        raise DataError(
            f"series of {values.shape[-2]} rows: too few for a scale of {context_rows} context rows"
        )
    seen = values if context_rows is None else values[..., :context_rows, :]
    if not np.all(np.isfinite(values)):
        raise DataError("series: has NaN or infinite values; expected finite numbers")
    low, high = seen.min((-2, -1)), seen.max((-2, -1))
    # Below this, rounding of the values and not the values would decide on the integers.
    smallest = (HIGHEST - LOWEST) * np.finfo(np.result_type(values, np.float32)).eps
    flat = high - low <= smallest * np.maximum(np.abs(low), np.abs(high))
    if np.any(flat) and not constant:
        raise DataError(
            f"series {np.argwhere(np.atleast_1d(flat))[0].tolist()}: is constant "
            f"({float(np.atleast_1d(low)[np.atleast_1d(flat)][0]):.6g}), so it has no scale; "
            "expected values that vary"
        )
    return Scale(low=low, high=np.where(flat, low, high))


def quantise(data: Any, scale: Scale) -> Any:
    """Integers of values, int32 `[..., rows, columns]`, half to even, kept within three digits.

    Args:
      data: `[..., rows, columns]`, numpy or JAX.
      scale: Of `fit_scale`; a series without range becomes 500.
    """
    xp = np if isinstance(data, np.ndarray) else jnp
    low, span = _ends(scale, xp)
    share = (xp.asarray(data) - low) / xp.where(span == 0, 1, span)
    numbers = xp.clip(xp.round(LOWEST + share * (HIGHEST - LOWEST)), 0, LARGEST)
    return xp.where(span == 0, MIDDLE, numbers).astype(np.int32)


def dequantise(numbers: Any, scale: Scale) -> Any:
    """Values of integers, `[..., rows, columns]`; a series without range is its value."""
    xp = np if isinstance(numbers, np.ndarray) else jnp
    low, span = _ends(scale, xp)
    return low + (xp.asarray(numbers) - LOWEST) / (HIGHEST - LOWEST) * span


def _ends(scale: Scale, xp: Any) -> tuple[Any, Any]:
    low, high = xp.asarray(scale.low)[..., None, None], xp.asarray(scale.high)[..., None, None]
    return low, high - low


def serialise(numbers: Any, *, space: str = SPACE, time: str = TIME) -> str:
    """The text of integers `[rows, columns]`, three digits each.

    Raises:
      DataError: A number has more than three digits or a sign, or there are no two axes.
    """
    rows = np.asarray(numbers)
    if rows.ndim != 2 or rows.size == 0 or not np.issubdtype(rows.dtype, np.integer):
        raise DataError(
            f"numbers of shape {rows.shape} and type {rows.dtype}: expected integers [rows, columns]"
        )
    if rows.min() < 0 or rows.max() > LARGEST:
        raise DataError(f"numbers from {rows.min()} to {rows.max()}: expected 0 to {LARGEST}")
    return time.join(space.join(f"{number:0{DIGITS}}" for number in row) for row in rows)


def deserialise(text: str, *, space: str = SPACE, time: str = TIME) -> np.ndarray:
    """The integers of a text, int32 `[rows, columns]`; the inverse of `serialise`.

    A separator of rows at the end, as of a prompt, is left out.

    Raises:
      DataError: A number is none, or rows differ in length.
    """
    rows = text.strip().removesuffix(time).split(time)
    found = []
    for index, row in enumerate(rows):
        items = [item.strip() for item in row.split(space)]
        if not all(item.isascii() and item.isdigit() for item in items):
            raise DataError(
                f"row {index} of a series: {row!r}, expected numbers joined by {space!r}"
            )
        found.append([int(item) for item in items])
        if len(items) != len(found[0]):
            raise DataError(
                f"row {index} of a series: {len(items)} numbers, expected {len(found[0])} as in the first"
            )
    return np.array(found, np.int32)


@struct.dataclass
class SeriesCodec:
    """Rows of integers as tokens; made by `series_codec`.

    Attributes:
      numbers: One token a number, or one a digit.
      space: Token between numbers of a row.
      time: Token behind each row.
      prefix: Tokens that the tokeniser puts in front of every text.
      vocab_size: Tokens of the tokeniser.
    """

    numbers: NumberCodec
    space: int = struct.field(pytree_node=False)
    time: int = struct.field(pytree_node=False)
    prefix: tuple[int, ...] = struct.field(pytree_node=False)
    vocab_size: int = struct.field(pytree_node=False)

    @property
    def stride(self) -> int:
        """Tokens of a number with its separator."""
        return self.numbers.width + 1

    def answer_length(self, columns: int, rows: int = 1) -> int:
        """Tokens of rows without the separator behind the last: `2 columns - 1` of one row."""
        return rows * columns * self.stride - 1

    def encode(self, numbers: Int[Array, "*batch rows columns"]) -> Int[Array, "*batch tokens"]:
        """Tokens of rows, each with a separator behind it, without the prefix; int32."""
        digits = self.numbers.encode(numbers)
        columns = numbers.shape[-1]
        behind = np.full(columns, self.space, np.int32)
        behind[-1] = self.time
        ends = jnp.broadcast_to(jnp.asarray(behind)[:, None], (*numbers.shape, 1))
        tokens = jnp.concatenate([digits, ends], axis=-1)
        return tokens.reshape(*numbers.shape[:-2], -1)

    def decode(
        self, tokens: Int[Array, "*batch answer"], columns: int
    ) -> tuple[Int[Array, "*batch rows columns"], Bool[Array, "*batch rows"]]:
        """Integers of an answer, and whether each row is well-formed.

        A row is so where every number stands in its place with all its digits and every
        separator between two numbers is the one of numbers.

        Args:
          tokens: `answer_length(columns, rows)` of them, or one more.
          columns: Numbers of a row.
        """
        length = tokens.shape[-1]
        rows = -(-length // (columns * self.stride))
        if length not in (self.answer_length(columns, rows), rows * columns * self.stride):
            raise DataError(
                f"an answer of {length} tokens: expected whole rows of {columns} numbers with "
                f"{self.stride} tokens each"
            )
        missing = rows * columns * self.stride - length
        ended = jnp.pad(
            tokens, [(0, 0)] * (tokens.ndim - 1) + [(0, missing)], constant_values=self.time
        )
        parts = ended.reshape(*tokens.shape[:-1], rows, columns, self.stride)
        numbers, valid = self.numbers.decode(parts[..., :-1])
        spaced = parts[..., :-1, -1] == self.space
        ending = parts[..., -1, -1] == self.time
        return numbers, jnp.all(valid, axis=-1) & jnp.all(spaced, axis=-1) & ending

    def prompt(self, numbers: Any, context_length: int, new_tokens: int = 0) -> np.ndarray:
        """Prompts of rows `[..., rows, columns]` that end with a separator of rows; int32.

        Raises:
          PromptError: They do not fit into the context with the tokens that are to follow.
        """
        tokens = np.asarray(self.encode(jnp.asarray(numbers, jnp.int32)))
        front = np.broadcast_to(
            np.array(self.prefix, np.int32), (*tokens.shape[:-1], len(self.prefix))
        )
        whole = np.concatenate([front, tokens], axis=-1)
        if whole.shape[-1] + new_tokens > context_length:
            raise PromptError(
                f"a series of {numbers.shape[-2]} rows and {numbers.shape[-1]} columns: "
                f"{whole.shape[-1]} tokens and {new_tokens} to follow, but the model's context "
                f"holds {context_length}; take fewer rows or columns"
            )
        return whole


def series_codec(tokenizer: Tokenizer, *, space: str = SPACE, time: str = TIME) -> SeriesCodec:
    """The codec that a tokeniser's own splitting of digits asks for.

    Raises:
      TokenizerError: Numbers or separators are no single tokens, or a text of both is not
        split at them.
    """
    numbers = number_codec(tokenizer, DIGITS)
    ends = []
    for text in (space, time):
        found = tokenizer.encode(text, add_special_tokens=False)
        if len(found) != 1:
            raise TokenizerError(
                f"separator {text!r}: {len(found)} tokens of this tokenizer, expected one; take "
                "other separators"
            )
        ends += found
    prefix = tuple(tokenizer.encode(""))
    codec = SeriesCodec(
        numbers=numbers, space=ends[0], time=ends[1], prefix=prefix, vocab_size=tokenizer.vocab_size
    )
    probe = np.array([[150, 0, 999, 42], [500, 850, 7, 333]], np.int32)
    text = serialise(probe, space=space, time=time) + time
    if (
        tokenizer.encode(text, add_special_tokens=False)
        != np.asarray(codec.encode(jnp.asarray(probe))).tolist()
    ):
        raise TokenizerError(
            f"series such as {text!r}: this tokenizer does not split them at numbers and separators"
        )
    return codec


@struct.dataclass
class StrictRows:
    """A grammar under which an answer is rows of `columns` numbers, whatever is drawn.

    An `Automaton` of `jaxlab.llm.generation`; the state counts tokens. It goes on with
    further rows, so `max_new_tokens` decides how many there are.

    Attributes:
      is_number, is_space, is_time: Tokens that may stand for each, bool `[vocab]`.
      stride: Tokens of a number with its separator.
      columns: Numbers of a row.
    """

    is_number: jax.Array
    is_space: jax.Array
    is_time: jax.Array
    stride: int = struct.field(pytree_node=False)
    columns: int = struct.field(pytree_node=False)

    def start(self) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def allowed(self, state: jax.Array) -> jax.Array:
        place = state % (self.stride * self.columns)
        between = jnp.where(place == self.stride * self.columns - 1, self.is_time, self.is_space)
        return jnp.where(place % self.stride == self.stride - 1, between, self.is_number)

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        return state + jnp.ones((), jnp.int32)


@struct.dataclass
class FreeRows:
    """The paper's grammar: numbers and separators of numbers in any order, nothing else."""

    either: jax.Array

    def start(self) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def allowed(self, state: jax.Array) -> jax.Array:
        return self.either

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        return state


def masks(codec: SeriesCodec) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which tokens are symbols of numbers, separators of numbers and of rows; bool `[vocab]`."""
    number = np.asarray(codec.numbers.values) >= 0
    index = np.arange(codec.vocab_size)
    return number, index == codec.space, index == codec.time


def row_grammar(codec: SeriesCodec, columns: int, kind: str = "strict") -> StrictRows | FreeRows:
    """The grammar of answers, `strict` or `free`; with `free`, what is drawn may be malformed."""
    number, space, time = (jnp.asarray(mask) for mask in masks(codec))
    if kind == "strict":
        return StrictRows(number, space, time, stride=codec.stride, columns=columns)
    if kind == "free":
        return FreeRows(number | space)
    raise DataError(f"grammar {kind!r}: expected strict or free")


def retried(draw: Any, rows: int, tries: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw malformed answers again: the paper's rule for the free grammar.

    Args:
      draw: `(indices, attempt) -> (numbers [len(indices), columns], valid [len(indices)])`.
      rows: Answers wanted.
      tries: Most draws of an answer.

    Returns:
      Numbers int32 `[rows, columns]` (of the last draw where none was valid), whether each is
      valid, and how many draws each took.
    """
    waiting: Sequence[int] | np.ndarray = np.arange(rows)
    numbers, valid, taken = None, np.zeros(rows, bool), np.zeros(rows, np.int32)
    for attempt in range(tries):
        found, good = (np.asarray(part) for part in draw(np.asarray(waiting), attempt))
        if numbers is None:
            numbers = np.zeros((rows, found.shape[-1]), np.int32)
        numbers[waiting], valid[waiting] = found, good
        taken[waiting] += 1
        waiting = np.flatnonzero(~valid)
        if len(waiting) == 0:
            break
    assert numbers is not None
    return numbers, valid, taken
