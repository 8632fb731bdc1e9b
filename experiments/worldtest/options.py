"""Options of WorldTest; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Literal

from jaxlab.agents.simulator_planner.config import PlannerConfig
from jaxlab.agents.world_model.config import WorldModelConfig
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions

AGENTS = ("random", "simulator", "learned")
Family = Literal["masked_frame_prediction", "planning", "change_detection"]
FAMILIES: tuple[Family, ...] = ("masked_frame_prediction", "planning", "change_detection")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """WorldTest: agents explore Autumn worlds without reward and are then tested: which patch
    was hidden, how to reach a goal, when the rules changed. Their scores, by family and by
    environment, stand beside random floors and published scores.

    Agents: random; simulator, which knows the program but not the seed; learned, which trains a
    world model on interaction at random (--steps gradient steps for each environment).
    """

    steps: int = 400
    """Gradient steps of the learned world model, for each environment."""
    seeds: int = 1
    """Sessions of each agent on each task, with seeds of their own."""
    agents: tuple[Literal["random", "simulator", "learned"], ...] = ("random", "simulator")
    """Who takes the tests."""
    tasks: pathlib.Path | None = None
    """Folder of your own tasks in the released layout (prompts, answers, programs) instead of
    those that are shipped."""
    program: pathlib.Path | None = None
    """Your own program (.sexp) instead; a task of each family is made for it."""
    environments: tuple[str, ...] = ()
    """Only these environments; by default as many as the preset takes."""
    families: tuple[Family, ...] = FAMILIES
    """Only these families."""
    limit: int | None = 10
    """Most environments, where none are named; None takes all."""
    mode: Literal["released", "fixed"] = "fixed"
    """Run and score as the released harness does, quirks included, or with those put right."""
    interaction: int = 300
    """Most acts before a test begins."""
    total: int = 501
    """Most acts of a session."""
    floor_sessions: int = 20
    """Sessions of the random agent on each task, for the floors."""
    planner: PlannerConfig = dataclasses.field(default_factory=PlannerConfig)
    """Sizes of the planner."""
    model: WorldModelConfig = dataclasses.field(default_factory=WorldModelConfig)
    """Sizes of the learned world model."""

    def check(self) -> None:
        super().check()
        if self.tasks is not None and self.program is not None:
            raise ConfigError("--tasks and --program contradict each other; give one")
        for name in ("tasks", "program"):
            path = getattr(self, name)
            if path is not None and not path.exists():
                raise ConfigError(f"--{name} {path}: there is no such file or folder")
        for name in ("agents", "families"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ConfigError(f"--{name}: expected at least one, each named once")
        self.at_least("limit", 1)
        self.at_least("floor_sessions", 1)
        self.at_least("interaction", 0)
        if self.total <= self.interaction + 4:
            raise ConfigError(
                f"--total {self.total}: expected at least five acts more than --interaction "
                f"{self.interaction}"
            )


_SMALL = PlannerConfig(
    beam=8, branches=16, pool=128, iterations=20, replanning=8, exploring=4, particles=16, rounds=2
)

PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "limit": 1,
        "steps": 4,
        "floor_sessions": 2,
        "interaction": 20,
        "total": 60,
        "planner": _SMALL,
        "model": WorldModelConfig(channels=4, batch=2, length=4),
    },
    "quick": {},
    "paper": {
        "agents": AGENTS,
        "limit": None,
        "seeds": 3,
        "steps": 2000,
        "model": WorldModelConfig(channels=32, batch=16, length=16),
        "floor_sessions": 100,
    },
}
