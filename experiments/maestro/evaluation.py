"""Learned policies and controllers on the untouched demand, without noise or shaping."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.learner import Learner
from jaxlab.envs.traffic.controllers import make_controller
from jaxlab.envs.traffic.environment import SignalControlState, TrafficSignalControl
from jaxlab.envs.traffic.rollout import for_controller, simulate

#: Controllers that learned policies are held against.
BASELINES = ("fixed_time", "max_pressure", "sotl")
#: Names of the columns: key, heading, unit.
MEASURES = (
    ("average_travel_time", "average travel time", "s"),
    ("throughput", "throughput", "vehicles"),
    ("queue", "queue", "vehicles per junction"),
    ("return", "return", ""),
)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
      measures: By policy and measure, `[seeds]`; controllers have one row.
      travel_times: Trip times of the vehicles that arrived, by policy, s (first seed).
      states: States of the first seed's policy every decision, for an animation.
    """

    measures: dict[str, dict[str, np.ndarray]]
    travel_times: dict[str, np.ndarray]
    states: SignalControlState


def evaluate(env: TrafficSignalControl, learner: Learner, state: Any, decisions: int) -> Evaluation:
    """Evaluate the greedy policies of all seeds (`state` leaves `[seeds, ...]`)."""
    env = dataclasses.replace(
        env, simulator=dataclasses.replace(env.simulator, record_arrivals=True)
    )
    params = env.nominal_params()
    key = jax.random.key(0)
    run = jax.jit(jax.vmap(partial(_greedy, env, learner, decisions), (None, 0, None)))
    final, rows = run(key, state, params)
    measures = {"learned": _measures(rows)}
    travel_times = {"learned": _travel_times(env, params, jax.tree.map(lambda x: x[0], final))}
    control = jax.jit(simulate, static_argnums=(1, 2, 4))
    for name in BASELINES:
        controller = make_controller(name, env.simulator.network, dt=env.simulator.dt)
        fitted = for_controller(env, controller)
        count = round(decisions * env.decision_interval / fitted.decision_interval)
        final, history = control(key, fitted, controller, fitted.nominal_params(), count)
        rows = {**history.info, "reward": jnp.mean(history.reward, axis=-1)}
        measures[name] = _measures(jax.tree.map(lambda x: x[None], rows))
        travel_times[name] = _travel_times(env, params, final)
    first = jax.tree.map(lambda x: x[0], state)
    states = jax.jit(partial(_states, env, learner, decisions))(key, first, params)
    return Evaluation(measures, travel_times, jax.device_get(states))


def _greedy(env, learner, decisions, key, state, params):
    """One greedy episode: the final state and what was measured at every decision."""
    start, timestep = env.reset(key, params)

    def decide(carry, n):
        traffic, obs = carry
        act_key, step_key = jax.random.split(jax.random.fold_in(key, n))
        action = learner.act(state, obs, act_key)
        traffic, timestep = env.step(step_key, traffic, action, params)
        return (traffic, timestep.obs), {**timestep.info, "reward": jnp.mean(timestep.reward)}

    (final, _), rows = jax.lax.scan(
        decide, (start, timestep.obs), jnp.arange(decisions, dtype=jnp.int32)
    )
    return final, rows


def _states(env, learner, decisions, key, state, params):
    """States at every decision of one greedy episode."""
    start, timestep = env.reset(key, params)

    def decide(carry, n):
        traffic, obs = carry
        act_key, step_key = jax.random.split(jax.random.fold_in(key, n))
        action = learner.act(state, obs, act_key)
        traffic, timestep = env.step(step_key, traffic, action, params)
        return (traffic, timestep.obs), traffic

    return jax.lax.scan(decide, (start, timestep.obs), jnp.arange(decisions, dtype=jnp.int32))[1]


def _measures(rows: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    """Measures of each seed from rows `[seeds, decisions, ...]`."""
    return {
        "average_travel_time": np.asarray(rows["average_travel_time"][:, -1]),
        "throughput": np.asarray(rows["finished"][:, -1]),
        "queue": np.asarray(rows["mean_queue"][:, -1]),
        "return": np.asarray(rows["reward"].sum(1)),
    }


def _travel_times(env: TrafficSignalControl, params: Any, state: SignalControlState) -> np.ndarray:
    """Trip times of the vehicles that arrived, s."""
    arrival = np.asarray(state.traffic.arrival_step)
    trip = arrival - np.asarray(params.depart_step)
    return trip[arrival >= 0] * env.simulator.dt
