"""The network of a configuration, as pure functions of its parameters."""

from __future__ import annotations

import functools
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.diffusion.config import DiffusionConfig
from jaxlab.agents.diffusion.mlp import ResidualMLP
from jaxlab.agents.diffusion.unet import UNet

PyTree = Any


def _network(config: DiffusionConfig, rngs: nnx.Rngs) -> nnx.Module:
    return {"mlp": ResidualMLP, "unet": UNet}[config.network](config, rngs)


def init_params(config: DiffusionConfig, key: jax.Array) -> PyTree:
    """First parameters of the network as nested dictionaries of arrays."""
    _, state = nnx.split(_network(config, nnx.Rngs(key)), nnx.Param)
    return nnx.to_pure_dict(state)


@functools.lru_cache(maxsize=32)
def _structure(config: DiffusionConfig) -> nnx.GraphDef:
    """What of the network is not parameters; no array is made."""
    return nnx.split(nnx.eval_shape(lambda: _network(config, nnx.Rngs(0))), nnx.Param)[0]


def predict(
    config: DiffusionConfig,
    params: PyTree,
    x: Float[Array, "batch *shape"],
    t: Int[Array, " batch"],
    cond: Float[Array, "batch conditions"],
    keep: Bool[Array, " batch"],
) -> Float[Array, "batch *shape"]:
    """The network's output (noise or velocity), as a pure function of its parameters.

    Args:
      config: The configuration that made the parameters.
      params: From `init_params`.
      x: Noisy rows in units of the network.
      t: Noise level of each row, 1 to T.
      cond: Conditions, scaled; `[batch, 0]` for none.
      keep: False where the learned null embedding takes the condition's place.
    """
    return nnx.merge(_structure(config), nnx.State(params))(x, t, cond, keep)
