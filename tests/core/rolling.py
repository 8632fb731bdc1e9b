"""Random actions for a number of steps, and tasks that can be told apart."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxlab.core import probes
from jaxlab.core.environment import Env
from jaxlab.core.wrappers import stack_tasks


def roll(env: Env, params: Any, steps: int, seed: int = 0, batch: int | None = None):
    """Random actions for a number of steps; timesteps stacked on the leading axis."""
    keys = jax.random.split(jax.random.key(seed), steps + 1)
    reset, step = env.reset, env.step
    sample = env.action_space(params).sample
    if batch is not None:
        keys = jax.vmap(lambda key: jax.random.split(key, batch))(keys)
        reset, step = jax.vmap(reset, (0, None)), jax.vmap(step, (0, 0, 0, None))
        sample = jax.vmap(sample)

    def run(keys, params):
        def advance(state, key):
            state, timestep = step(key, state, sample(key), params)
            return state, (state, timestep)

        state, first = reset(keys[0], params)
        _, (states, rest) = jax.lax.scan(advance, state, keys[1:])
        join = lambda a, b: jnp.concatenate([a[None], b])  # noqa: E731
        return jax.tree.map(join, state, states), jax.tree.map(join, first, rest)

    return jax.jit(run)(keys, params)


@dataclasses.dataclass(frozen=True)
class Labelled(probes.Bandit):
    """Shows its own first payoff, so the task of an episode can be read."""

    def observe(self, key, params):
        return params.payoff[:1]

    def observation_space(self, params):
        return probes.Box(-jnp.inf, jnp.inf, (1,))


def labelled_tasks(weights):
    payoff = jnp.arange(len(weights), dtype=jnp.float32)
    return stack_tasks([probes.BanditParams(jnp.full((3,), x)) for x in payoff], weights)
