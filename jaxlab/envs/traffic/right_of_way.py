"""Who may cross first: claims on crossings, yielding and the release of deadlocks.

Every crossing of two links holds, for either link, the one vehicle that claims it. A
link's claims go, in this order, to a vehicle whose tail still sticks out of the link
onto the next lane, to the vehicles on the link from front to back, and to the first
vehicle of the approach lane if it has green. A vehicle passes its claims on once its
tail has cleared the crossing (CityFlow, `Engine::threadNotifyCross`, `Cross::canPass`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.envs.traffic import vehicles
from jaxlab.envs.traffic.compaction import locate, running_count
from jaxlab.envs.traffic.params import TrafficParams

if TYPE_CHECKING:
    from jaxlab.envs.traffic.simulation import TrafficState

#: Vehicles handled at once; more are taken in further rounds, so this is no limit.
CHUNK = 64


@struct.dataclass
class Approach:
    """Where each vehicle stands relative to the link it drives on or makes for.

    Attributes (`[slots]` each):
      asks: Whether it has to look at crossings in this step.
      on_link: Whether it is on a link.
      link: The link, any index where neither applies.
      along: Position along the link, negative before its start (m).
      next_link: Link ahead of a vehicle on a lane, -1 for none.
    """

    asks: jax.Array
    on_link: jax.Array
    link: jax.Array
    along: jax.Array
    next_link: jax.Array


@struct.dataclass
class _Claims:
    """Claims on each link: tail on the next lane, `[links]`; per crossing; front of the approach."""

    tail: jax.Array
    on_link: jax.Array
    front: jax.Array


def crossing_speeds(
    state: TrafficState,
    approach: Approach,
    green: jax.Array,
    params: TrafficParams,
    table: Mapping[str, np.ndarray],
    dt: float,
    nobody: int,
) -> tuple[jax.Array, jax.Array]:
    """Speed imposed by the first crossing that must be yielded, and to whom, `[slots]` each.

    The speed is infinite, the blocker `nobody`, where there is no such crossing.
    """
    claims = _claims(state, approach, green, params, table, nobody)
    deadlocked = _leads_into_cycle(state.blocker, nobody)
    count = running_count(approach.asks)
    infinite = jnp.full(state.speed.shape, jnp.inf, state.speed.dtype)
    none = jnp.full(state.blocker.shape, nobody, jnp.int32)

    def body(carry):
        done, speed, blocker = carry
        slot = locate(count, done + jnp.arange(CHUNK, dtype=jnp.int32))
        limit, foe = _yield_chunk(
            slot, state, approach, claims, deadlocked, params, table, dt, nobody
        )
        return (
            done + CHUNK,
            speed.at[slot].set(limit, mode="drop"),
            blocker.at[slot].set(foe, mode="drop"),
        )

    _, speed, blocker = jax.lax.while_loop(
        lambda carry: carry[0] < count[-1], body, (jnp.int32(0), infinite, none)
    )
    return speed, blocker


def _claims(
    state: TrafficState,
    approach: Approach,
    green: jax.Array,
    params: TrafficParams,
    table: Mapping[str, np.ndarray],
    nobody: int,
) -> _Claims:
    links, crosses = table["cross_distance"].shape
    lanes = table["lane_links"].shape[0] - 1
    # First vehicle of each lane: the one with nobody ahead.
    heads = (state.ahead == nobody) & (approach.next_link >= 0)
    slots = jnp.arange(state.ahead.shape[0], dtype=jnp.int32)
    front = jnp.full(links, nobody, jnp.int32)
    front = front.at[jnp.where(heads, approach.next_link, links)].set(slots, mode="drop")
    front = jnp.where(green, front, nobody)
    tail = state.last[jnp.asarray(table["link_end"])]
    own = state.previous[tail] == lanes + jnp.arange(links, dtype=jnp.int32)
    tail = jnp.where((tail != nobody) & own, tail, nobody)

    count = running_count(approach.on_link)
    length = params.drivers.of(state.kind).length
    distance = jnp.asarray(table["cross_distance"], state.position.dtype)
    present = jnp.asarray(table["cross_present"])

    def body(carry):
        done, claimed = carry
        slot = locate(count, done + jnp.arange(CHUNK, dtype=jnp.int32))
        safe = jnp.minimum(slot, nobody)
        link = jnp.where(slot < slots.shape[0], approach.link[safe], 0)
        # Cleared crossings go to the next vehicle: the interval between two tails.
        at = distance[link]
        mine = ~_cleared(state.position[safe], length[safe][:, None], at)
        ahead = state.ahead[safe]
        others = (ahead != nobody)[:, None] & ~_cleared(
            state.position[ahead], length[ahead][:, None], at
        )
        takes = present[link] & mine & ~others & (slot < slots.shape[0])[:, None]
        side = link[:, None] * crosses + jnp.arange(crosses, dtype=jnp.int32)
        side = jnp.where(takes, side, links * crosses)
        return done + CHUNK, claimed.at[side].set(slot[:, None], mode="drop")

    empty = jnp.full(links * crosses, nobody, jnp.int32)
    _, claimed = jax.lax.while_loop(
        lambda carry: carry[0] < count[-1], body, (jnp.int32(0), empty)
    )
    return _Claims(tail=tail, on_link=claimed, front=front)


def _cleared(position: jax.Array, length: jax.Array, crossing: jax.Array) -> jax.Array:
    position = position[:, None]
    return (position > crossing) & (position - crossing - length > 0)


def _leads_into_cycle(blocker: jax.Array, nobody: int) -> jax.Array:
    """Whether following blockers from a vehicle never ends, by pointer doubling."""
    rounds = max(nobody, 1).bit_length() + 1

    def body(carry):
        n, pointer = carry
        return n + 1, pointer[pointer]

    def more(carry):
        n, pointer = carry
        return (n < rounds) & jnp.any(pointer != nobody)

    _, pointer = jax.lax.while_loop(more, body, (jnp.int32(0), blocker))
    return pointer != nobody


def _yield_chunk(
    slot: jax.Array,
    state: TrafficState,
    approach: Approach,
    claims: _Claims,
    deadlocked: jax.Array,
    params: TrafficParams,
    table: Mapping[str, np.ndarray],
    dt: float,
    nobody: int,
) -> tuple[jax.Array, jax.Array]:
    """Crossing rule for one chunk of vehicles against all crossings of their links."""
    real = state.position.dtype
    lookup = lambda name, dtype=None: jnp.asarray(table[name], dtype)  # noqa: E731
    exists = slot <= nobody
    slot = jnp.minimum(slot, nobody)
    link = jnp.where(exists, approach.link[slot], 0)
    column = lambda values: values[slot][:, None]  # noqa: E731
    own = params.drivers.of(state.kind, slot)
    driver = jax.tree.map(lambda x: x[:, None], own)
    speed, along = column(state.speed), column(approach.along)

    at = lookup("cross_distance", real)[link]
    foe_link = lookup("cross_foe")[link]
    foe_at = lookup("cross_foe_distance", real)[link]
    rank = lookup("cross_rank")[link]
    relevant = lookup("cross_present")[link] & exists[:, None] & ~(at < along)

    tail = claims.tail[foe_link]
    sticks = lookup("length", real)[lookup("lane_links").shape[0] - 1 + foe_link] - foe_at
    tail_length = params.drivers.of(state.kind, tail).length
    holds = (tail != nobody) & (sticks + (state.position[tail] - tail_length) < 0)
    on_link = claims.on_link[lookup("cross_side")[link]]
    foe = jnp.where(holds, tail, jnp.where(on_link != nobody, on_link, claims.front[foe_link]))
    d1 = at - along
    d2 = jnp.where(holds, -(state.position[foe] + sticks), foe_at - approach.along[foe])

    foe_driver = params.drivers.of(state.kind, foe)
    foe_speed = state.speed[foe]
    yields = vehicles.can_yield(speed, d1, driver.max_deceleration, driver.length)
    foe_yields = vehicles.can_yield(
        foe_speed, d2, foe_driver.max_deceleration, foe_driver.length
    )
    turn = jnp.asarray(vehicles.TURN_SPEED, real)
    target = jnp.where(lookup("link_turns")[link][:, None], turn, driver.max_speed)
    foe_target = jnp.where(lookup("cross_foe_turns")[link], turn, foe_driver.max_speed)
    arrives = vehicles.steps_to_reach(speed, d1, target, driver.usual_acceleration, dt)
    foe_arrives = vehicles.steps_to_reach(
        foe_speed, d2, foe_target, foe_driver.usual_acceleration, dt
    )
    entered, foe_entered = column(state.entered), state.entered[foe]
    tie = jnp.where(
        entered == foe_entered,
        jnp.where(d1 == d2, column(state.priority) > state.priority[foe], d1 < d2),
        entered < foe_entered,
    )
    first = (foe_arrives > arrives) | ((foe_arrives == arrives) & (rank == 0) & tie)
    wins = jnp.where(d2 > 0, first, d2 + foe_driver.length < 0)
    passes = (
        (foe == nobody)
        | ~yields
        | (foe_yields & ((rank > 0) | wins))
        | deadlocked[foe]
    )
    held = relevant & ~passes
    which = jnp.argmax(held, axis=1)
    pick = lambda values: jnp.take_along_axis(values, which[:, None], axis=1)[:, 0]  # noqa: E731
    distance = pick(d1) - vehicles.YIELD_DISTANCE
    limit = vehicles.stopping_speed(state.speed[slot], own, distance, dt)
    any_held = jnp.any(held, axis=1)
    return jnp.where(any_held, limit, jnp.inf), jnp.where(any_held, pick(foe), nobody)
