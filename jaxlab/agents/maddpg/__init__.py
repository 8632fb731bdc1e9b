"""MADDPG with discrete actions: decentralised actors, centralised critics.

    learner = maddpg.make(TimeLimit(env, 360), maddpg.MADDPGConfig(shared=True))
    state = learner.init(jax.random.key(0), maddpg.Hyper(gamma=0.95))
    state, metrics = learner.step(state, jnp.int32(0))

Names are imported when they are first used, so that the options in `config` can be had
without importing jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig

if TYPE_CHECKING:
    from jaxlab.agents.maddpg.learner import make as make
    from jaxlab.agents.maddpg.state import MADDPGState as MADDPGState
    from jaxlab.agents.maddpg.state import Shaping as Shaping
    from jaxlab.agents.maddpg.state import flatten_observation as flatten_observation

__all__ = ["Hyper", "MADDPGConfig", "MADDPGState", "Shaping", "flatten_observation", "make"]

_HOMES = {
    "MADDPGState": "state",
    "Shaping": "state",
    "flatten_observation": "state",
    "make": "learner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
