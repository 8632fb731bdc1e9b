"""Next speeds, displacement, hand-over between drivables, leaders and gaps.

All functions work on a `Fleet` whose leading axes are flattened: indices of vehicles
and drivables stay local to their copy, and an offset is added where they are followed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.envs.traffic import vehicles
from jaxlab.envs.traffic.fleet import Fleet, Layout
from jaxlab.envs.traffic.right_of_way import Approach, crossing_speeds

#: Step of entry of a vehicle that is not on a link.
NOT_ON_LINK = np.iinfo(np.int32).max


def advance(layout: Layout, fleet: Fleet) -> tuple[Fleet, jax.Array]:
    """One step of all copies: `(fleet, arrived)`, both with the leading axis of copies."""
    flat = jax.tree.map(lambda x: x.reshape(-1), fleet)
    if layout.short_entries:
        flat = _leaders_at_entry(layout, flat)
    speed, blocker = next_speed(layout, flat)
    before = flat
    flat, arrived, travelled = move(layout, flat, speed, blocker)
    leader, gap = leaders(layout, flat, before, travelled)
    flat = flat.replace(leader=leader, gap=gap)
    fleet = jax.tree.map(lambda x, like: x.reshape(like.shape), flat, fleet)
    return fleet, arrived.reshape(fleet.vehicle.shape)


def _copies(layout: Layout, per_copy: int) -> np.ndarray:
    """Copy of every entry of an array with `per_copy` entries each."""
    return np.repeat(np.arange(layout.copies, dtype=np.int32), per_copy)


def _own_drivers(layout: Layout, fleet: Fleet) -> vehicles.Drivers:
    return layout.drivers(fleet.drivers, _copies(layout, layout.slots), fleet.kind)


def _one_type(layout: Layout, fleet: Fleet) -> bool:
    return fleet.drivers.length.shape[0] == layout.copies


def _length_at(
    layout: Layout, fleet: Fleet, own: vehicles.Drivers, copy: np.ndarray, index: jax.Array
) -> jax.Array:
    """Length of the vehicles at flat slots `index` of copies `copy`."""
    return fleet.drivers.length[copy] if _one_type(layout, fleet) else own.length[index]


def next_speed(layout: Layout, fleet: Fleet) -> tuple[jax.Array, jax.Array]:
    """Speed at the end of the step and the vehicle yielded to, from the old state."""
    lanes, dt, nobody = layout.lanes, layout.dt, layout.nobody
    here = layout.offsets(layout.slots, layout.slots)
    own = _own_drivers(layout, fleet)
    position, speed = fleet.position, fleet.speed
    leader = fleet.leader + here
    leading = own if _one_type(layout, fleet) else jax.tree.map(lambda x: x[leader], own)
    rest = _rest(layout, position, fleet.fine, fleet.drivable)
    on_lane = fleet.drivable < lanes
    on_link = ~on_lane & (fleet.drivable < layout.nowhere)
    following = jnp.asarray(layout.paths)[fleet.path, fleet.hop + 1]
    following = jnp.where(fleet.vehicle >= 0, following, layout.nowhere)
    limit = layout.table("max_speed", position)[fleet.drivable]
    if fleet.speed_factor is not None:
        rows = layout.offsets(layout.slots, lanes + 1) + jnp.minimum(fleet.drivable, lanes)
        limit = limit * fleet.speed_factor[rows]

    follow = vehicles.following_speed(speed, own, speed[leader], leading, fleet.gap, dt)
    wanted = jnp.minimum(jnp.minimum(own.max_speed, speed + own.max_acceleration * dt), limit)
    wanted = jnp.where(fleet.leader == nobody, wanted, jnp.minimum(wanted, follow))

    near = (
        on_lane
        & (following >= lanes)
        & (following < layout.nowhere)
        & (rest <= vehicles.look_ahead(own, dt))
    )
    link = jnp.clip(following - lanes, 0, layout.links - 1)
    is_open, room = _link_ahead(layout, fleet, own, link)
    can_stop = ~(vehicles.braking_distance(speed, own.max_deceleration) > rest)
    stops = near & ~(is_open & room) & can_stop
    stop = vehicles.stopping_speed(speed, own, rest, dt)
    turns = near & layout.table("link_turns")[link]
    cap = jnp.where(turns, jnp.asarray(vehicles.TURN_SPEED, speed.dtype), own.max_speed)
    at_junction = jnp.minimum(jnp.where(stops, stop, cap), own.max_speed)
    approach = Approach(
        asks=on_link | (near & ~stops),
        link=jnp.where(on_link, fleet.drivable - lanes, link),
        along=jnp.where(on_lane, -rest, position),
        next_link=jnp.where(on_lane & (following < layout.nowhere), link, -1),
    )
    yielding, blocker = crossing_speeds(layout, fleet, approach, own)
    at_junction = jnp.minimum(at_junction, yielding)
    wanted = jnp.where(near | on_link, jnp.minimum(wanted, at_junction), wanted)
    return jnp.maximum(wanted, speed - own.max_deceleration * dt), blocker


def _link_ahead(
    layout: Layout, fleet: Fleet, own: vehicles.Drivers, link: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Whether `link` has right of way, and whether its end lane has room for the vehicle."""
    nobody, slots, links = layout.nobody, layout.slots, layout.links
    end = layout.every_copy(layout.network["link_end"])
    tail = fleet.last[end + layout.offsets(links, layout.nowhere + 1)]
    at = tail + layout.offsets(links, slots)
    free = (tail == nobody) | (fleet.speed[at] >= vehicles.TAIL_MOVES_SPEED)
    position = jnp.where(free, jnp.inf, fleet.position[at])
    row = layout.offsets(slots, links) + link
    length = own.length if _one_type(layout, fleet) else jnp.where(free, 0, own.length[at])[row]
    return fleet.green[row], position[row] > length + own.length


