"""Actors and centralised critics of MADDPG.

Every array has the agent axis first: `[agents, batch, ...]`.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.agents.maddpg.config import MADDPGConfig
from jaxlab.core.environment import Constant
from jaxlab.core.errors import ConfigError
from jaxlab.core.networks import agent_mlp, append_agent_id, scaled_normal


class Actor(nn.Module):
    """Policy logits from an agent's own features."""

    num_actions: int
    hidden: tuple[int, ...]
    shared: bool
    layer_norm: bool

    @nn.compact
    def __call__(
        self, features: Float[Array, "agents *batch features"]
    ) -> Float[Array, "agents *batch actions"]:
        if self.shared:
            features = append_agent_id(features)
        return agent_mlp(
            self.shared,
            features=self.num_actions,
            hidden=self.hidden,
            layer_norm=self.layer_norm,
            output_scale=0.01,
        )(features)


class Critic(nn.Module):
    """Value of each agent, given observations and actions of the agents in its view.

    The first layer is linear in the one-hot actions, so replacing an agent's own action
    in its own critic's input is a product with one block of that layer. That is how the
    actor's loss is evaluated: a joint action, common to all critics, is embedded once
    instead of once per agent.

    Attributes:
      num_actions: Number of actions of each agent.
      hidden: Widths of the hidden layers, at least one.
      shared: One set of parameters for all agents, which gets the agent's id.
      view: `[agents, slots]` indices of the agents that each critic sees, -1 for none,
        itself first; or None for all agents in their order.
    """

    num_actions: int
    hidden: tuple[int, ...]
    shared: bool
    layer_norm: bool
    view: Constant | None = None

    @nn.compact
    def __call__(
        self,
        features: Float[Array, "agents batch features"],
        actions: Float[Array, "agents batch actions"],
        own: Float[Array, "agents batch actions"] | None = None,
    ) -> Float[Array, "agents batch"]:
        """Evaluate the critics at `actions`, where agent i's own action is `own[i]` if given."""
        inputs = jnp.concatenate([features, actions], axis=-1)
        embed = self._embed_all if self.view is None else self._embed_view
        hidden, own_kernel = embed(inputs)
        if own is not None:
            change = own - actions
            if own_kernel.ndim == 2:
                hidden = hidden + change @ own_kernel
            else:
                hidden = hidden + jnp.einsum("abn,anh->abh", change, own_kernel)
        if self.layer_norm:
            hidden = nn.LayerNorm(dtype=hidden.dtype, use_bias=False, use_scale=False)(hidden)
        trunk = agent_mlp(
            self.shared, features=1, hidden=self.hidden[1:], layer_norm=self.layer_norm
        )
        return trunk(nn.relu(hidden))[..., 0]

    def _embed_all(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """First layer over all agents; returns it and the weights of each own action."""
        agents, batch, width = inputs.shape
        joint = jnp.swapaxes(inputs, 0, 1).reshape(batch, agents * width)
        if self.shared:
            kernel = self._kernel("joint", (agents * width, self.hidden[0]), inputs.dtype)
            own = self._kernel("own", (width, self.hidden[0]), inputs.dtype)
            hidden = joint @ kernel + inputs @ own + self._bias(agents, inputs.dtype)
            blocks = kernel.reshape(agents, width, -1)
            return hidden, (blocks + own)[:, -self.num_actions :]
        kernel = self._kernel("joint", (agents, agents * width, self.hidden[0]), inputs.dtype)
        hidden = jnp.einsum("bj,ajh->abh", joint, kernel) + self._bias(agents, inputs.dtype)
        blocks = kernel.reshape(agents, agents, width, -1)
        own_kernel = blocks[np.arange(agents), np.arange(agents), -self.num_actions :]
        return hidden, own_kernel

    def _embed_view(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """First layer over each agent's view, itself in slot 0."""
        view = self.view.value
        agents, batch, width = inputs.shape
        slots = view.shape[1]
        padded = jnp.concatenate([inputs, jnp.zeros((1, batch, width), inputs.dtype)])
        seen = jnp.moveaxis(padded[view], 1, 2).reshape(agents, batch, slots * width)
        if self.shared:
            kernel = self._kernel("view", (slots * width, self.hidden[0]), inputs.dtype)
            hidden = seen @ kernel + self._bias(agents, inputs.dtype)
            return hidden, kernel[width - self.num_actions : width]
        kernel = self._kernel("view", (agents, slots * width, self.hidden[0]), inputs.dtype)
        hidden = jnp.einsum("abj,ajh->abh", seen, kernel) + self._bias(agents, inputs.dtype)
        return hidden, kernel[:, width - self.num_actions : width]

    def _kernel(self, name: str, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        init = scaled_normal(2**0.5, batch_axis=range(len(shape) - 2))
        return self.param(name, init, shape, dtype)

    def _bias(self, agents: int, dtype: Any) -> jax.Array:
        """One bias per agent: a network's own where it has one, the id's embedding where shared."""
        return self.param("bias", nn.initializers.zeros_init(), (agents, 1, self.hidden[0]), dtype)


def make_actor(config: MADDPGConfig, num_actions: int) -> Actor:
    """The actor that a configuration describes."""
    return Actor(num_actions, config.actor_hidden, config.shared, config.layer_norm)


def make_critic(
    config: MADDPGConfig, num_agents: int, num_actions: int, neighbours: np.ndarray | None
) -> Critic:
    """The critic that a configuration describes.

    Args:
      neighbours: `[agents, slots]` indices of each agent's neighbours, -1 for none.

    Raises:
      ConfigError: If the neighbourhood is asked for and none is known.
    """
    own = np.arange(num_agents)[:, None]
    if config.critic_input == "joint":
        view = None
    elif config.critic_input == "local":
        view = Constant(own)
    elif neighbours is None:
        raise ConfigError(
            "critic_input='neighbourhood' needs the agents' neighbours, "
            "an int array [agents, slots] passed to make(neighbours=...)"
        )
    else:
        view = Constant(np.concatenate([own, neighbours], axis=1))
    return Critic(num_actions, config.critic_hidden, config.shared, config.layer_norm, view)
