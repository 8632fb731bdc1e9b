"""The job shop: operations of jobs on machines, the last of which ends as early as possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import CapacityError, ConfigError
from jaxlab.core.spaces import Box, Space
from jaxlab.envs.combinatorial.instances import JobShopInstance
from jaxlab.envs.combinatorial.protocol import DecisionProcess, float_dtype


@struct.dataclass
class ShopParams:
    """An instance, padded with jobs that have no operations.

    Attributes:
      machines: Of each operation, `[jobs, operations]`, int32.
      durations: `[jobs, operations]`.
      operations: Of each job, `[jobs]`, int32.
    """

    machines: Int[Array, "jobs operations"]
    durations: Float[Array, "jobs operations"]
    operations: Int[Array, " jobs"]


@struct.dataclass
class ShopDecision:
    """Attributes:
    done: Operations done of each job.
    ready: When each job's last operation ends.
    free: When each machine is free.
    makespan: When everything so far ends.
    """

    done: Int[Array, " jobs"]
    ready: Float[Array, " jobs"]
    free: Float[Array, " machines"]
    makespan: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class JobShop(DecisionProcess[ShopDecision, ShopParams]):
    """Name a job whose next operation begins as early as it can; the cost is what it adds to the
    makespan.

    `sample_params` draws durations from 1 to 99 and the machines of a job in random order
    (Taillard 1993).

    Attributes:
      jobs: Their number, padding included.
      machines: Their number, and that of operations of a job.
    """

    name: ClassVar[str] = "jobshop"

    jobs: int = 6
    machines: int = 6

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.machines < 1:
            raise ConfigError(f"jobs {self.jobs}, machines {self.machines}: expected 1 at least")

    @property
    def horizon(self) -> int:
        return self.jobs * self.machines

    @property
    def num_actions(self) -> int:
        return self.jobs

    def sample_params(self, key: jax.Array) -> ShopParams:
        """Durations from 1 to 99, random orders of machines."""
        time_key, order_key = jax.random.split(key)
        shape = (self.jobs, self.machines)
        durations = jax.random.randint(time_key, shape, 1, 100).astype(float_dtype())
        order = jnp.argsort(jax.random.uniform(order_key, shape, np.float32), axis=1)
        operations = jnp.full((self.jobs,), self.machines, jnp.int32)
        return ShopParams(order.astype(jnp.int32), durations, operations)

    def params(self, instance: JobShopInstance) -> ShopParams:
        """Params of an instance, padded.

        Raises:
          CapacityError: It has more jobs or machines than there is room for.
        """
        jobs, operations = instance.machines.shape
        if jobs > self.jobs or operations > self.machines:
            raise CapacityError(
                f"{instance.name}: has {jobs} jobs and {operations} machines, the environment room "
                f"for {self.jobs} and {self.machines}; make it with jobs={jobs}, "
                f"machines={operations}"
            )
        room = ((0, self.jobs - jobs), (0, self.machines - operations))
        count = np.where(np.arange(self.jobs) < jobs, operations, 0)
        return ShopParams(
            jnp.asarray(np.pad(instance.machines, room), jnp.int32),
            jnp.asarray(np.pad(instance.durations, room), float_dtype()),
            jnp.asarray(count, jnp.int32),
        )

    def initial(self, params: ShopParams) -> ShopDecision:
        dtype = params.durations.dtype
        return ShopDecision(
            jnp.zeros((self.jobs,), jnp.int32),
            jnp.zeros((self.jobs,), dtype),
            jnp.zeros((self.machines,), dtype),
            jnp.zeros((), dtype),
        )

    def legal(self, params: ShopParams, decision: ShopDecision) -> Bool[Array, " jobs"]:
        return decision.done < params.operations

    def move(
        self, params: ShopParams, decision: ShopDecision, action: Int[Array, ""]
    ) -> tuple[ShopDecision, Float[Array, ""]]:
        operation = jnp.minimum(decision.done[action], self.machines - 1)
        machine = params.machines[action, operation]
        begin = jnp.maximum(decision.ready[action], decision.free[machine])
        end = begin + params.durations[action, operation]
        job, where = jnp.arange(self.jobs) == action, jnp.arange(self.machines) == machine
        makespan = jnp.maximum(decision.makespan, end)
        moved = ShopDecision(
            decision.done + job.astype(jnp.int32),
            jnp.where(job, end, decision.ready),
            jnp.where(where, end, decision.free),
            makespan,
        )
        return moved, makespan - decision.makespan

    def done(self, params: ShopParams, decision: ShopDecision) -> Bool[Array, ""]:
        return jnp.all(decision.done >= params.operations)

    def penalty(self, params: ShopParams) -> Float[Array, ""]:
        return 1 + params.durations.sum()

    def observe(self, params: ShopParams, decision: ShopDecision) -> Mapping[str, Array]:
        return {
            "machines": params.machines,
            "durations": params.durations,
            "done": decision.done,
            "ready": decision.ready,
            "free": decision.free,
        }

    def spaces(self, params: ShopParams) -> Mapping[str, Space]:
        dtype, shape = str(params.durations.dtype), (self.jobs, self.machines)
        return {
            "machines": Box(0, self.machines - 1, shape, "int32"),
            "durations": Box(0.0, np.inf, shape, dtype),
            "done": Box(0, self.machines, (self.jobs,), "int32"),
            "ready": Box(0.0, np.inf, (self.jobs,), dtype),
            "free": Box(0.0, np.inf, (self.machines,), dtype),
        }

    def solution(self, params: ShopParams, actions: Sequence[int]) -> list[int]:
        """The job of each operation, in the order in which they are scheduled."""
        return list(map(int, actions))

    def instance(self, params: ShopParams) -> JobShopInstance:
        """The instance of params, without the padding."""
        jobs = int((np.asarray(params.operations) > 0).sum())
        operations = int(params.operations[0])
        return JobShopInstance(
            self.name,
            np.asarray(params.machines)[:jobs, :operations],
            np.asarray(params.durations, float)[:jobs, :operations],
        )

    def string_cost(self, params: ShopParams, actions: Sequence[int]) -> float | None:
        counts = np.bincount(np.asarray(actions, int), minlength=self.jobs)
        if not np.array_equal(counts, params.operations):
            return None
        return self.instance(params).makespan(actions)

    def render(self, state: Any, params: ShopParams) -> np.ndarray:
        from jaxlab.envs.combinatorial.pictures import draw_loads

        return draw_loads(np.asarray(state.decision.free), np.asarray(state.decision.ready))
