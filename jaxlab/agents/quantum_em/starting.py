"""Where runs start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.agents.quantum_em.config import Hyper
from jaxlab.core.errors import ConfigError

#: From a key to a start `[terms]`.
Initial = Callable[[Any], Any]

jax.tree_util.register_dataclass(
    Hyper, data_fields=[field.name for field in dataclasses.fields(Hyper)], meta_fields=[]
)


def start(
    key: jax.Array, hyper: Hyper | None, size: int, initial: Initial | None
) -> tuple[Hyper, Float[Array, " terms"]]:
    """Hyper-parameters as arrays, and the first parameters.

    Raises:
      ConfigError: A given start has another size.
    """
    hyper = Hyper() if hyper is None else hyper
    hyper = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), hyper)
    parameters = hyper.parameters
    if parameters is None:
        parameters = draw(key, hyper, size, initial)
    if parameters.shape != (size,):
        raise ConfigError(f"a start is {parameters.shape}, expected ({size},)")
    return hyper, parameters


def draw(
    key: jax.Array, hyper: Hyper, size: int, initial: Initial | None
) -> Float[Array, " terms"]:
    """A random start: of `initial`, or uniform in [-width, width]."""
    if initial is not None:
        return jnp.asarray(initial(key))
    dtype = jnp.result_type(float)
    return jax.random.uniform(key, (size,), dtype, -hyper.width, hyper.width)
