"""Views of an environment in the form that other learners expect.

`Centralized` and `TakeTurns` show several agents as one, for learners of a single
policy; `FlattenObservation` shows any observation as a vector.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int

from jaxlab.core.autoreset import replace_where
from jaxlab.core.environment import Params, PyTree, TimeStep, Wrapper
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Space, Tree


def _require_agents(view: str, wrapper: Wrapper) -> int:
    agents = wrapper.env.num_agents
    if agents is None:
        raise ConfigError(f"{view}: {wrapper.env.name} has a single agent already")
    return agents


def _total_cost(cost: Array) -> Array:
    """Sum over agents where costs are `[m, agents]`."""
    return cost if cost.ndim == 1 else cost.sum(-1)


@dataclasses.dataclass(frozen=True)
class Centralized(Wrapper[Params]):
    """One controller that sees and decides for all agents.

    Observations and actions keep their agent axis as an ordinary axis; the reward is the
    sum over agents; the episode is terminated when all agents are.

    Raises:
      ConfigError: The environment has a single agent already.
    """

    def __post_init__(self) -> None:
        _require_agents("Centralized", self)

    @property
    def num_agents(self) -> None:
        return None

    def _joint(self, timestep: TimeStep) -> TimeStep:
        return dataclasses.replace(
            timestep,
            reward=timestep.reward.sum(-1),
            cost=_total_cost(timestep.cost),
            terminated=timestep.terminated.all(-1),
        )

    def reset(self, key: jax.Array, params: Params) -> tuple[PyTree, TimeStep]:
        state, timestep = self.env.reset(key, params)
        return state, self._joint(timestep)

    def step(
        self, key: jax.Array, state: PyTree, action: PyTree, params: Params
    ) -> tuple[PyTree, TimeStep]:
        state, timestep = self.env.step(key, state, action, params)
        return state, self._joint(timestep)

    def render(self, state: PyTree, params: Params) -> Any:
        return self.env.render(state, params)


@struct.dataclass
class TurnState:
    """`timestep` is the inner one of the present round; `actions` are those chosen in it."""

    env: PyTree
    timestep: TimeStep
    actions: PyTree
    turn: Int[Array, ""]
    terminated: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class TakeTurns(Wrapper[Params]):
    """Agents act one after the other with one policy; a round of turns is one inner step.

    The observation is that of the agent whose turn it is. Actions of a round are collected
    and carried out together in the last turn, whose reward is the sum over agents; the
    other turns pay nothing. A discount of `gamma` per inner step is one of
    `gamma ** (1 / agents)` per turn. `info` is that of the latest inner step.

    Copies of the environment that start together stay in step, so that under `vmap` the
    inner environment is stepped in one turn of a round only.

    Raises:
      ConfigError: The environment has a single agent already.
    """

    def __post_init__(self) -> None:
        _require_agents("TakeTurns", self)
        if not self.env.absorbing:
            raise ConfigError("TakeTurns: put AutoReset around TakeTurns, not inside")

    @property
    def num_agents(self) -> None:
        return None

    @property
    def _agents(self) -> int:
        return _require_agents("TakeTurns", self)

    def reset(self, key: jax.Array, params: Params) -> tuple[TurnState, TimeStep]:
        inner, timestep = self.env.reset(key, params)
        action = jax.eval_shape(self.env.action_space(params).sample, key)
        state = TurnState(
            env=inner,
            timestep=timestep,
            actions=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), action),
            turn=jnp.zeros((), jnp.int32),
            terminated=jnp.zeros((), bool),
        )
        return state, self._shown(state, jnp.zeros((), bool))

    def step(
        self, key: jax.Array, state: TurnState, action: PyTree, params: Params
    ) -> tuple[TurnState, TimeStep]:
        put = lambda all_, one: all_.at[state.turn].set(one.astype(all_.dtype))  # noqa: E731
        actions = jax.tree.map(put, state.actions, action)
        last_turn = state.turn == self._agents - 1

        def advanced() -> tuple[PyTree, TimeStep]:
            return self.env.step(key, state.env, actions, params)

        inner, timestep = replace_where(last_turn, advanced, (state.env, state.timestep))
        state = TurnState(
            env=inner,
            timestep=timestep,
            actions=actions,
            turn=(state.turn + 1) % self._agents,
            terminated=timestep.terminated.all(-1),
        )
        return state, self._shown(state, last_turn)

    def _shown(self, state: TurnState, paid: Bool[Array, ""]) -> TimeStep:
        timestep = state.timestep
        reward, cost = timestep.reward.sum(-1), _total_cost(timestep.cost)
        return TimeStep(
            obs=jax.tree.map(lambda leaf: leaf[state.turn], timestep.obs),
            reward=jnp.where(paid, reward, jnp.zeros_like(reward)),
            cost=jnp.where(paid, cost, jnp.zeros_like(cost)),
            terminated=state.terminated,
            truncated=timestep.truncated,
            info=timestep.info,
        )

    def observation_space(self, params: Params) -> Space:
        return of_one_agent(self.env.observation_space(params))

    def action_space(self, params: Params) -> Space:
        return of_one_agent(self.env.action_space(params))


def of_one_agent(space: Space) -> Space:
    """The space without its leading agent axis."""
    if isinstance(space, Tree):
        return Tree({name: of_one_agent(part) for name, part in space.items})
    if isinstance(space, Box | Discrete):
        return dataclasses.replace(space, shape=space.shape[1:])
    raise ConfigError(f"{type(space).__name__} is no Box, Discrete or Tree")


@dataclasses.dataclass(frozen=True)
class FlattenObservation(Wrapper[Params]):
    """Shows observations as one float32 vector, `[features]` or `[agents, features]`.

    Leaves are concatenated in the order of the tree; masks and integers become numbers.
    """

    def reset(self, key: jax.Array, params: Params) -> tuple[PyTree, TimeStep]:
        state, timestep = self.env.reset(key, params)
        return state, self._flat(timestep)

    def step(
        self, key: jax.Array, state: PyTree, action: PyTree, params: Params
    ) -> tuple[PyTree, TimeStep]:
        state, timestep = self.env.step(key, state, action, params)
        return state, self._flat(timestep)

    def _flat(self, timestep: TimeStep) -> TimeStep:
        info = dict(timestep.info)
        if "final_obs" in info:
            info["final_obs"] = self.flatten(info["final_obs"])
        return dataclasses.replace(timestep, obs=self.flatten(timestep.obs), info=info)

    def flatten(self, obs: PyTree) -> Array:
        """Concatenate the leaves of an observation."""
        leading = () if self.num_agents is None else (self.num_agents,)
        leaves = [leaf.reshape(*leading, -1).astype(jnp.float32) for leaf in jax.tree.leaves(obs)]
        return jnp.concatenate(leaves, axis=-1)

    def observation_space(self, params: Params) -> Space:
        leading = () if self.num_agents is None else (self.num_agents,)
        parts = _leaf_spaces(self.env.observation_space(params))
        features = sum(math.prod(part.shape[len(leading) :]) for part in parts)
        low = min(0 if isinstance(part, Discrete) else part.low for part in parts)
        high = max(part.n - 1 if isinstance(part, Discrete) else part.high for part in parts)
        return Box(float(low), float(high), (*leading, features))

    def render(self, state: PyTree, params: Params) -> Any:
        return self.env.render(state, params)


def _leaf_spaces(space: Space) -> list[Box | Discrete]:
    if isinstance(space, Tree):
        return [leaf for _, part in space.items for leaf in _leaf_spaces(part)]
    if isinstance(space, Box | Discrete):
        return [space]
    raise ConfigError(f"{type(space).__name__} is no Box, Discrete or Tree")
