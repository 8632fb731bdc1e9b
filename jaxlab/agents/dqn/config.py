"""Options of the learners: what fixes programs, and the numbers a sweep varies.

This file imports neither jax nor flax, so that command lines can show it quickly.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from jaxlab.core.errors import ConfigError


def _at_least(config: Any, least: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not (math.isfinite(value) and value >= least):
            raise ConfigError(f"{name} is {value}, expected a number of at least {least}")


@dataclasses.dataclass(frozen=True)
class FittedConfig:
    """Fitted value iteration. One step of the learner is one gradient step."""

    iterations: int = 20
    """Iterations of value iteration, K; iteration k fits values to what the last one says."""
    first_batch: int = 256
    """States n_0 of the first iteration."""
    batch_growth: float = 1.3
    """n_k = n_0 times its k-th power: its square root is the kappa of fast rates, the fourth root
    that of slow ones."""
    most_batch: int = 2**20
    """No iteration has more states."""
    first_steps: int = 50
    """Gradient steps t_0 of the first iteration."""
    steps_growth: float = 1.0
    """t_k = t_0 times its k-th power."""
    minibatch: int = 64
    """States of a gradient step, drawn from the n_k of the iteration."""
    optimizer: Literal["pgd", "adam"] = "pgd"
    """pgd: steps of the learning rate over the root of their number in the iteration, each
    followed by a projection onto the ball; adam: Adam, and the same projection."""
    instances: int = 0
    """Instances that are averaged over; 0 draws a new one for every state."""
    greedy_walks: float = 0.5
    """Share of states that are reached by letters that cost little, not by random ones."""

    def __post_init__(self) -> None:
        sizes = ("iterations", "first_batch", "most_batch", "first_steps", "minibatch")
        _at_least(self, 1, *sizes, "batch_growth", "steps_growth")
        _at_least(self, 0, "instances", "greedy_walks")
        if self.greedy_walks > 1:
            raise ConfigError(f"greedy_walks is {self.greedy_walks}, expected a share up to 1")
        if self.optimizer not in ("pgd", "adam"):
            raise ConfigError(f"optimizer is {self.optimizer!r}, expected pgd or adam")

    @property
    def batch_sizes(self) -> list[int]:
        """n_k of each iteration."""
        return [
            min(math.ceil(self.first_batch * self.batch_growth**k), self.most_batch)
            for k in range(self.iterations)
        ]

    @property
    def gradient_steps(self) -> list[int]:
        """t_k of each iteration."""
        return [
            math.ceil(self.first_steps * self.steps_growth**k - 1e-9)
            for k in range(self.iterations)
        ]

    @property
    def steps(self) -> int:
        """Gradient steps of all iterations: what the learner should be run for."""
        return sum(self.gradient_steps)


@dataclasses.dataclass(frozen=True)
class FittedHyper:
    """Numbers; a pytree once a learner is imported."""

    learning_rate: Any = 0.1
    """Of gradient steps."""
    radius: Any = 100.0
    """Of the ball that parameters are projected to: its norm is that of all of them together."""


@dataclasses.dataclass(frozen=True)
class DQNConfig:
    """Deep Q-learning. One step of the learner steps every environment, then updates."""

    num_envs: int = 32
    """Environments side by side."""
    updates: int = 1
    """Gradient steps of a step."""
    batch_size: int = 64
    """Transitions of a gradient step."""
    buffer_size: int = 20_000
    """Transitions kept for replay."""
    warmup: int = 20
    """Steps before the first update."""
    n_step: int = 1
    """Rewards that are added up before a value is asked."""
    double: bool = True
    """The network chooses the next action that its copy values (van Hasselt et al. 2016)."""
    target_period: int = 200
    """Steps between two copies."""
    network: Literal["s2v", "attention"] = "s2v"
    """Embedding of the graph."""
    width: int = 64
    """Of embeddings."""
    rounds: int = 3
    """Of messages, or layers of attention."""
    heads: int = 4
    """Of attention."""
    exploration_steps: int = 2000
    """Steps in which the share of random actions falls to its last value."""

    def __post_init__(self) -> None:
        sizes = ("num_envs", "updates", "batch_size", "buffer_size", "n_step", "target_period")
        _at_least(self, 1, *sizes, "width", "rounds", "heads", "exploration_steps", "warmup")
        if self.network not in ("s2v", "attention"):
            raise ConfigError(f"network is {self.network!r}, expected s2v or attention")
        if self.width % self.heads:
            raise ConfigError(f"width is {self.width}, expected a multiple of {self.heads} heads")
        least = max(self.num_envs, self.batch_size)
        if self.buffer_size < least:
            raise ConfigError(f"buffer_size is {self.buffer_size}, expected at least {least}")


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Numbers of deep Q-learning; a pytree once a learner is imported."""

    learning_rate: Any = 1e-3
    """Of Adam."""
    gamma: Any = 1.0
    """Discount of a step; 1 where strings end."""
    epsilon: Any = 0.05
    """Last share of random actions; the first is 1."""
