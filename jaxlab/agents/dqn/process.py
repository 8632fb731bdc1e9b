"""What learners ask of a decision process, and random walks through its states."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

PyTree = Any


class Process(Protocol):
    """A problem as a sequential decision process: costs are minimised, nothing is discounted."""

    @property
    def horizon(self) -> int:
        """The most letters of a string."""

    @property
    def num_actions(self) -> int:
        """Letters."""

    def sample_params(self, key: jax.Array) -> PyTree:
        """Draw an instance."""

    def initial(self, params: PyTree) -> PyTree:
        """The state of the empty string."""

    def legal(self, params: PyTree, decision: PyTree) -> Array:
        """Letters that can follow, `[actions]`."""

    def move(self, params: PyTree, decision: PyTree, action: Array) -> tuple[PyTree, Array]:
        """The state after a letter, and its cost."""

    def done(self, params: PyTree, decision: PyTree) -> Array:
        """Whether the string is complete."""

    def final_cost(self, params: PyTree, decision: PyTree) -> Array:
        """What is added at the end."""

    def penalty(self, params: PyTree) -> Array:
        """More than strings differ by; its dtype is that of costs."""


class Fixed:
    """A process with one instance: whatever the key, that is drawn."""

    def __init__(self, process: Any, params: PyTree):
        self._process, self._params = process, params

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def sample_params(self, key: jax.Array) -> PyTree:
        """The instance."""
        return self._params


def after_each(process: Any, params: PyTree, decision: PyTree) -> tuple[PyTree, Array]:
    """States after every letter, legal or not, and the costs, `[actions, ...]`."""
    actions = jnp.arange(process.num_actions, dtype=jnp.int32)
    return jax.vmap(lambda action: process.move(params, decision, action))(actions)


def keep_if(flag: Bool[Array, ""], old: PyTree, new: PyTree) -> PyTree:
    """`old` where the flag is true."""
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), old, new)


def walk(
    process: Any, params: PyTree, key: jax.Array, depth: Any, temperature: Any
) -> tuple[PyTree, Float[Array, ""]]:
    """The state after `depth` random letters, or where the string ends before, and its cost.

    Letters are drawn in proportion to `exp(-cost / temperature)`, costs being measured by their
    mean absolute deviation among the legal ones; an infinite temperature makes them uniform.
    """

    def step(number: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        decision, total = carry
        mask = process.legal(params, decision)
        _, costs = after_each(process, params, decision)
        count = jnp.maximum(mask.sum(), 1)
        mean = jnp.where(mask, costs, 0).sum() / count
        spread = jnp.where(mask, jnp.abs(costs - mean), 0).sum() / count
        logits = -(costs - mean) / jnp.maximum(spread, 1e-9) / temperature
        noise = jax.random.gumbel(jax.random.fold_in(key, number), mask.shape, np.float32)
        action = jnp.argmax(jnp.where(mask, logits + noise, -jnp.inf)).astype(jnp.int32)
        moved, cost = process.move(params, decision, action)
        stay = process.done(params, decision) | (number >= depth)
        return keep_if(stay, decision, moved), total + jnp.where(stay, 0, cost).astype(total.dtype)

    zero = jnp.zeros((), process.penalty(params).dtype)
    start = (process.initial(params), zero)
    return jax.lax.fori_loop(np.int32(0), np.int32(process.horizon), step, start)


def random_state(
    process: Any, key: jax.Array, instances: int, greedy_walks: float
) -> tuple[PyTree, PyTree]:
    """An instance and a state of it at a random depth, uniform over layers.

    Args:
      process: The process.
      key: The state; instances are counted from `fold_in(key(0), number)`.
      instances: Their number; 0 draws a new one.
      greedy_walks: Share of walks at a low temperature.
    """
    which, depth_key, kind_key, walk_key = jax.random.split(key, 4)
    instance_key = which
    if instances:
        number = jax.random.randint(which, (), 0, instances)
        instance_key = jax.random.fold_in(jax.random.key(0), number)
    params = process.sample_params(instance_key)
    depth = jax.random.randint(depth_key, (), 0, process.horizon)
    share, heat = jax.random.uniform(kind_key, (2,), np.float32)
    temperature = jnp.where(share < greedy_walks, 0.1 * 10**heat, jnp.inf)
    return params, walk(process, params, walk_key, depth, temperature)[0]
