"""What a MADDPG learner carries from step to step, and what it reads from an environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float

from jaxlab.agents.maddpg.config import Hyper
from jaxlab.agents.maddpg.updates import Networks
from jaxlab.core.autoreset import Tasks
from jaxlab.core.environment import Env, action_mask
from jaxlab.core.errors import ConfigError
from jaxlab.core.normalization import RunningMoments
from jaxlab.core.spaces import Discrete, as_mapping

PyTree = Any
Observe = Callable[[PyTree], Float[Array, "agents features"]]

jax.tree_util.register_dataclass(
    Hyper, data_fields=[field.name for field in dataclasses.fields(Hyper)], meta_fields=[]
)


class Shaping(NamedTuple):
    """A reward that is added to the environment's own and may change during training.

    It is computed when transitions are drawn from the replay, so that old ones are
    judged by the newest reward.

    Attributes:
      observe: What the reward is a function of, `[agents, signals]`, of one observation;
        what it reads is not hidden from the actors unless their `observe` leaves it out.
      reward: Addition to the reward, `[agents]`, of `(before, after, params)`: the signals
        of a decision and of the one that follows it, and `state.shaping_params`.
    """

    observe: Callable[[PyTree], Float[Array, "agents signals"]]
    reward: Callable[[jax.Array, jax.Array, PyTree], Float[Array, " agents"]]


@struct.dataclass
class MADDPGState:
    """State of the learner.

    Attributes:
      tasks: Tasks from which every new episode draws; replace them between chunks to
        move a curriculum (running episodes keep the task they began with).
      prior_params: What the prior function gets beside the observation, or None.
      shaping_params: What the shaping reward gets beside the signals, or None.
      env: States of the environments, `[envs, ...]`, and `obs` their observations.
    """

    key: jax.Array
    hyper: Hyper
    networks: Networks
    feature_moments: RunningMoments
    reward_moments: RunningMoments
    replay: PyTree
    env: PyTree
    obs: PyTree
    tasks: Tasks
    prior_params: PyTree
    shaping_params: PyTree


@struct.dataclass
class Transition:
    """One decision of all agents, as it is stored; batches have leading axes.

    Attributes:
      features, next_features: `[agents, features]`, not normalised; `next_features`
        belongs to the episode that the decision was part of.
      mask, next_mask: Legal actions, `[agents, actions]`.
      action: The executed actions, `[agents]`, int32.
      reward: Sum of discounted rewards, `[agents]`.
      weight: The same sum with rewards of one, to centre `reward` later, `[agents]`.
      discount: Discount of the value of `next_features`, `[agents]`; zero where terminated.
      prior: Logits of the prior, `[agents, actions]`, or None.
      signals: What a shaping reward is made of, before and after, `[2, agents, signals]`, or
        None.
    """

    features: jax.Array
    next_features: jax.Array
    mask: jax.Array
    next_mask: jax.Array
    action: jax.Array
    reward: jax.Array
    weight: jax.Array
    discount: jax.Array
    prior: jax.Array | None
    signals: jax.Array | None


def flatten_observation(obs: PyTree) -> Float[Array, "agents features"]:
    """All numeric leaves of a multi-agent observation except `action_mask`, as float32."""
    fields = as_mapping(obs)
    if fields is not None:
        obs = {name: value for name, value in fields.items() if name != "action_mask"}
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(obs)]
    flat = [leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves]
    return jnp.concatenate(flat, axis=-1)


@dataclasses.dataclass(frozen=True)
class Reader:
    """How observations become features and masks, and the sizes that follow from it."""

    num_agents: int
    num_actions: int
    num_features: int
    observe: Observe

    def features(self, obs: PyTree) -> Float[Array, "agents features"]:
        """Features of one observation."""
        return self.observe(obs).astype(jnp.float32)

    def mask(self, obs: PyTree) -> Bool[Array, "agents actions"]:
        """Legal actions of one observation; all where the environment has no mask."""
        mask = action_mask(obs)
        if mask is None:
            return jnp.ones((self.num_agents, self.num_actions), bool)
        return mask.astype(bool)


def make_reader(env: Env, observe: Observe | None) -> Reader:
    """Check that an environment has several agents with discrete actions, and size it.

    Raises:
      ConfigError: No agent axis, actions that are not one integer per agent, or features
        of another shape than `[agents, features]`.
    """
    agents = env.num_agents
    if agents is None:
        raise ConfigError(f"MADDPG needs several agents, but {env.name} has no agent axis")
    observe = flatten_observation if observe is None else observe
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(env.sample_params, key)
    space = env.action_space(params)
    if not isinstance(space, Discrete) or space.shape != (agents,):
        raise ConfigError(
            f"MADDPG needs Discrete actions of shape ({agents},), but {env.name} has {space}"
        )
    obs = jax.eval_shape(env.reset, key, params)[1].obs
    features = jax.eval_shape(observe, obs)
    if features.ndim != 2 or features.shape[0] != agents:
        raise ConfigError(
            f"features of {env.name} have shape {features.shape}, expected ({agents}, features); "
            "correct the function passed as observe"
        )
    return Reader(agents, space.n, features.shape[1], observe)


def check_neighbours(neighbours: Any, num_agents: int) -> np.ndarray | None:
    """Neighbour indices as an int array `[agents, slots]`, -1 for none.

    Raises:
      ConfigError: Another shape, an index out of range, or an agent that neighbours itself.
    """
    if neighbours is None:
        return None
    table = np.asarray(neighbours)
    if table.ndim != 2 or table.shape[0] != num_agents or table.dtype.kind != "i":
        raise ConfigError(
            f"neighbours have shape {table.shape} and dtype {table.dtype}, "
            f"expected integers [{num_agents}, slots], -1 for none"
        )
    if table.size and (table.min() < -1 or table.max() >= num_agents):
        raise ConfigError(f"neighbours must lie in -1 .. {num_agents - 1}")
    if np.any(table == np.arange(num_agents)[:, None]):
        raise ConfigError("an agent is listed among its own neighbours; leave it out")
    return table
