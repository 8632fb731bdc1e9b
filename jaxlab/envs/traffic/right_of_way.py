"""Who may cross first: claims on crossings, yielding and the release of deadlocks.

Every crossing of two links holds, for either link, the one vehicle that claims it. A
link's claims go, in this order, to a vehicle whose tail still sticks out of the link
onto the next lane, to the vehicles on the link from front to back, and to the first
vehicle of the approach lane if it has green. A vehicle passes its claims on once its
tail has cleared the crossing (CityFlow, `Engine::threadNotifyCross`, `Cross::canPass`).

Claims are looked up from the side of the one who asks: few vehicles do in any step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.envs.traffic import vehicles
from jaxlab.envs.traffic.compaction import members
from jaxlab.envs.traffic.fleet import Fleet, Layout

#: Vehicles handled at once, of one copy and of many; more are taken in further rounds, so
#: this is no limit.
CHUNK, LARGEST_CHUNK = 32, 128


@struct.dataclass
class Approach:
    """Where each vehicle stands relative to the link it drives on or makes for.

    Attributes (`[copies * slots]` each):
      asks: Whether it has to look at crossings in this step.
      link: The link, any index where neither applies.
      along: Position along the link, negative before its start (m).
      next_link: Link ahead of a vehicle on a lane, -1 for none.
    """

    asks: jax.Array
    link: jax.Array
    along: jax.Array
    next_link: jax.Array


@struct.dataclass
class _Claims:
    """Claimants of each link, `[copies * links]`: tail on the next lane, front of the approach."""

    tail: jax.Array
    front: jax.Array


def crossing_speeds(
    layout: Layout, fleet: Fleet, approach: Approach, own: vehicles.Drivers
) -> tuple[jax.Array, jax.Array]:
    """Speed imposed by the first crossing that must be yielded, and to whom.

    The speed is infinite, the blocker nobody, where there is no such crossing.
    """
    claims = _claims(layout, fleet, approach)
    deadlocked = _leads_into_cycle(layout, fleet.blocker)
    asking = members(approach.asks)
    chunk = min(CHUNK * layout.copies, LARGEST_CHUNK)
    infinite = jnp.full(fleet.speed.shape, jnp.inf, fleet.speed.dtype)
    none = jnp.full(fleet.blocker.shape, layout.nobody, jnp.int32)
    copy_of = jnp.asarray(np.repeat(np.arange(layout.copies, dtype=np.int32), layout.slots))

    def body(carry):
        done, speed, blocker = carry
        slot = asking.locate(done + jnp.arange(chunk, dtype=jnp.int32))
        limit, foe = _yield_chunk(layout, fleet, approach, own, claims, deadlocked, slot, copy_of)
        speed = speed.at[slot].set(limit, mode="drop")
        return done + chunk, speed, blocker.at[slot].set(foe, mode="drop")

    _, speed, blocker = jax.lax.while_loop(
        lambda carry: carry[0] < asking.total, body, (jnp.int32(0), infinite, none)
    )
    return speed, blocker


def _claims(layout: Layout, fleet: Fleet, approach: Approach) -> _Claims:
    links, slots, nobody = layout.links, layout.slots, layout.nobody
    total = layout.copies * links
    # First vehicle of each lane: the one with nobody ahead.
    heads = (fleet.ahead == nobody) & (approach.next_link >= 0)
    row = jnp.where(heads, layout.offsets(slots, links) + approach.next_link, total)
    local = layout.every_copy(np.arange(slots, dtype=np.int32))
    front = jnp.full(total, nobody, jnp.int32).at[row].set(local, mode="drop")
    front = jnp.where(fleet.green, front, nobody)
    end = layout.every_copy(layout.network["link_end"])
    tail = fleet.last[end + layout.offsets(links, layout.nowhere + 1)]
    came_from = fleet.previous[tail + layout.offsets(links, slots)]
    own = came_from == layout.lanes + layout.every_copy(np.arange(links, dtype=np.int32))
    return _Claims(tail=jnp.where(own, tail, nobody), front=front)


def _leads_into_cycle(layout: Layout, blocker: jax.Array) -> jax.Array:
    """Whether following blockers from a vehicle never ends, by pointer doubling."""
    rounds = layout.slots.bit_length() + 1
    here = layout.offsets(layout.slots, layout.slots)

    def body(carry):
        n, pointer = carry
        return n + 1, pointer[pointer + here]

    def more(carry):
        n, pointer = carry
        return (n < rounds) & jnp.any(pointer != layout.nobody)

    _, pointer = jax.lax.while_loop(more, body, (jnp.int32(0), blocker))
    return pointer != layout.nobody


def _cleared(position: jax.Array, length: jax.Array, crossing: jax.Array) -> jax.Array:
    """Whether a vehicle's tail is past a crossing of the link it is on."""
    return (position > crossing) & (position - crossing - length > 0)


