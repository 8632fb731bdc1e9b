"""Value-based learning of decision processes: fitted value iteration and deep Q-learning.

    learner = dqn.make_fitted(process, approximator, dqn.FittedConfig())
    learner = dqn.make(env, view, dqn.DQNConfig())

After Davidovich et al. (2025, arXiv:2512.08601): costs are minimised without discounting, values
at the end are exact, batches and gradient steps grow. Names are imported when they are first
used, so that the options in `config` can be had without importing jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.dqn.config import DQNConfig, FittedConfig, FittedHyper, Hyper

if TYPE_CHECKING:
    from jaxlab.agents.dqn.approximators import Approximator as Approximator
    from jaxlab.agents.dqn.fitted import make_fitted as make_fitted
    from jaxlab.agents.dqn.qlearning import make as make

__all__ = [
    "Approximator",
    "DQNConfig",
    "FittedConfig",
    "FittedHyper",
    "Hyper",
    "make",
    "make_fitted",
]

_HOMES = {"Approximator": "approximators", "make": "qlearning", "make_fitted": "fitted"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
