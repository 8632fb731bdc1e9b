"""Traffic signals: phases, clearance between them, minimum green, the plan of a file.

A junction shows one of its phases. When another is asked for, it first shows its
clearance phase (only movements that are free in every phase) for `clearance` seconds;
the age of the new phase counts from the start of that clearance, and requests during it
are ignored, as in LibSignal.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.envs.traffic.roadnet import RIGHT, RoadNet


@struct.dataclass
class SignalState:
    """Signals of all junctions, `[junctions]` each, int32.

    Attributes:
      phase: Phase shown, or shown next once the clearance is over.
      clearing: Steps of clearance left.
      age: Steps since this phase was asked for.
    """

    phase: jax.Array
    clearing: jax.Array
    age: jax.Array


def green_phases(net: RoadNet) -> tuple[np.ndarray, np.ndarray]:
    """The phases worth choosing and the clearance phase of each junction.

    A phase that serves nothing but right turns is a clearance phase. A junction without
    one gets an extra phase, appended by `with_clearance`, of what is free in all phases.

    Returns:
      Phase indices padded with -1, `[junctions, actions]`, and `[junctions]`.
    """
    serves = (
        net.phase_allows & (net.movement_rank != RIGHT)[:, None] & (net.movement_rank > 0)[:, None]
    )
    exists = np.arange(serves.shape[1]) < net.num_phases[:, None]
    green = exists & serves.any(-1)
    none = ~green.any(-1)
    green[none, 0] = True  # a junction with right turns only keeps its first phase
    idle = exists & ~green
    clearance = np.where(idle.any(-1), idle.argmax(-1), serves.shape[1])
    choices = [np.flatnonzero(row) for row in green]
    table = np.full((len(choices), max(len(c) for c in choices)), -1)
    for row, choice in zip(table, choices, strict=True):
        row[: len(choice)] = choice
    return table.astype(np.int32), clearance.astype(np.int32)


def with_clearance(net: RoadNet) -> np.ndarray:
    """`phase_allows` with one more phase per junction: what is free in all its phases."""
    exists = np.arange(net.phase_allows.shape[1]) < net.num_phases[:, None]
    always = (net.phase_allows | ~exists[:, :, None]).all(1, keepdims=True)
    always &= (net.movement_rank == RIGHT)[:, None]
    return np.concatenate([net.phase_allows, always], axis=1)


def reset_signals(first: jax.Array) -> SignalState:
    """Every junction in phase `first [junctions]` with age 0 and no clearance."""
    zeros = jnp.zeros(first.shape, jnp.int32)
    return SignalState(phase=first.astype(jnp.int32), clearing=zeros, age=zeros)


def request(
    signals: SignalState, phase: jax.Array, clearance: jax.Array, min_green: jax.Array
) -> SignalState:
    """Ask for `phase [junctions]`; `clearance` and `min_green` in steps, `[]`."""
    accepts = (phase != signals.phase) & (signals.clearing <= 0) & (signals.age >= min_green)
    return SignalState(
        phase=jnp.where(accepts, phase, signals.phase),
        clearing=jnp.where(accepts, clearance, signals.clearing).astype(jnp.int32),
        age=jnp.where(accepts, 0, signals.age),
    )


def shown(signals: SignalState, clearance_phase: jax.Array) -> jax.Array:
    """Phase in force now, `[junctions]`."""
    return jnp.where(signals.clearing > 0, clearance_phase, signals.phase)


def tick(signals: SignalState) -> SignalState:
    """Let one step pass."""
    return signals.replace(clearing=jnp.maximum(signals.clearing - 1, 0), age=signals.age + 1)


def plan_phases(net: RoadNet, steps: int, dt: float = 1.0) -> np.ndarray:
    """Phases of the plan in the network file, `[steps, junctions]`, int32.

    Every junction starts in phase 0; remaining times count down in floating point.
    """
    junctions = np.arange(net.num_junctions)
    phase = np.zeros(net.num_junctions, np.int32)
    remaining = net.phase_time[junctions, phase].copy()
    plan = np.empty((steps, net.num_junctions), np.int32)
    for n in range(steps):
        plan[n] = phase
        remaining -= dt
        while (over := remaining <= 0).any():
            phase[over] = (phase[over] + 1) % net.num_phases[over]
            remaining[over] += net.phase_time[junctions, phase][over]
    return plan
