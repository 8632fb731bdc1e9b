"""Looks inside: distributions of numbers, curves under teacher forcing, differences in time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.pde_icl.cases import Case, make_case
from experiments.pde_icl.options import (
    CurveOptions,
    DifferenceOptions,
    SeriesOptions,
    TokenOptions,
)
from experiments.pde_icl.reading import Reader, forecast_rows, readers, sampling_of
from experiments.pde_icl.storing import Arrays, finish, stored
from jaxlab.core import figures
from jaxlab.llm.value_distributions import score_series, value_distribution


def _solved(options: SeriesOptions, steps: int, rows: int) -> Case:
    return make_case(
        options.problem,
        range(options.seed, options.seed + options.seeds),
        options.columns,
        steps,
        rows,
        duration=options.duration,
        coefficient=options.coefficient,
        context_only=options.context_only,
    )


def tokens(options: TokenOptions) -> None:
    """The distribution of every number of the next row, along the model's own answer."""
    assert options.run_dir is not None
    arrays: dict[str, np.ndarray] = {}
    rows: list[list[Any]] = []
    results: dict[str, Any] = {}
    cases = {n: _solved(options, n, n) for n in options.contexts}
    for reader in readers(options):
        for n, case in cases.items():

            def look() -> Arrays:
                return _look(reader, case, options)  # noqa: B023

            part = stored(options.run_dir, f"{reader.name}-{n}", look)
            arrays |= {f"{reader.name}/{n}/{key}": value for key, value in part.items()}
            rows += _told(reader.name, n, part, options.top)
            results.setdefault(reader.name, {})[str(n)] = {
                "entropy": _entropy(part["pdf"]),
                "separator": part["separator"],
            }
    _draw_tokens(options, arrays)
    header = [
        "model",
        "N_T",
        "column",
        "truth",
        "written",
        "entropy",
        "next separator",
        "likeliest",
    ]
    finish(
        options, header, rows, arrays, results, f"{options.problem}: the next row, number by number"
    )


def _look(reader: Reader, case: Case, options: TokenOptions) -> Arrays:
    """Distributions `[columns, 1000]`, the row written, the truth, separators `[columns]`."""
    codec, model = reader.codec, reader.model
    context, columns = case.context[:1], options.columns
    written = forecast_rows(reader, context, options, 1)["numbers"][0, 0, 0]
    whole = np.concatenate([context[0], written[None]])
    prompt = codec.prompt(context, model.config.context_length, codec.answer_length(columns))[0]
    after = np.asarray(codec.encode(jnp.asarray(written[None])))
    pdfs = [
        value_distribution(
            model.decoder,
            model.steps,
            codec.numbers,
            np.concatenate([prompt, after[: column * codec.stride]]),
        )
        for column in range(columns)
    ]
    scores = score_series(
        model.decoder, codec, jnp.asarray(whole[None]), sampling_of(options), options.grammar
    )
    return {
        "pdf": np.stack([np.asarray(pdf) for pdf in pdfs]),
        "written": written,
        "truth": case.numbers[0, case.rows],
        "separator": np.asarray(scores.separator_mass)[0, -1],
        "number_mass": np.asarray(scores.number_mass)[0, -1],
    }


def _entropy(pdf: np.ndarray) -> np.ndarray:
    """Entropies of distributions over numbers, nats, `[columns]`."""
    return -np.sum(np.where(pdf > 0, pdf * np.log(np.where(pdf > 0, pdf, 1)), 0), axis=-1)


def _told(model: str, n: int, part: Arrays, top: int) -> list[list[Any]]:
    rows = []
    for column, pdf in enumerate(part["pdf"]):
        best = np.argsort(-pdf)[:top]
        rows.append(
            [
                model,
                n,
                column + 1,
                int(part["truth"][column]),
                int(part["written"][column]),
                float(_entropy(pdf)),
                float(part["separator"][column]),
                " ".join(f"{number:03}:{pdf[number]:.3f}" for number in best),
            ]
        )
    return rows


def _draw_tokens(options: TokenOptions, arrays: dict[str, np.ndarray]) -> None:
    assert options.run_dir is not None
    keys = [key.removesuffix("/pdf") for key in arrays if key.endswith("/pdf")]
    figure, grid = figures.new_figure(
        2.6 * options.columns,
        2.2 * len(keys),
        nrows=len(keys),
        ncols=options.columns,
        squeeze=False,
    )
    for line, key in zip(grid, keys, strict=True):
        for column, axes in enumerate(line):
            axes.plot(arrays[f"{key}/pdf"][column], linewidth=0.6)
            axes.axvline(arrays[f"{key}/truth"][column], color="tab:green", linestyle=":")
            axes.set_title(f"{key.split('/')[-1]} rows, column {column + 1}", fontsize=7)
            axes.tick_params(labelsize=6)
    figures.save_figure(figure, options.run_dir, "tokens")


