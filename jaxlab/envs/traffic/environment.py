"""Traffic signal control as an environment with one agent per junction."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.core.environment import Constant, Env, TimeStep
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Tree
from jaxlab.envs.traffic import signals as lights
from jaxlab.envs.traffic.detectors import (
    Detectors,
    lane_counts,
    lane_delay,
    lane_waiting,
    totals,
)
from jaxlab.envs.traffic.params import Incidents, TrafficParams
from jaxlab.envs.traffic.roadnet import RoadNet
from jaxlab.envs.traffic.scenario import sample_scenario, scenario_params
from jaxlab.envs.traffic.simulation import Simulator, TrafficState
from jaxlab.envs.traffic.vehicles import Drivers

Reward = Literal["waiting", "pressure", "queue", "delay", "travel_time"]
REWARDS = ("waiting", "pressure", "queue", "delay", "travel_time")
#: Parts of the observation; `action_mask` is always there.
OBSERVATIONS = ("lane_count", "lane_waiting", "phase", "phase_age", "neighbour_phase")


@struct.dataclass
class SignalControlState:
    """State of the environment.

    Attributes:
      traffic: Vehicles on the network.
      signals: Phases shown and their ages.
      queue_sum: Sum over decisions of the mean queue per junction (vehicles), `[]`.
      decisions: Decisions taken, `[]`, int32.
    """

    traffic: TrafficState
    signals: lights.SignalState
    queue_sum: jax.Array
    decisions: jax.Array


@dataclasses.dataclass(frozen=True)
class TrafficSignalControl(Env[SignalControlState, TrafficParams]):
    """Junctions of a road network share green time (CityFlow's model and formats).

    An agent is a junction and an action one of its green phases, held for
    `decision_interval` seconds. A change costs `params.clearance` seconds without right
    of way; phases younger than `params.min_green` are kept. Episodes have no end of
    their own: wrap in `TimeLimit`.

    Observations, float, one row per junction: `lane_count` and `lane_waiting` (vehicles
    on each approach lane, padded with 0), `phase` (one-hot over actions), `phase_age`
    (s), `neighbour_phase` (one-hot of the phases of the junctions upstream, padded with
    0), `action_mask`.

    Rewards `[junctions]`, all to be maximised: `waiting` minus the vehicles standing on
    the approach lanes, per lane and averaged over the interval; `queue` minus their
    number at the decision; `pressure` minus |vehicles on approach lanes - vehicles on
    exit lanes|; `delay` minus the mean of 1 - speed / limit over approach lanes;
    `travel_time` minus the seconds spent by all vehicles in the interval, per junction.

    Attributes:
      simulator: The microscopic simulation.
      demand: Nominal demand as arrays (see `TrafficParams`), used by `nominal_params`.
      net: The road network, for pictures, names and scenarios.
      decision_interval: Seconds between decisions, a multiple of dt.
      reward: One of `REWARDS`.
      observe: Which of `OBSERVATIONS` to include.
      duration: Seconds of demand.
      max_demand: Largest demand of a scenario, relative to the nominal one.
    """

    name: ClassVar[str] = "traffic_signal_control"

    simulator: Simulator
    demand: Constant
    net: RoadNet
    decision_interval: float = 10.0
    reward: Reward = "waiting"
    observe: tuple[str, ...] = OBSERVATIONS
    clearance: float = 5.0
    min_green: float = 0.0
    duration: float = 3600.0
    max_demand: float = 1.0

    def __post_init__(self) -> None:
        steps = self.decision_interval / self.simulator.dt
        if round(steps) < 1 or abs(steps - round(steps)) > 1e-6:
            raise ConfigError(
                f"decision_interval {self.decision_interval:g} s is not a multiple of "
                f"dt = {self.simulator.dt:g} s"
            )
        if self.reward not in REWARDS:
            raise ConfigError(f"reward '{self.reward}' is none of {', '.join(REWARDS)}")
        if unknown := set(self.observe) - set(OBSERVATIONS):
            raise ConfigError(
                f"observe names {', '.join(sorted(unknown))}; known: {', '.join(OBSERVATIONS)}"
            )
        if self.clearance < 0 or self.min_green < 0:
            raise ConfigError("clearance and min_green must not be negative")
        longest = max(self.decision_interval, self.clearance, self.min_green)
        if not longest / self.simulator.dt < 2**31:
            raise ConfigError(
                "decision_interval, clearance and min_green must be fewer than 2^31 steps of "
                f"dt = {self.simulator.dt:g} s, found {longest:g} s"
            )
        if not self.duration > 0 or not 0 < self.max_demand < float("inf"):
            raise ConfigError(
                f"duration ({self.duration:g} s) and max_demand ({self.max_demand:g}) must be "
                "positive and finite"
            )

    @property
    def table(self) -> dict[str, np.ndarray]:
        """Tables of the network."""
        return self.simulator.network.value

    @property
    def num_agents(self) -> int:
        return len(self.table["num_phases"])

    @property
    def num_actions(self) -> int:
        """Green phases of the junction that has most."""
        return self.table["green_phases"].shape[1]

    @property
    def interval_steps(self) -> int:
        """Simulation steps per decision."""
        return round(self.decision_interval / self.simulator.dt)

    @property
    def neighbours(self) -> np.ndarray:
        """Junctions upstream of each junction, padded with -1, `[junctions, slots]`."""
        return self.table["neighbours"]

    def nominal_params(self) -> TrafficParams:
        """The demand of the files, without incidents and with perfect sensors."""
        demand = self.demand.value
        real = jnp.result_type(float)
        drivers = Drivers(**{k: jnp.asarray(v, real) for k, v in demand["drivers"].items()})
        none = jnp.zeros(0, real)
        number = lambda value: jnp.asarray(value, real)  # noqa: E731
        return TrafficParams(
            depart_step=jnp.asarray(demand["depart_step"]),
            path=jnp.asarray(demand["path"]),
            driver=jnp.asarray(demand["driver"]),
            priority=jnp.asarray(demand["priority"]),
            entry_offset=jnp.asarray(demand["entry_offset"]),
            drivers=drivers,
            incidents=Incidents(jnp.zeros(0, jnp.int32), none, none, none),
            clearance=number(self.clearance),
            min_green=number(self.min_green),
            sensor_noise=number(0.0),
            sensor_dropout=number(0.0),
            overfull=jnp.array(False),
        )

    def sample_params(self, key: jax.Array) -> TrafficParams:
        """Params of a mild variation of the nominal demand, see `scenario.sample_scenario`."""
        scenario_key, vehicle_key = jax.random.split(key)
        return scenario_params(self, sample_scenario(self, scenario_key), vehicle_key)

    def reset(self, key: jax.Array, params: TrafficParams) -> tuple[SignalControlState, TimeStep]:
        state = SignalControlState(
            traffic=self.simulator.reset(params),
            signals=lights.reset_signals(jnp.asarray(self.table["green_phases"][:, 0])),
            queue_sum=jnp.zeros((), params.drivers.length.dtype),
            decisions=jnp.int32(0),
        )
        waiting = jnp.zeros(self.simulator.num_lanes, params.drivers.length.dtype)
        reward = jnp.zeros(self.num_agents, waiting.dtype)
        return state, self._timestep(key, state, params, reward)

    def step(
        self, key: jax.Array, state: SignalControlState, action: jax.Array, params: TrafficParams
    ) -> tuple[SignalControlState, TimeStep]:
        phase = jnp.asarray(self.table["green_phases"])[jnp.arange(self.num_agents), action]
        # A padded action keeps the phase.
        phase = jnp.where(phase >= 0, phase, state.signals.phase)
        return self.advance(key, state, phase, params)

    def advance(
        self, key: jax.Array, state: SignalControlState, phase: jax.Array, params: TrafficParams
    ) -> tuple[SignalControlState, TimeStep]:
        """As `step`, with `phase [junctions]` an index into the phases of the network file."""
        before, signals = state.traffic, self._requested(state, phase, params)
        clearance_phase = jnp.asarray(self.table["clearance_phase"])

        def interval(simulator: Simulator, traffic: TrafficState) -> tuple[TrafficState, Any]:
            def second(carry, _):
                traffic, signals, waiting = carry
                phase = lights.shown(signals, clearance_phase)
                traffic = simulator.step(traffic, phase, params)
                waiting = waiting + lane_waiting(traffic, simulator.num_lanes)
                return (traffic, lights.tick(signals), waiting), None

            waiting = jnp.zeros(simulator.num_lanes, jnp.int32)
            (traffic, *rest), _ = jax.lax.scan(
                second, (traffic, signals, waiting), length=self.interval_steps
            )
            return traffic, rest

        traffic, (signals, waiting) = self.simulator.within(
            before, params, self.interval_steps, interval
        )
        queue = jnp.mean(self._per_junction(lane_waiting(traffic, self.simulator.num_lanes)))
        state = SignalControlState(
            traffic=traffic,
            signals=signals,
            queue_sum=state.queue_sum + queue,
            decisions=state.decisions + 1,
        )
        reward = self._reward(before, traffic, waiting, params)
        return state, self._timestep(key, state, params, reward)

    def _requested(
        self, state: SignalControlState, phase: jax.Array, params: TrafficParams
    ) -> lights.SignalState:
        dt = self.simulator.dt
        in_steps = lambda seconds: jnp.round(seconds / dt).astype(jnp.int32)  # noqa: E731
        return lights.request(
            state.signals, phase, in_steps(params.clearance), in_steps(params.min_green)
        )

    def phase_shown(
        self, state: SignalControlState, phase: jax.Array, params: TrafficParams
    ) -> jax.Array:
        """Phase in force in the step after `phase [junctions]` was asked for, `[junctions]`."""
        clearance_phase = jnp.asarray(self.table["clearance_phase"])
        return lights.shown(self._requested(state, phase, params), clearance_phase)

    def _per_junction(self, lanes: jax.Array) -> jax.Array:
        """Sum of a lane quantity over the approach lanes of each junction, `[junctions]`."""
        approach = jnp.asarray(self.table["approach"])
        real = self.table_dtype(lanes)
        return jnp.sum(jnp.where(approach >= 0, lanes[approach], 0), axis=1).astype(real)

    @staticmethod
    def table_dtype(values: jax.Array) -> Any:
        """Floating dtype for statistics of `values`."""
        return (
            values.dtype if jnp.issubdtype(values.dtype, jnp.floating) else jnp.result_type(float)
        )

    def _reward(
        self,
        before: TrafficState,
        after: TrafficState,
        waiting: jax.Array,
        params: TrafficParams,
    ) -> jax.Array:
        lanes, steps = self.simulator.num_lanes, self.interval_steps
        real = after.speed.dtype
        approach = jnp.asarray((self.table["approach"] >= 0).sum(1), real)
        if self.reward == "waiting":
            return -self._per_junction(waiting).astype(real) / (approach * steps)
        if self.reward == "queue":
            return -self._per_junction(lane_waiting(after, lanes)).astype(real)
        if self.reward == "delay":
            return -self._per_junction(lane_delay(after, self.table, lanes)) / approach
        if self.reward == "pressure":
            count = lane_counts(after, lanes)
            leaving = jnp.asarray(self.table["exit"])
            out = jnp.sum(jnp.where(leaving >= 0, count[leaving], 0), axis=1).astype(real)
            return -jnp.abs(self._per_junction(count).astype(real) - out)
        spent = self._seconds_spent(after, params) - self._seconds_spent(before, params)
        return jnp.full(self.num_agents, -spent / self.num_agents, real)

    def _seconds_spent(self, traffic: TrafficState, params: TrafficParams) -> jax.Array:
        """Seconds spent so far by all vehicles that departed, queues at the border included."""
        total = totals(traffic, params, self.simulator.dt)
        number = total.finished + total.running + total.waiting_to_enter
        return total.average_travel_time * number.astype(traffic.speed.dtype)

    def detectors(self, state: SignalControlState) -> Detectors:
        """Noise-free measurements for controllers."""
        lanes = self.simulator.num_lanes
        return Detectors(
            count=lane_counts(state.traffic, lanes),
            waiting=lane_waiting(state.traffic, lanes),
            phase=state.signals.phase,
            age=state.signals.age,
            clearing=state.signals.clearing,
            step=state.traffic.step,
        )

    def _timestep(
        self,
        key: jax.Array,
        state: SignalControlState,
        params: TrafficParams,
        reward: jax.Array,
    ) -> TimeStep:
        measured = self.detectors(state)
        total = totals(state.traffic, params, self.simulator.dt)
        real = reward.dtype
        waiting = self._per_junction(measured.waiting).astype(real)
        lanes = self.simulator.num_lanes
        delay = self._per_junction(lane_delay(state.traffic, self.table, lanes))
        approaches = jnp.asarray((self.table["approach"] >= 0).sum(), real)
        info = {
            "average_travel_time": total.average_travel_time,
            "finished": total.finished,
            "running": total.running,
            "waiting_to_enter": total.waiting_to_enter,
            "mean_queue": state.queue_sum / jnp.maximum(state.decisions, 1).astype(real),
            "delay": jnp.sum(delay) / approaches,
            "waiting": waiting,
            "overflow": state.traffic.overflow | params.overfull,
        }
        return TimeStep(
            obs=self._observation(key, measured, params),
            reward=reward,
            cost=jnp.zeros((0,), real),
            terminated=jnp.zeros(self.num_agents, bool),
            truncated=jnp.array(False),
            info=info,
        )

    def _observation(
        self, key: jax.Array, measured: Detectors, params: TrafficParams
    ) -> dict[str, jax.Array]:
        real = params.drivers.length.dtype
        approach = jnp.asarray(self.table["approach"])
        choices = jnp.asarray(self.table["green_phases"])
        noise_key, dropout_key = jax.random.split(key)
        noise = 1 + params.sensor_noise * jax.random.normal(noise_key, approach.shape, real)
        works = jax.random.uniform(dropout_key, approach.shape, real) >= params.sensor_dropout
        seen = (approach >= 0) & works
        phase = (choices == measured.phase[:, None]) & (choices >= 0)

        def sensed(lanes: jax.Array) -> jax.Array:
            return jnp.where(seen, jnp.maximum(lanes[approach] * noise, 0), 0).astype(real)

        parts = {"action_mask": choices >= 0}
        if "lane_count" in self.observe:
            parts["lane_count"] = sensed(measured.count)
        if "lane_waiting" in self.observe:
            parts["lane_waiting"] = sensed(measured.waiting)
        if "phase" in self.observe:
            parts["phase"] = phase.astype(real)
        if "phase_age" in self.observe:
            parts["phase_age"] = measured.age[:, None].astype(real) * jnp.asarray(
                self.simulator.dt, real
            )
        if "neighbour_phase" in self.observe:
            upstream = jnp.asarray(self.table["neighbours"])
            shown = jnp.where((upstream >= 0)[:, :, None], phase[upstream], False)
            parts["neighbour_phase"] = shown.reshape(self.num_agents, -1).astype(real)
        return parts

    def render(self, state: SignalControlState, params: TrafficParams) -> np.ndarray:
        """Picture of roads, signals and vehicles, uint8 `[H, W, 3]`."""
        # Drawing needs PIL, which simulations do without.
        from jaxlab.envs.traffic.frames import frame_of_state
        from jaxlab.envs.traffic.rendering import Renderer

        clearance_phase = jnp.asarray(self.table["clearance_phase"])
        frame = frame_of_state(
            self.net,
            state.traffic,
            np.asarray(lights.shown(state.signals, clearance_phase)),
            dt=self.simulator.dt,
            vehicle_length=np.asarray(params.drivers.length),
        )
        return Renderer(self.net).draw(frame)

    def observation_space(self, params: TrafficParams) -> Tree:
        agents, actions = self.num_agents, self.num_actions
        dtype = str(params.drivers.length.dtype)
        lanes, slots = self.table["approach"].shape[1], self.table["neighbours"].shape[1]
        many = float("inf")
        spaces = {
            "lane_count": Box(0, many, (agents, lanes), dtype),
            "lane_waiting": Box(0, many, (agents, lanes), dtype),
            "phase": Box(0, 1, (agents, actions), dtype),
            "phase_age": Box(0, many, (agents, 1), dtype),
            "neighbour_phase": Box(0, 1, (agents, slots * actions), dtype),
        }
        kept = {name: space for name, space in spaces.items() if name in self.observe}
        return Tree(kept | {"action_mask": Box(0, 1, (agents, actions), "bool")})

    def action_space(self, params: TrafficParams) -> Discrete:
        return Discrete(self.num_actions, (self.num_agents,))
