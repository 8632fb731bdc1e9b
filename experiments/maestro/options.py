"""Options of MAESTRO; imports nothing heavy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """MADDPG on traffic signals, trained under a curriculum of scenarios, evaluated on the
    untouched demand over the full hour beside fixed time, max pressure and SOTL.

    Without files the network is a 4 x 4 grid of Hangzhou's geometry with demand drawn from
    published totals. One step of the learner takes `decisions` decisions in each of `num_envs`
    copies of the network, and then `updates` updates.
    """

    steps: int = 1000
    """Steps of the learner."""
    roadnet: Path | None = None
    """Road network in CityFlow's format; needs --flow."""
    flow: Path | None = None
    """Flow in CityFlow's format; needs --roadnet."""
    duration: float = 3600.0
    """Seconds of an episode and of the evaluation."""
    curriculum: Literal["none"] = "none"
    """How training scenarios are chosen: the untouched demand only; a fixed ladder from easy to
    hard; drawn at random; difficulty moved by a success band on the return."""
    reward: Literal["waiting", "pressure", "queue", "delay", "travel_time"] = "waiting"
    """Reward of a junction and decision."""
    num_envs: int = 16
    """Copies of the network that are stepped side by side, per seed."""
    decisions: int = 4
    """Decisions per copy and learner step."""
    updates: int = 4
    """Updates per learner step."""
    batch_size: int = 128
    """Joint transitions per update."""
    buffer_size: int = 20_000
    """Joint transitions the replay keeps."""
    learning_starts: int = 2000
    """Joint transitions collected at random before the first update."""
    hidden: int = 128
    """Width of the two hidden layers of actors and critics."""
    capacity: int | None = None
    """Vehicles that fit on the road at once; estimated from the demand by default."""
    animation_seconds: float = 900.0
    """Seconds of traffic in the animation; 0 for none."""

    def check(self) -> None:
        super().check()
        if (self.roadnet is None) != (self.flow is None):
            given, missing = ("roadnet", "flow") if self.flow is None else ("flow", "roadnet")
            raise ConfigError(
                f"--{given} needs --{missing} as well; without both the built-in network is used"
            )
        sizes = ("num_envs", "decisions", "updates", "batch_size", "buffer_size", "hidden")
        for name in (*sizes, "capacity"):
            self.at_least(name, 1)
        self.at_least("learning_starts", 0)
        self.at_least("duration", 10)
        self.at_least("animation_seconds", 0)


PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "steps": 4,
        "duration": 120.0,
        "num_envs": 2,
        "decisions": 6,
        "updates": 2,
        "batch_size": 16,
        "buffer_size": 100,
        "learning_starts": 20,
        "hidden": 16,
        "animation_seconds": 20.0,
    },
    "quick": {"steps": 1000},
    "paper": {"steps": 10_000},
}
