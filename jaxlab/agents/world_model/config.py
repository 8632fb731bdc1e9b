"""Options of the world model; imports nothing heavy."""

from __future__ import annotations

import dataclasses

from jaxlab.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class WorldModelConfig:
    """Shapes; changing one compiles a new program."""

    channels: int = 12
    """Channels of the recurrent grid."""
    embedding: int = 8
    """Channels that a colour is embedded in."""
    batch: int = 8
    """Worlds that are interacted with side by side."""
    length: int = 8
    """Steps of each between two gradient steps, over which gradients go back."""
    episode: int = 64
    """Mean steps until a world begins again."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(
                    f"{field.name} is {getattr(self, field.name)}, expected at least 1"
                )


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Numbers that a sweep varies; a pytree once the learner is imported."""

    learning_rate: float = 1e-2
    """Step size of Adam."""
    max_gradient_norm: float = 1.0
    """Bound on the norm of the gradient."""
    changed_weight: float = 20.0
    """Weight of a place whose colour changes; one that does not has 1."""
