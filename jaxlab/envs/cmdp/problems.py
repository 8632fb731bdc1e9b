"""Four small problems whose exact answers are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxlab.core.errors import ConfigError, ScenarioError
from jaxlab.envs.cmdp.model import CMDP, cmdp


def hashed() -> CMDP:
    """P1: 5 states, 3 actions, a signal to be kept high; made of remainders, mixes in a step."""
    s, a, t = np.ogrid[:5, :3, :5]
    weights = (7 * s + 11 * a + 13 * t + 3 * s * t + 5 * a * t) % 17 + 1.0
    s, a = np.ogrid[:5, :3]
    reward = ((5 * s + 3 * a + 2 * s * a + 2) % 11) / 10
    signal = ((4 * s + 7 * a + 3 * s * a + 1) % 13) / 12
    transitions = weights / weights.sum(-1, keepdims=True)
    return cmdp(transitions, reward, [signal], [">="], [0.55])


def riverswim(length: int = 6, *, restart: float = 0.1, effort: float = 0.3) -> CMDP:
    """P2: swim against the current, with a bounded fraction of strokes to the right.

    After Strehl and Littman, "An analysis of model-based interval estimation", 2008. Action 0
    drifts left for certain; action 1 swims right. Without restarts the chain mixes slowly.

    Args:
      length: States.
      restart: Probability that the next state is uniform.
      effort: Bound on the fraction of action 1.

    Raises:
      ScenarioError: The river is too short, or the probability is none.
    """
    if length < 2:
        raise ScenarioError(f"riverswim of length {length}: expected at least 2 states")
    if not 0 <= restart <= 1:
        raise ScenarioError(f"restart {restart}: expected a probability")
    transitions = np.zeros((length, 2, length))
    inner = np.arange(1, length - 1)
    transitions[0, 0, 0] = 1.0
    transitions[np.arange(1, length), 0, np.arange(length - 1)] = 1.0
    transitions[0, 1, :2] = 0.4, 0.6
    for shift, probability in ((-1, 0.05), (0, 0.6), (1, 0.35)):
        transitions[inner, 1, inner + shift] = probability
    transitions[-1, 1, -2:] = 0.4, 0.6
    transitions = (1 - restart) * transitions + restart / length
    reward = np.zeros((length, 2))
    reward[0, 0], reward[-1, 1] = 0.005, 1.0
    signal = np.broadcast_to([0.0, 1.0], (length, 2))
    return cmdp(transitions, reward, [signal], ["<="], [effort])


SERVICE = (0.2, 0.4, 0.6, 0.8)
ADMISSION = (0.0, 0.3, 0.6, 0.9)


def queue(room: int = 5, *, service: float = 0.5, admission: float = 0.3) -> CMDP:
    """P3: a queue with control of service and admission; its mean length is to be small.

    Action `4 i + j` serves with probability `SERVICE[i]` and admits with `ADMISSION[j]` in a
    slot; an empty queue serves nobody, a full one admits nobody.

    Args:
      room: Places in the queue.
      service: Bound on the mean chosen service level, counted in every state.
      admission: Least mean admission level, counted as 0 when the queue is full.

    Raises:
      ScenarioError: There is no room.
    """
    if room < 1:
        raise ScenarioError(f"queue with {room} places: expected at least 1")
    length = np.arange(room + 1)[:, None]
    chosen = np.broadcast_to(np.repeat(SERVICE, 4), (room + 1, 16))
    admitted = np.where(length < room, np.tile(ADMISSION, 4), 0.0)
    served = np.where(length > 0, chosen, 0.0)
    up, down = admitted * (1 - served), (1 - admitted) * served
    transitions = np.zeros((room + 1, 16, room + 1))
    for n in range(room + 1):
        transitions[n, :, min(n + 1, room)] += up[n]
        transitions[n, :, max(n - 1, 0)] += down[n]
        transitions[n, :, n] += 1 - up[n] - down[n]
    objective = np.broadcast_to(length.astype(float), (room + 1, 16))
    signals = np.stack([chosen, admitted])
    bounds = [service, admission]
    return cmdp(transitions, objective, signals, ["<=", ">="], bounds, minimise=True)


DEMAND = (0.1, 0.25, 0.3, 0.2, 0.15)


def inventory(room: int = 6, *, lost: float = 0.1) -> CMDP:
    """P4: an inventory that loses the sales it cannot serve.

    An order of `min(action, room - stock)` arrives at once and costs 2 and 2 a unit; a unit
    sells for 4; what is left costs 0.5 a unit. The signal is the expected number of lost sales.

    Args:
      room: Units that can be stored.
      lost: Bound on mean lost sales.

    Raises:
      ScenarioError: There is no room.
    """
    if room < 1:
        raise ScenarioError(f"inventory with room for {room}: expected at least 1")
    stock, action = np.ogrid[: room + 1, : room + 1]
    order = np.minimum(action, room - stock)
    full = stock + order
    reward = -2.0 * (order > 0) - 2.0 * order
    signal = np.zeros(full.shape)
    transitions = np.zeros((*full.shape, room + 1))
    for demand, probability in enumerate(DEMAND):
        left = np.maximum(full - demand, 0)
        reward = reward + probability * (4.0 * (full - left) - 0.5 * left)
        signal += probability * np.maximum(demand - full, 0)
        np.add.at(transitions, (stock, action, left), probability)
    return cmdp(transitions, reward, [signal], ["<="], [lost])


PROBLEMS: dict[str, Callable[[], CMDP]] = {
    "P1": hashed,
    "P2": riverswim,
    "P3": queue,
    "P4": inventory,
}


def problem(name: str) -> CMDP:
    """One of the problems by name, with its default bounds.

    Raises:
      ConfigError: There is no such problem.
    """
    if name not in PROBLEMS:
        raise ConfigError(f"problem {name!r}: expected one of {', '.join(PROBLEMS)}")
    return PROBLEMS[name]()
