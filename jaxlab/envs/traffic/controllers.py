"""Signal controllers of the literature as pure functions with one signature.

`act(key, memory, detectors) -> (memory, phase)` with `phase [junctions]` an index into
the phases of the network file, asked for every `interval` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.environment import Constant
from jaxlab.core.errors import ConfigError
from jaxlab.envs.traffic.detectors import Detectors

Memory = Any
#: Seconds between decisions in the field's benchmarks.
_INTERVAL = 10.0


class Controller(NamedTuple):
    """A signal controller.

    Attributes:
      interval: Seconds between decisions.
      clearance: Seconds of clearance at each change.
      init: `() -> memory`.
      act: `(key, memory, detectors) -> (memory, phase [junctions])`.
    """

    interval: float
    clearance: float
    init: Callable[[], Memory]
    act: Callable[[jax.Array, Memory, Detectors], tuple[Memory, jax.Array]]


def make_controller(
    name: str,
    network: Constant,
    *,
    dt: float = 1.0,
    interval: float | None = None,
    clearance: float | None = None,
    num_phases: int | None = None,
    green_time: float = 30.0,
) -> Controller:
    """Build a controller by name for a network's tables.

    Args:
      name: One of `CONTROLLERS`.
      network: Tables from `network_tables`.
      dt: Seconds per simulation step.
      interval: Seconds between decisions; by default 10, one step for `plan`, and for
        `fixed_time` a divisor of its `green_time`.
      clearance: Seconds of clearance at a change; by default 5, none for `plan`.
      num_phases: Use only the first so many green phases (the four-phase benchmarks).
      green_time: Seconds per phase of `fixed_time`, clearance included.

    Raises:
      ConfigError: for an unknown name or numbers that do not fit.
    """
    if name not in CONTROLLERS:
        raise ConfigError(f"controller '{name}' is unknown; choose from {', '.join(CONTROLLERS)}")
    clearance = (0.0 if name == "plan" else 5.0) if clearance is None else clearance
    if interval is None:
        interval = _default_interval(name, dt, green_time)
    if interval <= 0 or clearance < 0 or green_time <= 0:
        raise ConfigError(
            "interval and green_time must be positive and clearance not negative, "
            f"got {interval:g}, {green_time:g} and {clearance:g} s"
        )
    for what, seconds in (
        ("interval", interval),
        ("clearance", clearance),
        ("green_time", green_time),
    ):
        if not seconds / dt < 2**31:
            raise ConfigError(f"{what} is {seconds:g} s, too many steps of dt = {dt:g} s to count")
    table = network.value
    phases = table["green_phases"]
    if num_phases is not None:
        if not 1 <= num_phases <= phases.shape[1]:
            raise ConfigError(
                f"num_phases is {num_phases}; the network has 1 to {phases.shape[1]} green phases"
            )
        phases = phases[:, :num_phases]
    init, act = CONTROLLERS[name](table, phases, dt, interval, green_time)
    return Controller(interval, clearance, init, act)


def _default_interval(name: str, dt: float, green_time: float) -> float:
    if name == "plan":
        return dt
    if name == "fixed_time":
        return dt * max(math.gcd(round(green_time / dt), round(_INTERVAL / dt)), 1)
    return _INTERVAL


def _no_memory() -> tuple[()]:
    return ()


def _plan(table, phases, dt, interval, green_time):
    """The plan of the network file: fixed cycle through all phases, clearance phases included."""
    time = table["phase_time"]
    count = table["num_phases"]

    def init():
        first = jnp.zeros(len(count), jnp.int32)
        return first, jnp.asarray(time[:, 0], jnp.result_type(float))

    def act(key, memory, detectors):
        phase, remaining = memory
        duration = jnp.asarray(time, remaining.dtype)
        junction = jnp.arange(len(count))

        def over(carry):
            return carry[1] <= 0

        def next_phase(carry):
            phase, remaining = carry
            due = over(carry)
            phase = jnp.where(due, (phase + 1) % jnp.asarray(count), phase)
            return phase, jnp.where(due, remaining + duration[junction, phase], remaining)

        start = detectors.step == 0
        passed = jnp.where(start, 0, jnp.asarray(interval, remaining.dtype))
        memory = jax.lax.while_loop(
            lambda carry: jnp.any(over(carry)), next_phase, (phase, remaining - passed)
        )
        return memory, memory[0]

    return init, act


def _number_of_phases(phases: np.ndarray) -> jax.Array:
    return jnp.asarray((phases >= 0).sum(1).astype(np.int32))


def _fixed_time(table, phases, dt, interval, green_time):
    """Green phases in turn, `green_time` seconds each."""

    def act(key, memory, detectors):
        turn = jnp.floor(detectors.step * dt / green_time + 1e-6).astype(jnp.int32)
        turn = turn % _number_of_phases(phases)
        return memory, jnp.take_along_axis(jnp.asarray(phases), turn[:, None], 1)[:, 0]

    return _no_memory, act


def phase_pressure(
    table: Any, value: Float[Array, " links"] | Int[Array, " links"]
) -> Float[Array, "junctions phases"] | Int[Array, "junctions phases"]:
    """Sum a per-link value over the links that each phase lets go."""
    shape = table["phase_allows"].shape
    movement = jnp.zeros((shape[0], shape[2]), value.dtype)
    movement = movement.at[table["link_junction"], table["link_movement"]].add(value)
    return jnp.sum(jnp.where(table["phase_allows"], movement[:, None], 0), axis=-1)


def _highest(phases: np.ndarray, pressure: jax.Array) -> jax.Array:
    """Green phase of highest pressure, the first on ties."""
    choices = jnp.asarray(phases)
    value = jnp.take_along_axis(pressure, jnp.maximum(choices, 0), axis=1)
    lowest = jnp.iinfo(value.dtype).min
    best = jnp.argmax(jnp.where(choices >= 0, value, lowest), axis=1)
    return jnp.take_along_axis(choices, best[:, None], axis=1)[:, 0]


def _max_pressure(table, phases, dt, interval, green_time):
    """Max pressure on vehicle counts, as in LibSignal: start lane minus end lane per lane link."""

    def act(key, memory, detectors):
        count = detectors.count
        pressure = count[table["link_start"]] - count[table["link_end"]]
        return memory, _highest(phases, phase_pressure(table, pressure))

    return _no_memory, act


def _max_pressure_queue(table, phases, dt, interval, green_time):
    """Max pressure on queues: start lane minus the whole target road, right turns left out."""
    right = table["movement_rank"][table["link_junction"], table["link_movement"]] == 1
    roads = int(table["lane_road"].max()) + 1

    def act(key, memory, detectors):
        queue = detectors.waiting
        road = jnp.zeros(roads, queue.dtype).at[table["lane_road"]].add(queue)
        pressure = queue[table["link_start"]] - road[table["link_end_road"]]
        pressure = jnp.where(right, 0, pressure)
        return memory, _highest(phases, phase_pressure(table, pressure))

    return _no_memory, act


def _sotl(table, phases, dt, interval, green_time):
    """Self-organising lights (Gershenson 2005; thresholds of LibSignal).

    A junction moves on when few wait at green (at most 3) and many at red (over 6), or
    nobody at green and somebody at red, and the phase is at least 10 s old.
    """
    lanes = table["lane_road"].shape[0]
    served = np.zeros((*table["phase_allows"].shape[:2], lanes), bool)
    allowed = table["phase_allows"][table["link_junction"], :, table["link_movement"]]
    for k, lane in enumerate(table["link_start"]):
        served[table["link_junction"][k], :, lane] |= allowed[k]
    starts = np.zeros((served.shape[0], lanes), bool)
    starts[table["link_junction"], table["link_start"]] = True

    def act(key, memory, detectors):
        junction = jnp.arange(served.shape[0])
        queue = detectors.waiting
        at_green = jnp.where(jnp.asarray(served)[junction, detectors.phase], queue, 0).sum(-1)
        at_red = jnp.where(jnp.asarray(starts), queue, 0).sum(-1) - at_green
        due = ((at_green <= 3) & (at_red > 6)) | ((at_green == 0) & (at_red > 0))
        due = due & (detectors.age * dt >= 10)
        choices = jnp.asarray(phases)
        position = jnp.argmax(choices == detectors.phase[:, None], axis=1)
        following = (position + 1) % _number_of_phases(phases)
        chosen = jnp.take_along_axis(choices, following[:, None], axis=1)[:, 0]
        return memory, jnp.where(due, chosen, detectors.phase)

    return _no_memory, act


def _random(table, phases, dt, interval, green_time):
    """A green phase drawn uniformly at every decision."""

    def act(key, memory, detectors):
        number = _number_of_phases(phases)
        turn = jax.random.randint(key, number.shape, 0, number, jnp.int32)
        return memory, jnp.take_along_axis(jnp.asarray(phases), turn[:, None], 1)[:, 0]

    return _no_memory, act


CONTROLLERS: dict[str, Callable[..., tuple[Callable, Callable]]] = {
    "plan": _plan,
    "fixed_time": _fixed_time,
    "max_pressure": _max_pressure,
    "max_pressure_queue": _max_pressure_queue,
    "sotl": _sotl,
    "random": _random,
}
