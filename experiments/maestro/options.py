"""Options of MAESTRO; imports nothing heavy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """MADDPG on traffic signals, trained under a curriculum of scenarios, evaluated on the
    untouched demand over the full hour beside fixed time, max pressure and SOTL.

    Without files the network is a 4 x 4 grid of Hangzhou's geometry with demand drawn from
    published totals. One step of the learner takes `decisions` decisions in each of `num_envs`
    copies of the network, and then `updates` updates. Every seed has a curriculum of its own.
    """

    steps: int = 1620
    """Steps of the learner, best a multiple of those in an episode (360 decisions by default)."""
    roadnet: Path | None = None
    """Road network in CityFlow's format; needs --flow."""
    flow: Path | None = None
    """Flow in CityFlow's format; needs --roadnet."""
    demand_seed: int = 0
    """Seed of the built-in demand."""
    duration: float = 3600.0
    """Seconds of an episode and of the evaluation."""
    curriculum: Literal["none", "static", "domain_randomisation", "rules"] = "rules"
    """How training scenarios are chosen: the untouched demand only; a fixed ladder from easy to
    hard; drawn at random; difficulty moved by a success band on the return."""
    stage_episodes: int = 1
    """Episodes of every copy of the network until the curriculum moves on."""
    max_demand: float = 1.5
    """Largest demand of a scenario, relative to the untouched one."""
    capacity: int | None = None
    """Vehicles that fit on the road at once; by default all those of the largest scenario."""
    reward: Literal["waiting", "pressure", "queue", "delay", "travel_time"] = "waiting"
    """Reward of a junction and decision."""
    maddpg: MADDPGConfig = dataclasses.field(
        default_factory=lambda: MADDPGConfig(critic_input="neighbourhood", batch_size=128)
    )
    """Shapes and switches of the learner."""
    hyper: Hyper = dataclasses.field(default_factory=Hyper)
    """Numbers of the learner."""
    animation_seconds: float = 300.0
    """Seconds of traffic in the animation; 0 for none."""
    json: bool = False
    """Print the summary as one JSON object instead of a table."""

    volatile: ClassVar[frozenset[str]] = RunOptions.volatile | {"animation_seconds", "json"}

    def check(self) -> None:
        super().check()
        if (self.roadnet is None) != (self.flow is None):
            given, missing = ("roadnet", "flow") if self.flow is None else ("flow", "roadnet")
            raise ConfigError(
                f"--{given} needs --{missing} as well; without both the built-in network is used"
            )
        for name in ("capacity", "stage_episodes"):
            self.at_least(name, 1)
        self.at_least("demand_seed", 0)
        self.at_least("duration", 10)
        self.at_least("max_demand", 1)
        self.at_least("animation_seconds", 0)

    @property
    def files(self) -> tuple[Path, Path] | None:
        """Network and flow, where they are given."""
        if self.roadnet is None or self.flow is None:
            return None
        return self.roadnet, self.flow


PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "steps": 16,
        "duration": 240.0,
        "maddpg": MADDPGConfig(
            num_envs=2,
            decisions=3,
            updates=1,
            batch_size=16,
            buffer_size=100,
            learning_starts=12,
            critic_input="neighbourhood",
            actor_hidden=(16,),
            critic_hidden=(16,),
        ),
        "animation_seconds": 20.0,
    },
    "quick": {},
    "paper": {"steps": 10_800},
}
