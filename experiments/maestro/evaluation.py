"""Learned policies and controllers side by side, without noise or shaping."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.maestro.problem import decisions_per_episode
from jaxlab.agents.maddpg import MADDPGState
from jaxlab.core.errors import CapacityError
from jaxlab.core.learner import Learner
from jaxlab.core.placement import place
from jaxlab.envs.traffic.controllers import Controller, make_controller
from jaxlab.envs.traffic.environment import SignalControlState, TrafficSignalControl
from jaxlab.envs.traffic.params import TrafficParams

#: Controllers that learned policies are held against.
BASELINES = ("fixed_time", "max_pressure", "sotl")
POLICIES = ("learned", *BASELINES)
#: Episodes of every seed that are played at a time.
PER_SEED = 4
#: Places of the newest scenario and of the untouched demand among a seed's tasks.
NEWEST_PLACE, BASE_PLACE = 0, -1
#: Columns of the table: key, heading, unit.
MEASURES = (
    ("average_travel_time", "average travel time", "s"),
    ("throughput", "throughput", "vehicles"),
    ("queue", "queue", "vehicles per junction"),
    ("return", "return", ""),
)

Rows = dict[str, jax.Array]


class Trials:
    """Whole episodes of policies on tasks, without noise, in one compiled program.

    A trial is a seed, one of `POLICIES` and a place among the seed's tasks; every seed has
    `per_seed` of them at a time, so that measuring the stages of a curriculum and the
    final evaluation share the program.
    """

    def __init__(
        self, env: TrafficSignalControl, learner: Learner, seeds: int, per_seed: int = PER_SEED
    ):
        self.env, self.learner, self.seeds, self.per_seed = env, learner, seeds, per_seed
        self.controllers = [
            make_controller(
                name,
                env.simulator.network,
                dt=env.simulator.dt,
                interval=env.decision_interval,
                clearance=env.clearance,
            )
            for name in BASELINES
        ]
        # Seeds may lie on different devices or hosts; every host needs all results.
        self._run = jax.jit(self._trials, out_shardings=place(seeds).replicated)

    def __call__(self, state: Any, trials: Sequence[tuple[str, int]]) -> dict[str, np.ndarray]:
        """Results of `per_seed` trials `(policy, place)` of every seed, `[seeds, trials]`.

        Beside `MEASURES`: `trip`, travel times of the vehicles in s, -1 for those that did
        not arrive, `[seeds, trials, vehicles]`, and `departed`, how many set out.

        Raises:
          CapacityError: more vehicles were on the road than there is room for.
        """
        assert len(trials) == self.per_seed
        seed = np.repeat(np.arange(self.seeds, dtype=np.int32), self.per_seed)
        policy = np.array([POLICIES.index(name) for name, _ in trials] * self.seeds, np.int32)
        where = np.array([n for _, n in trials] * self.seeds, np.int32)
        results = self._run(without_experience(state), seed, policy, where)
        found = {
            name: np.asarray(value).reshape(self.seeds, self.per_seed, *value.shape[1:])
            for name, value in results.items()
        }
        check_capacity(self.env, found.pop("overflow"))
        return found

    def _trials(self, state: Any, seed: jax.Array, policy: jax.Array, where: jax.Array) -> Rows:
        """Trials `[trials]`; one map over all of them, whatever the number of seeds."""
        env = dataclasses.replace(
            self.env, simulator=dataclasses.replace(self.env.simulator, record_arrivals=True)
        )
        key = jax.random.key(0)
        params = jax.tree.map(lambda x: x[seed, where], state.tasks.params)
        state = jax.tree.map(lambda x: x[seed], state.replace(tasks=None))
        start, timestep = jax.vmap(env.reset, (None, 0))(key, params)

        # The map is inside the scan: mapping a scan traces its body several times.
        def decide(carry, n):
            act_key, step_key = jax.random.split(jax.random.fold_in(key, n))

            def one(state, policy, params, traffic, obs):
                phase = self._phase(state, policy, act_key, traffic, obs)
                traffic, timestep = env.advance(step_key, traffic, phase, params)
                rows = {**timestep.info, "reward": jnp.mean(timestep.reward)}
                return (traffic, timestep.obs), rows

            return jax.vmap(one)(state, policy, params, *carry)

        decisions = jnp.arange(decisions_per_episode(env), dtype=jnp.int32)
        (final, _), rows = jax.lax.scan(decide, (start, timestep.obs), decisions)
        arrival = final.traffic.arrival_step
        steps = (arrival - params.depart_step).astype(rows["reward"].dtype)
        departed = params.depart_step < final.traffic.step[:, None]
        return {
            "average_travel_time": rows["average_travel_time"][-1],
            "throughput": rows["finished"][-1],
            "queue": rows["mean_queue"][-1],
            "return": jnp.sum(rows["reward"], axis=0),
            "overflow": rows["overflow"][-1],
            "trip": jnp.where(arrival >= 0, steps * env.simulator.dt, -1),
            "departed": jnp.sum(departed, axis=1, dtype=jnp.int32),
        }

    def _phase(
        self, state: Any, policy: jax.Array, key: jax.Array, traffic: SignalControlState, obs: Any
    ) -> jax.Array:
        """What one of `POLICIES` shows next at the junctions, `[junctions]`."""
        junctions, green = jnp.arange(self.env.num_agents), self.env.table["green_phases"]
        detectors = self.env.detectors(traffic)

        def learned() -> jax.Array:
            return jnp.asarray(green)[junctions, self.learner.act(state, obs, key)]

        def controlled(controller: Controller) -> Callable[[], jax.Array]:
            return lambda: controller.act(key, (), detectors)[1]

        return jax.lax.switch(policy, [learned, *map(controlled, self.controllers)])


def without_experience(state: MADDPGState) -> MADDPGState:
    """What policies need of a learner's state; the replay is most of it."""
    return state.replace(replay=None, env=None, obs=None)


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


def evaluate(trials: Trials, state: Any) -> Evaluation:
    """Evaluate the greedy policies of all seeds (`state` leaves `[seeds, ...]`).

    Raises:
      CapacityError: more vehicles were on the road than there is room for.
    """
    found = trials(state, [(name, BASE_PLACE) for name in POLICIES])
    measures, times, departed = {}, {}, {}
    for n, name in enumerate(POLICIES):
        # The untouched demand is the same for all seeds, and so is what a controller makes of it.
        rows = slice(None) if name == "learned" else slice(1)
        measures[name] = {key: found[key][rows, n] for key, _, _ in MEASURES}
        trip = found["trip"][rows, n]
        times[name] = trip[trip >= 0]
        departed[name] = int(found["departed"][rows, n].sum())
    return Evaluation(measures, times, departed)


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

    # State and params are arguments: as constants they would make each run compile anew.
    @jax.jit
    def decide(state, params, traffic, obs, n):
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
        (traffic, obs), states = decide(state, params, traffic, obs, jnp.int32(n))
        if n >= first:
            states = jax.device_get(states)
            for m in range(per_decision):
                yield jax.tree.map(lambda x, m=m: x[m], states)
