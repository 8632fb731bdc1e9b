"""To PettingZoo: the parallel interface, dictionaries keyed by agent."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from jaxlab.core.adapters.foreign import default_params, info_with_cost, require_package
from jaxlab.core.adapters.gymnasium import Episodes, host_info, to_gymnasium_space, to_numpy
from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import zeros
from jaxlab.core.views import of_one_agent


def to_pettingzoo(env: Env, params: Any = None, *, render_mode: str | None = None) -> Any:
    """Show an environment of several agents as a PettingZoo `ParallelEnv`.

    Agents are called `agent_0`, `agent_1`, ...; one that is terminated leaves, and all
    leave when the episode is truncated. Observations are numpy arrays, trees are
    dictionaries, with `action_mask` in int8 where there is one. The info of an agent
    holds the entries of `info`, those with an agent axis at the agent's place.

    Args:
      env: The environment, without automatic reset; `num_agents` may be 1 but not None.
      params: The task, by default the one drawn from key 0; with `Tasks` every episode
        draws its own.
      render_mode: None or "rgb_array".

    Raises:
      ConfigError: pettingzoo is not installed, there is no agent axis, a space cannot be
        expressed, `render_mode` is unknown.
    """
    adapted = _environment_class()
    if env.num_agents is None:
        raise ConfigError(f"to_pettingzoo: {env.name} has no agent axis (num_agents is None)")
    if render_mode not in (None, "rgb_array"):
        raise ConfigError(
            f"to_pettingzoo: render_mode is {render_mode!r}, must be None or 'rgb_array'"
        )
    return adapted(env, default_params(env, params), render_mode)


@functools.cache
def _environment_class() -> type:
    """The class of adapted environments, made when pettingzoo is first needed."""
    base: Any = require_package("to_pettingzoo", "pettingzoo", "pettingzoo").ParallelEnv

    class AdaptedParallelEnv(base):
        """A jaxlab environment with the parallel interface of PettingZoo."""

        def __init__(self, env: Env, params: Any, render_mode: str | None):
            self.metadata = {"render_modes": ["rgb_array"], "name": env.name}
            self.render_mode = render_mode
            self.possible_agents = [f"agent_{i}" for i in range(env.num_agents or 0)]
            self.agents: list[str] = []
            self.episodes = Episodes(env, params)
            task = self.episodes.task
            observed, acted = env.observation_space(task), env.action_space(task)
            self._idle = zeros(acted)
            # One object per agent: each has a random state of its own for sampling.
            self.observation_spaces = {
                agent: to_gymnasium_space(of_one_agent(observed)) for agent in self.possible_agents
            }
            self.action_spaces = {
                agent: to_gymnasium_space(of_one_agent(acted)) for agent in self.possible_agents
            }
            self.episodes.seed(int(np.random.default_rng().integers(2**31)))

        def observation_space(self, agent: str) -> Any:
            return self.observation_spaces[agent]

        def action_space(self, agent: str) -> Any:
            return self.action_spaces[agent]

        def reset(
            self, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
            if seed is not None:
                self.episodes.seed(seed)
            timestep = self.episodes.reset()
            self.agents = list(self.possible_agents)
            return self._observations(timestep), self._infos(timestep)

        def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
            # Agents that have left are idle: what they do no longer matters.
            rows = jax.tree.map(np.array, self._idle)
            for i, agent in enumerate(self.possible_agents):
                if agent in self.agents:
                    jax.tree.map(
                        lambda row, one, i=i: row.__setitem__(i, one), rows, actions[agent]
                    )
            timestep = self.episodes.step(rows)
            observations, infos = self._observations(timestep), self._infos(timestep)
            rewards = self._per_agent(np.array(timestep.reward), float)
            terminations = self._per_agent(np.array(timestep.terminated), bool)
            truncations = dict.fromkeys(self.agents, bool(timestep.truncated))
            self.agents = [
                agent for agent in self.agents if not (terminations[agent] or truncations[agent])
            ]
            return observations, rewards, terminations, truncations, infos

        def _per_agent(self, values: np.ndarray, kind: type) -> dict[str, Any]:
            return {
                agent: kind(values[i])
                for i, agent in enumerate(self.possible_agents)
                if agent in self.agents
            }

        def _observations(self, timestep: TimeStep) -> dict[str, Any]:
            obs = to_numpy(timestep.obs)
            return self._split(obs)

        def _split(self, tree: Any) -> dict[str, Any]:
            return {
                agent: jax.tree.map(lambda leaf, i=i: leaf[i], tree)
                for i, agent in enumerate(self.possible_agents)
                if agent in self.agents
            }

        def _infos(self, timestep: TimeStep) -> dict[str, dict[str, Any]]:
            info, agents = host_info(info_with_cost(timestep)), len(self.possible_agents)

            def at(i: int) -> Any:
                return lambda leaf: leaf[i] if leaf.shape[:1] == (agents,) else leaf

            return {
                agent: jax.tree.map(at(i), info)
                for i, agent in enumerate(self.possible_agents)
                if agent in self.agents
            }

        def render(self) -> np.ndarray | None:
            return self.episodes.render() if self.render_mode == "rgb_array" else None

    return AdaptedParallelEnv
