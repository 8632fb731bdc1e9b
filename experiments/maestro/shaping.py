"""Designed rewards and priors as arrays, and how the learner uses them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxlab.agents import maddpg
from jaxlab.envs.traffic.features import ACTION_FEATURES, JUNCTION_FEATURES
from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.feature_view import ACTION, AGENT
from jaxlab.shaping.reward_template import (
    RewardTemplate,
    Shaping,
    difficulty_weight,
    prior_logits,
    shaping_reward,
)

Json = dict[str, Any]

JUNCTIONS, PHASES = FeatureCatalogue.of(JUNCTION_FEATURES), FeatureCatalogue.of(ACTION_FEATURES)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShapingParams:
    """What the compiled step gets of a design: its arrays, and where they are used."""

    shaping: Shaping
    difficulty: Any
    discount: Any


def designed_arguments() -> dict[str, Any]:
    """Arguments of `maddpg.make` with which it uses `ShapingParams`."""
    return {
        "shaping": maddpg.Shaping(observe=lambda obs: obs[AGENT], reward=_reward),
        "prior": _prior,
    }


def _reward(before: jax.Array, after: jax.Array, params: ShapingParams) -> jax.Array:
    weight = difficulty_weight(params.shaping, params.difficulty)
    return weight * shaping_reward(params.shaping, before, after, params.discount)


def _prior(obs: Any, params: ShapingParams) -> jax.Array:
    return prior_logits(params.shaping, obs[ACTION], obs["action_mask"])


def nothing(weight: tuple[float, float]) -> Json:
    """No shaping and no prior, as JSON."""
    return RewardTemplate(weight=weight).to_json()


def stacked_shaping(templates: list[Json], difficulties: list[float], discount: float) -> Any:
    """`maddpg` shaping params of several seeds (or candidates), numpy arrays `[seeds, ...]`."""
    arrays = [RewardTemplate.from_json(template).arrays() for template in templates]
    stacked: Shaping = jax.tree.map(lambda *x: np.stack(x), *arrays)
    return ShapingParams(
        shaping=stacked,
        difficulty=np.array(difficulties, np.float32),
        discount=np.full(len(templates), discount, np.float32),
    )
