"""Learned policies and controllers on the untouched demand, without noise or shaping."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import CapacityError
from jaxlab.core.learner import Learner
from jaxlab.envs.traffic.controllers import Controller, make_controller
from jaxlab.envs.traffic.environment import SignalControlState, TrafficSignalControl
from jaxlab.envs.traffic.params import TrafficParams
from jaxlab.envs.traffic.rollout import for_controller, simulate

#: Controllers that learned policies are held against.
BASELINES = ("fixed_time", "max_pressure", "sotl")
#: Columns of the table: key, heading, unit.
MEASURES = (
    ("average_travel_time", "average travel time", "s"),
    ("throughput", "throughput", "vehicles"),
    ("queue", "queue", "vehicles per junction"),
    ("return", "return", ""),
)

Rows = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Results on the untouched demand.

    Attributes:
      measures: By policy and measure, `[seeds]`; controllers have one row.
      travel_times: Trip times of the vehicles that arrived, by policy, s, all seeds together.
      departed: Vehicles that departed, by policy, all seeds together.
    """

    measures: dict[str, dict[str, np.ndarray]]
    travel_times: dict[str, np.ndarray]
    departed: dict[str, int]


def evaluate(env: TrafficSignalControl, learner: Learner, state: Any, decisions: int) -> Evaluation:
    """Evaluate the greedy policies of all seeds (`state` leaves `[seeds, ...]`).

    Raises:
      CapacityError: more vehicles were on the road than there is room for.
    """
    env = dataclasses.replace(
        env, simulator=dataclasses.replace(env.simulator, record_arrivals=True)
    )
    key, params = jax.random.key(0), env.nominal_params()
    run = jax.jit(jax.vmap(partial(greedy, env, learner, decisions, key), (0, None)))
    results = {"learned": run(state, params)}
    for name in BASELINES:
        controller = make_controller(name, env.simulator.network, dt=env.simulator.dt)
        play = jax.jit(jax.vmap(partial(controlled, env, controller, decisions, key)))
        results[name] = play(jax.tree.map(lambda x: x[None], params))
    found, times, departed = {}, {}, {}
    for name, (final, rows) in results.items():
        values = {key: np.asarray(value) for key, value in jax.vmap(measures)(rows).items()}
        check_capacity(env, values.pop("overflow"))
        found[name] = values
        arrival = np.asarray(final.traffic.arrival_step)
        trip = (arrival - np.asarray(params.depart_step)) * env.simulator.dt
        times[name] = trip[arrival >= 0]
        steps = round(decisions * env.decision_interval / env.simulator.dt)
        departed[name] = int(np.sum(params.depart_step < steps)) * len(arrival)
    return Evaluation(found, times, departed)


def greedy(
    env: TrafficSignalControl,
    learner: Learner,
    decisions: int,
    key: jax.Array,
    state: Any,
    params: TrafficParams,
) -> tuple[SignalControlState, Rows]:
    """One episode without noise: the final state, and what was measured at every decision."""
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


def controlled(
    env: TrafficSignalControl,
    controller: Controller,
    decisions: int,
    key: jax.Array,
    params: TrafficParams,
) -> tuple[SignalControlState, Rows]:
    """As `greedy` with a controller, over the same time."""
    fitted = for_controller(env, controller)
    count = round(decisions * env.decision_interval / fitted.decision_interval)
    final, history = simulate(key, fitted, controller, params, count)
    return final, {**history.info, "reward": jnp.mean(history.reward, axis=-1)}


def measures(rows: Rows) -> Rows:
    """Measures of an episode from what was measured at its decisions `[decisions, ...]`."""
    return {
        "average_travel_time": rows["average_travel_time"][-1],
        "throughput": rows["finished"][-1],
        "queue": rows["mean_queue"][-1],
        "return": jnp.sum(rows["reward"]),
        "overflow": rows["overflow"][-1],
    }


def check_capacity(env: TrafficSignalControl, overflow: np.ndarray) -> None:
    """Stop where a simulation had too little room; NaN means that no episode ended.

    Raises:
      CapacityError: naming the capacity and what to change.
    """
    if np.any(np.nan_to_num(np.asarray(overflow, float)) > 0):
        raise CapacityError(
            f"the capacity of {env.simulator.capacity} vehicles on the road at once was "
            "exceeded; raise it with --capacity"
        )


def film(
    env: TrafficSignalControl,
    learner: Learner,
    state: Any,
    params: TrafficParams,
    *,
    start: float,
    seconds: float,
    interval: float,
) -> Iterator[SignalControlState]:
    """States of the greedy policy of one seed, every `interval` s from `start` s on.

    The policy decides as often as ever; `interval` divides its decision interval.
    """
    fine = dataclasses.replace(env, decision_interval=interval)
    per_decision = round(env.decision_interval / interval)
    key = jax.random.key(0)

    @jax.jit
    def decide(traffic, obs, n):
        act_key, step_key = jax.random.split(jax.random.fold_in(key, n))
        action = learner.act(state, obs, act_key)

        def part(carry, _):
            traffic, _ = carry
            traffic, timestep = fine.step(step_key, traffic, action, params)
            return (traffic, timestep.obs), traffic

        return jax.lax.scan(part, (traffic, obs), length=per_decision)

    traffic, timestep = jax.jit(fine.reset)(key, params)
    obs, first = timestep.obs, int(start // env.decision_interval)
    for n in range(first + max(round(seconds / env.decision_interval), 1)):
        (traffic, obs), states = decide(traffic, obs, jnp.int32(n))
        if n >= first:
            states = jax.device_get(states)
            for m in range(per_decision):
                yield jax.tree.map(lambda x, m=m: x[m], states)
