"""To JaxMARL: dictionaries keyed by agent, automatic reset within a step."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxlab.core.adapters.foreign import as_action, default_params, require_package, typed_key
from jaxlab.core.adapters.gymnax import to_gymnax_space
from jaxlab.core.environment import Env, TimeStep, action_mask
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Discrete
from jaxlab.core.views import FlattenObservation, of_one_agent
from jaxlab.core.wrappers import AutoReset


@struct.dataclass
class AgentsState:
    """State of an adapted environment, from which JaxMARL reads observations again.

    Attributes:
      env: State of the environment with automatic reset.
      obs: Flat observations, `[agents, features]`.
      legal: Legal actions, `[agents, actions]`, bool; empty where none is illegal.
    """

    env: Any
    obs: jax.Array
    legal: jax.Array


def to_jaxmarl(env: Env, params: Any = None) -> Any:
    """Show an environment of several agents as a JaxMARL `MultiAgentEnv`.

    Agents are called `agent_0`, `agent_1`, ...; observations are float32 vectors, one
    leaf of the tree after the other, the action mask included; legal actions are also
    given by `get_avail_actions`. A step that ends an episode returns the first
    observation of the next one. An agent is done when it is terminated or the episode
    is over. `info` holds the entries that are one number, or one per agent, as an array
    `[agents]`, in which form JaxMARL's learners reshape them; other entries are left out.

    Args:
      env: The environment, without automatic reset; `num_agents` may be 1 but not None.
      params: The task, by default the one drawn from key 0; with `Tasks` every episode
        draws its own.

    Raises:
      ConfigError: jaxmarl is not installed, there is no agent axis, a space cannot be
        expressed.
    """
    if env.num_agents is None:
        raise ConfigError(f"to_jaxmarl: {env.name} has no agent axis (num_agents is None)")
    return _environment_class()(env, default_params(env, params))


def _numbers_per_agent(timestep: TimeStep, agents: int) -> dict[str, jax.Array]:
    info = {
        name: value
        for name, value in timestep.info.items()
        if isinstance(value, jax.Array) and value.shape in ((), (agents,))
    }
    return {name: jnp.broadcast_to(value, (agents,)) for name, value in info.items()}


@functools.cache
def _environment_class() -> type:
    """The class of adapted environments, made when JaxMARL is first needed."""
    where = "jaxmarl.environments."
    base: Any = require_package("to_jaxmarl", where + "multi_agent_env", "jaxmarl").MultiAgentEnv
    spaces = require_package("to_jaxmarl", where + "spaces", "jaxmarl")

    class AdaptedMultiAgentEnv(base):
        """A jaxlab environment with the interface of JaxMARL."""

        def __init__(self, env: Env, params: Any):
            assert env.num_agents is not None
            super().__init__(num_agents=env.num_agents)
            self.env: AutoReset[Any] = AutoReset(env)
            self.params = params
            self._flat: FlattenObservation[Any] = FlattenObservation(env)
            inner = self.env.task_like(params)
            observed = of_one_agent(self._flat.observation_space(inner))
            self._joint_action = env.action_space(inner)
            acted = of_one_agent(self._joint_action)
            self._choices = acted.n if isinstance(acted, Discrete) else 0
            for agent in self.agents:
                self.observation_spaces[agent] = to_gymnax_space(spaces, observed)
                self.action_spaces[agent] = to_gymnax_space(spaces, acted)

        @property
        def name(self) -> str:
            return self.env.name

        @property
        def agent_classes(self) -> dict[str, list[str]]:
            return {"agent": list(self.agents)}

        def _by_agent(self, values: jax.Array) -> dict[str, jax.Array]:
            return {agent: values[i] for i, agent in enumerate(self.agents)}

        def _state(self, inner: Any, timestep: TimeStep) -> AgentsState:
            mask = action_mask(timestep.obs)
            if mask is None:
                mask = jnp.ones((self.num_agents, self._choices), bool)
            return AgentsState(env=inner, obs=self._flat.flatten(timestep.obs), legal=mask)

        def reset(self, key: jax.Array) -> tuple[dict[str, jax.Array], AgentsState]:
            inner, timestep = self.env.reset(typed_key(key), self.params)
            state = self._state(inner, timestep)
            return self.get_obs(state), state

        def step(
            self,
            key: jax.Array,
            state: AgentsState,
            actions: dict[str, Any],
            reset_state: AgentsState | None = None,
        ) -> tuple[Any, ...]:
            inner, timestep = self.env.step(
                typed_key(key), state.env, self._stacked(actions), self.params
            )
            over = timestep.last
            new = self._state(inner, timestep)
            if reset_state is not None:
                new = jax.tree.map(lambda a, b: jnp.where(over, a, b), reset_state, new)
            dones = self._by_agent(timestep.terminated | over)
            info = _numbers_per_agent(timestep, self.num_agents)
            rewards = self._by_agent(timestep.reward)
            return self.get_obs(new), new, rewards, dones | {"__all__": over}, info

        def _stacked(self, actions: dict[str, Any]) -> Any:
            """Actions with an agent axis; some learners leave a trailing axis of one."""
            rows = (actions[agent] for agent in self.agents)
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
            like = jax.eval_shape(self._joint_action.sample, jax.random.key(0))
            stacked = jax.tree.map(lambda x, y: x.reshape(y.shape), stacked, like)
            return as_action(stacked, self._joint_action)

        def get_obs(self, state: AgentsState) -> dict[str, jax.Array]:
            return self._by_agent(state.obs)

        def get_avail_actions(self, state: AgentsState) -> dict[str, jax.Array]:
            return self._by_agent(state.legal)

    return AdaptedMultiAgentEnv
