"""Sizes of the planner; imports nothing heavy."""

from __future__ import annotations

import dataclasses

from jaxlab.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class PlannerConfig:
    """How much is simulated. Each size is a shape: changing one compiles anew."""

    beam: int = 32
    """States expanded at once: a quarter by their distance from the goal, a quarter by the length of
    the way to it, half by their novelty."""
    branches: int = 32
    """Actions tried in each; all of them where a world has no more."""
    pool: int = 2048
    """States kept that are not expanded yet."""
    iterations: int = 150
    """Expansions of a search from the start of a task."""
    replanning: int = 40
    """Expansions of a search once a plan went wrong."""
    exploring: int = 12
    """Expansions of a search for what has not been seen."""
    particles: int = 512
    """Samples of the hidden state."""
    rounds: int = 8
    """Draws of each particle's next state, where few agree with what is seen."""
    sharpness: float = 2.0
    """Loss of log weight for each visible place that a particle shows wrongly."""
    confirmations: int = 2
    """Surprises within `window` frames that make a change, in a world that is random."""
    window: int = 12
    """Frames over which surprises are counted."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0:
                raise ConfigError(
                    f"{field.name} is {getattr(self, field.name)}, expected more than 0"
                )
        if self.beam % 4:
            raise ConfigError(f"beam is {self.beam}, expected a multiple of 4")
        if self.beam > self.pool:
            raise ConfigError(f"pool is {self.pool}, expected at least the beam of {self.beam}")