def move(
    layout: Layout, fleet: Fleet, next_speed: jax.Array, blocker: jax.Array
) -> tuple[Fleet, jax.Array, jax.Array]:
    """Displace every vehicle and hand it over; also who arrived and the metres travelled,
    `[copies * slots]`."""
    here = layout.offsets(layout.slots, layout.slots)
    own = _own_drivers(layout, fleet)
    speed, active = fleet.speed, fleet.vehicle >= 0
    brakes_to_rest = next_speed < 0
    travelled = jnp.where(
        brakes_to_rest,
        0.5 * speed * speed / own.max_deceleration,
        (speed + next_speed) * layout.dt / 2,
    )
    lost = jnp.where(brakes_to_rest, 0, _lost(speed, next_speed) * layout.dt / 2)
    next_speed = jnp.where(active & ~brakes_to_rest, next_speed, 0)
    position, fine, hop, drivable = _carry_over(layout, fleet, *_displaced(fleet, travelled, lost))
    arrived = active & (drivable == layout.nowhere)
    moved = drivable != fleet.drivable
    last, ahead = _hand_over(layout, fleet, moved, arrived, drivable, position)
    on_link = (drivable >= layout.lanes) & ~arrived
    step = jnp.repeat(fleet.step, layout.slots, total_repeat_length=speed.shape[0])
    gone = arrived | arrived[blocker + here]
    fleet = fleet.replace(
        vehicle=jnp.where(arrived, -1, fleet.vehicle),
        hop=hop,
        drivable=drivable,
        previous=jnp.where(moved, fleet.drivable, fleet.previous),
        ahead=ahead,
        blocker=jnp.where(gone, layout.nobody, blocker),
        entered=jnp.where(moved, jnp.where(on_link, step, NOT_ON_LINK), fleet.entered),
        position=jnp.where(arrived, 0, position),
        fine=jnp.where(arrived, 0, fine),
        speed=jnp.where(arrived, 0, next_speed),
        last=last,
    )
    return fleet, arrived, travelled


def _compensated(position: jax.Array) -> bool:
    """Whether `fine` is kept: 32-bit positions of some 700 m round to 6e-5 m, which decides in how
    many steps a creeping vehicle is at its line. In 64 bits the engine's rounding is kept."""
    return position.dtype == jnp.float32


def _rest(layout: Layout, position: jax.Array, fine: jax.Array, drivable: jax.Array) -> jax.Array:
    """Metres to the end of the drivable, negative beyond it."""
    rest = layout.table("length", position)[drivable] - position
    return rest + (layout.remainder("length")[drivable] - fine) if _compensated(position) else rest


def _lost(a: jax.Array, b: jax.Array) -> jax.Array:
    """Rounding error of `a + b` (Knuth)."""
    total = a + b
    part = total - a
    return (a - (total - part)) + (b - part)


