"""What all adapters share: importing the other library, keys, the task, agents seen as one."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Space, Tree, as_mapping
from jaxlab.core.views import Centralized, FlattenObservation, TakeTurns

#: How several agents are shown to a library that knows one.
AGENT_VIEWS = {"joint": Centralized, "turns": TakeTurns}


def require_package(adapter: str, module: str, distribution: str) -> ModuleType:
    """Import a module of another library.

    Raises:
      ConfigError: It is not installed; the message names the distribution.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise ConfigError(
            f"{adapter} needs the package {distribution}, which is not installed; "
            f"install it with: pip install {distribution}"
        ) from error


def typed_key(key: jax.Array) -> jax.Array:
    """A typed key, from a typed key or from the raw words that older code passes."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key, impl="threefry2x32")


def default_params(env: Env, params: Any) -> Any:
    """`params`, or the task that `env` draws from key 0 where none are given."""
    return env.sample_params(jax.random.key(0)) if params is None else params


def one_agent(adapter: str, env: Env, agents: str) -> Env:
    """Show `env` as a single agent in the way `agents` names; single agents stay.

    Raises:
      ConfigError: `agents` is no known view.
    """
    if agents not in AGENT_VIEWS:
        expected = " or ".join(repr(view) for view in AGENT_VIEWS)
        raise ConfigError(f"{adapter}: agents is {agents!r}, must be {expected}")
    return env if env.num_agents is None else AGENT_VIEWS[agents](env)


def flattened(env: Env, flatten: bool) -> Env:
    """`env`, with its observations as vectors if `flatten` is set."""
    return FlattenObservation(env) if flatten else env


def as_dictionaries(value: Any) -> Any:
    """Mappings, dataclasses and named tuples as dictionaries, all the way down."""
    fields = as_mapping(value)
    return value if fields is None else {k: as_dictionaries(v) for k, v in fields.items()}


def as_action(action: Any, space: Space) -> Any:
    """Other libraries are free with dtypes of actions; ours are not."""
    if isinstance(space, Tree):
        fields = as_mapping(action)
        assert fields is not None
        return {name: as_action(fields[name], part) for name, part in space.items}
    return jnp.asarray(action, jnp.dtype(space.dtype))  # type: ignore[attr-defined]


def info_with_cost(timestep: TimeStep) -> dict[str, Any]:
    """`info`, and the costs of a constrained problem under `cost`: others know no costs."""
    info = dict(timestep.info)
    return info | {"cost": timestep.cost} if timestep.cost.size else info
