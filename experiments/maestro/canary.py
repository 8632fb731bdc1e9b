"""Canaries: candidate rewards are trained with for a little while before one is chosen.

All candidates of all seeds are one batch, as seeds are: designs are arrays, so that nothing
recompiles. What counts is the environment's own return of the greedy policies, on the
new scenario and on the untouched demand; the canaries themselves are thrown away.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.maestro.evaluation import BASE_PLACE, NEWEST_PLACE, Trials
from experiments.maestro.options import Options
from experiments.maestro.shaping import Json, stacked_shaping
from jaxlab.core.learner import Learner

#: Whom the candidates of a seed come from, in the order in which ties are broken.
CANDIDATES = ("nothing", "present", "new")


class Canaries:
    """Short trainings of candidates, and what their greedy policies then achieve."""

    def __init__(self, options: Options, learner: Learner, trials: Trials):
        self.options, self.learner = options, learner
        #: Of `seeds * candidates` policies, two episodes each.
        self.trials = trials
        self._train = jax.jit(jax.vmap(self._train_one, (0, None)))

    def _train_one(self, state: Any, start: jax.Array) -> Any:
        def step(state: Any, n: jax.Array) -> tuple[Any, None]:
            return self.learner.step(state, start + n)[0], None

        steps = jnp.arange(self.options.canary_steps, dtype=jnp.int32)
        return jax.lax.scan(step, state, steps)[0].replace(replay=None)

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
        every = jax.tree.map(lambda x: jnp.repeat(x, width, axis=0), state)
        prior = jax.tree.map(jnp.asarray, shaping)
        every = every.replace(shaping_params=shaping, prior_params=prior)
        trained = self._train(every, jnp.int32(step))
        played = [("learned", NEWEST_PLACE), ("learned", BASE_PLACE)]
        found = self.trials(trained, played)["return"]
        return found.astype(float).mean(axis=1).reshape(seeds, width)


def choose(scores: np.ndarray) -> int:
    """The best candidate, the first (which adds least) on ties; nothing if all are NaN."""
    return 0 if np.isnan(scores).all() else int(np.nanargmax(scores))
