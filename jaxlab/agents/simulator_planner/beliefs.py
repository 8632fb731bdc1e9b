"""A particle filter over the hidden state of a world, from pictures that may be masked.

Particles begin from samples 0, 1, 2, ... of the start, so that in a world with a generator of its own a
small seed is found exactly. Where no particle shows what is seen, what is random is drawn anew.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.agents.simulator_planner.config import PlannerConfig
from jaxlab.agents.simulator_planner.simulator import Simulator, State

#: Share of particles that must show what is seen, or more of them are drawn.
ENOUGH = 1 / 32
#: Predictions whose distance to the nearest other one says what distance is usual.
QUERIES = 64


class Evidence(NamedTuple):
    """How an observation fits what was expected.

    Attributes:
      distance: Visible places in which the nearest prediction is wrong.
      usual: The same of predictions taken for observations, the largest of `QUERIES`; 0 where the
        observation fits.
      unheard: Visible places with a colour that no prediction shows there.
      usually_unheard: The same of predictions, each against all others.
      certain: Whether all predictions showed the same.
    """

    distance: int = 0
    usual: int = 0
    unheard: int = 0
    usually_unheard: int = 0
    certain: bool = False

    @property
    def surprising(self) -> bool:
        """Whether the observation is farther off than any prediction would be."""
        return self.distance > self.usual or self.unheard > self.usually_unheard


class BeliefFilter:
    """Particles of one world; compiled once."""

    def __init__(self, simulator: Simulator, config: PlannerConfig):
        self.simulator, self.config = simulator, config
        self._first = jax.jit(self._starts)
        self._next = jax.jit(self._advanced)
        self._merge = jax.jit(self._nearest)
        self._draw = jax.jit(self._resampled)
        self._judge = jax.jit(self._judged)

    def begin(self, key: jax.Array, frame: Any, visible: Any) -> State:
        """Particles that show a first frame, `[particles, ...]`."""
        start, draw = jax.random.split(key)
        states, wrong, _ = self._first(start, frame, visible)
        return self._draw(draw, states, wrong)

    def update(
        self, key: jax.Array, particles: State, action: Any, frame: Any, visible: Any
    ) -> tuple[State, Evidence]:
        """Particles after an action, given what is seen then.

        Args:
          key: Of this update.
          particles: `[particles, ...]`.
          action: A row of the table of actions.
          frame: What is seen, `[rows, columns]`.
          visible: Where it is seen, bool `[rows, columns]`.
        """
        row = np.asarray(action, np.int32)
        states, wrong, shown = self._next(key, particles, row, frame, visible, False)
        predicted = [shown]
        enough = max(int(self.config.particles * ENOUGH), 1)
        certain = False
        for turn in range(1, self.config.rounds):
            if int((wrong == 0).sum()) >= enough:
                break
            again = jax.random.fold_in(key, turn)
            more, off, shown = self._next(again, particles, row, frame, visible, True)
            certain = turn == 1 and _equal(np.asarray(predicted[0]), np.asarray(shown))
            if certain:
                break
            predicted.append(shown)
            states, wrong = self._merge(states, wrong, more, off)
        distance = int(np.min(wrong))
        evidence = Evidence(distance, certain=certain)
        if distance > 0 and not certain:
            # All rounds were drawn, so this has one shape.
            told = self._judge(jnp.concatenate(predicted), frame, visible)
            usual, unheard, usually = (int(number) for number in told)
            evidence = Evidence(distance, usual, unheard, usually)
        chosen = self._draw(jax.random.fold_in(key, self.config.rounds), states, wrong)
        return chosen, evidence

    def _starts(
        self, key: jax.Array, frame: Any, visible: Any
    ) -> tuple[State, jax.Array, jax.Array]:
        count = self.config.particles
        keys = jax.random.split(key, count)
        states = jax.vmap(self.simulator.init)(keys, jnp.arange(count, dtype=jnp.int32))
        return self._compared(states, frame, visible)

    def _advanced(
        self, key: jax.Array, particles: State, row: Any, frame: Any, visible: Any, fresh: Any
    ) -> tuple[State, jax.Array, jax.Array]:
        step_keys, refresh_keys = jax.random.split(key)
        count = self.config.particles
        renewed = jax.vmap(self.simulator.refresh)(jax.random.split(refresh_keys, count), particles)
        particles = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), renewed, particles)
        keys = jax.random.split(step_keys, count)
        states = jax.vmap(self.simulator.step, (0, 0, None))(keys, particles, row)
        return self._compared(states, frame, visible)

    def _compared(
        self, states: State, frame: Any, visible: Any
    ) -> tuple[State, jax.Array, jax.Array]:
        """States, the visible places that each shows wrongly, and what they show."""
        frames = jax.vmap(self.simulator.frame)(states)
        off = (frames != jnp.asarray(frame)) & jnp.asarray(visible)
        return states, off.sum((1, 2), dtype=jnp.int32), frames

    def _nearest(
        self, states: State, wrong: jax.Array, more: State, off: jax.Array
    ) -> tuple[State, jax.Array]:
        """The best of two sets of particles; of equals those of the first."""
        both = jnp.concatenate([wrong, off])
        best = jnp.argsort(both, stable=True)[: self.config.particles]
        joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b])[best], states, more)
        return joined, both[best]

    def _resampled(self, key: jax.Array, states: State, wrong: jax.Array) -> State:
        """Particles by their weights, drawn systematically."""
        weights = jnp.exp(-self.config.sharpness * (wrong - wrong.min()).astype(jnp.float32))
        weights = jnp.where(wrong.min() == 0, (wrong == 0).astype(jnp.float32), weights)
        ends = jnp.cumsum(weights) / weights.sum()
        count = self.config.particles
        points = (jnp.arange(count, dtype=jnp.float32) + jax.random.uniform(key)) / count
        chosen = jnp.minimum(jnp.searchsorted(ends, points), count - 1)
        return jax.tree.map(lambda leaf: leaf[chosen], states)

    def _judged(
        self, frames: jax.Array, frame: Any, visible: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """`usual`, `unheard` and `usually_unheard` of predictions `[predictions, rows, columns]`."""
        seen = jnp.asarray(visible).reshape(-1)
        flat = frames.reshape(frames.shape[0], -1)
        observed = jnp.asarray(frame).reshape(-1)
        places = jnp.arange(flat.shape[1], dtype=jnp.int32)
        counts = jnp.zeros((flat.shape[1], self.simulator.colours), jnp.int32)
        counts = counts.at[places, flat].add(1)
        unheard = ((counts[places, observed] == 0) & seen).sum(dtype=jnp.int32)

        def one(index: jax.Array) -> tuple[jax.Array, jax.Array]:
            off = ((flat != flat[index]) & seen).sum(1, dtype=jnp.int32)
            others = jnp.arange(flat.shape[0], dtype=jnp.int32) != index
            nearest = jnp.where(others, off, flat.shape[1]).min()
            alone = (counts[places, flat[index]] == 1) & seen
            return nearest, alone.sum(dtype=jnp.int32)

        # The last ones, which were drawn anew.
        queries = flat.shape[0] - 1 - jnp.arange(min(QUERIES, flat.shape[0]), dtype=jnp.int32)
        nearest, alone = jax.lax.map(one, queries)
        return nearest.max(), unheard, alone.max()


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether all frames of both, `[particles, rows, columns]`, are the same."""
    return bool((first == first[0]).all() and (second == first[0]).all())


@functools.partial(jax.jit, static_argnames="sharpness")
def option_weights(
    frames: Any, options: Any, corner: Any, mask: Any, sharpness: float = 2.0
) -> jax.Array:
    """Posterior probability of each option for a masked rectangle.

    Args:
      frames: What particles show, `[particles, rows, columns]`.
      options: What may be behind the mask, `[options, height, width]`.
      corner: First row and column of the rectangle, int32 `[2]`.
      mask: Where of the rectangle the frame is masked, bool `[height, width]`.
      sharpness: Loss of log weight for each place that differs.
    """
    options = jnp.asarray(options)
    height, width = options.shape[1:]
    patches = jax.vmap(
        lambda frame: jax.lax.dynamic_slice(frame, (corner[0], corner[1]), (height, width))
    )(jnp.asarray(frames))
    off = ((patches[:, None] != options[None]) & jnp.asarray(mask)).sum((2, 3))
    return jax.nn.softmax(jax.nn.logsumexp(-sharpness * off.astype(jnp.float32), axis=0))
