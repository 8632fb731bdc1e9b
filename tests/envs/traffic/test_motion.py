"""The hand-over between drivables, held against a plain loop over vehicles."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.envs.traffic.fleet import Fleet, Layout
from jaxlab.envs.traffic.motion import _hand_over

SLOTS, LANES, LINKS = 9, 3, 2
NOBODY, NOWHERE = SLOTS - 1, LANES + LINKS


@jax.jit
def handed(vehicle, ahead, last, drivable, moved, position):
    fields = dict.fromkeys(f.name for f in dataclasses.fields(Fleet))
    fleet = Fleet(**(fields | {"vehicle": vehicle, "ahead": ahead, "last": last}))
    layout = Layout(
        copies=1,
        slots=SLOTS,
        network={"lane_links": np.zeros((LANES + 1, 1)), "link_end": np.zeros(LINKS)},
        paths=np.zeros((0, 0)),
        dt=1.0,
        short_entries=False,
    )
    arrived = moved & (drivable == NOWHERE)
    return _hand_over(layout, fleet, moved, arrived, drivable, position)


def handed_over(queues, moved, drivable, position):
    """Rearmost and ahead: who stays closes ranks, who comes queues up behind by position."""
    last, ahead = [NOBODY] * (NOWHERE + 1), [NOBODY] * SLOTS
    for place, row in enumerate(queues):
        for vehicle in row:  # from front to back
            if not moved[vehicle]:
                ahead[vehicle], last[place] = last[place], vehicle
    for vehicle in sorted(np.flatnonzero(moved), key=lambda v: (-position[v], v)):
        place = drivable[vehicle]
        if place != NOWHERE:
            ahead[vehicle], last[place] = last[place], vehicle
    return last, ahead


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), in_order=st.booleans())
def test_vehicles_change_hands_in_any_order(seed, in_order):
    """`in_order`: as vehicles do that never overlap, whoever leaves has nobody ahead who stays."""
    rng = np.random.default_rng(seed)
    place = rng.integers(0, NOWHERE, SLOTS - 1)
    queues = [rng.permutation(np.flatnonzero(place == n)) for n in range(NOWHERE)]
    moved = np.append(rng.uniform(size=SLOTS - 1) < 0.4, False)
    if in_order:
        for row in queues:
            moved[row] = np.sort(moved[row])[::-1]
    drivable = np.append(np.where(moved[:-1], rng.integers(0, NOWHERE + 1, SLOTS - 1), place), 0)
    position = rng.permutation(SLOTS).astype(np.float32)
    ahead, last = np.full(SLOTS, NOBODY), np.full(NOWHERE + 1, NOBODY)
    for n, row in enumerate(queues):
        for front, back in itertools.pairwise(row):
            ahead[back] = front
        if len(row):
            last[n] = row[-1]
    vehicle = np.append(np.arange(SLOTS - 1), -1)
    found = handed(
        *(jnp.asarray(x, jnp.int32) for x in (vehicle, ahead, last, drivable)),
        jnp.asarray(moved),
        jnp.asarray(position),
    )
    expected_last, expected_ahead = handed_over(queues, moved, drivable, position)
    np.testing.assert_array_equal(found[0][:NOWHERE], expected_last[:NOWHERE])
    np.testing.assert_array_equal(found[1][: SLOTS - 1], expected_ahead[: SLOTS - 1])
