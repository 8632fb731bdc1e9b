"""Tiny environments with exactly known answers, on which learners are tested in seconds.

Each isolates one ability: fitting a value, conditioning it on the observation,
discounting it, exploration of actions, legality masks, costs, agents that must
coordinate. The known answer is stated in the docstring or computed by a method.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.spaces import Box, Discrete, Space, Tree


def _timestep(obs: Any, reward: Array, terminated: Array, cost: Array | None = None) -> TimeStep:
    return TimeStep(
        obs=obs,
        reward=reward,
        cost=jnp.zeros((0,), jnp.float32) if cost is None else cost,
        terminated=terminated,
        truncated=jnp.zeros((), bool),
        info={},
    )


@struct.dataclass
class NoParams:
    """Params of an environment that has a single task."""


@struct.dataclass
class ProbeState:
    """Observation shown and whether the episode is over."""

    obs: Any
    done: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class OneStep(Env[ProbeState, Any]):
    """An episode of a single step; subclasses say what is seen and what is paid."""

    #: Number of actions.
    actions: ClassVar[int] = 2

    def observe(self, key: Array, params: Any) -> Any:
        """First (and last) observation."""
        return jnp.zeros((1,), jnp.float32)

    def pay(self, obs: Any, action: Array, params: Any) -> Float[Array, "*agents"]:
        """Reward of the one step."""
        raise NotImplementedError

    def charge(self, action: Array, params: Any) -> Float[Array, " m"]:
        """Costs of the one step."""
        return jnp.zeros((self.num_costs,), jnp.float32)

    def sample_params(self, key: Array) -> Any:
        return NoParams()

    def reset(self, key: Array, params: Any) -> tuple[ProbeState, TimeStep]:
        obs = self.observe(key, params)
        shape = () if self.num_agents is None else (self.num_agents,)
        reward, cost = jnp.zeros(shape, jnp.float32), jnp.zeros((self.num_costs,), jnp.float32)
        state = ProbeState(obs=obs, done=jnp.zeros((), bool))
        return state, _timestep(obs, reward, jnp.zeros(shape, bool), cost)

    def step(
        self, key: Array, state: ProbeState, action: Array, params: Any
    ) -> tuple[ProbeState, TimeStep]:
        reward = jnp.where(state.done, 0, self.pay(state.obs, action, params))
        cost = jnp.where(state.done, 0, self.charge(action, params))
        over = jnp.ones_like(reward, bool)
        state = ProbeState(obs=state.obs, done=jnp.ones((), bool))
        return state, _timestep(state.obs, reward, over, cost)

    def observation_space(self, params: Any) -> Space:
        return Box(0.0, 0.0, (1,))

    def action_space(self, params: Any) -> Space:
        return Discrete(self.actions)


@dataclasses.dataclass(frozen=True)
class ConstantReward(OneStep):
    """Pays 1 whatever is done. Value: 1."""

    name: ClassVar[str] = "constant_reward"

    def pay(self, obs: Array, action: Array, params: Any) -> Array:
        return jnp.ones((), jnp.float32)


@dataclasses.dataclass(frozen=True)
class ObservationReward(OneStep):
    """Shows -1 or 1 at random and pays what it shows. Value: the observation."""

    name: ClassVar[str] = "observation_reward"

    def observe(self, key: Array, params: Any) -> Array:
        return jax.random.rademacher(key, (1,), jnp.float32)

    def pay(self, obs: Array, action: Array, params: Any) -> Array:
        return obs[0]

    def observation_space(self, params: Any) -> Space:
        return Box(-1.0, 1.0, (1,))


@dataclasses.dataclass(frozen=True)
class MatchObservation(OneStep):
    """Pays 1 for the action that the observation names, else -1. Optimal return: 1."""

    name: ClassVar[str] = "match_observation"

    def observe(self, key: Array, params: Any) -> Array:
        return jax.random.rademacher(key, (1,), jnp.float32)

    def pay(self, obs: Array, action: Array, params: Any) -> Array:
        return jnp.where((action == 1) == (obs[0] > 0), 1.0, -1.0).astype(jnp.float32)

    def observation_space(self, params: Any) -> Space:
        return Box(-1.0, 1.0, (1,))


@struct.dataclass
class BanditParams:
    """Payoff of each arm."""

    payoff: Float[Array, " arms"]


@dataclasses.dataclass(frozen=True)
class Bandit(OneStep):
    """Three arms whose payoffs are the task. Optimal return: `max(params.payoff)`."""

    name: ClassVar[str] = "bandit"
    actions: ClassVar[int] = 3

    def sample_params(self, key: Array) -> BanditParams:
        return BanditParams(payoff=jax.random.normal(key, (self.actions,), jnp.float32))

    def pay(self, obs: Any, action: Array, params: BanditParams) -> Array:
        return params.payoff[action]


@dataclasses.dataclass(frozen=True)
class MaskedBandit(Bandit):
    """A bandit of which a random arm is illegal in each episode.

    An illegal action pays -10. The payoff of an arm is its index, so the optimal return
    is the largest index that is legal: 5/3 on average.
    """

    name: ClassVar[str] = "masked_bandit"

    def sample_params(self, key: Array) -> BanditParams:
        return BanditParams(payoff=jnp.arange(self.actions, dtype=jnp.float32))

    def observe(self, key: Array, params: BanditParams) -> dict[str, Array]:
        illegal = jax.random.randint(key, (), 0, self.actions, jnp.int32)
        mask = jnp.arange(self.actions) != illegal
        return {"action_mask": mask, "bias": jnp.ones((1,), jnp.float32)}

    def pay(self, obs: Any, action: Array, params: BanditParams) -> Array:
        legal = obs["action_mask"][action]
        return jnp.where(legal, params.payoff[action], -10).astype(jnp.float32)

    def observation_space(self, params: BanditParams) -> Space:
        mask = Box(0, 1, (self.actions,), "bool")
        return Tree({"action_mask": mask, "bias": Box(1.0, 1.0, (1,))})


@struct.dataclass
class CostlyParams:
    """Payoff and cost of each action."""

    payoff: Float[Array, " actions"]
    cost: Float[Array, " actions"]


@dataclasses.dataclass(frozen=True)
class CostlyChoice(OneStep):
    """Two actions, the better paid one at a cost.

    Action 0 pays 0 and costs 0, action 1 pays and costs 1. With expected cost at most
    `d <= 1` the best policy takes action 1 with probability `d`, for a return of `d`.
    """

    name: ClassVar[str] = "costly_choice"

    @property
    def num_costs(self) -> int:
        return 1

    def sample_params(self, key: Array) -> CostlyParams:
        ramp = jnp.arange(self.actions, dtype=jnp.float32)
        return CostlyParams(payoff=ramp, cost=ramp)

    def pay(self, obs: Array, action: Array, params: CostlyParams) -> Array:
        return params.payoff[action]

    def charge(self, action: Array, params: CostlyParams) -> Array:
        return params.cost[action][None]


@struct.dataclass
class MatrixGameParams:
    """Common payoff of the joint action, `[actions, actions]`."""

    payoff: Float[Array, "actions actions"]


@dataclasses.dataclass(frozen=True)
class MatrixGame(OneStep):
    """Two agents and a common payoff: the climbing game (Claus & Boutilier 1998).

    Optimal return: 11, at the joint action (0, 0), which a lone explorer is punished for.
    """

    name: ClassVar[str] = "matrix_game"
    actions: ClassVar[int] = 3

    @property
    def num_agents(self) -> int:
        return 2

    def sample_params(self, key: Array) -> MatrixGameParams:
        payoff = [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]
        return MatrixGameParams(payoff=jnp.array(payoff, jnp.float32))

    def observe(self, key: Array, params: MatrixGameParams) -> Array:
        return jnp.eye(2, dtype=jnp.float32)

    def pay(self, obs: Array, action: Array, params: MatrixGameParams) -> Array:
        return jnp.broadcast_to(params.payoff[action[0], action[1]], (2,))

    def observation_space(self, params: MatrixGameParams) -> Space:
        return Box(0.0, 1.0, (2, 2))

    def action_space(self, params: MatrixGameParams) -> Space:
        return Discrete(self.actions, (2,))


@struct.dataclass
class CounterState:
    t: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class DelayedReward(Env[CounterState, NoParams]):
    """Two steps, the second pays 1. Values: `gamma`, then 1."""

    name: ClassVar[str] = "delayed_reward"

    def sample_params(self, key: Array) -> NoParams:
        return NoParams()

    def _look(self, t: Array, reward: Array) -> tuple[CounterState, TimeStep]:
        obs = jnp.minimum(t, 1).astype(jnp.float32)[None]
        return CounterState(t), _timestep(obs, reward, t >= 2)

    def reset(self, key: Array, params: NoParams) -> tuple[CounterState, TimeStep]:
        return self._look(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def step(
        self, key: Array, state: CounterState, action: Array, params: NoParams
    ) -> tuple[CounterState, TimeStep]:
        reward = (state.t == 1).astype(jnp.float32)
        return self._look(jnp.minimum(state.t + 1, 2), reward)

    def observation_space(self, params: NoParams) -> Space:
        return Box(0.0, 1.0, (1,))

    def action_space(self, params: NoParams) -> Space:
        return Discrete(2)


@struct.dataclass
class RandomWalkParams:
    """Probability of a step to the right."""

    right: Float[Array, ""]


@struct.dataclass
class RandomWalkState:
    position: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class RandomWalk(Env[RandomWalkState, RandomWalkParams]):
    """Walk on a line that ends at either end, with 1 paid at the right one.

    Actions do nothing. The undiscounted values are `values(params)`, the ruin
    probabilities of Feller, volume 1, chapter XIV.2.
    """

    name: ClassVar[str] = "random_walk"

    length: int = 5

    def sample_params(self, key: Array) -> RandomWalkParams:
        return RandomWalkParams(right=jax.random.uniform(key, (), jnp.float32, 0.3, 0.7))

    def values(self, params: RandomWalkParams) -> np.ndarray:
        """Probability of ending at the right from each inner position, `[length]`."""
        position = np.arange(1, self.length + 1)
        right = float(params.right)
        if abs(right - 0.5) < 1e-6:
            return position / (self.length + 1)
        ratio = (1 - right) / right
        return (1 - ratio**position) / (1 - ratio ** (self.length + 1))

    def _look(self, position: Array, reward: Array) -> tuple[RandomWalkState, TimeStep]:
        obs = (jnp.arange(1, self.length + 1) == position).astype(jnp.float32)
        over = (position <= 0) | (position > self.length)
        return RandomWalkState(position), _timestep(obs, reward, over)

    def reset(self, key: Array, params: RandomWalkParams) -> tuple[RandomWalkState, TimeStep]:
        middle = jnp.full((), (self.length + 1) // 2, jnp.int32)
        return self._look(middle, jnp.zeros((), jnp.float32))

    def step(
        self, key: Array, state: RandomWalkState, action: Array, params: RandomWalkParams
    ) -> tuple[RandomWalkState, TimeStep]:
        over = (state.position <= 0) | (state.position > self.length)
        move = jnp.where(jax.random.uniform(key, (), jnp.float32) < params.right, 1, -1)
        position = jnp.where(over, state.position, state.position + move.astype(jnp.int32))
        reward = (~over & (position > self.length)).astype(jnp.float32)
        return self._look(position, reward)

    def observation_space(self, params: RandomWalkParams) -> Space:
        return Box(0.0, 1.0, (self.length,))

    def action_space(self, params: RandomWalkParams) -> Space:
        return Discrete(2)


@struct.dataclass
class GridParams:
    """Where agents start and which cells they must cover, rows and columns."""

    starts: Int[Array, "agents 2"]
    goals: Int[Array, "agents 2"]


@struct.dataclass
class GridState:
    positions: Int[Array, "agents 2"]
    covered: Bool[Array, ""]


#: Stay, north, east, south, west as (row, column).
MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))


@dataclasses.dataclass(frozen=True)
class CoordinationGrid(Env[GridState, GridParams]):
    """Agents on a small grid must cover all goals at once, one agent each.

    Which agent takes which goal is theirs to agree on. Every step costs each of them 0.1;
    the step that covers all goals pays 1 besides and ends the episode. Optimal return:
    `optimal_return(params)`.
    """

    name: ClassVar[str] = "coordination_grid"

    size: int = 3
    agents: int = 2

    @property
    def num_agents(self) -> int:
        return self.agents

    def sample_params(self, key: Array) -> GridParams:
        # Distinct cells, so no task is solved before it starts.
        cells = jax.random.permutation(key, self.size**2)[: 2 * self.agents].astype(jnp.int32)
        places = jnp.stack([cells // self.size, cells % self.size], axis=-1)
        return GridParams(starts=places[: self.agents], goals=places[self.agents :])

    def optimal_return(self, params: GridParams) -> float:
        """Return of each agent when the best assignment is walked on shortest paths."""
        distance = np.abs(np.asarray(params.starts)[:, None] - np.asarray(params.goals)[None])
        distance = distance.sum(-1)
        steps = min(
            max(distance[agent, goal] for agent, goal in enumerate(order))
            for order in itertools.permutations(range(self.agents))
        )
        return 1 - 0.1 * float(steps)

    def _look(self, state: GridState, reward: Array, params: GridParams) -> TimeStep:
        scale = jnp.float32(max(self.size - 1, 1))
        places = jnp.concatenate([state.positions, params.goals]).reshape(-1) / scale
        shared = jnp.broadcast_to(places.astype(jnp.float32), (self.agents, places.shape[0]))
        obs = jnp.concatenate([jnp.eye(self.agents, dtype=jnp.float32), shared], axis=-1)
        rewards = jnp.broadcast_to(reward, (self.agents,))
        return _timestep(obs, rewards, jnp.broadcast_to(state.covered, (self.agents,)))

    def reset(self, key: Array, params: GridParams) -> tuple[GridState, TimeStep]:
        state = GridState(positions=params.starts, covered=jnp.zeros((), bool))
        return state, self._look(state, jnp.zeros((), jnp.float32), params)

    def step(
        self, key: Array, state: GridState, action: Array, params: GridParams
    ) -> tuple[GridState, TimeStep]:
        moves = jnp.array(MOVES, jnp.int32)[action]
        positions = jnp.clip(state.positions + moves, 0, self.size - 1)
        positions = jnp.where(state.covered, state.positions, positions)
        on_goal = jnp.all(positions[:, None] == params.goals[None], axis=-1)
        covered = state.covered | jnp.all(jnp.any(on_goal, axis=0))
        paid = jnp.where(covered, 0.9, -0.1).astype(jnp.float32)
        new = GridState(positions=positions, covered=covered)
        return new, self._look(new, jnp.where(state.covered, 0, paid), params)

    def observation_space(self, params: GridParams) -> Space:
        return Box(0.0, 1.0, (self.agents, self.agents + 4 * self.agents))

    def action_space(self, params: GridParams) -> Space:
        return Discrete(len(MOVES), (self.agents,))
