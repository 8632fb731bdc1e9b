"""One step of the microscopic simulation as a pure function over fixed-shape arrays.

Vehicles on the road live in slots; every slot knows its path, its place on it and the
vehicle ahead on the same drivable. The last slot is nobody: index `capacity` stands
for "no vehicle", drivable index `D` for "nowhere", so gathers never need a mask.

The order within a step is CityFlow's: insertion, notification of crossings, next
speeds from the old state, movement, leaders and gaps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxlab.core.environment import Constant
from jaxlab.envs.traffic import motion
from jaxlab.envs.traffic.compaction import members
from jaxlab.envs.traffic.fleet import Fleet, Layout, most_of_copies, side_by_side
from jaxlab.envs.traffic.motion import NOT_ON_LINK
from jaxlab.envs.traffic.params import TrafficParams, lane_conditions

#: Beyond entry lanes of this length (m) a leader cannot hold back a starting vehicle.
LONG_ENTRY = 100.0
#: Parts of all slots that have a program of their own. With a slot for every vehicle of an
#: hour, a seventh of them are on the road under good control and a fifth under poor.
PARTS = (1 / 6, 1 / 5, 1 / 2)
#: Parts of a fleet below this many slots are not worth a program of their own.
SMALL_FLEET = 256


@struct.dataclass
class TrafficState:
    """State of the traffic on a network.

    Attributes:
      step: Steps simulated, `[]`, int32.
      vehicle: Row of the demand, -1 for a free slot, `[slots]`; so are the next ones.
      path, hop: Path driven and index of the current drivable on it.
      drivable, previous: Drivable driven on, and the one before it.
      ahead: Slot of the next vehicle on the same drivable.
      leader, gap: Vehicle followed, which may be beyond the drivable, and the free distance (m).
      blocker: Vehicle yielded to in the last step.
      entered: Step in which the current link was entered.
      departed: Step in which the vehicle joined the queue of its entry lane.
      kind, priority: Driver type and tie-break.
      position, speed: Along the drivable (m) and m/s.
      fine: Rounding error of the position in 32 bits, to be added (m); 0 in 64 bits.
      last: Rearmost vehicle of each drivable, `[D + 1]`.
      queue_head: Vehicles that left each entry queue, `[entries]`.
      finished, travel_steps: Vehicles that arrived, and the sum of their travel times in steps.
      arrival_step: Step of arrival, -1 before, `[vehicles]` (empty if not recorded).
      overflow: Whether a vehicle found no free slot although its lane had room.
    """

    step: jax.Array
    vehicle: jax.Array
    path: jax.Array
    hop: jax.Array
    drivable: jax.Array
    previous: jax.Array
    ahead: jax.Array
    leader: jax.Array
    gap: jax.Array
    blocker: jax.Array
    entered: jax.Array
    departed: jax.Array
    kind: jax.Array
    priority: jax.Array
    position: jax.Array
    fine: jax.Array
    speed: jax.Array
    last: jax.Array
    queue_head: jax.Array
    finished: jax.Array
    travel_steps: jax.Array
    arrival_step: jax.Array
    overflow: jax.Array


@dataclasses.dataclass(frozen=True)
class Simulator:
    """Static structure of a simulation.

    Attributes:
      network, paths: Tables from `tables.py`.
      dt: Length of a step, s.
      capacity: Vehicles that can be on the road at once.
      record_arrivals: Keep each vehicle's arrival step (for travel time distributions).
    """

    network: Constant
    paths: Constant
    dt: float = 1.0
    capacity: int = 639
    record_arrivals: bool = False

    @property
    def num_lanes(self) -> int:
        return self.network.value["lane_links"].shape[0] - 1

    @property
    def nowhere(self) -> int:
        return self.network.value["length"].shape[0] - 1

    def reset(self, params: TrafficParams) -> TrafficState:
        """An empty network at step 0."""
        slots, real = self.capacity + 1, params.drivers.length.dtype
        integers = lambda value: jnp.full(slots, value, jnp.int32)  # noqa: E731
        reals = jnp.zeros(slots, real)
        return TrafficState(
            step=jnp.int32(0),
            vehicle=integers(-1),
            path=integers(0),
            hop=integers(0),
            drivable=integers(self.nowhere),
            previous=integers(self.nowhere),
            ahead=integers(self.capacity),
            leader=integers(self.capacity),
            gap=reals,
            blocker=integers(self.capacity),
            entered=integers(NOT_ON_LINK),
            departed=integers(0),
            kind=integers(0),
            priority=integers(0),
            position=reals,
            fine=reals,
            speed=reals,
            last=jnp.full(self.nowhere + 1, self.capacity, jnp.int32),
            queue_head=jnp.zeros(params.entry_offset.shape[0] - 1, jnp.int32),
            finished=jnp.int32(0),
            travel_steps=jnp.int32(0),
            arrival_step=jnp.full(
                params.depart_step.shape[0] if self.record_arrivals else 0, -1, jnp.int32
            ),
            overflow=jnp.array(False),
        )

    def step(self, state: TrafficState, phase: jax.Array, params: TrafficParams) -> TrafficState:
        """Advance by `dt` with signal phase `phase [junctions]` in force.

        It computes on all slots; several steps are faster `within` a part of them.
        """
        if params.depart_step.shape[0] == 0:  # tables without rows cannot be read
            return state.replace(step=state.step + 1)
        speed_factor, closed = lane_conditions(params, state.step, self.dt, self.num_lanes)
        state = self._insert(state, params, closed)
        shared = {
            field.name: getattr(state, field.name)
            for field in dataclasses.fields(Fleet)
            if hasattr(state, field.name)
        }
        fleet = Fleet(
            green=self.link_is_open(phase, closed),
            speed_factor=speed_factor,
            drivers=params.drivers,
            **shared,
        )
        # How arrivals are recorded is not the business of what comes now, and equal simulators
        # share one trace.
        mover = dataclasses.replace(self, record_arrivals=False)
        fleet, arrived = side_by_side(partial(_advance, mover))(fleet)
        moved = {name: getattr(fleet, name) for name in shared}
        trip = state.step - state.departed
        arrival = state.arrival_step
        if self.record_arrivals:
            rows = jnp.where(arrived, state.vehicle, arrival.shape[0])
            arrival = arrival.at[rows].set(state.step, mode="drop")
        return state.replace(
            **moved | {"step": state.step + 1},
            finished=state.finished + jnp.sum(arrived, dtype=jnp.int32),
            travel_steps=state.travel_steps + jnp.sum(jnp.where(arrived, trip, 0), dtype=jnp.int32),
            arrival_step=arrival,
        )

    def layout(self, copies: int) -> Layout:
        """Sizes and tables of `copies` networks laid end to end."""
        entries = self.network.value["length"][self.paths.value["entry_lanes"]]
        return Layout(
            copies=copies,
            slots=self.capacity + 1,
            network=self.network.value,
            paths=self.paths.value["paths"],
            dt=self.dt,
            short_entries=bool((entries < LONG_ENTRY).any()),
        )

    def within(
        self,
        state: TrafficState,
        params: TrafficParams,
        steps: int,
        run: Callable[[Simulator, TrafficState], tuple[TrafficState, Any]],
    ) -> tuple[TrafficState, Any]:
        """Simulate some steps on the smallest part of the slots that can hold all vehicles.

        The lowest slots are taken first, so the upper ones are free. Parts are those of
        `PARTS` and all of the slots; copies under `vmap` share one, that of the fullest.

        Args:
          steps: How often `run` steps.
          run: `(simulator, state) -> (state, anything)`; it must use the simulator it is given.
        """
        slots = self.capacity + 1
        parts = [int(slots * part) for part in PARTS]
        sizes = [size for size in parts if size >= SMALL_FLEET] + [slots]
        if len(sizes) == 1:
            return run(self, state)

        def run_part(size: int, state: TrafficState) -> tuple[TrafficState, Any]:
            part, result = run(
                dataclasses.replace(self, capacity=size - 1), _lowest_slots(state, size)
            )
            return _with_lowest_slots(state, part), result

        place = jnp.arange(1, slots + 1, dtype=jnp.int32)
        used = jnp.max(jnp.where(state.vehicle >= 0, place, 0))
        needed = most_of_copies(used + self._entering(state, params, steps))
        # The last slot of a part must be nobody's.
        branch = jnp.sum(needed >= jnp.array(sizes[:-1], jnp.int32))
        return jax.lax.switch(branch, [partial(run_part, size) for size in sizes], state)

    def _entering(self, state: TrafficState, params: TrafficParams, steps: int) -> jax.Array:
        """Vehicles that can enter within some steps, at most one per lane and step, `[]`."""
        first = params.entry_offset[:-1] + state.queue_head
        row = first[:, None] + jnp.arange(steps, dtype=jnp.int32)
        present = row < params.entry_offset[1:, None]
        row = jnp.minimum(row, max(params.depart_step.shape[0] - 1, 0))
        due = present & (params.depart_step[row] < state.step + steps)
        return jnp.sum(due, dtype=jnp.int32)

    def _insert(
        self, state: TrafficState, params: TrafficParams, closed: jax.Array | None
    ) -> TrafficState:
        """Let one waiting vehicle per entry lane onto the road where there is room."""
        lane = jnp.asarray(self.paths.value["entry_lanes"])
        candidate = params.entry_offset[:-1] + state.queue_head
        present = candidate < params.entry_offset[1:]
        candidate = jnp.minimum(candidate, max(params.depart_step.shape[0] - 1, 0))
        due = present & (params.depart_step[candidate] <= state.step)
        kind = params.driver[candidate]
        driver = params.drivers.of(kind)
        tail = state.last[lane]
        tail_driver = params.drivers.of(state.kind, tail)
        empty = tail == self.capacity
        room = empty | (state.position[tail] > tail_driver.length + driver.min_gap)
        go = due & room
        if closed is not None:
            go = go & ~closed[lane]
        slot = side_by_side(_free_slots)((state.drivable == self.nowhere, go))
        fits = slot < self.capacity
        overflow = state.overflow | jnp.any(go & ~fits)
        go = go & fits
        slot = jnp.where(go, slot, self.capacity + 1)  # out of bounds: dropped

        path = params.path[candidate]
        # Beyond an empty lane a leader matters on short entries only: see `motion.advance`.
        gap = jnp.where(empty, 0, state.position[tail] - tail_driver.length)

        def put(field: jax.Array, value: jax.Array | int) -> jax.Array:
            return field.at[slot].set(jnp.asarray(value, field.dtype), mode="drop")

        return state.replace(
            vehicle=put(state.vehicle, candidate),
            path=put(state.path, path),
            hop=put(state.hop, 0),
            drivable=put(state.drivable, lane),
            previous=put(state.previous, self.nowhere),
            ahead=put(state.ahead, tail),
            leader=put(state.leader, tail),
            gap=put(state.gap, gap),
            blocker=put(state.blocker, self.capacity),
            entered=put(state.entered, NOT_ON_LINK),
            departed=put(state.departed, params.depart_step[candidate]),
            kind=put(state.kind, kind),
            priority=put(state.priority, params.priority[candidate]),
            position=put(state.position, 0),
            fine=put(state.fine, 0),
            speed=put(state.speed, 0),
            last=state.last.at[jnp.where(go, lane, self.nowhere + 1)].set(slot, mode="drop"),
            queue_head=state.queue_head + go,
            overflow=overflow,
        )

    def link_is_open(self, phase: jax.Array, closed: jax.Array | None = None) -> jax.Array:
        """Links with right of way in signal phase `phase [junctions]`, `[links]`, bool."""
        table = self.network.value
        allows = jnp.asarray(table["phase_allows"])
        junction, movement = table["link_junction"], table["link_movement"]
        is_open = allows[junction, phase[junction], movement]
        if closed is not None:
            is_open = is_open & ~closed[jnp.asarray(table["link_end"])]
        return is_open


@partial(jax.jit, static_argnums=(0, 1))
def _advance(simulator: Simulator, copies: int, fleet: Fleet) -> tuple[Fleet, jax.Array]:
    """One step of all copies. Compiled into its caller; a function of its own so that it is
    traced once for a number of copies, however often maps and scans trace what is around it."""
    return motion.advance(simulator.layout(copies), fleet)


_SLOT_FIELDS = (
    *("vehicle", "path", "hop", "drivable", "previous", "ahead", "leader", "gap", "blocker"),
    *("entered", "departed", "kind", "priority", "position", "fine", "speed"),
)
_POINTERS = ("ahead", "leader", "blocker", "last")


def _lowest_slots(state: TrafficState, size: int) -> TrafficState:
    """The state with its lowest `size` slots only, the last of which must be free."""
    if size == state.vehicle.shape[0]:
        return state
    parts = {name: getattr(state, name)[:size] for name in _SLOT_FIELDS} | {"last": state.last}
    # Nobody's index is that of the last slot.
    parts |= {name: jnp.minimum(parts[name], size - 1) for name in _POINTERS}
    return state.replace(**parts)


def _with_lowest_slots(state: TrafficState, part: TrafficState) -> TrafficState:
    """`part` with as many slots as `state`; the upper ones are free, whatever they hold."""
    slots, size = state.vehicle.shape[0], part.vehicle.shape[0]
    if size == slots:
        return part
    values = {name: getattr(part, name) for name in (*_SLOT_FIELDS, "last")}
    for name in _POINTERS:
        values[name] = jnp.where(values[name] == size - 1, slots - 1, values[name])
    # Not a write into the old arrays: that would copy them first.
    free = {"vehicle": -1, "drivable": part.last.shape[0] - 1, "entered": NOT_ON_LINK}
    free |= {"previous": free["drivable"]} | dict.fromkeys(_POINTERS, slots - 1)
    for name in _SLOT_FIELDS:
        value = values[name]
        rest = jnp.full(slots - size, free.get(name, 0), value.dtype)
        values[name] = jnp.concatenate([value, rest])
    return part.replace(**values)


def _free_slots(copies: int, inputs: tuple[jax.Array, jax.Array]) -> jax.Array:
    """A free slot of its own for each entry that wants one, `[copies, entries]`.

    `inputs` are the free slots `[copies, slots]`, the last of which is nobody's, and who
    wants one. Entries for which there is none get the last.
    """
    free, wants = inputs
    slots = free.shape[1]
    free = members(free.at[:, -1].set(False).reshape(-1))
    start = jnp.arange(copies, dtype=jnp.int32)[:, None] * slots
    rank = jnp.cumsum(wants.astype(jnp.int32), axis=1) - 1
    found = free.locate((free.before(start) + rank).reshape(-1)).reshape(wants.shape) - start
    return jnp.clip(found, 0, slots - 1)
