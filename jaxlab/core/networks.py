"""Small networks that learners share: multilayer perceptrons, alone or one per agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def scaled_normal(gain: float, batch_axis: Sequence[int] = ()) -> nn.initializers.Initializer:
    """Normal weights of variance `gain**2 / inputs` (He et al. 2015 with gain `2**0.5`).

    Not orthogonal ones: those need a QR decomposition, and two batched ones at a time (under a
    `vmap` over seeds) wait for each other for ever in the CPU backend's pool when it
    has two threads (seen with jaxlib 0.10.2).
    """
    return nn.initializers.variance_scaling(gain**2, "fan_in", "normal", batch_axis=batch_axis)


class MLP(nn.Module):
    """Dense layers of the widths `hidden`, then a linear layer of width `features`.

    Attributes:
      features: Width of the output; None ends with the last hidden layer.
      hidden: Widths of the hidden layers.
      activation: Nonlinearity after each hidden layer.
      layer_norm: Normalise before each nonlinearity.
      output_scale: Gain of the output layer's first weights; small values start a policy
        near uniform.
    """

    features: int | None
    hidden: Sequence[int] = (64, 64)
    activation: Callable[[jax.Array], jax.Array] = nn.relu
    layer_norm: bool = False
    output_scale: float = 1.0

    @nn.compact
    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        for width in self.hidden:
            x = nn.Dense(width, kernel_init=scaled_normal(2**0.5), dtype=x.dtype)(x)
            if self.layer_norm:
                x = nn.LayerNorm(dtype=x.dtype)(x)
            x = self.activation(x)
        if self.features is None:
            return x
        kernel_init = scaled_normal(self.output_scale)
        return nn.Dense(self.features, kernel_init=kernel_init, dtype=x.dtype)(x)


def agent_mlp(shared: bool, **fields) -> nn.Module:
    """An `MLP` applied along a leading agent axis: `[agents, ..., inputs]` to `[agents, ..., features]`.

    Args:
      shared: One set of parameters for all agents; otherwise every parameter has a
        leading agent axis. Agents come first because batched products in that layout
        run at the speed of plain ones on a CPU (with the batch first they take twice as long).
      fields: Fields of `MLP`.
    """
    if shared:
        return MLP(**fields)
    stacked = nn.vmap(MLP, variable_axes={"params": 0}, split_rngs={"params": True})
    return stacked(**fields)


def append_agent_id(x: Float[Array, "agents *batch features"]) -> jax.Array:
    """Append a one-hot agent id to features, `[agents, ..., features + agents]`."""
    agents = x.shape[0]
    ids = jnp.eye(agents, dtype=x.dtype).reshape(agents, *(1,) * (x.ndim - 2), agents)
    return jnp.concatenate([x, jnp.broadcast_to(ids, (*x.shape[:-1], agents))], axis=-1)