def _claimant_on_link(
    layout: Layout,
    fleet: Fleet,
    own: vehicles.Drivers,
    foe_link: jax.Array,
    crossing: jax.Array,
    copy: jax.Array,
) -> jax.Array:
    """Foremost vehicle on a link whose tail has not cleared the crossing; nobody for none."""
    here, nobody = copy * layout.slots, layout.nobody
    rear = fleet.last[copy * (layout.nowhere + 1) + layout.lanes + foe_link]

    def holds(vehicle):
        at = vehicle + here
        uncleared = ~_cleared(fleet.position[at], own.length[at], crossing)
        return (vehicle != nobody) & uncleared

    def step(carry):
        vehicle, next_one, _ = carry
        vehicle = next_one
        ahead = fleet.ahead[vehicle + here]
        advances = holds(ahead)
        return vehicle, jnp.where(advances, ahead, vehicle), jnp.any(advances)

    first = jnp.where(holds(rear), rear, nobody)
    return jax.lax.while_loop(lambda c: c[2], step, (first, first, jnp.any(first != nobody)))[0]


def _yield_chunk(
    layout: Layout,
    fleet: Fleet,
    approach: Approach,
    own: vehicles.Drivers,
    claims: _Claims,
    deadlocked: jax.Array,
    slot: jax.Array,
    copy_of: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Crossing rule for one chunk of vehicles against all crossings of their links."""
    real, nobody, dt = fleet.position, layout.nobody, layout.dt
    exists = slot < fleet.position.shape[0]
    slot = jnp.minimum(slot, fleet.position.shape[0] - 1)
    link = jnp.where(exists, approach.link[slot], 0)
    copy = copy_of[slot][:, None]
    here = copy * layout.slots
    asker = jax.tree.map(lambda x: x[slot], own)
    driver = jax.tree.map(lambda x: x[:, None], asker)
    column = lambda values: values[slot][:, None]  # noqa: E731
    speed, along = column(fleet.speed), column(approach.along)

    at = layout.table("cross_distance", real)[link]
    foe_at = layout.table("cross_foe_distance", real)[link]
    sticks = layout.table("cross_foe_rest", real)[link]
    word = layout.table("cross_word")[link]
    foe_link, rank = word >> 4, ((word >> 2) & 3) - 1
    foe_turns, present = (word & 2) != 0, (word & 1) != 0
    relevant = present & exists[:, None] & ~(at < along)

    row = copy * layout.links + foe_link
    tail, front = claims.tail[row], claims.front[row]
    on_link = _claimant_on_link(layout, fleet, own, foe_link, foe_at, copy)
    tail_at = tail + here
    holds = (tail != nobody) & (sticks + (fleet.position[tail_at] - own.length[tail_at]) < 0)
    foe = jnp.where(holds, tail, jnp.where(on_link != nobody, on_link, front))
    foe_slot = foe + here
    d1 = at - along
    d2 = jnp.where(holds, -(fleet.position[foe_slot] + sticks), foe_at - approach.along[foe_slot])

    foes = jax.tree.map(lambda x: x[foe_slot], own)
    foe_speed = fleet.speed[foe_slot]
    yields = vehicles.can_yield(speed, d1, driver.max_deceleration, driver.length)
    foe_yields = vehicles.can_yield(foe_speed, d2, foes.max_deceleration, foes.length)
    turn = jnp.asarray(vehicles.TURN_SPEED, real.dtype)
    target = jnp.where(layout.table("link_turns")[link][:, None], turn, driver.max_speed)
    foe_target = jnp.where(foe_turns, turn, foes.max_speed)
    arrives = vehicles.steps_to_reach(speed, d1, target, driver.usual_acceleration, dt)
    foe_arrives = vehicles.steps_to_reach(foe_speed, d2, foe_target, foes.usual_acceleration, dt)
    entered, foe_entered = column(fleet.entered), fleet.entered[foe_slot]
    tie = jnp.where(
        entered == foe_entered,
        jnp.where(d1 == d2, column(fleet.priority) > fleet.priority[foe_slot], d1 < d2),
        entered < foe_entered,
    )
    first = (foe_arrives > arrives) | ((foe_arrives == arrives) & (rank == 0) & tie)
    wins = jnp.where(d2 > 0, first, d2 + foes.length < 0)
    passes = (foe == nobody) | ~yields | (foe_yields & ((rank > 0) | wins)) | deadlocked[foe_slot]
    held = relevant & ~passes
    # The first crossing that holds, by a minimum: XLA's argmax is a slow loop on a CPU.
    columns = np.arange(held.shape[1], dtype=np.int32)
    which = jnp.min(jnp.where(held, columns, held.shape[1]), axis=1)
    any_held = which < held.shape[1]
    which = jnp.minimum(which, held.shape[1] - 1)[:, None]
    pick = lambda values: jnp.take_along_axis(values, which, axis=1)[:, 0]  # noqa: E731
    distance = pick(d1) - vehicles.YIELD_DISTANCE
    limit = vehicles.stopping_speed(fleet.speed[slot], asker, distance, dt)
    return jnp.where(any_held, limit, jnp.inf), jnp.where(any_held, pick(foe), nobody)
