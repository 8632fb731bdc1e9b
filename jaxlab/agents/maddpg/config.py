"""Options of MADDPG: what fixes shapes and program structure, and the numbers a sweep varies.

This file imports neither jax nor flax, so that command lines can show it quickly.
"""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class MADDPGConfig:
    """Shapes and switches; changing one compiles a new program."""

    num_envs: int = 16
    """Copies of the environment that are stepped side by side."""
    decisions: int = 4
    """Decisions taken in every environment per learner step."""
    updates: int = 4
    """Critic updates per learner step."""
    batch_size: int = 256
    """Joint transitions per update."""
    buffer_size: int = 50_000
    """Joint transitions the replay keeps."""
    learning_starts: int = 2_000
    """Joint transitions collected, with uniformly random actions, before the first update."""
    num_tasks: int = 16
    """Tasks drawn from the environment at the start, where none are given."""

    shared: bool = True
    """One actor and one critic for all agents, told apart by an id, instead of one per agent."""
    actor_hidden: tuple[int, ...] = (128, 128)
    """Widths of the actor's hidden layers."""
    critic_hidden: tuple[int, ...] = (128, 128)
    """Widths of the critic's hidden layers."""
    layer_norm: bool = False
    """Normalise hidden layers."""
    critic_input: Literal["joint", "neighbourhood", "local"] = "joint"
    """Whose observations and actions a critic sees: all, the agent's neighbours, its own."""
    twin: bool = True
    """Two critics, and the smaller value as target."""
    actor_period: int = 2
    """Critic updates per actor update."""
    target_period: int = 1
    """Critic updates per movement of the target networks (by `tau`; 1 copies them)."""
    other_actions: Literal["buffer", "policy"] = "policy"
    """Where the other agents' actions in an actor's loss come from: replay, current actors."""
    actor_gradient: Literal["straight_through", "expected"] = "straight_through"
    """Gumbel-softmax sample, or the exact mean of the critic over the agent's own actions."""
    n_step: int = 1
    """Rewards summed before bootstrapping (windows end with the learner step)."""
    normalise_observations: bool = True
    """Centre and scale features by running moments."""
    normalise_rewards: Literal["none", "scale", "standardise"] = "scale"
    """Divide rewards by their running deviation, per agent; `standardise` also subtracts the
    mean, which is harmless only where episodes end by time limits."""


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Numbers; a pytree once the learner is imported. Schedules count joint transitions."""

    actor_learning_rate: float = 5e-4
    """Step size of the actors' Adam."""
    critic_learning_rate: float = 1e-3
    """Step size of the critics' Adam."""
    max_gradient_norm: float = 1.0
    """Bound on the norm of a network's gradient."""
    gamma: float = 0.95
    """Discount per decision."""
    tau: float = 0.01
    """Part of the way the target networks move."""
    temperature_start: float = 1.0
    """Temperature of the Gumbel-softmax at the start."""
    temperature_end: float = 1.0
    """Temperature at the end of its schedule."""
    temperature_steps: float = 100_000.0
    """Transitions until `temperature_end`."""
    logit_penalty: float = 1e-3
    """Weight of the mean square of legal logits, which keeps the relaxation's gradient alive."""
    entropy_bonus: float = 0.0
    """Weight of the policies' entropy in the actor loss."""
    prior_weight: float = 0.0
    """Weight at the start of the squared distance between centred policy and prior logits."""
    prior_steps: float = 100_000.0
    """Transitions until the weight of the prior has fallen, linearly, to zero."""
    prior_bound: float = 3.0
    """Largest size of a centred prior logit."""
    noise_scale: float = 1.0
    """Scale of the Gumbel noise on executed actions; 1 samples the policy, 0 is greedy."""
    epsilon_start: float = 0.1
    """Probability of a uniformly random legal action at the start."""
    epsilon_end: float = 0.02
    """The same at the end of its schedule."""
    epsilon_steps: float = 50_000.0
    """Transitions until `epsilon_end`."""
    team_reward: float = 0.0
    """Part of the mean reward of all agents in each agent's reward."""
    neighbour_reward: float = 0.0
    """Part of the mean reward of an agent's neighbours in its reward."""
