"""Families of processes: random ones with a Slater margin, networks of queues."""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import ScenarioError
from jaxlab.envs.cmdp.environment import Finite, Params, params_of
from jaxlab.envs.cmdp.evaluation import evaluate
from jaxlab.envs.cmdp.model import CMDP, cmdp


@dataclasses.dataclass(frozen=True)
class GarnetCMDP(Finite):
    """Random sparse processes (after Archibald, McKinnon and Thomas, 1995), one per key.

    Every state and action leads to `branching` random states; a share `restart` of the
    probability is spread over all states, so every chain is ergodic. Rewards and signals are
    uniform in [0, 1]. Signals are to be at least their bounds, which a random policy exceeds
    by `margin`: that is a certain lower limit of the Slater margin.

    Attributes:
      states, actions: Sizes.
      branching: Successors of a state and action.
      signals: Cost signals.
      margin: Slack of a policy in all bounds.
      restart: Probability of a uniformly random next state.
    """

    name: ClassVar[str] = "garnet_cmdp"

    states: int = 10
    actions: int = 3
    branching: int = 3
    signals: int = 1
    margin: float = 0.1
    restart: float = 0.05

    def __post_init__(self) -> None:
        for field in ("states", "actions", "branching"):
            if getattr(self, field) < 1:
                raise ScenarioError(f"{field} is {getattr(self, field)}, expected at least 1")
        if self.branching > self.states or self.signals < 0:
            raise ScenarioError(
                f"branching {self.branching} and {self.signals} signals: expected at most "
                f"{self.states} successors and no negative number of signals"
            )
        if self.margin <= 0 or not 0 < self.restart <= 1:
            raise ScenarioError(
                f"margin {self.margin} and restart {self.restart}: expected a positive margin and "
                "a positive probability"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.states, self.actions

    @property
    def num_costs(self) -> int:
        return self.signals

    def sample_params(self, key: jax.Array) -> Params:
        """Draw a process."""
        return params_of(self.draw(key))

    def draw(self, key: jax.Array) -> CMDP:
        """Draw a process, as JAX arrays; traceable."""
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        keys = jax.random.split(key, 5)
        states, actions = self.shape
        ranks = jax.random.uniform(keys[0], (states, actions, states), dtype)
        least = jax.lax.top_k(ranks, self.branching)[0][..., -1:]
        weights = jax.random.exponential(keys[1], ranks.shape, dtype) * (ranks >= least)
        table = weights / jnp.sum(weights, -1, keepdims=True)
        table = (1 - self.restart) * table + self.restart / states
        shape = (self.signals, states, actions)
        problem = CMDP(
            transitions=table,
            reward=jax.random.uniform(keys[2], shape[1:], dtype),
            costs=jax.random.uniform(keys[3], shape, dtype),
            senses=jnp.ones(self.signals, dtype),
            bounds=jnp.zeros(self.signals, dtype),
        )
        policy = jax.random.exponential(keys[4], shape[1:], dtype)
        gains = evaluate(problem, policy / jnp.sum(policy, 1, keepdims=True)).gains
        return dataclasses.replace(problem, bounds=gains[1:] - self.margin)


def queueing_network(
    rooms: tuple[int, ...] = (4, 4),
    *,
    arrival: float = 0.35,
    rates: tuple[float, float] = (0.25, 0.5),
    power: float = 0.6,
    rejected: float = 0.1,
) -> CMDP:
    """Queues in a row: who is served at one joins the next; control of admission and speeds.

    Time is slotted by uniformisation: a slot has one event, an arrival with probability
    proportional to `arrival` or the end of a service at one of the queues. Binary digits of an
    action, from the lowest: admit arrivals; then for each queue, serve fast. A queue that is
    full blocks the one before. The mean number of customers is minimised, subject to the
    mean number of fast servers and to the probability that a slot brings a customer who is
    sent away.

    Args:
      rooms: Places in each queue.
      arrival: Rate of arrivals.
      rates: Rates of slow and fast service.
      power: Bound on the mean number of fast servers.
      rejected: Bound on the fraction of slots in which a customer is sent away.

    Raises:
      ScenarioError: A queue has no room, or rates are not positive and ascending.
    """
    if not rooms or min(rooms) < 1:
        raise ScenarioError(f"rooms {rooms}: expected at least one place in every queue")
    if not 0 < rates[0] <= rates[1] or arrival <= 0:
        raise ScenarioError(
            f"rates {rates} and arrival {arrival}: expected positive rates, the slow one first"
        )
    queues = len(rooms)
    lengths = list(itertools.product(*(range(room + 1) for room in rooms)))
    index = {state: number for number, state in enumerate(lengths)}
    actions = 2 ** (queues + 1)
    total = arrival + queues * rates[1]
    transitions = np.zeros((len(lengths), actions, len(lengths)))
    signals = np.zeros((2, len(lengths), actions))
    for (number, state), action in itertools.product(enumerate(lengths), range(actions)):
        row = transitions[number, action]
        entered = (state[0] + 1, *state[1:])
        admitted = action % 2 and entered in index
        row[index[entered] if admitted else number] += arrival / total
        signals[1, number, action] = 0.0 if admitted else arrival / total
        for queue in range(queues):
            fast = action >> (queue + 1) & 1
            signals[0, number, action] += fast
            rate = rates[fast] / total
            moved = list(state)
            moved[queue] -= 1
            if queue + 1 < queues:
                moved[queue + 1] += 1
            row[index.get(tuple(moved), number)] += rate
        row[number] += 1 - row.sum()
    customers = np.array([sum(state) for state in lengths], float)
    objective = np.broadcast_to(customers[:, None], (len(lengths), actions))
    bounds = [power, rejected]
    return cmdp(transitions, objective, signals, ["<=", "<="], bounds, minimise=True)