def _displaced(fleet: Fleet, travelled: jax.Array, lost: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Position and its rounding error after a displacement that itself lost some metres."""
    position = fleet.position + travelled
    if not _compensated(position):
        return position, fleet.fine
    fine = _lost(fleet.position, travelled) + (fleet.fine + lost)
    return position + fine, _lost(position, fine)


def _carry_over(
    layout: Layout, fleet: Fleet, position: jax.Array, fine: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Follow the path while the position lies beyond the end of the drivable."""
    length = layout.table("length", position)
    paths = jnp.asarray(layout.paths)

    def beyond(position, fine, drivable):
        if _compensated(position):
            past = _rest(layout, position, fine, drivable) < 0
        else:
            past = position > length[drivable]
        return (drivable < layout.nowhere) & past

    def advance(carry):
        over, position, fine, hop, drivable = carry
        if _compensated(position):
            carried = -_rest(layout, position, fine, drivable)
            fine = jnp.where(over, 0, fine)
        else:
            carried = position - length[drivable]
        position = jnp.where(over, carried, position)
        hop = jnp.where(over, hop + 1, hop)
        drivable = jnp.where(over, paths[fleet.path, hop], drivable)
        return beyond(position, fine, drivable), position, fine, hop, drivable

    over = beyond(position, fine, fleet.drivable)
    start = (over, position, fine, fleet.hop, fleet.drivable)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), advance, start)[1:]


