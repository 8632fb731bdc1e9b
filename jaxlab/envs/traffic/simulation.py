"""One step of the microscopic simulation as a pure function over fixed-shape arrays.

Vehicles on the road live in slots; every slot knows its path, its place on it and the
vehicle ahead on the same drivable. The last slot is nobody: index `capacity` stands
for "no vehicle", drivable index `D` for "nowhere", so gathers never need a mask.

The order within a step is CityFlow's: insertion, notification of crossings, next
speeds from the old state, movement, leaders and gaps.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from jaxlab.core.environment import Constant
from jaxlab.envs.traffic import vehicles
from jaxlab.envs.traffic.compaction import locate, running_count
from jaxlab.envs.traffic.params import TrafficParams, lane_conditions
from jaxlab.envs.traffic.right_of_way import Approach, crossing_speeds

#: Step of entry of a vehicle that is not on a link.
NOT_ON_LINK = jnp.iinfo(jnp.int32).max


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

    def step(
        self, state: TrafficState, phase: jax.Array, params: TrafficParams
    ) -> TrafficState:
        """Advance by `dt` with signal phase `phase [junctions]` in force."""
        speed_factor, closed = lane_conditions(params, state.step, self.dt, self.num_lanes)
        state = self._insert(state, params, closed)
        speed, blocker = self._next_speed(state, phase, params, speed_factor, closed)
        return self._move(state, speed, blocker, params)

    def _table(self, name: str, like: jax.Array) -> jax.Array:
        return jnp.asarray(self.network.value[name], like.dtype)

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
        free = running_count(state.drivable[: self.capacity] == self.nowhere)
        rank = jnp.cumsum(go.astype(jnp.int32)) - 1
        slot = locate(free, rank)
        fits = slot < self.capacity
        overflow = state.overflow | jnp.any(go & ~fits)
        go = go & fits
        slot = jnp.where(go, slot, self.capacity + 1)  # out of bounds: dropped

        path = params.path[candidate]
        distance = jnp.broadcast_to(self._table("length", state.position)[lane], lane.shape)
        leader, gap = self._leader_beyond(
            state, params, path, jnp.zeros_like(path), distance, driver, empty & go
        )
        leader = jnp.where(empty, leader, tail)
        gap = jnp.where(empty, gap, state.position[tail] - tail_driver.length)

        def put(field: jax.Array, value: jax.Array | int) -> jax.Array:
            return field.at[slot].set(jnp.asarray(value, field.dtype), mode="drop")

        return state.replace(
            vehicle=put(state.vehicle, candidate),
            path=put(state.path, path),
            hop=put(state.hop, 0),
            drivable=put(state.drivable, lane),
            previous=put(state.previous, self.nowhere),
            ahead=put(state.ahead, tail),
            leader=put(state.leader, leader),
            gap=put(state.gap, gap),
            blocker=put(state.blocker, self.capacity),
            entered=put(state.entered, NOT_ON_LINK),
            departed=put(state.departed, params.depart_step[candidate]),
            kind=put(state.kind, kind),
            priority=put(state.priority, params.priority[candidate]),
            position=put(state.position, 0),
            speed=put(state.speed, 0),
            last=state.last.at[jnp.where(go, lane, self.nowhere + 1)].set(slot, mode="drop"),
            queue_head=state.queue_head + go,
            overflow=overflow,
        )

    def _next_speed(
        self,
        state: TrafficState,
        phase: jax.Array,
        params: TrafficParams,
        speed_factor: jax.Array | None,
        closed: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """Speed at the end of the step and the vehicle yielded to, from the old state."""
        table = self.network.value
        lanes, dt = self.num_lanes, self.dt
        driver = params.drivers.of(state.kind)
        leader = params.drivers.of(state.kind, state.leader)
        position, speed = state.position, state.speed
        rest = self._table("length", position)[state.drivable] - position
        on_lane = state.drivable < lanes
        next_drivable = jnp.asarray(self.paths.value["paths"])[state.path, state.hop + 1]
        next_drivable = jnp.where(state.vehicle >= 0, next_drivable, self.nowhere)
        limit = self._table("max_speed", position)[state.drivable]
        if speed_factor is not None:
            limit = limit * speed_factor[jnp.minimum(state.drivable, lanes)]

        follow = vehicles.following_speed(
            speed, driver, speed[state.leader], leader, state.gap, dt
        )
        free = jnp.minimum(driver.max_speed, speed + driver.max_acceleration * dt)
        wanted = jnp.minimum(free, limit)
        wanted = jnp.where(state.leader == self.capacity, wanted, jnp.minimum(wanted, follow))

        near = (
            on_lane
            & (next_drivable >= lanes)
            & (next_drivable < self.nowhere)
            & (rest <= vehicles.look_ahead(driver, dt))
        )
        link = jnp.clip(next_drivable - lanes, 0, len(table["link_end"]) - 1)
        green = self.link_is_open(phase, closed)
        tail = state.last[jnp.asarray(table["link_end"])[link]]
        tail_length = params.drivers.of(state.kind, tail).length
        room = (
            (tail == self.capacity)
            | (position[tail] > tail_length + driver.length)
            | (speed[tail] >= vehicles.TAIL_MOVES_SPEED)
        )
        can_stop = ~(vehicles.braking_distance(speed, driver.max_deceleration) > rest)
        stops = near & ~(green[link] & room) & can_stop
        stop = vehicles.stopping_speed(speed, driver, rest, dt)
        turns = near & jnp.asarray(table["link_turns"])[link]
        cap = jnp.where(turns, jnp.asarray(vehicles.TURN_SPEED, speed.dtype), driver.max_speed)
        at_junction = jnp.where(
            stops, jnp.minimum(stop, driver.max_speed), jnp.minimum(cap, driver.max_speed)
        )
        on_link = ~on_lane & (state.drivable < self.nowhere)
        asks = on_link | (near & ~stops)
        approach = Approach(
            asks=asks,
            on_link=on_link,
            link=jnp.where(on_link, state.drivable - lanes, link),
            along=jnp.where(on_lane, -rest, position),
            next_link=jnp.where(on_lane & (next_drivable < self.nowhere), link, -1),
        )
        yielding, blocker = crossing_speeds(
            state, approach, green, params, table, dt, self.capacity
        )
        at_junction = jnp.minimum(at_junction, yielding)
        wanted = jnp.where(near | on_link, jnp.minimum(wanted, at_junction), wanted)
        return jnp.maximum(wanted, speed - driver.max_deceleration * dt), blocker

    def link_is_open(self, phase: jax.Array, closed: jax.Array | None = None) -> jax.Array:
        """Links with right of way in signal phase `phase [junctions]`, `[links]`, bool."""
        table = self.network.value
        allows = jnp.asarray(table["phase_allows"])
        junction, movement = table["link_junction"], table["link_movement"]
        is_open = allows[junction, phase[junction], movement]
        if closed is not None:
            is_open = is_open & ~closed[jnp.asarray(table["link_end"])]
        return is_open

    def _move(
        self,
        state: TrafficState,
        next_speed: jax.Array,
        blocker: jax.Array,
        params: TrafficParams,
    ) -> TrafficState:
        """Displace every vehicle, hand them over between drivables, find the new leaders."""
        driver = params.drivers.of(state.kind)
        speed = state.speed
        brakes_to_rest = next_speed < 0
        travelled = jnp.where(
            brakes_to_rest,
            0.5 * speed * speed / driver.max_deceleration,
            (speed + next_speed) * self.dt / 2,
        )
        active = state.vehicle >= 0
        next_speed = jnp.where(active & ~brakes_to_rest, next_speed, 0)
        position, hop, drivable = self._carry_over(state, state.position + travelled)
        arrived = active & (drivable == self.nowhere)
        moved = drivable != state.drivable
        last, ahead = self._hand_over(state, moved, arrived, drivable, position)
        on_link = (drivable >= self.num_lanes) & ~arrived
        entered = jnp.where(on_link, state.step, NOT_ON_LINK)
        blocker = jnp.where(arrived[blocker], self.capacity, blocker)
        arrival = state.arrival_step
        if self.record_arrivals:
            rows = jnp.where(arrived, state.vehicle, arrival.shape[0])
            arrival = arrival.at[rows].set(state.step, mode="drop")
        state = state.replace(
            vehicle=jnp.where(arrived, -1, state.vehicle),
            hop=hop,
            drivable=drivable,
            previous=jnp.where(moved, state.drivable, state.previous),
            ahead=ahead,
            blocker=jnp.where(arrived, self.capacity, blocker),
            entered=jnp.where(moved, entered, state.entered),
            position=jnp.where(arrived, 0, position),
            speed=jnp.where(arrived, 0, next_speed),
            last=last,
            finished=state.finished + jnp.sum(arrived, dtype=jnp.int32),
            travel_steps=state.travel_steps
            + jnp.sum(jnp.where(arrived, state.step - state.departed, 0), dtype=jnp.int32),
            arrival_step=arrival,
        )
        leader, gap = self._leaders(state, params)
        return state.replace(leader=leader, gap=gap, step=state.step + 1)

    def _carry_over(
        self, state: TrafficState, position: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Follow the path while the position lies beyond the end of the drivable."""
        length = self._table("length", position)
        paths = jnp.asarray(self.paths.value["paths"])

        def beyond(carry):
            position, _, drivable = carry
            return (drivable < self.nowhere) & (position > length[drivable])

        def advance(carry):
            position, hop, drivable = carry
            over = beyond(carry)
            position = jnp.where(over, position - length[drivable], position)
            hop = jnp.where(over, hop + 1, hop)
            return position, hop, jnp.where(over, paths[state.path, hop], drivable)

        return jax.lax.while_loop(
            lambda carry: jnp.any(beyond(carry)), advance, (position, state.hop, state.drivable)
        )

    def _hand_over(
        self,
        state: TrafficState,
        moved: jax.Array,
        arrived: jax.Array,
        drivable: jax.Array,
        position: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """Rearmost vehicles and the vehicle ahead after vehicles changed drivable.

        Those entering the same drivable queue up in order of decreasing position.
        """
        count = state.vehicle.shape[0]
        slots = jnp.arange(count, dtype=jnp.int32)

        def skip(pointers):
            return jnp.where(moved[pointers], state.ahead[pointers], pointers)

        pointers = jnp.concatenate([state.last, state.ahead])
        pointers = jax.lax.while_loop(lambda p: jnp.any(moved[p]), skip, pointers)
        last, ahead = pointers[: state.last.shape[0]], pointers[state.last.shape[0] :]

        def append(carry):
            pending, last, ahead = carry
            place = jnp.where(pending, drivable, self.nowhere)
            foremost = jnp.full(last.shape, -1, position.dtype).at[place].max(position)
            leads = pending & (position == foremost[place])
            first = jnp.full(last.shape, count, jnp.int32).at[
                jnp.where(leads, drivable, self.nowhere)
            ].min(slots)
            leads = leads & (first[place] == slots)
            ahead = jnp.where(leads, last[place], ahead)
            last = last.at[jnp.where(leads, drivable, self.nowhere + 1)].set(slots, mode="drop")
            return pending & ~leads, last, ahead

        pending = moved & ~arrived & (state.vehicle >= 0)
        _, last, ahead = jax.lax.while_loop(
            lambda carry: jnp.any(carry[0]), append, (pending, last, ahead)
        )
        return last, jnp.where(arrived, self.capacity, ahead)

    def _leaders(
        self, state: TrafficState, params: TrafficParams
    ) -> tuple[jax.Array, jax.Array]:
        """Leader of every vehicle and the gap to it."""
        driver = params.drivers.of(state.kind)
        rest = self._table("length", state.position)[state.drivable] - state.position
        front = (state.vehicle >= 0) & (state.ahead == self.capacity)
        leader, gap = self._leader_beyond(
            state, params, state.path, state.hop, rest, driver, front
        )
        ahead_length = params.drivers.of(state.kind, state.ahead).length
        behind = state.position[state.ahead] - ahead_length - state.position
        follows = state.ahead != self.capacity
        return jnp.where(follows, state.ahead, leader), jnp.where(follows, behind, gap)

    def _leader_beyond(
        self,
        state: TrafficState,
        params: TrafficParams,
        path: jax.Array,
        hop: jax.Array,
        distance: jax.Array,
        driver: vehicles.Drivers,
        searching: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """Walk the path ahead for a leader within the look-ahead distance.

        A link counts as taken by whoever is rearmost on any link from the same lane,
        since these overlap.
        """
        length = self._table("length", state.position)
        paths = jnp.asarray(self.paths.value["paths"])
        horizon = vehicles.look_ahead(driver, self.dt)
        rear = self._rearmost(state, params)

        def walk(carry):
            searching, hop, distance, leader, gap = carry
            hop = hop + 1
            drivable = jnp.where(searching, paths[path, hop], self.nowhere)
            found = rear[drivable]
            hit = searching & (found != self.capacity)
            space = distance + state.position[found] - params.drivers.of(state.kind, found).length
            distance = distance + length[drivable]
            on = searching & ~hit & (drivable < self.nowhere) & ~(distance > horizon)
            return (
                on,
                hop,
                distance,
                jnp.where(hit, found, leader),
                jnp.where(hit, space, gap),
            )

        start = (
            searching,
            hop,
            distance,
            jnp.full(path.shape, self.capacity, jnp.int32),
            jnp.zeros_like(distance),
        )
        _, _, _, leader, gap = jax.lax.while_loop(lambda c: jnp.any(c[0]), walk, start)
        return leader, gap

    def _rearmost(self, state: TrafficState, params: TrafficParams) -> jax.Array:
        """Vehicle that a follower meets first on entering each drivable, `[D + 1]`."""
        table = self.network.value
        fan = jnp.asarray(table["lane_links"])[: self.num_lanes]
        tails = state.last[fan]
        rear = state.position[tails] - params.drivers.of(state.kind, tails).length
        rear = jnp.where(tails == self.capacity, jnp.inf, rear)
        nearest = jnp.argmin(rear, axis=1)
        blocking = jnp.take_along_axis(tails, nearest[:, None], axis=1)[:, 0]
        links = blocking[jnp.asarray(table["link_start"])]
        nobody = jnp.full((1,), self.capacity, jnp.int32)
        return jnp.concatenate([state.last[: self.num_lanes], links, nobody])
