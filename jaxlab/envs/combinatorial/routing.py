"""Capacitated vehicle routing: one vehicle that comes back to the depot to load."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Space
from jaxlab.envs.combinatorial.instances import RoutingInstance
from jaxlab.envs.combinatorial.protocol import (
    DecisionProcess,
    GraphView,
    flags,
    float_dtype,
    padded,
    require_room,
)
from jaxlab.envs.combinatorial.tours import TSP

#: Capacities of Nazari et al. 2018 and Kool et al. 2019 by customers; others have 30.
CAPACITIES = {10: 20.0, 20: 30.0, 50: 40.0, 100: 50.0}


@struct.dataclass
class RoutingParams:
    """An instance; city 0 is the depot, cities of the padding come last.

    Attributes:
      distances: `[n, n]`.
      coordinates: `[n, 2]`, zero where there are none.
      demands: `[n]`.
      capacity: Of the vehicle.
      size: Cities that are there with the depot, `[]`, int32.
    """

    distances: Float[Array, "n n"]
    coordinates: Float[Array, "n 2"]
    demands: Float[Array, " n"]
    capacity: Float[Array, ""]
    size: Int[Array, ""]


@struct.dataclass
class RoutingDecision:
    """Attributes:
    served: Customers served, the depot, and cities of the padding, `[n]`.
    current: Where the vehicle is.
    load: What it still has.
    """

    served: Bool[Array, " n"]
    current: Int[Array, ""]
    load: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class CVRP(DecisionProcess[RoutingDecision, RoutingParams]):
    """Shortest routes that serve every customer; action 0 goes back to the depot.

    `sample_params` draws places in the unit square and whole demands from 1 to 9 (Nazari et al.
    2018).

    Attributes:
      customers: Their number, padding included.
    """

    name: ClassVar[str] = "cvrp"

    customers: int = 20

    def __post_init__(self) -> None:
        if self.customers < 1:
            raise ConfigError(f"customers is {self.customers}, expected at least 1")

    @property
    def size(self) -> int:
        """Cities with the depot."""
        return self.customers + 1

    @property
    def horizon(self) -> int:
        return 2 * self.customers

    @property
    def num_actions(self) -> int:
        return self.size

    def sample_params(self, key: jax.Array) -> RoutingParams:
        """Places in the unit square, whole demands from 1 to 9."""
        place_key, demand_key = jax.random.split(key)
        dtype = float_dtype()
        places = jax.random.uniform(place_key, (self.size, 2), dtype)
        tour = TSP(self.size).from_places(places)
        demands = jax.random.randint(demand_key, (self.size,), 1, 10)
        demands = jnp.where(jnp.arange(self.size) == 0, 0, demands).astype(dtype)
        capacity = jnp.full((), CAPACITIES.get(self.customers, 30.0), dtype)
        return RoutingParams(tour.distances, places, demands, capacity, tour.size)

    def params(self, instance: RoutingInstance) -> RoutingParams:
        """Params of an instance, padded.

        Raises:
          CapacityError: It has more customers than there is room for.
        """
        require_room(instance.name, instance.size - 1, self.customers, "customers")
        dtype, room = float_dtype(), (0, self.size - instance.size)
        places = instance.coordinates
        places = np.zeros((instance.size, 2)) if places is None else places
        return RoutingParams(
            jnp.asarray(padded(instance.distances, self.size), dtype),
            jnp.asarray(np.pad(places, (room, (0, 0))), dtype),
            jnp.asarray(np.pad(instance.demands, room), dtype),
            jnp.full((), instance.capacity, dtype),
            jnp.full((), instance.size, jnp.int32),
        )

    def initial(self, params: RoutingParams) -> RoutingDecision:
        cities = jnp.arange(self.size)
        served = (cities == 0) | (cities >= params.size)
        return RoutingDecision(served, jnp.zeros((), jnp.int32), params.capacity)

    def legal(self, params: RoutingParams, decision: RoutingDecision) -> Bool[Array, " n"]:
        customers = ~decision.served & (params.demands <= decision.load)
        back = (decision.current != 0) & ~jnp.all(decision.served)
        return customers | (back & (jnp.arange(self.size) == 0))

    def move(
        self, params: RoutingParams, decision: RoutingDecision, action: Int[Array, ""]
    ) -> tuple[RoutingDecision, Float[Array, ""]]:
        action = action.astype(jnp.int32)
        load = jnp.where(action == 0, params.capacity, decision.load - params.demands[action])
        served = decision.served | (jnp.arange(self.size) == action)
        cost = params.distances[decision.current, action]
        return RoutingDecision(served, action, load), cost

    def done(self, params: RoutingParams, decision: RoutingDecision) -> Bool[Array, ""]:
        return jnp.all(decision.served)

    def final_cost(self, params: RoutingParams, decision: RoutingDecision) -> Float[Array, ""]:
        return params.distances[decision.current, 0]

    def penalty(self, params: RoutingParams) -> Float[Array, ""]:
        return 1 + 4 * jnp.abs(params.distances).max(-1).sum()

    def observe(self, params: RoutingParams, decision: RoutingDecision) -> Mapping[str, Array]:
        return {
            "coordinates": params.coordinates,
            "demands": params.demands / params.capacity,
            "served": decision.served,
            "current": decision.current,
            "load": decision.load / params.capacity,
        }

    def spaces(self, params: RoutingParams) -> Mapping[str, Space]:
        dtype, n = str(params.distances.dtype), self.size
        return {
            "coordinates": Box(-np.inf, np.inf, (n, 2), dtype),
            "demands": Box(0.0, np.inf, (n,), dtype),
            "served": flags((n,)),
            "current": Discrete(n),
            "load": Box(0.0, 1.0, (), dtype),
        }

    def graph(self, params: RoutingParams, decision: RoutingDecision) -> GraphView:
        cities = jnp.arange(self.size)
        dtype = params.distances.dtype
        columns = [
            ~decision.served,
            self.legal(params, decision),
            cities == decision.current,
            cities == 0,
            params.demands / params.capacity,
            params.distances[decision.current],
            params.distances[0],
            params.coordinates[:, 0],
            params.coordinates[:, 1],
        ]
        nodes = jnp.stack([column.astype(dtype) for column in columns], -1)
        left = (~decision.served).mean(dtype=dtype)
        context = jnp.stack([decision.load / params.capacity, left])
        return GraphView(nodes, params.distances[..., None], cities < params.size, context)

    def solution(self, params: RoutingParams, actions: Sequence[int]) -> list[int]:
        """The walk through customers and depot, without its ends in the depot."""
        return list(map(int, actions))

    def string_cost(self, params: RoutingParams, actions: Sequence[int]) -> float | None:
        d, demands = np.asarray(params.distances), np.asarray(params.demands)
        walk, n = list(actions), int(params.size)
        if sorted(city for city in walk if city) != list(range(1, n)) or not walk or walk[-1] == 0:
            return None
        load, before = float(params.capacity), 0
        for city in walk:
            if city == 0 and before == 0:
                return None
            load = float(params.capacity) if city == 0 else load - demands[city]
            if load < 0:
                return None
            before = city
        ends = [0, *walk, 0]
        return float(sum(d[a, b] for a, b in itertools.pairwise(ends)))

    def render(self, state: Any, params: RoutingParams) -> np.ndarray:
        from jaxlab.envs.combinatorial.pictures import draw_places

        n = int(params.size)
        served = np.asarray(state.decision.served)[:n]
        return draw_places(np.asarray(params.coordinates)[:n], served, int(state.decision.current))