def _hand_over(
    layout: Layout,
    fleet: Fleet,
    moved: jax.Array,
    arrived: jax.Array,
    drivable: jax.Array,
    position: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Rearmost vehicles and the vehicle ahead after vehicles changed drivable.

    Those entering the same drivable queue up in order of decreasing position.
    """
    slots, places = layout.slots, layout.nowhere + 1
    local = layout.every_copy(np.arange(slots, dtype=np.int32))
    here = layout.offsets(slots, slots)
    there = layout.offsets(places, slots)
    base = np.concatenate([there, here])

    def skip(carry):
        pointers, gone = carry
        pointers = jnp.where(gone, fleet.ahead[pointers + base], pointers)
        return pointers, moved[pointers + base]

    pointers = jnp.concatenate([fleet.last, fleet.ahead])
    gone = moved[pointers + base]
    # Where one has gone, all ahead of it have too, unless vehicles overlap: then look.
    stays = moved & (fleet.ahead != layout.nobody) & ~gone[len(there) :]
    overlap = jnp.any(stays)
    pointers = jnp.where(gone & ~overlap, layout.nobody, pointers)
    pointers, _ = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]), skip, (pointers, gone & overlap)
    )
    last, ahead = pointers[: len(there)], pointers[len(there) :]
    place = layout.offsets(slots, places) + drivable
    outside = last.shape[0]

    def append(carry):
        pending, last, ahead = carry
        at = jnp.where(pending, place, outside)
        foremost = jnp.full(last.shape, -1, position.dtype).at[at].max(position, mode="drop")
        leads = pending & (position == foremost[place])
        at = jnp.where(leads, place, outside)
        first = jnp.full(last.shape, slots, jnp.int32).at[at].min(local, mode="drop")
        leads = leads & (first[place] == local)
        ahead = jnp.where(leads, last[place], ahead)
        last = jnp.where(first < slots, first, last)
        return pending & ~leads, last, ahead

    pending = moved & ~arrived & (fleet.vehicle >= 0)
    _, last, ahead = jax.lax.while_loop(
        lambda carry: jnp.any(carry[0]), append, (pending, last, ahead)
    )
    return last, jnp.where(arrived, layout.nobody, ahead)


def _leaders_at_entry(layout: Layout, fleet: Fleet) -> Fleet:
    """Leaders of vehicles that have just entered an empty lane."""
    own = _own_drivers(layout, fleet)
    fresh = (fleet.vehicle >= 0) & (fleet.hop == 0) & (fleet.position == 0)
    fresh = fresh & (fleet.leader == layout.nobody)
    length = layout.table("length", fleet.position)[fleet.drivable]
    copy = _copies(layout, layout.slots)
    leader, gap = leader_beyond(layout, fleet, own, copy, fleet.path, fleet.hop, length, own, fresh)
    return fleet.replace(
        leader=jnp.where(fresh, leader, fleet.leader), gap=jnp.where(fresh, gap, fleet.gap)
    )


def leaders(
    layout: Layout, fleet: Fleet, before: Fleet, travelled: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Leader of every vehicle and the gap to it, after all travelled some metres."""
    here = layout.offsets(layout.slots, layout.slots)
    own = _own_drivers(layout, fleet)
    rest = _rest(layout, fleet.position, fleet.fine, fleet.drivable)
    front = (fleet.vehicle >= 0) & (fleet.ahead == layout.nobody)
    copy = _copies(layout, layout.slots)
    leader, gap = leader_beyond(layout, fleet, own, copy, fleet.path, fleet.hop, rest, own, front)
    ahead = fleet.ahead + here
    length = _length_at(layout, fleet, own, copy, ahead)
    if _compensated(fleet.position):
        apart = fleet.position[ahead] - fleet.position
        behind = (apart - length) + (fleet.fine[ahead] - fleet.fine)
        # From gap to gap in a queue: vehicles that start there keep to round numbers, from which the
        # slightest error grows threefold from one vehicle to the next.
        goes_on = (fleet.ahead == before.ahead) & (before.gap < 10)
        behind = jnp.where(goes_on, before.gap + (travelled[ahead] - travelled), behind)
    else:
        behind = fleet.position[ahead] - length - fleet.position
    follows = fleet.ahead != layout.nobody
    return jnp.where(follows, fleet.ahead, leader), jnp.where(follows, behind, gap)


def leader_beyond(
    layout: Layout,
    fleet: Fleet,
    own: vehicles.Drivers,
    copy: np.ndarray,
    path: jax.Array,
    hop: jax.Array,
    distance: jax.Array,
    driver: vehicles.Drivers,
    searching: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Walk the path ahead for a leader within the look-ahead distance.

    A link counts as taken by whoever is rearmost on any link from the same lane, since
    these overlap. `copy` is the copy in which each walker is.
    """
    length = layout.table("length", fleet.position)
    paths = jnp.asarray(layout.paths)
    horizon = vehicles.look_ahead(driver, layout.dt)
    rear = _rearmost(layout, fleet, own)
    here, places = copy * layout.slots, copy * (layout.nowhere + 1)

    def walk(carry):
        searching, hop, distance, leader, gap = carry
        hop = hop + 1
        drivable = jnp.where(searching, paths[path, hop], layout.nowhere)
        found = rear[places + drivable]
        hit = searching & (found != layout.nobody)
        at = found + here
        space = distance + fleet.position[at] - _length_at(layout, fleet, own, copy, at)
        distance = distance + length[drivable]
        on = searching & ~hit & (drivable < layout.nowhere) & ~(distance > horizon)
        return on, hop, distance, jnp.where(hit, found, leader), jnp.where(hit, space, gap)

    nobody = jnp.full(path.shape, layout.nobody, jnp.int32)
    start = (searching, hop, distance, nobody, jnp.zeros_like(distance))
    _, _, _, leader, gap = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), walk, start)
    return leader, gap


def _rearmost(layout: Layout, fleet: Fleet, own: vehicles.Drivers) -> jax.Array:
    """Vehicle that a follower meets first on entering each drivable, `[copies * (D + 1)]`."""
    lanes, places = layout.lanes, layout.nowhere + 1
    fan = layout.network["lane_links"][:lanes]
    copy = np.arange(layout.copies, dtype=np.int32)[:, None]
    nearest = jnp.full((layout.copies, lanes), layout.nobody, jnp.int32)
    closest = jnp.full(nearest.shape, jnp.inf, fleet.position.dtype)
    for column in fan.T:
        # Flat indices: XLA would gather columns first and transpose.
        tail = fleet.last[copy * places + column]
        at = tail + copy * layout.slots
        rear = fleet.position[at] - _length_at(layout, fleet, own, copy, at)
        closer = (tail != layout.nobody) & (rear < closest)
        nearest = jnp.where(closer, tail, nearest)
        closest = jnp.where(closer, rear, closest)
    links = nearest.reshape(-1)[copy * lanes + layout.network["link_start"]]
    last = fleet.last.reshape(layout.copies, places)
    nobody = jnp.full((layout.copies, 1), layout.nobody, jnp.int32)
    return jnp.concatenate([last[:, :lanes], links, nobody], axis=1).reshape(-1)
