"""Primal-dual natural actor-critic for constrained control with average reward.

    learner = pdnac.make(env, pdnac.tabular(5, 3), pdnac.tabular_critic(5), slack,
                         pdnac.PDNACConfig("mlmc"), pdnac.Hyper(slater_margin=0.2))
    result = run(learner, steps=1_000_000, seeds=16)
    pdnac.averaged_policy(result.state)

What bounds and exact averages an environment has reach `make` as functions. Baselines under the
same contract: `make_exact`, `make_ppo_lagrangian`, and `PDNACConfig(method="switching")`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.pdnac.config import DUALS, ESTIMATORS, METHODS, Hyper, PDNACConfig

if TYPE_CHECKING:
    from jaxlab.agents.pdnac.exact import make_exact as make_exact
    from jaxlab.agents.pdnac.learner import averaged_policy as averaged_policy
    from jaxlab.agents.pdnac.learner import make as make
    from jaxlab.agents.pdnac.policies import Critic as Critic
    from jaxlab.agents.pdnac.policies import Policy as Policy
    from jaxlab.agents.pdnac.policies import gaussian as gaussian
    from jaxlab.agents.pdnac.policies import linear as linear
    from jaxlab.agents.pdnac.policies import linear_critic as linear_critic
    from jaxlab.agents.pdnac.policies import neural as neural
    from jaxlab.agents.pdnac.policies import neural_critic as neural_critic
    from jaxlab.agents.pdnac.policies import tabular as tabular
    from jaxlab.agents.pdnac.policies import tabular_critic as tabular_critic
    from jaxlab.agents.pdnac.ppo import PPOLagrangianConfig as PPOLagrangianConfig
    from jaxlab.agents.pdnac.ppo import make_ppo_lagrangian as make_ppo_lagrangian
    from jaxlab.agents.pdnac.state import PDNACState as PDNACState
    from jaxlab.agents.pdnac.steps import check_steps as check_steps
    from jaxlab.agents.pdnac.steps import comparison as comparison
    from jaxlab.agents.pdnac.steps import stable_steps as stable_steps
    from jaxlab.agents.pdnac.steps import theory as theory

_HOMES = {
    "exact": ("make_exact",),
    "learner": ("averaged_policy", "make"),
    "policies": (
        *("Critic", "Policy", "gaussian", "linear", "linear_critic", "neural", "neural_critic"),
        *("tabular", "tabular_critic"),
    ),
    "ppo": ("PPOLagrangianConfig", "make_ppo_lagrangian"),
    "state": ("PDNACState",),
    "steps": ("check_steps", "comparison", "stable_steps", "theory"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "DUALS",
    "ESTIMATORS",
    "METHODS",
    "Hyper",
    "PDNACConfig",
    *_HOME,
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
