"""An agent with the exact simulator of its world: search, particle filter, change-point test.

    planner = Planner(simulator, PlannerConfig(particles=256))
    seeker = GoalSeeker(planner, key, frame, Goal(picture, mask), horizon=200)
    action = seeker.act()

The world comes as the functions of a `Simulator`. Names are imported when they are first used, so that the
options in `config` can be had without jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.simulator_planner.config import PlannerConfig

if TYPE_CHECKING:
    from jaxlab.agents.simulator_planner.agent import ChangeFinder as ChangeFinder
    from jaxlab.agents.simulator_planner.agent import Follower as Follower
    from jaxlab.agents.simulator_planner.agent import GoalSeeker as GoalSeeker
    from jaxlab.agents.simulator_planner.agent import Planner as Planner
    from jaxlab.agents.simulator_planner.search import Goal as Goal
    from jaxlab.agents.simulator_planner.search import Plan as Plan
    from jaxlab.agents.simulator_planner.search import Search as Search
    from jaxlab.agents.simulator_planner.simulator import Simulator as Simulator

__all__ = [
    "ChangeFinder",
    "Follower",
    "Goal",
    "GoalSeeker",
    "Plan",
    "Planner",
    "PlannerConfig",
    "Search",
    "Simulator",
]

_HOMES = {
    "ChangeFinder": "agent",
    "Follower": "agent",
    "Goal": "search",
    "GoalSeeker": "agent",
    "Plan": "search",
    "Planner": "agent",
    "Search": "search",
    "Simulator": "simulator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
