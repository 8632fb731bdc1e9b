"""Models as forecasters of integer series."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.pde_icl.options import SeriesOptions
from jaxlab.llm.embedded import load_embedded
from jaxlab.llm.language_model import LanguageModel, load
from jaxlab.llm.sampling import Sampling, sampling
from jaxlab.llm.series import SeriesCodec, masks, retried, row_grammar, series_codec
from jaxlab.llm.value_distributions import entropies

#: Lengths of prompts that are compiled are multiples of this.
PROMPT_MULTIPLE = 32
#: Draws of a malformed row at most, as in the paper.
TRIES = 10


@dataclasses.dataclass(frozen=True)
class Reader:
    """A model with the codec of its tokeniser; `name` is unique in a run."""

    name: str
    model: LanguageModel
    codec: SeriesCodec


def readers(options: SeriesOptions) -> Iterator[Reader]:
    """The models of the options, one at a time, so that one is in memory."""
    names: set[str] = set()
    for path in options.model or (None,):
        model = load_embedded(options.dtype) if path is None else load(path, options.dtype)
        name = model.name.removesuffix(".gguf")
        while name in names:
            name += "-2"
        names.add(name)
        yield Reader(name, model, series_codec(model.tokenizer))


def sampling_of(options: SeriesOptions) -> Sampling:
    """The options of sampling."""
    return sampling(options.temperature, options.top_k, options.top_p)


def forecast_rows(
    reader: Reader,
    context: np.ndarray,
    options: SeriesOptions,
    steps: int,
    samples: int = 1,
    *,
    keep_entropies: bool = False,
) -> dict[str, np.ndarray]:
    """Continue series; seed and sample decide on the random numbers, not the batch.

    Args:
      reader: The model.
      context: Integers `[seeds, rows, columns]`.
      options: Sampling, grammar, batch and first seed.
      steps: Rows to forecast.
      samples: Continuations of each series, which share one reading of its prompt under the
        strict grammar.
      keep_entropies: Also the raw and the processed entropies, of one row.

    Returns:
      Arrays by name: `numbers` int32 `[seeds, samples, steps, columns]`, `valid` and `tries`
      `[seeds, samples, steps]`, `entropy` of the allowed tokens `[..., columns]`, with
      `raw_entropy` and `processed_entropy` if asked for; `cost`: tokens read, tokens
      written, seconds and CPU-seconds of all batches but the first of each shape.
    """
    draw = _strict if options.grammar == "strict" else _free
    batches, costs = [], []
    for first in range(0, len(context), options.batch):
        part = context[first : first + options.batch]
        filled = np.concatenate([part, np.repeat(part[:1], options.batch - len(part), axis=0)])
        if len(context) <= options.batch:
            filled = part
        seeds = options.seed + first + np.arange(len(filled))
        clock = time.perf_counter(), time.process_time()
        found = draw(reader, filled, seeds, options, steps, samples, keep_entropies)
        spent = time.perf_counter() - clock[0], time.process_time() - clock[1]
        costs.append([*found.pop("tokens"), *spent])
        batches.append({name: value[: len(part)] for name, value in found.items()})
    joined = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    later = costs[1:] if len(costs) > 1 else costs
    return joined | {"cost": np.sum(later, axis=0)}


def _keys(seeds: np.ndarray, samples: int, attempt: int = 0) -> Any:
    """A key for each seed and sample, `[seeds * samples]`."""
    base = jax.random.fold_in(jax.random.key(0), attempt)
    rows = jax.vmap(jax.random.fold_in, (None, 0))(base, jnp.asarray(seeds, jnp.uint32))
    index = jnp.arange(samples, dtype=jnp.uint32)
    return jax.vmap(lambda key: jax.vmap(jax.random.fold_in, (None, 0))(key, index))(rows).reshape(
        -1
    )


def _generate(
    reader: Reader,
    context: np.ndarray,
    keys: Any,
    options: SeriesOptions,
    rows: int,
    samples: int,
    keep_logits: bool,
) -> Any:
    columns, codec, config = context.shape[-1], reader.codec, reader.model.config
    new = codec.answer_length(columns, rows)
    prompts = codec.prompt(context, config.context_length, new)
    return prompts.shape, reader.model.generate(
        prompts.tolist(),
        max_new_tokens=new,
        key=keys,
        options=sampling_of(options),
        automaton=row_grammar(codec, columns, options.grammar),
        samples=samples,
        keep_logits=keep_logits,
        stop_ids=(),
        prompt_multiple=PROMPT_MULTIPLE,
    )


def _strict(
    reader: Reader,
    context: np.ndarray,
    seeds: np.ndarray,
    options: SeriesOptions,
    steps: int,
    samples: int,
    keep: bool,
) -> dict[str, Any]:
    """All rows in one go: what is appended to the prompt is what was written."""
    columns, codec = context.shape[-1], reader.codec
    shape, answer = _generate(reader, context, _keys(seeds, samples), options, steps, samples, keep)
    numbers, valid = codec.decode(answer.tokens, columns)
    lead = (len(context), samples, steps)
    found: dict[str, Any] = {
        "numbers": np.asarray(numbers).reshape(*lead, columns),
        "valid": np.asarray(valid).reshape(lead),
        "tries": np.ones(lead, np.int32),
        "entropy": _of_numbers(codec, answer.entropies, columns).reshape(*lead, columns),
        "tokens": (np.prod(shape), np.prod(answer.tokens.shape)),
    }
    return found | (_variants(reader, answer, options, lead, columns) if keep else {})


def _free(
    reader: Reader,
    context: np.ndarray,
    seeds: np.ndarray,
    options: SeriesOptions,
    steps: int,
    samples: int,
    keep: bool,
) -> dict[str, Any]:
    """Row by row; malformed ones are drawn again, and in the end the row before is repeated."""
    grown = np.repeat(context, samples, axis=0)
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        keys = [_keys(seeds, samples, step * TRIES + attempt) for attempt in range(TRIES)]
        rows.append(_free_row(reader, grown, keys, options, keep))
        grown = np.concatenate([grown, rows[-1]["numbers"][:, None]], axis=1)
    tokens = np.sum([row.pop("tokens") for row in rows], axis=0)
    joined = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    lead = (len(context), samples, steps)
    return {name: x.reshape(*lead, *x.shape[2:]) for name, x in joined.items()} | {
        "tokens": tuple(tokens)
    }


def _free_row(
    reader: Reader, context: np.ndarray, keys: list[Any], options: SeriesOptions, keep: bool
) -> dict[str, Any]:
    """One row of every series, `keys` for each attempt."""
    codec, columns = reader.codec, context.shape[-1]
    told: dict[str, np.ndarray] = {}
    tokens = np.zeros(2)

    def draw(indices: np.ndarray, attempt: int) -> tuple[Any, Any]:
        # All rows again, so that there is one program; the others are thrown away.
        shape, answer = _generate(reader, context, keys[attempt], options, 1, 1, keep)
        tokens[:] += np.prod(shape), np.prod(answer.tokens.shape)
        numbers, valid = (np.asarray(x)[:, 0] for x in codec.decode(answer.tokens, columns))
        found = {"entropy": _of_numbers(codec, answer.entropies, columns)}
        if keep:
            found |= _variants(reader, answer, options, (len(context),), columns)
        for name, value in found.items():
            told.setdefault(name, np.zeros_like(value))[indices] = value[indices]
        return numbers[indices], valid[indices]

    numbers, valid, tries = retried(draw, len(context), TRIES)
    numbers = np.where(valid[:, None], numbers, context[:, -1])
    return {"numbers": numbers, "valid": valid, "tries": tries, "tokens": tokens} | told


def _of_numbers(codec: SeriesCodec, values: Any, columns: int) -> np.ndarray:
    """Sums over a number's tokens of values by token, `[batch, rows * columns]`."""
    padded = np.pad(np.asarray(values), ((0, 0), (0, 1)))
    return padded.reshape(len(padded), -1, codec.stride)[..., :-1].sum(-1)


def _variants(
    reader: Reader, answer: Any, options: SeriesOptions, lead: tuple[int, ...], columns: int
) -> dict[str, np.ndarray]:
    """Raw and processed entropies of numbers from the logits of an answer."""
    number, space, _ = masks(reader.codec)
    allowed = np.zeros(answer.logits.shape[-1], bool)
    allowed[: len(number)] = number | space if options.grammar == "free" else number
    found = _entropies(answer.logits, jnp.asarray(allowed), sampling_of(options))
    raw, processed = (
        _of_numbers(reader.codec, x, columns).reshape(*lead, columns)
        for x in (found.raw, found.processed)
    )
    return {"raw_entropy": raw, "processed_entropy": processed}


_entropies = jax.jit(entropies)
