"""What happened step by step under a controller: counts, travel times, phases, vehicles.

Runs go in chunks of one compiled program, so that long ones neither fill the memory nor
hide an overflow until their end.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import CapacityError
from jaxlab.envs.traffic.controllers import Controller
from jaxlab.envs.traffic.detectors import lane_counts, lane_waiting
from jaxlab.envs.traffic.environment import SignalControlState, TrafficSignalControl
from jaxlab.envs.traffic.params import TrafficParams

#: Steps of one compiled program.
CHUNK = 600
#: What `totals` records, and what `vehicles` does: fields of `TrafficState` that frames need.
TOTALS = ("average_travel_time", "finished", "running", "waiting_to_enter")
VEHICLE_FIELDS = ("step", "vehicle", "kind", "drivable", "position", "speed")


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive steps of a run.

    Attributes:
      first: Number of the first of them, from 0.
      state: State after the last of them.
      mean_queue: Vehicles standing on the approach lanes of a junction, mean over junctions
        and over the decisions that ended so far.
      steps: What was asked for, `[steps, ...]` each, read after the step: with `totals`
        those of `TOTALS`; with `lanes` `count` and `waiting` `[steps, lanes]`; with
        `vehicles` those of `VEHICLE_FIELDS` `[steps, slots]`; always `phase
        [steps, junctions]`, in force during the step.
    """

    first: int
    state: SignalControlState
    mean_queue: float
    steps: Mapping[str, np.ndarray]


def record(
    key: jax.Array,
    env: TrafficSignalControl,
    controller: Controller,
    params: TrafficParams,
    steps: int,
    *,
    totals: bool = False,
    lanes: bool = False,
    vehicles: bool = False,
    chunk: int = CHUNK,
) -> Iterator[Chunk]:
    """Run a controller from an empty network for `steps` simulation steps.

    The same as `rollout.simulate`, seen step by step; the number of steps need not be a
    multiple of those between two decisions. `env` has the interval of the controller
    (`rollout.for_controller`).

    Raises:
      CapacityError: more vehicles wanted to be on the road than there are slots.
    """
    dt, chunk = env.simulator.dt, min(chunk, steps)
    state, _ = jax.jit(env.reset)(key, params)
    carry = (state, controller.init(), jnp.zeros((), state.traffic.speed.dtype))
    for first in range(0, steps, chunk):
        carry, history = _run_chunk(
            carry,
            key,
            params,
            jnp.int32(first),
            jnp.int32(steps),
            env=env,
            controller=controller,
            chunk=chunk,
            wanted=(totals, lanes, vehicles),
        )
        state, _, queue = carry
        here = min(chunk, steps - first)
        if bool(state.traffic.overflow):
            raise CapacityError(
                f"the capacity of {env.simulator.capacity} vehicles on the road at once was "
                f"exceeded before {(first + here) * dt:g} s; raise `capacity`"
            )
        decisions = max((first + here) // env.interval_steps, 1)
        kept = {name: np.asarray(values)[:here] for name, values in history.items()}
        yield Chunk(first, state, float(queue) / decisions, kept)


@functools.partial(jax.jit, static_argnames=("env", "controller", "chunk", "wanted"))
def _run_chunk(
    carry: Any,
    key: jax.Array,
    params: TrafficParams,
    first: jax.Array,
    steps: jax.Array,
    *,
    env: TrafficSignalControl,
    controller: Controller,
    chunk: int,
    wanted: tuple[bool, bool, bool],
) -> Any:
    """`chunk` steps from step `first`; those from step `steps` on change nothing."""
    interval = env.interval_steps
    fine = dataclasses.replace(env, decision_interval=env.simulator.dt)

    def step(carry: Any, n: jax.Array) -> Any:
        state, memory, queue = carry
        act_key, step_key = jax.random.split(jax.random.fold_in(key, n // interval))
        memory, phase = jax.lax.cond(
            n % interval == 0,
            lambda: controller.act(act_key, memory, fine.detectors(state)),
            lambda: (memory, state.signals.phase),
        )
        shown = fine.phase_shown(state, phase, params)
        state, timestep = fine.advance(step_key, state, phase, params)
        standing = jnp.mean(timestep.info["waiting"])
        queue = queue + jnp.where((n + 1) % interval == 0, standing, 0)
        seen = {"phase": shown} | _observe(fine, state, timestep.info, wanted)
        return (state, memory, queue), seen

    def step_or_rest(carry: Any, n: jax.Array) -> Any:
        seen = jax.eval_shape(step, carry, n)[1]
        rest = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), seen)
        return jax.lax.cond(n < steps, step, lambda carry, n: (carry, rest), carry, n)

    return jax.lax.scan(step_or_rest, carry, first + jnp.arange(chunk, dtype=jnp.int32))


def _observe(
    env: TrafficSignalControl,
    state: SignalControlState,
    info: Mapping[str, jax.Array],
    wanted: tuple[bool, bool, bool],
) -> dict[str, jax.Array]:
    totals, lanes, vehicles = wanted
    traffic, number = state.traffic, env.simulator.num_lanes
    seen: dict[str, jax.Array] = {}
    if totals:
        seen |= {name: info[name] for name in TOTALS}
    if lanes:
        seen["count"] = lane_counts(traffic, number).astype(jnp.int16)
        seen["waiting"] = lane_waiting(traffic, number).astype(jnp.int16)
    if vehicles:
        seen |= {name: getattr(traffic, name) for name in VEHICLE_FIELDS}
    return seen
