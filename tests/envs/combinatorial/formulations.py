"""Two formulations that are wrong, as they are known to be."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxlab.envs.combinatorial.scheduling import JobShop
from jaxlab.envs.combinatorial.tours import TSP, TourDecision


@dataclasses.dataclass(frozen=True)
class ForgetfulTSP(TSP):
    """The state has the current city and the number of those visited, not which ones."""

    def move(self, params, decision, action):
        count = decision.visited.sum() + 1
        # As many flags as cities, from the first on: the number in the shape of the state.
        visited = jnp.arange(self.size) < count
        _, cost = super().move(params, decision, action)
        return TourDecision(visited, action.astype(jnp.int32)), cost

    def legal(self, params, decision):
        cities = jnp.arange(self.size)
        return (cities != decision.current) & (cities > 0) & ~self.done(params, decision)


@dataclasses.dataclass(frozen=True)
class ForgetfulShop(JobShop):
    """The state has the operations done and no times, so no makespan: durations are added up."""

    def move(self, params, decision, action):
        moved, _ = super().move(params, decision, action)
        zeros = jax.tree.map(jnp.zeros_like, moved)
        return zeros.replace(done=moved.done), params.durations[action, decision.done[action]]
