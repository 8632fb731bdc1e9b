"""The compiled parts of a run: initial states of all seeds, and a chunk of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jaxlab.core import metrics as metrics_
from jaxlab.core.devices import AXIS
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner
from jaxlab.core.placement import Placement

PyTree = Any

#: `(state, t) -> (state, accumulators [seeds, ...], records [kept, seeds, ...])`
Chunk = Callable[[PyTree, Any], tuple[PyTree, metrics_.Accumulators, dict[str, PyTree]]]


def seed_key(seed: Any) -> jax.Array:
    """The key of a seed; it does not depend on how many seeds run beside it."""
    return jax.random.fold_in(jax.random.key(0), seed)


def initialiser(
    learner: Learner, seed: int, seeds: int, hyper_axis: int | None
) -> Callable[[PyTree], PyTree]:
    """A function from hyper-parameters to the states `[seeds, ...]` of consecutive seeds."""

    def init(hyper: PyTree) -> PyTree:
        keys = jax.vmap(seed_key)(jnp.asarray(np.arange(seed, seed + seeds, dtype=np.uint32)))
        return strong(_over_seeds(learner.init, seeds, (0, hyper_axis), 0)(keys, hyper))

    return init


def strong(tree: PyTree) -> PyTree:
    """The tree with strong types only, so that the first step traces like the second."""
    return jax.tree.map(_strong, tree)


def _strong(leaf: Any) -> jax.Array:
    leaf = jnp.asarray(leaf)
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf
    return jax.lax.convert_element_type(leaf, leaf.dtype)


def compile_chunk(
    learner: Learner, abstract: PyTree, placement: Placement, length: int, thin: int
) -> Chunk:
    """Compile `length` steps; the state that is passed in is given up (donated).

    Args:
      learner: The learner.
      abstract: State `[seeds, ...]` as `ShapeDtypeStruct`s with shardings.
      placement: Devices of the run.
      length: Number of steps, a multiple of `thin`.
      thin: Records are kept every so many steps.

    Raises:
      ConfigError: The step changes the structure, a shape or a dtype of the state, or
        its metrics are malformed.
    """
    seeds = _count(abstract)

    def one_seed(state: PyTree, t: jax.Array) -> tuple[PyTree, PyTree, PyTree]:
        return _advance(learner, state, t, length, thin)

    if placement.by_seed:
        assert placement.mesh is not None
        local = seeds // placement.mesh.size
        by_seed, by_record = PartitionSpec(AXIS), PartitionSpec(None, AXIS)
        chunk = jax.shard_map(
            _over_seeds(one_seed, local, (0, None), (0, 0, 1)),
            mesh=placement.mesh,
            in_specs=(by_seed, PartitionSpec()),
            out_specs=(by_seed, by_seed, by_record),
            check_vma=False,
        )
    else:
        chunk = _over_seeds(one_seed, seeds, (0, None), (0, 0, 1))

    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    replicated = placement.replicated
    compiled = jax.jit(
        chunk, donate_argnums=0, out_shardings=(shardings, replicated, replicated)
    ).lower(abstract, jax.ShapeDtypeStruct((), jnp.int32))
    return compiled.compile()


def _count(abstract: PyTree) -> int:
    leaves = jax.tree.leaves(abstract)
    if not leaves:
        raise ConfigError("the learner's state holds no array; init must return its key at least")
    return leaves[0].shape[0]


def _over_seeds(function: Callable, seeds: int, in_axes: tuple, out_axes: Any) -> Callable:
    """Vmap over seeds; a single seed runs bare, so its conditionals stay branches."""
    if seeds > 1:
        return jax.vmap(function, in_axes, out_axes)

    def bare(*args: PyTree) -> PyTree:
        squeezed = [
            arg if axis is None else jax.tree.map(lambda leaf: leaf[0], arg)
            for arg, axis in zip(args, in_axes, strict=True)
        ]
        out = function(*squeezed)
        if isinstance(out_axes, int):
            return _expand(out, out_axes)
        return tuple(_expand(part, axis) for part, axis in zip(out, out_axes, strict=True))

    return bare


def _expand(tree: PyTree, axis: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.expand_dims(leaf, axis), tree)


def _advance(
    learner: Learner, state: PyTree, t: jax.Array, length: int, thin: int
) -> tuple[PyTree, metrics_.Accumulators, dict[str, PyTree]]:
    """Run `length` steps of one seed from counter `t`."""
    # Compiled inside, the step is traced once for its shapes and for the scan.
    step = jax.jit(learner.step)
    new_state, template = jax.eval_shape(step, state, t)
    metrics_.check(template)
    _check_state(state, new_state)

    def one(carry: PyTree, _: None) -> tuple[PyTree, None]:
        t, state, accumulators = carry
        state, metrics = step(state, t)
        return (t + 1, strong(state), metrics_.add(accumulators, metrics)), None

    def block(carry: PyTree, _: None) -> tuple[PyTree, dict[str, PyTree]]:
        carry, _ = jax.lax.scan(one, carry, length=thin)
        return carry, metrics_.records(carry[2], template)

    carry = (t, state, metrics_.start(template))
    if metrics_.has_records(template):
        carry, records = jax.lax.scan(block, carry, length=length // thin)
    else:
        carry, records = jax.lax.scan(one, carry, length=length)[0], {}
    return carry[1], metrics_.reduced(carry[2], template), records


def _check_state(before: PyTree, after: PyTree) -> None:
    old, new = _describe(before), _describe(after)
    structures: tuple[Any, Any] = jax.tree.structure(before), jax.tree.structure(after)
    if structures[0] == structures[1] and old == new:
        return
    changed = [
        f"{name or 'state'}: {old.get(name, 'absent')} became {new.get(name, 'absent')}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ] or [f"{structures[0]} became {structures[1]}"]
    raise ConfigError(
        "Learner.step must return a state like the one it takes, but " + "; ".join(changed[:8])
    )


def _describe(tree: PyTree) -> dict[str, str]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
