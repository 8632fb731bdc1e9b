"""What is seldom needed, computed only in steps in which some copy of a batch needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

Compute = Callable[..., Any]


def where_needed(needed: Any, compute: Compute, otherwise: Compute, *operands: Any) -> Any:
    """`compute(*operands)` where `needed` `[]` holds, else `otherwise(*operands)`.

    Under `vmap` a `cond` on a batched condition computes both sides always. This one goes on
    the cheap side alone unless the condition holds somewhere in the batch. Both sides return
    values of one structure.
    """
    if isinstance(needed, np.bool_ | bool):
        return (compute if needed else otherwise)(*operands)
    leaves, tree = jax.tree.flatten(operands)
    result_trees: list[Any] = []

    def flat(function: Compute) -> Callable[..., tuple[Any, ...]]:
        def run(*parts: Any) -> tuple[Any, ...]:
            results, result_tree = jax.tree.flatten(function(*jax.tree.unflatten(tree, parts)))
            result_trees.append(result_tree)
            return tuple(map(jax.numpy.asarray, results))

        return run

    results = _where_needed(
        needed, flat(compute), flat(otherwise), tuple(map(jax.numpy.asarray, leaves))
    )
    return jax.tree.unflatten(result_trees[0], list(results))


def _where_needed(
    needed: Any, compute: Compute, otherwise: Compute, operands: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The same on flat operands and results."""

    @custom_vmap
    def call(flag: Any, *parts: Any) -> tuple[Any, ...]:
        return lax.cond(flag, compute, otherwise, *parts)

    @call.def_vmap
    def batched(size: int, in_batched: list[bool], flag: Any, *parts: Any) -> Any:
        flag_batched, *mapped = in_batched
        axes = tuple(0 if one else None for one in mapped)
        flags = flag if flag_batched else lax.broadcast_in_dim(flag, (size,), ())

        def side(function: Compute, *parts: Any) -> tuple[Any, ...]:
            return jax.vmap(function, in_axes=axes, axis_size=size)(*parts)

        def everywhere(flags: Any, *parts: Any) -> tuple[Any, ...]:
            pairs = zip(side(compute, *parts), side(otherwise, *parts), strict=True)
            return tuple(
                lax.select(lax.broadcast_in_dim(flags, yes.shape, (0,)), yes, no)
                for yes, no in pairs
            )

        def nowhere(_: Any, *parts: Any) -> tuple[Any, ...]:
            return side(otherwise, *parts)

        somewhere = lax.reduce_or(flags, (0,))
        results = _where_needed(somewhere, everywhere, nowhere, (flags, *parts))
        return results, tuple(True for _ in results)

    return tuple(call(needed, *operands))
