"""Max-cut: vertices placed one after the other, or flipped back and forth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.errors import CapacityError, ConfigError
from jaxlab.core.spaces import Box, Discrete, Space, Tree
from jaxlab.envs.combinatorial.distributions import RandomGraph
from jaxlab.envs.combinatorial.instances import GraphInstance
from jaxlab.envs.combinatorial.protocol import (
    Coding,
    DecisionProcess,
    GraphView,
    float_dtype,
    padded,
    require_room,
)


@struct.dataclass
class CutParams:
    """A graph; vertices of the padding have no edges.

    Attributes:
      weights: Symmetric, `[n, n]`.
      size: Vertices that are there, `[]`, int32.
    """

    weights: Float[Array, "n n"]
    size: Int[Array, ""]


@struct.dataclass
class CutDecision:
    """Attributes:
    spins: +1 on side 0, -1 on side 1, 0 for vertices not placed yet, `[n]`, int8.
    vertex: The next vertex.
    """

    spins: Int[Array, " n"]
    vertex: Int[Array, ""]


def cut_params(instance: GraphInstance, size: int) -> CutParams:
    """Params of a graph, padded.

    Raises:
      CapacityError: It has more vertices than there is room for.
    """
    require_room(instance.name, instance.vertices, size, "vertices")
    weights = jnp.asarray(padded(instance.matrix, size), float_dtype())
    return CutParams(weights, jnp.full((), instance.vertices, jnp.int32))


@dataclasses.dataclass(frozen=True)
class MaxCut(DecisionProcess[CutDecision, CutParams]):
    """Place vertices in their order on side 0 or 1; vertex 0 lies on side 0.

    Attributes:
      size: Vertices, padding included.
      graphs: Distribution of instances.
    """

    name: ClassVar[str] = "maxcut"
    sense: ClassVar[int] = -1

    size: int = 20
    graphs: RandomGraph = dataclasses.field(
        default_factory=lambda: RandomGraph("er", 0.15, signed=True)
    )

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size is {self.size}, expected at least 1")

    @property
    def horizon(self) -> int:
        return self.size

    @property
    def num_actions(self) -> int:
        return 2

    def sample_params(self, key: jax.Array) -> CutParams:
        """A random graph."""
        weights = self.graphs.weights(key, self.size, float_dtype())
        return CutParams(weights, jnp.full((), self.size, jnp.int32))

    def params(self, instance: GraphInstance) -> CutParams:
        """See `cut_params`."""
        return cut_params(instance, self.size)

    def initial(self, params: CutParams) -> CutDecision:
        return CutDecision(jnp.zeros((self.size,), jnp.int8), jnp.zeros((), jnp.int32))

    def legal(self, params: CutParams, decision: CutDecision) -> Bool[Array, " 2"]:
        here = decision.vertex < params.size
        return jnp.stack([here, here & (decision.vertex > 0)])

    def move(
        self, params: CutParams, decision: CutDecision, action: Int[Array, ""]
    ) -> tuple[CutDecision, Float[Array, ""]]:
        spin = (1 - 2 * action).astype(jnp.int8)
        row = params.weights[jnp.minimum(decision.vertex, self.size - 1)]
        gain = jnp.where(decision.spins == -spin, row, 0).sum()
        spins = jnp.where(jnp.arange(self.size) == decision.vertex, spin, decision.spins)
        return CutDecision(spins, decision.vertex + 1), -gain

    def done(self, params: CutParams, decision: CutDecision) -> Bool[Array, ""]:
        return decision.vertex >= params.size

    def penalty(self, params: CutParams) -> Float[Array, ""]:
        return 1 + jnp.abs(params.weights).sum()

    def observe(self, params: CutParams, decision: CutDecision) -> Mapping[str, Array]:
        return {"weights": params.weights, "spins": decision.spins, "vertex": decision.vertex}

    def spaces(self, params: CutParams) -> Mapping[str, Space]:
        n, dtype = self.size, str(params.weights.dtype)
        return {
            "weights": Box(-np.inf, np.inf, (n, n), dtype),
            "spins": Box(-1, 1, (n,), "int8"),
            "vertex": Discrete(n + 1),
        }

    def solution(self, params: CutParams, actions: Sequence[int]) -> list[int]:
        """The side of each vertex."""
        return list(map(int, actions))

    def string_cost(self, params: CutParams, actions: Sequence[int]) -> float | None:
        sides = np.asarray(actions)
        n = int(params.size)
        if len(sides) != n or sides[0] != 0:
            return None
        weights = np.asarray(params.weights)[:n, :n]
        return -float((weights * (sides[:, None] != sides)).sum() / 2)

    def coding(self) -> Coding:
        """A leading 1 and a bit for each vertex that is placed; vertex 0 has none."""
        if self.size > 24:
            raise CapacityError(
                f"{self.size} vertices have {2.0**self.size:.1e} states: dynamic programming has "
                "room for 24 vertices; use another method"
            )
        # Code 0 is the empty string; from 1 on, vertex 0 has been placed.
        layers = [np.zeros(1, np.int64)]
        layers += [np.arange(2**k, 2 ** (k + 1)) for k in range(self.size)]
        return Coding(2**self.size, layers)

    def encode(self, params: CutParams, decision: CutDecision) -> Int[Array, ""]:
        shift = decision.vertex - 1 - jnp.arange(1, self.size)
        bits = jnp.where(shift >= 0, (decision.spins[1:] < 0) << jnp.maximum(shift, 0), 0).sum()
        leading = jnp.left_shift(1, jnp.maximum(decision.vertex - 1, 0))
        return jnp.where(decision.vertex == 0, 0, leading + bits).astype(jnp.int32)

    def decode(self, params: CutParams, code: Int[Array, ""]) -> CutDecision:
        placed = jnp.where(code == 0, 0, 32 - jax.lax.clz(code.astype(jnp.int32)))
        shift = placed - 1 - jnp.arange(self.size)
        bit = code >> jnp.maximum(shift, 0) & 1
        # The leading bit marks vertex 0, which lies on side 0.
        bit = jnp.where(jnp.arange(self.size) == 0, 0, bit)
        spins = jnp.where(shift >= 0, 1 - 2 * bit, 0).astype(jnp.int8)
        return CutDecision(spins, placed.astype(jnp.int32))


@struct.dataclass
class FlipState:
    """Attributes:
    spins: -1 or +1, `[n]`, int8.
    gains: What flipping each vertex adds to the cut.
    cut: Weight of the present cut.
    best: Greatest weight so far.
    best_spins: The cut that has it.
    age: Steps since each vertex was flipped.
    steps: Flips so far.
    """

    spins: Int[Array, " n"]
    gains: Float[Array, " n"]
    cut: Float[Array, ""]
    best: Float[Array, ""]
    best_spins: Int[Array, " n"]
    age: Int[Array, " n"]
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class MaxCutFlip(Env[FlipState, CutParams]):
    """Flip one vertex at a time from a random cut; the reward is what the best cut gains.

    The reversible form of Barrett et al. 2020 (ECO-DQN). It has cycles and an objective that is
    the best so far, so it is no `DecisionProcess`. An episode is truncated after `flips` steps a
    vertex. Rewards are divided by the number of vertices, as there.

    Attributes:
      size: Vertices, padding included.
      graphs: Distribution of instances.
      flips: Length of an episode, in vertices.
      basin_reward: Reward, divided by the number of vertices, of reaching a cut that no flip
        improves for the first time as the best one.
    """

    name: ClassVar[str] = "maxcut_flip"

    size: int = 20
    graphs: RandomGraph = dataclasses.field(
        default_factory=lambda: RandomGraph("er", 0.15, signed=True)
    )
    flips: int = 2
    basin_reward: float = 0.0

    @property
    def length(self) -> int:
        """Steps of an episode."""
        return self.flips * self.size

    def sample_params(self, key: jax.Array) -> CutParams:
        """A random graph."""
        weights = self.graphs.weights(key, self.size, float_dtype())
        return CutParams(weights, jnp.full((), self.size, jnp.int32))

    def params(self, instance: GraphInstance) -> CutParams:
        """See `cut_params`."""
        return cut_params(instance, self.size)

    def reset(self, key: jax.Array, params: CutParams) -> tuple[FlipState, TimeStep]:
        """Begin with a random cut."""
        return self.start(params, jax.random.rademacher(key, (self.size,), jnp.int8))

    def start(self, params: CutParams, spins: Int[Array, " n"]) -> tuple[FlipState, TimeStep]:
        """Begin with a cut."""
        zeros = jnp.zeros((self.size,), jnp.int32)
        dtype = params.weights.dtype
        signs = spins.astype(dtype)
        gains = signs * (params.weights @ signs)
        cut = (params.weights.sum() - gains.sum()) / 4
        state = FlipState(spins, gains, cut, cut, spins, zeros, jnp.zeros((), jnp.int32))
        return state, self._timestep(params, state, jnp.zeros((), dtype))

    def step(
        self, key: jax.Array, state: FlipState, action: jax.Array, params: CutParams
    ) -> tuple[FlipState, TimeStep]:
        """Move a vertex to the other side."""
        over = state.steps >= self.length
        fine = (action < params.size) & ~over
        here = (jnp.arange(self.size) == action) & fine
        gained = jnp.where(fine, state.gains[action], 0)
        spins = jnp.where(here, -state.spins, state.spins).astype(jnp.int8)
        # The gain of a vertex is its spin times the sum of weights times spins.
        change = 2 * params.weights[action] * spins[action] * spins
        gains = jnp.where(here, -state.gains, jnp.where(fine, state.gains + change, state.gains))
        cut = state.cut + gained
        better = cut > state.best
        new = FlipState(
            spins,
            gains,
            cut,
            jnp.maximum(cut, state.best),
            jnp.where(better, spins, state.best_spins),
            jnp.where(here, 0, state.age + fine).astype(jnp.int32),
            state.steps + (~over).astype(jnp.int32),
        )
        basin = better & ~jnp.any(gains > 0)
        reward = new.best - state.best + jnp.where(basin, self.basin_reward, 0)
        reward = (reward / params.size).astype(params.weights.dtype)
        return new, self._timestep(params, new, reward)

    def _timestep(self, params: CutParams, state: FlipState, reward: Array) -> TimeStep:
        mask = jnp.arange(self.size) < params.size
        obs = {
            "weights": params.weights,
            "spins": state.spins,
            "gains": state.gains,
            "age": state.age,
            "behind": state.best - state.cut,
            "steps": state.steps,
            "action_mask": mask,
        }
        return TimeStep(
            obs=obs,
            reward=reward,
            cost=jnp.zeros((0,), reward.dtype),
            terminated=jnp.zeros((), bool),
            truncated=state.steps >= self.length,
            info={"best": state.best},
        )

    def observation_space(self, params: CutParams) -> Tree:
        n, dtype = self.size, str(params.weights.dtype)
        return Tree(
            {
                "weights": Box(-np.inf, np.inf, (n, n), dtype),
                "spins": Box(-1, 1, (n,), "int8"),
                "gains": Box(-np.inf, np.inf, (n,), dtype),
                "age": Box(0, np.inf, (n,), "int32"),
                "behind": Box(0.0, np.inf, (), dtype),
                "steps": Discrete(self.length + 1),
                "action_mask": Box(0, 1, (n,), "bool"),
            }
        )

    def action_space(self, params: CutParams) -> Discrete:
        return Discrete(self.size)

    def graph(self, params: CutParams, state: FlipState) -> GraphView:
        """The seven observations of ECO-DQN for each vertex, and the weights."""
        n, dtype = self.size, params.weights.dtype
        scale = jnp.maximum(jnp.abs(params.weights).sum(1).max(), 1)
        present = jnp.arange(n) < params.size
        whole = jnp.ones((n,), dtype)
        columns = [
            state.spins,
            state.gains / scale,
            jnp.minimum(state.age / n, 2),
            whole * jnp.minimum((state.best - state.cut) / scale, 4),
            jnp.where(state.spins == state.best_spins, 0, 1),
            whole * (state.gains > 0).mean(dtype=dtype),
            whole * (1 - state.steps / self.length),
        ]
        nodes = jnp.stack([column.astype(dtype) for column in columns], -1)
        return GraphView(nodes, params.weights[..., None], present, jnp.zeros((1,), dtype))

    def render(self, state: FlipState, params: CutParams) -> np.ndarray:
        from jaxlab.envs.combinatorial.pictures import draw_cut, image

        n = int(params.size)
        return image(draw_cut, np.asarray(params.weights)[:n, :n], np.asarray(state.spins)[:n] < 0)