def curve(options: CurveOptions) -> None:
    """Likelihood and entropies of every row of trajectories."""
    assert options.run_dir is not None
    case = _solved(options, options.rows - 1, options.rows - 1)
    arrays: dict[str, np.ndarray] = {}
    results: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for reader in readers(options):

        def score() -> Arrays:
            return _scored(reader, case, options)  # noqa: B023

        part = stored(options.run_dir, reader.name, score)
        arrays |= {f"{reader.name}/{key}": value for key, value in part.items()}
        by_row = {key: np.nanmean(value, axis=(0, 2)) for key, value in part.items()}
        results[reader.name] = by_row
        for row in range(options.rows):
            rows.append([reader.name, row + 1, *(float(by_row[key][row]) for key in _CURVES)])
    _draw_curve(options, results)
    header = ["model", "row", *_CURVES]
    title = f"{options.problem}: teacher forcing over {options.seeds} initial conditions"
    finish(options, header, rows, arrays, results, title)


_CURVES = (
    "negative_log_prob",
    "entropy",
    "raw_entropy",
    "processed_entropy",
    "number_mass",
    "separator_mass",
    "correct",
)


def _scored(reader: Reader, case: Case, options: CurveOptions) -> Arrays:
    """Arrays `[seeds, rows, columns]` by name of `_CURVES`."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in _CURVES}
    for first in range(0, options.seeds, options.batch):
        numbers = case.numbers[first : first + options.batch]
        scores = score_series(
            reader.model.decoder,
            reader.codec,
            jnp.asarray(numbers),
            sampling_of(options),
            options.grammar,
        )
        told = {
            "negative_log_prob": -scores.log_prob,
            "entropy": scores.entropy.allowed,
            "raw_entropy": scores.entropy.raw,
            "processed_entropy": scores.entropy.processed,
            "number_mass": scores.number_mass,
            "separator_mass": scores.separator_mass,
            "correct": np.asarray(scores.greedy) == numbers,
        }
        for name, value in told.items():
            parts[name].append(np.asarray(value, np.float32))
    return {name: np.concatenate(values) for name, values in parts.items()}


def _draw_curve(options: CurveOptions, results: dict[str, Any]) -> None:
    assert options.run_dir is not None
    figure, (left, middle, right) = figures.new_figure(12.0, 3.6, ncols=3)
    rows = np.arange(1, options.rows + 1)
    for name, of in results.items():
        left.plot(rows, of["negative_log_prob"], label=name)
        middle.plot(rows, of["entropy"], label=name)
        right.plot(rows, of["number_mass"], label=f"{name}: numbers")
        right.plot(rows, of["separator_mass"], "--", label=f"{name}: separators")
    left.axhline(np.log(1000), color="gray", linestyle=":", label="uniform")
    left.set(xlabel="row", ylabel="-log probability of a number (nats)")
    middle.set(xlabel="row", ylabel="entropy of a number (nats)")
    right.set(xlabel="row", ylabel="probability of the syntax", ylim=(0, 1.02))
    for axes in (left, middle, right):
        axes.legend(fontsize="xx-small")
        axes.grid(alpha=0.3)
    figures.save_figure(figure, options.run_dir, "curve")


def differences(options: DifferenceOptions) -> None:
    """How far integers move from row to row: what a model must extrapolate."""
    assert options.run_dir is not None
    seeds = range(options.seed, options.seed + options.seeds)
    case = make_case(options.problem, seeds, options.columns, options.total, options.total)
    moved = np.diff(case.numbers, axis=1)
    figure, (left, right) = figures.new_figure(9.0, 3.8, ncols=2)
    image = left.imshow(moved[0].T, aspect="auto", origin="lower", cmap="coolwarm")
    figure.colorbar(image, ax=left)
    left.set(xlabel="step", ylabel="column", title=f"seed {options.seed}")
    values, counts = np.unique(moved, return_counts=True)
    right.bar(values, counts / counts.sum(), width=1.0)
    right.set(xlabel="difference of integers", ylabel="share")
    figures.save_figure(figure, options.run_dir, "differences")
    size = np.abs(moved)
    rows = [
        [
            step + 1,
            float(size[:, step].mean()),
            int(size[:, step].max()),
            float((moved[:, step] == 0).mean()),
        ]
        for step in range(options.total)
    ]
    results = {"mean": size.mean(), "largest": size.max(), "unchanged": (moved == 0).mean()}
    header = ["step", "mean |difference|", "largest", "share unchanged"]
    title = f"{options.problem}: integer differences over {options.seeds} initial conditions"
    finish(options, header, rows, {"differences": moved}, results, title)
