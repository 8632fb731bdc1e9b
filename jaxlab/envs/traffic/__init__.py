"""Microscopic traffic simulation and signal control on CityFlow's network format.

Names are imported when they are first used, so that importing the package stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxlab.envs.traffic.construction import default_environment as default_environment
    from jaxlab.envs.traffic.construction import make_environment as make_environment
    from jaxlab.envs.traffic.controllers import make_controller as make_controller
    from jaxlab.envs.traffic.environment import TrafficSignalControl as TrafficSignalControl
    from jaxlab.envs.traffic.rollout import simulate as simulate
    from jaxlab.envs.traffic.simulation import Simulator as Simulator

_HOMES = {
    "Simulator": "simulation",
    "TrafficSignalControl": "environment",
    "default_environment": "construction",
    "make_controller": "controllers",
    "make_environment": "construction",
    "simulate": "rollout",
}
__all__ = [
    "Simulator",
    "TrafficSignalControl",
    "default_environment",
    "make_controller",
    "make_environment",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
