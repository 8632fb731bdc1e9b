"""A network under a controller: whole episodes in one compiled scan."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxlab.core.environment import TimeStep
from jaxlab.envs.traffic.controllers import Controller
from jaxlab.envs.traffic.environment import SignalControlState, TrafficSignalControl
from jaxlab.envs.traffic.params import TrafficParams


def for_controller(env: TrafficSignalControl, controller: Controller) -> TrafficSignalControl:
    """The environment with the decision interval and clearance of a controller."""
    return dataclasses.replace(
        env, decision_interval=controller.interval, clearance=controller.clearance
    )


def simulate(
    key: jax.Array,
    env: TrafficSignalControl,
    controller: Controller,
    params: TrafficParams,
    decisions: int,
) -> tuple[SignalControlState, TimeStep]:
    """Run `decisions` decisions of a controller from an empty network.

    Returns:
      The final state, and what happened at every decision, stacked `[decisions, ...]`
      (rewards and `info`; observations are left out).
    """
    state, _ = env.reset(key, params)

    def decide(carry, n):
        state, memory = carry
        act_key, step_key = jax.random.split(jax.random.fold_in(key, n))
        memory, phase = controller.act(act_key, memory, env.detectors(state))
        state, timestep = env.advance(step_key, state, phase, params)
        return (state, memory), timestep.replace(obs=())

    (state, _), history = jax.lax.scan(
        decide, (state, controller.init()), jnp.arange(decisions, dtype=jnp.int32)
    )
    return state, history
