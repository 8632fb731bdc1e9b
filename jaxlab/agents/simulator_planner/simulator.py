"""What a planner is told of a world: pure functions and a table of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

State = Any


class Simulator(NamedTuple):
    """A world as pure functions of one state, which the planner maps over batches.

    Attributes:
      init: `(key, index) -> state` at the start; `index` numbers the sample, int32 `[]`, so that a
        world with a generator of its own can be tried with seed after seed.
      step: `(key, state, action) -> state`; `action` is a row of `actions`.
      refresh: `(key, state) -> state` with all that is random from here on drawn anew; where
        `step` draws from its key alone, the state itself.
      frame: `state -> int32 [rows, columns]`, what is seen: colours below `colours`.
      failed: `state -> bool []`, where a state has no next one.
      fingerprint: `state -> uint32 []`, equal for equal states.
      features: `state -> uint32 [features]`, hashes of parts of the state, seen or hidden, whose
        new values make a state worth visiting.
      actions: All actions, `[actions, ...]`, the first one that of waiting.
      places: The place that an action concerns, row times columns plus column, or -1, `[actions]`.
      colours: Number of colours.
    """

    init: Callable[[jax.Array, jax.Array], State]
    step: Callable[[jax.Array, State, jax.Array], State]
    refresh: Callable[[jax.Array, State], State]
    frame: Callable[[State], jax.Array]
    failed: Callable[[State], jax.Array]
    fingerprint: Callable[[State], jax.Array]
    features: Callable[[State], jax.Array]
    actions: np.ndarray
    places: np.ndarray
    colours: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of what is seen."""
        shape = jax.eval_shape(
            lambda key: self.frame(self.init(key, jax.numpy.int32(0))), jax.random.key(0)
        ).shape
        return shape[0], shape[1]
