"""Checks of what a caller gives to `run`, and of what its `between` returns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxlab.core import reporting
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Hyper
from jaxlab.core.metrics import RESERVED

PyTree = Any


def check_arguments(
    steps: int,
    seeds: int,
    seed: int,
    chunk: int | None,
    thin: int,
    checkpoint_every: int,
    keep: int,
    run_dir: Any,
) -> int:
    """Refuse wrong numbers of `run` and return the chunk.

    Raises:
      ConfigError: Names the argument, what was expected and what it was.
    """
    least = {"steps": 1, "seeds": 1, "seed": 0, "thin": 1, "checkpoint_every": 1, "keep": 1}
    given = dict(zip(least, (steps, seeds, seed, thin, checkpoint_every, keep), strict=True))
    if chunk is not None:
        given["chunk"], least["chunk"] = chunk, 1
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ConfigError(f"{name} = {value!r}: expected an integer")
        if value < least[name]:
            raise ConfigError(f"{name} = {value}: expected at least {least[name]}")
    if steps >= 2**31:
        raise ConfigError(f"steps = {steps}: expected fewer than 2^31")
    if seed + seeds > 2**32:
        raise ConfigError(f"seed = {seed}: expected seeds below 2^32")
    chunk = _choose_chunk(steps, thin) if chunk is None else min(chunk, steps)
    for name, value in (("steps", steps), ("chunk", chunk)):
        if value % thin:
            raise ConfigError(f"{name} = {value}: expected a multiple of thin = {thin}")
    return chunk


def _choose_chunk(steps: int, thin: int) -> int:
    """About a fiftieth of the steps; within a factor of two, one that divides them."""
    target = max(steps // 50 // thin * thin, thin)
    near = range(max(target // 2 // thin * thin, thin), min(2 * target, steps) + 1, thin)
    dividing = [size for size in near if steps % size == 0]
    return min(dividing, key=lambda size: abs(size - target)) if dividing else min(target, steps)


def check_hyper(hyper: Hyper, hyper_axis: int | None, seeds: int) -> None:
    """Refuse hyper-parameters that are no numbers, or do not match the seeds.

    Raises:
      ConfigError: Names the leaf.
    """
    if hyper_axis not in (None, 0):
        raise ConfigError(f"hyper_axis = {hyper_axis!r}: expected None or 0")
    for path, leaf in jax.tree_util.tree_flatten_with_path(hyper)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if leaf.dtype.kind not in "biufc":
            raise ConfigError(f"hyper {name!r}: expected a number, not {leaf!r}")
        if hyper_axis == 0 and leaf.shape[:1] != (seeds,):
            raise ConfigError(
                f"hyper {name!r}: expected a first axis of {seeds} (one value per seed), "
                f"not shape {leaf.shape}"
            )


def digest(hyper: Hyper) -> dict[str, Any]:
    """Hyper-parameters as plain data; large arrays by digest."""
    return {
        name: leaf.tolist()
        if leaf.size <= 64
        else f"sha256:{hashlib.sha256(leaf.tobytes()).hexdigest()[:16]}"
        for name, leaf in reporting.flatten_records(hyper).items()
    }


def check_additions(metrics: Mapping[str, Any]) -> None:
    """Refuse what `between` left among the metrics if a row cannot hold it.

    Raises:
      ConfigError: Names the metric.
    """
    for name, value in metrics.items():
        if name in RESERVED or np.asarray(value).dtype.kind not in "biuf":
            raise ConfigError(
                f"between left metric {name!r} = {value!r}; expected numbers, under a name "
                f"other than {' and '.join(RESERVED)}"
            )


def check_state(abstract: PyTree, state: PyTree) -> None:
    """Refuse a state of `between` that the compiled chunk would not take.

    Raises:
      ConfigError: Names the leaf.
    """
    structures: tuple[Any, Any] = jax.tree.structure(abstract), jax.tree.structure(state)
    old, new = structures
    if old != new:
        raise ConfigError(
            f"between returned a state of another structure ({new}, expected {old}); return "
            "(learner, state) where the learner changes too"
        )
    for (path, leaf), other in zip(
        jax.tree_util.tree_flatten_with_path(abstract)[0], jax.tree.leaves(state), strict=True
    ):
        if leaf.shape != np.shape(other) or leaf.dtype != getattr(other, "dtype", None):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ConfigError(
                f"between returned state {name!r} as {getattr(other, 'dtype', type(other))}"
                f"{list(np.shape(other))}; expected {leaf.dtype}{list(leaf.shape)}"
            )
