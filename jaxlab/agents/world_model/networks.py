"""A recurrent convolutional network that predicts the next picture.

A convolutional gated recurrent unit (Shi et al., NeurIPS 2015; Ballas et al., ICLR 2016) on the grid, which
also sees the maximum and mean of its state over all places: a button far away may matter everywhere.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from jaxlab.agents.world_model.config import WorldModelConfig

PyTree = Any

#: Logit of keeping its colour that a place begins with.
KEPT = 4.0


class Conv(nnx.Module):
    """A 3 x 3 convolution as a product of windows, which a CPU does faster for few channels."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(9 * inputs, outputs, rngs=rngs)

    def __call__(
        self, x: Float[Array, "rows columns inputs"]
    ) -> Float[Array, "rows columns outputs"]:
        rows, columns, _ = x.shape
        padded = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
        windows = [padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
        return self.linear(jnp.concatenate(windows, axis=-1))


class WorldModel(nnx.Module):
    """From a state, a picture and an action to the next state and the next picture's logits.

    Args:
      config: Sizes.
      colours: Number of colours.
      kinds: Number of kinds of action.
      rngs: Source of the first weights.
    """

    def __init__(self, config: WorldModelConfig, colours: int, kinds: int, rngs: nnx.Rngs):
        width = config.channels
        self.colours, self.kinds = colours, kinds
        self.embed = nnx.Linear(colours, config.embedding, rngs=rngs)
        self.enter = Conv(config.embedding + kinds + 1, width, rngs=rngs)
        self.everywhere = nnx.Linear(2 * width, width, rngs=rngs)
        self.gates = Conv(2 * width, 2 * width, rngs=rngs)
        self.candidate = Conv(2 * width, width, rngs=rngs)
        self.leave = Conv(2 * width, width, rngs=rngs)
        self.logits = nnx.Linear(width, colours, rngs=rngs)
        self.kept = nnx.Param(jnp.full((), KEPT, jnp.float32))

    def __call__(
        self,
        hidden: Float[Array, "rows columns channels"],
        frame: Int[Array, "rows columns"],
        kind: Int[Array, ""],
        place: Int[Array, ""],
    ) -> tuple[Float[Array, "rows columns channels"], Float[Array, "rows columns colours"]]:
        """One step; `place` is where the action is, row times columns plus column, or -1."""
        rows, columns = frame.shape
        shown = jax.nn.one_hot(frame, self.colours, dtype=jnp.float32)
        kinds = jax.nn.one_hot(kind, self.kinds, dtype=jnp.float32)
        kinds = jnp.broadcast_to(kinds, (rows, columns, self.kinds))
        here = jax.nn.one_hot(place, rows * columns, dtype=jnp.float32).reshape(rows, columns, 1)
        x = nnx.relu(self.enter(jnp.concatenate([self.embed(shown), kinds, here], -1)))
        pooled = jnp.concatenate([hidden.mean((0, 1)), (x + hidden).max((0, 1))])
        x = x + self.everywhere(pooled)
        update, reset = jnp.split(nnx.sigmoid(self.gates(jnp.concatenate([x, hidden], -1))), 2, -1)
        fresh = jnp.tanh(self.candidate(jnp.concatenate([x, reset * hidden], -1)))
        hidden = update * hidden + (1 - update) * fresh
        out = nnx.relu(self.leave(jnp.concatenate([x, hidden], -1)))
        return hidden, self.logits(out) + self.kept[...] * shown


class Network:
    """A world model as pure functions of its parameters.

    Args:
      config: Sizes.
      shape: Rows and columns of the grid.
      colours: Number of colours.
      kinds: Kind of each action, `[actions]`.
      places: Place of each action, or -1, `[actions]`.
    """

    def __init__(
        self,
        config: WorldModelConfig,
        shape: tuple[int, int],
        colours: int,
        kinds: np.ndarray,
        places: np.ndarray,
    ):
        self.config, self.shape, self.colours = config, shape, colours
        self.kind_of, self.place_of = np.asarray(kinds, np.int32), np.asarray(places, np.int32)
        self._make = functools.partial(
            WorldModel, config, colours, int(self.kind_of.max(initial=0)) + 1
        )
        self._structure = nnx.split(nnx.eval_shape(lambda: self._make(nnx.Rngs(0))), nnx.Param)[0]

    def init(self, key: jax.Array) -> PyTree:
        """First parameters, nested dictionaries of arrays."""
        _, state = nnx.split(self._make(nnx.Rngs(key)), nnx.Param)
        return nnx.to_pure_dict(state)

    def blank(self) -> Float[Array, "rows columns channels"]:
        """The state before anything was seen."""
        return jnp.zeros((*self.shape, self.config.channels), jnp.float32)

    def predict(
        self, params: PyTree, hidden: jax.Array, frame: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Next state and logits of the next picture; `action` is an index, int32 `[]`."""
        model = nnx.merge(self._structure, nnx.State(params))
        kind, place = jnp.asarray(self.kind_of)[action], jnp.asarray(self.place_of)[action]
        return model(hidden, frame, kind, place)
