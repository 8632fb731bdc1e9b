"""A recurrent convolutional world model, learned from interaction without reward.

    learner = make(simulator, WorldModelConfig())
    result = run(learner, steps=400)
    player = ModelPlayer(simulator, network_of(simulator, config), result.seed_state().params, planner)

Names are imported when they are first used, so that the options in `config` can be had without jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.world_model.config import Hyper, WorldModelConfig

if TYPE_CHECKING:
    from jaxlab.agents.world_model.acting import ModelPlayer as ModelPlayer
    from jaxlab.agents.world_model.acting import learned_simulator as learned_simulator
    from jaxlab.agents.world_model.learner import WorldModelState as WorldModelState
    from jaxlab.agents.world_model.learner import make as make
    from jaxlab.agents.world_model.learner import network_of as network_of

__all__ = [
    "Hyper",
    "ModelPlayer",
    "WorldModelConfig",
    "WorldModelState",
    "learned_simulator",
    "make",
    "network_of",
]

_HOMES = {
    "ModelPlayer": "acting",
    "WorldModelState": "learner",
    "learned_simulator": "acting",
    "make": "learner",
    "network_of": "learner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
