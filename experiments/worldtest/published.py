"""Published scores on the benchmark's own 43 environments, which are not the ones shipped here.

Means and standard errors over 43 tasks of each family, from the plots of the AutumnBench paper.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Mean and standard error by family, and the mean of all."""

    masked_frame_prediction: tuple[float, float]
    planning: tuple[float, float]
    change_detection: tuple[float, float]
    all: float


PUBLISHED = {
    "human": Row((0.938, 0.021), (0.953, 0.019), (0.914, 0.021), 0.935),
    "agent with the true simulator": Row((0.814, 0.060), (0.186, 0.060), (0.349, 0.071), 0.450),
    "o3": Row((0.279, 0.069), (0.326, 0.072), (0.222, 0.054), 0.275),
    "Claude 4 Sonnet": Row((0.302, 0.071), (0.349, 0.074), (0.095, 0.046), 0.256),
    "Gemini 2.5 Flash": Row((0.256, 0.067), (0.140, 0.053), (0.203, 0.059), 0.199),
    "Gemini 2.5 Pro": Row((0.256, 0.067), (0.209, 0.063), (0.116, 0.049), 0.194),
    "Qwen3-235b thinking": Row((0.214, 0.064), (0.209, 0.063), (0.077, 0.039), 0.159),
}

#: Chance of a right choice among six patches.
CHANCE = 1 / 6
