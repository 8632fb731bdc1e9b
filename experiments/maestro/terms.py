"""What the terms of a reward were worth in the last stage, for whoever designs the next."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.maestro.shaping import JUNCTIONS, Json
from jaxlab.shaping.reward_language import reward_terms
from jaxlab.shaping.stack_machine import evaluate

#: Transitions of each seed that are looked at, over all that the replay holds.
SAMPLES = 256
#: Stretches of the replay, oldest first, whose means are told.
CHECKPOINTS = 8


class Terms:
    """Statistics of reward terms over stored transitions."""

    def __init__(self) -> None:
        self._gather = jax.jit(jax.vmap(_newest))
        self._evaluate = jax.jit(evaluate)

    def __call__(self, state: Any, designs: list[Json | None]) -> list[Json]:
        """For each seed, by term: mean, min, max, correlation and values, see `Request`.

        Args:
          state: Of the learner, `[seeds, ...]`.
          designs: The design of each seed's last stage, or None.
        """
        if state.shaping_params is None:
            return [{} for _ in designs]
        signals, reward = jax.device_get(self._gather(state.replay))
        return [
            self._of_seed(design, signals[n], reward[n]) if design and design["source"] else {}
            for n, design in enumerate(designs)
        ]

    def _of_seed(self, design: Json, signals: np.ndarray, reward: np.ndarray) -> Json:
        rows = jnp.asarray(signals.reshape(-1, signals.shape[-1]))
        return {
            name: _statistics(
                np.asarray(self._evaluate(function.program(), rows), float),
                reward.reshape(-1).astype(float),
                len(signals),
            )
            for name, function in reward_terms(design["source"], JUNCTIONS).items()
        }


def _newest(replay: Any) -> tuple[jax.Array, jax.Array]:
    """Signals after decisions `[samples, agents, signals]` and rewards, oldest first."""
    stored = replay.experience
    size = stored.reward.shape[1]
    written = jnp.where(replay.is_full, size, replay.current_index)
    back = jnp.linspace(jnp.maximum(written - 1, 0), 0, SAMPLES).astype(jnp.int32)
    rows = (replay.current_index - 1 - back) % size
    return stored.signals[0, rows, 1], stored.reward[0, rows]


def _statistics(value: np.ndarray, reward: np.ndarray, samples: int) -> Json:
    spread = value.std() * reward.std()
    related = ((value - value.mean()) * (reward - reward.mean())).mean() / spread if spread else 0.0
    course = value.reshape(samples, -1).mean(1)
    return {
        "mean": float(value.mean()),
        "min": float(value.min()),
        "max": float(value.max()),
        "correlation": float(related),
        "values": [float(part.mean()) for part in np.array_split(course, CHECKPOINTS)],
    }
