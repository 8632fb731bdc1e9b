"""A learner with every kind of metric, small enough to run in a blink."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from jaxlab.core import learner as contract
from jaxlab.core.learner import Learner
from jaxlab.core.probes import CoordinationGrid, GridParams, GridState


@struct.dataclass
class Hyper:
    learning_rate: jax.Array | float = 0.1
    noise: jax.Array | float = 0.5


@struct.dataclass
class State:
    key: jax.Array
    hyper: Hyper
    weights: jax.Array
    visits: jax.Array
    empty: jax.Array


def noisy_descent(size: int = 4, batch: int = 8) -> Learner:
    """Gradient descent on noisy regression towards `weights = 0, 1, 2, ...`.

    Metrics: `loss` (mean), `norm` (last), `env_steps` (sum), `largest` (max), `rare`
    (mean over every fourth step only), `weights` (record).
    """

    def init(key: jax.Array, hyper: Hyper) -> State:
        return State(
            key=key,
            hyper=hyper,
            weights=jnp.zeros(size, jnp.float32),
            visits=jnp.zeros(size, jnp.int32),
            empty=jnp.zeros((0,), jnp.float32),
        )

    def loss(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        return jnp.mean((inputs @ weights - targets) ** 2)

    def step(state: State, t: jax.Array) -> tuple[State, contract.Metrics]:
        key, subkey = jax.random.split(jax.random.fold_in(state.key, t))
        inputs = jax.random.normal(key, (batch, size), jnp.float32)
        noise = jax.random.normal(subkey, (batch,), jnp.float32)
        scale = state.hyper.noise.astype(jnp.float32)
        targets = inputs @ jnp.arange(size, dtype=jnp.float32) + scale * noise
        value, gradient = jax.value_and_grad(loss)(state.weights, inputs, targets)
        rate = state.hyper.learning_rate.astype(jnp.float32)
        weights = state.weights - rate * gradient
        visits = state.visits + jax.random.bernoulli(key, 0.5, (size,)).astype(jnp.int32)
        rare = jnp.where(t % 4 == 0, t.astype(jnp.float32), jnp.nan)
        metrics = {
            "loss": contract.mean(value),
            "norm": contract.last(jnp.linalg.norm(weights)),
            "env_steps": contract.total(jnp.int32(batch)),
            "largest": contract.maximum(jnp.max(jnp.abs(weights))),
            "rare": contract.mean(rare, t % 4 == 0),
            "weights": contract.record(weights),
        }
        return state.replace(weights=weights, visits=visits), metrics

    def act(state: State, obs: jax.Array, key: jax.Array) -> jax.Array:
        return obs @ state.weights

    return Learner(init, step, act)


@struct.dataclass
class Crowd:
    key: jax.Array
    hyper: Hyper
    weight: jax.Array
    grid: GridState
    goals: GridParams
    noise: jax.Array
    returns: jax.Array


def crowd_sharding(spec: jax.sharding.PartitionSpec) -> Crowd:
    """Shardings of the state of `crowd`: environments by `spec`, the rest replicated."""
    return Crowd(key=None, hyper=None, weight=None, grid=spec, goals=spec, noise=spec, returns=spec)


def crowd(size: int) -> Learner:
    """Many coordination grids under random actions, and one weight that follows them all.

    Every step advances each environment once and moves the weight by a mean over the
    batch, so it needs communication where the batch is spread over devices.
    """
    env = CoordinationGrid()

    def init(key: jax.Array, hyper: Hyper) -> Crowd:
        goals = jax.vmap(env.sample_params)(jax.random.split(key, size))
        grid, _ = jax.vmap(env.reset)(jax.random.split(key, size), goals)
        zeros = jnp.zeros(size, jnp.float32)
        return Crowd(key, hyper, jnp.zeros((), jnp.float32), grid, goals, zeros, zeros)

    def one(key: jax.Array, grid: GridState, goals: GridParams):
        act_key, env_key, noise_key = jax.random.split(key, 3)
        action = env.action_space(goals).sample(act_key)
        grid, timestep = env.step(env_key, grid, action, goals)
        return grid, timestep.reward.sum(), jax.random.normal(noise_key, (), jnp.float32)

    def step(state: Crowd, t: jax.Array) -> tuple[Crowd, contract.Metrics]:
        key = jax.random.fold_in(state.key, t)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(size, dtype=jnp.uint32))
        grid, reward, noise = jax.vmap(one)(keys, state.grid, state.goals)
        rate = state.hyper.learning_rate.astype(jnp.float32)
        weight = state.weight + rate * (jnp.mean(reward + noise) - state.weight)
        returns = state.returns + reward
        metrics = {
            "weight": contract.last(weight),
            "return": contract.maximum(returns),
            "positions": contract.record(grid.positions),
        }
        new = state.replace(weight=weight, grid=grid, noise=noise, returns=returns)
        return new, metrics

    return Learner(init, step)
