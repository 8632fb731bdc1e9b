"""Canaries: candidate rewards are trained with for a little while before one is chosen.

All candidates of a seed are one batch: designs are arrays, so that nothing recompiles. On one
device seeds follow one another, since every candidate has a replay of its own. What counts is the environment's own return of the greedy policies, on the
new scenario and on the untouched demand; the canaries themselves are thrown away.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.maestro.evaluation import BASE_PLACE, NEWEST_PLACE, Trials
from experiments.maestro.options import Options
from experiments.maestro.shaping import Json, ShapingParams, stacked_shaping
from jaxlab.core.learner import Learner

#: Whom the candidates of a seed come from, in the order in which ties are broken.
CANDIDATES = ("nothing", "present", "new")


class Canaries:
    """Short trainings of candidates, and what their greedy policies then achieve."""

    def __init__(self, options: Options, learner: Learner, trials: Trials):
        self.options, self.learner = options, learner
        #: Of `seeds * candidates` policies, two episodes each.
        self.trials = trials
        self._train = jax.jit(self._train_all)

    def _train_all(self, state: Any, shaping: ShapingParams, start: jax.Array) -> Any:
        """Candidates `[seeds, candidates]` from states `[seeds]`; both axes are flattened."""

        def step(state: Any, n: jax.Array) -> tuple[Any, None]:
            return self.learner.step(state, start + n)[0], None

        def one_seed(inputs: tuple[Any, ShapingParams]) -> Any:
            state, candidates = inputs

            def train(shaping: ShapingParams) -> Any:
                begun = state.replace(shaping_params=shaping, prior_params=shaping)
                steps = jnp.arange(self.options.canary_steps, dtype=jnp.int32)
                return jax.lax.scan(step, begun, steps)[0].replace(replay=None)

            return jax.vmap(train)(candidates)

        many = (
            jax.vmap(one_seed)
            if jax.device_count() > 1
            else functools.partial(jax.lax.map, one_seed)
        )
        trained = many((state, shaping))
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), trained)

    def scores(self, state: Any, candidates: list[list[Json]], step: int) -> np.ndarray:
        """Mean return of the candidates of each seed, `[seeds, candidates]`.

        Args:
          state: Of the learner with its new tasks, `[seeds, ...]`.
          candidates: For each seed as many shapings (JSON with their `difficulty`).
          step: Steps of the learner so far.
        """
        seeds, width = len(candidates), len(candidates[0])
        flat = [candidate for row in candidates for candidate in row]
        shaping = stacked_shaping(
            [c["template"] for c in flat],
            [c["difficulty"] for c in flat],
            self.options.hyper.gamma,
        )
        shaping = jax.tree.map(lambda x: x.reshape(seeds, width, *x.shape[1:]), shaping)
        trained = self._train(state, shaping, jnp.int32(step))
        played = [("learned", NEWEST_PLACE), ("learned", BASE_PLACE)]
        found = self.trials(trained, played)["return"]
        return found.astype(float).mean(axis=1).reshape(seeds, width)


def choose(scores: np.ndarray) -> int:
    """The best candidate, the first (which adds least) on ties; nothing if all are NaN."""
    return 0 if np.isnan(scores).all() else int(np.nanargmax(scores))
