"""The learner contract: whatever is trained, sampled or solved step by step.

A `Learner` is a pair of pure functions, as in optax and BlackJAX. `run()` compiles
`step` in chunks of `lax.scan`, vmaps it over seeds, shards it, checkpoints it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

State = Any
Hyper = Any
PyTree = Any

#: How a metric is reduced over the steps of a chunk.
REDUCTIONS = ("mean", "last", "sum", "max", "record")


@struct.dataclass
class Metric:
    """A value that declares how it is reduced over steps.

    Attributes:
      value: The value of this step.
      weight: Weight of a mean, `[]`; zero leaves the step out (no episode ended, say).
      reduce: One of `REDUCTIONS`. A `record` is not reduced: it is kept every `thin`
        steps and written chunk by chunk.
    """

    value: PyTree
    weight: jax.Array
    reduce: str = struct.field(pytree_node=False, default="mean")


Metrics = Mapping[str, Metric]


def mean(value: Any, weight: Any = 1.0) -> Metric:
    """Weighted mean over steps; NaN where the weights sum to zero."""
    value = jnp.asarray(value)
    dtype = value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else jnp.float32
    return Metric(value.astype(dtype), jnp.asarray(weight, dtype), "mean")


def last(value: Any) -> Metric:
    """The value of the last step."""
    return Metric(jnp.asarray(value), jnp.ones((), jnp.float32), "last")


def total(value: Any) -> Metric:
    """The sum over steps."""
    return Metric(jnp.asarray(value), jnp.ones((), jnp.float32), "sum")


def maximum(value: Any) -> Metric:
    """The maximum over steps."""
    return Metric(jnp.asarray(value), jnp.ones((), jnp.float32), "max")


def record(value: PyTree) -> Metric:
    """A pytree of any fixed shape kept every `thin` steps (chain states, occupancies)."""
    return Metric(jax.tree.map(jnp.asarray, value), jnp.ones((), jnp.float32), "record")


class Learner(NamedTuple):
    """A learner as pure functions.

    Attributes:
      init: `(key, hyper) -> state`; the state holds the key and the hyper-parameters.
      step: `(state, t) -> (state, metrics)`; `t` is an int32 step counter that `run()`
        passes unbatched, so schedules may branch on it with `lax.cond` and stay
        branches when seeds are vmapped. Randomness is `fold_in(key, t)`.
      act: `(state, obs, key) -> action`, the greedy policy, where there is one.
    """

    init: Callable[[jax.Array, Hyper], State]
    step: Callable[[State, jax.Array], tuple[State, Metrics]]
    act: Callable[[State, PyTree, jax.Array], PyTree] | None = None
