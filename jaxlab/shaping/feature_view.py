"""Observations with what reward programs and priors are functions of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.environment import Params, TimeStep, Wrapper
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Space, Tree

#: Names under which features stand in observations.
AGENT, ACTION = "agent_features", "action_features"


@dataclasses.dataclass(frozen=True)
class ShowFeatures(Wrapper[Params]):
    """Adds features of agents and of their actions to observations that are mappings.

    They are computed from the state, so sensors do not falsify them. Learners take rewards
    and priors from them; policies need not see them (`hide_features`).

    Attributes:
      agent_features: `(env, state) -> [agents, features]`, of the wrapped environment.
      action_features: `(env, state) -> [agents, actions, features]`.
    """

    agent_features: Callable[[Any, Any], Float[Array, "agents features"]]
    action_features: Callable[[Any, Any], Float[Array, "agents actions features"]]

    def __post_init__(self) -> None:
        if self.env.num_agents is None:
            raise ConfigError(f"ShowFeatures: {self.env.name} has no agent axis")

    def reset(self, key: jax.Array, params: Params) -> tuple[Any, TimeStep]:
        state, timestep = self.env.reset(key, params)
        return state, self._shown(state, timestep)

    def step(self, key: jax.Array, state: Any, action: Any, params: Params) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action, params)
        return state, self._shown(state, timestep)

    def _shown(self, state: Any, timestep: TimeStep) -> TimeStep:
        features = {
            AGENT: self.agent_features(self.env, state),
            ACTION: self.action_features(self.env, state),
        }
        return dataclasses.replace(timestep, obs={**timestep.obs, **features})

    def observation_space(self, params: Params) -> Space:
        inner = self.env.observation_space(params)
        key = jax.eval_shape(lambda: jax.random.key(0))
        obs = jax.eval_shape(self.reset, key, params)[1].obs
        shown = {
            name: Box(-np.inf, np.inf, obs[name].shape, str(obs[name].dtype))
            for name in (AGENT, ACTION)
        }
        assert isinstance(inner, Tree)
        return Tree(dict(inner.items) | shown)

    def render(self, state: Any, params: Params) -> np.ndarray:
        return self.env.render(state, params)


def hide_features(obs: Mapping[str, Any]) -> dict[str, Any]:
    """The observation as it is without `ShowFeatures`."""
    return {name: value for name, value in obs.items() if name not in (AGENT, ACTION)}
