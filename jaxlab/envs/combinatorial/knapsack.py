"""The knapsack problem: item after item as one likes, or each in turn taken or left."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Space
from jaxlab.envs.combinatorial.instances import KnapsackInstance
from jaxlab.envs.combinatorial.protocol import (
    Coding,
    DecisionProcess,
    GraphView,
    flags,
    float_dtype,
    require_room,
)

#: Capacities of Kool et al. 2019 for numbers of items; others have a quarter of the items.
CAPACITIES = {50: 12.5, 100: 25.0, 200: 25.0}


@struct.dataclass
class KnapsackParams:
    """An instance; items of the padding have value 0 and weigh more than the capacity.

    Attributes:
      values: `[n]`.
      weights: `[n]`.
      capacity: Largest sum of weights.
      size: Items that are there, `[]`, int32.
    """

    values: Float[Array, " n"]
    weights: Float[Array, " n"]
    capacity: Float[Array, ""]
    size: Int[Array, ""]


@struct.dataclass
class PackingDecision:
    """Attributes:
    taken: Items taken, `[n]`.
    remaining: Capacity that is left.
    """

    taken: Bool[Array, " n"]
    remaining: Float[Array, ""]


@struct.dataclass
class ScanDecision:
    """Attributes:
    item: The next item.
    remaining: Capacity that is left.
    """

    item: Int[Array, ""]
    remaining: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Knapsack(DecisionProcess[PackingDecision, KnapsackParams]):
    """Take an item at a time until none fits; values and weights are uniform in [0, 1].

    Attributes:
      size: Items, padding included.
      budget: Capacity of instances that are drawn; None follows Kool et al. 2019.
    """

    name: ClassVar[str] = "knapsack"
    sense: ClassVar[int] = -1

    size: int = 50
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size is {self.size}, expected at least 1")

    @property
    def horizon(self) -> int:
        return self.size

    @property
    def num_actions(self) -> int:
        return self.size

    def sample_params(self, key: jax.Array) -> KnapsackParams:
        """Values and weights uniform in [0, 1]."""
        dtype = float_dtype()
        values, weights = jax.random.uniform(key, (2, self.size), dtype)
        budget = CAPACITIES.get(self.size, self.size / 4) if self.budget is None else self.budget
        return KnapsackParams(
            values, weights, jnp.full((), budget, dtype), jnp.full((), self.size, jnp.int32)
        )

    def params(self, instance: KnapsackInstance) -> KnapsackParams:
        """Params of an instance, padded.

        Raises:
          CapacityError: It has more items than there is room for.
        """
        n, dtype = len(instance.values), float_dtype()
        require_room(instance.name, n, self.size, "items")
        heavy = 2 * instance.capacity + 1
        room = (0, self.size - n)
        return KnapsackParams(
            jnp.asarray(np.pad(instance.values, room), dtype),
            jnp.asarray(np.pad(instance.weights, room, constant_values=heavy), dtype),
            jnp.full((), instance.capacity, dtype),
            jnp.full((), n, jnp.int32),
        )

    def initial(self, params: KnapsackParams) -> PackingDecision:
        return PackingDecision(jnp.zeros((self.size,), bool), params.capacity)

    def legal(self, params: KnapsackParams, decision: PackingDecision) -> Bool[Array, " n"]:
        return ~decision.taken & (params.weights <= decision.remaining)

    def move(
        self, params: KnapsackParams, decision: PackingDecision, action: Int[Array, ""]
    ) -> tuple[PackingDecision, Float[Array, ""]]:
        taken = decision.taken | (jnp.arange(self.size) == action)
        remaining = decision.remaining - params.weights[action]
        return PackingDecision(taken, remaining), -params.values[action]

    def done(self, params: KnapsackParams, decision: PackingDecision) -> Bool[Array, ""]:
        return ~jnp.any(self.legal(params, decision))

    def penalty(self, params: KnapsackParams) -> Float[Array, ""]:
        return 1 + jnp.abs(params.values).sum()

    def observe(self, params: KnapsackParams, decision: PackingDecision) -> Mapping[str, Array]:
        return {
            "values": params.values,
            "weights": params.weights,
            "taken": decision.taken,
            "remaining": decision.remaining,
        }

    def spaces(self, params: KnapsackParams) -> Mapping[str, Space]:
        dtype, vector = str(params.values.dtype), (self.size,)
        return {
            "values": Box(-np.inf, np.inf, vector, dtype),
            "weights": Box(0.0, np.inf, vector, dtype),
            "taken": flags(vector),
            "remaining": Box(-np.inf, np.inf, (), dtype),
        }

    def graph(self, params: KnapsackParams, decision: PackingDecision) -> GraphView:
        fits = self.legal(params, decision)
        dtype = params.values.dtype
        present = jnp.arange(self.size) < params.size
        weights = jnp.where(present, params.weights, 0)
        density = params.values / jnp.maximum(weights, 1e-3)
        share = weights / jnp.maximum(decision.remaining, 1e-3)
        columns = [
            *(fits, decision.taken, params.values, weights),
            *(jnp.log1p(density), jnp.minimum(share, 4)),
        ]
        nodes = jnp.stack([column.astype(dtype) for column in columns], -1)
        left = decision.remaining / jnp.maximum(params.capacity, 1e-9)
        context = jnp.stack([left, fits.mean(dtype=dtype)])
        return GraphView(nodes, jnp.zeros((self.size, self.size, 1), dtype), present, context)

    def solution(self, params: KnapsackParams, actions: Sequence[int]) -> list[int]:
        """Items taken, ascending."""
        return sorted(map(int, actions))

    def string_cost(self, params: KnapsackParams, actions: Sequence[int]) -> float | None:
        weights, values = np.asarray(params.weights), np.asarray(params.values)
        items, n = list(actions), int(params.size)
        left = np.asarray(params.capacity)
        for item in items:
            left = left - weights[item]
        if len(set(items)) < len(items) or left < 0 or any(item >= n for item in items):
            return None
        if any(weights[i] <= left for i in range(n) if i not in items):
            return None
        return -float(values[items].sum())


@dataclasses.dataclass(frozen=True)
class KnapsackScan(DecisionProcess[ScanDecision, KnapsackParams]):
    """Each item in turn is taken (action 1) or left (0): the textbook's dynamic programme.

    Attributes:
      size: Items, padding included.
      budget: Capacity of instances that are drawn, and the largest one that has codes. They are
        for whole weights.
      max_weight: Weights that are drawn are whole, from 1 to this.
    """

    name: ClassVar[str] = "knapsack_scan"
    sense: ClassVar[int] = -1

    size: int = 20
    budget: int = 100
    max_weight: int = 20

    @property
    def horizon(self) -> int:
        return self.size

    @property
    def num_actions(self) -> int:
        return 2

    def sample_params(self, key: jax.Array) -> KnapsackParams:
        """Whole values and weights from 1 to `max_weight`."""
        dtype = float_dtype()
        drawn = jax.random.randint(key, (2, self.size), 1, self.max_weight + 1).astype(dtype)
        return KnapsackParams(
            drawn[0], drawn[1], jnp.full((), self.budget, dtype), jnp.full((), self.size, jnp.int32)
        )

    def params(self, instance: KnapsackInstance) -> KnapsackParams:
        """As of `Knapsack`."""
        return Knapsack(self.size).params(instance)

    def initial(self, params: KnapsackParams) -> ScanDecision:
        return ScanDecision(jnp.zeros((), jnp.int32), params.capacity)

    def _next(self, params: KnapsackParams, decision: ScanDecision) -> tuple[Array, Array]:
        at = jnp.minimum(decision.item, self.size - 1)
        return params.values[at], params.weights[at]

    def legal(self, params: KnapsackParams, decision: ScanDecision) -> Bool[Array, " 2"]:
        weight = self._next(params, decision)[1]
        here = decision.item < params.size
        return jnp.stack([here, here & (weight <= decision.remaining)])

    def move(
        self, params: KnapsackParams, decision: ScanDecision, action: Int[Array, ""]
    ) -> tuple[ScanDecision, Float[Array, ""]]:
        value, weight = self._next(params, decision)
        remaining = decision.remaining - jnp.where(action == 1, weight, 0)
        return ScanDecision(decision.item + 1, remaining), jnp.where(action == 1, -value, 0)

    def done(self, params: KnapsackParams, decision: ScanDecision) -> Bool[Array, ""]:
        return decision.item >= params.size

    def penalty(self, params: KnapsackParams) -> Float[Array, ""]:
        return 1 + jnp.abs(params.values).sum()

    def observe(self, params: KnapsackParams, decision: ScanDecision) -> Mapping[str, Array]:
        return {
            "values": params.values,
            "weights": params.weights,
            "item": decision.item,
            "remaining": decision.remaining,
        }

    def spaces(self, params: KnapsackParams) -> Mapping[str, Space]:
        dtype, vector = str(params.values.dtype), (self.size,)
        return {
            "values": Box(-np.inf, np.inf, vector, dtype),
            "weights": Box(0.0, np.inf, vector, dtype),
            "item": Discrete(self.size + 1),
            "remaining": Box(-np.inf, np.inf, (), dtype),
        }

    def solution(self, params: KnapsackParams, actions: Sequence[int]) -> list[int]:
        """Items taken, ascending."""
        return [item for item, action in enumerate(actions) if action]

    def string_cost(self, params: KnapsackParams, actions: Sequence[int]) -> float | None:
        chosen = self.solution(params, actions)
        weight = np.asarray(params.weights)[chosen].sum()
        if len(actions) != int(params.size) or weight > float(params.capacity):
            return None
        return -float(np.asarray(params.values)[chosen].sum())

    def coding(self) -> Coding:
        """The next item and the whole capacity left."""
        row = np.arange(self.budget + 1)
        layers = [item * (self.budget + 1) + row for item in range(self.size + 1)]
        return Coding((self.size + 1) * (self.budget + 1), layers)

    def encode(self, params: KnapsackParams, decision: ScanDecision) -> Int[Array, ""]:
        left = jnp.clip(jnp.round(decision.remaining), 0, self.budget).astype(jnp.int32)
        return decision.item * (self.budget + 1) + left

    def decode(self, params: KnapsackParams, code: Int[Array, ""]) -> ScanDecision:
        left = (code % (self.budget + 1)).astype(params.weights.dtype)
        return ScanDecision((code // (self.budget + 1)).astype(jnp.int32), left)


def require_whole(instance: KnapsackInstance) -> None:
    """Refuse weights that are not whole, for which a table of capacities is no use.

    Raises:
      ConfigError: Names the first such item.
    """
    odd: Any = np.flatnonzero(instance.weights != np.floor(instance.weights))
    if len(odd) or instance.capacity != np.floor(instance.capacity):
        where = f"item {odd[0] + 1} weighs {instance.weights[odd[0]]:g}" if len(odd) else "capacity"
        raise ConfigError(
            f"{instance.name}: {where} is not whole: dynamic programming over capacities needs "
            "whole weights; use --method exact"
        )
