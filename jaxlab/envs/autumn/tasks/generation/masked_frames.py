"""Masked-frame tasks: what hides behind the mask at the end of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxlab.core.errors import DataError
from jaxlab.envs.autumn.tasks.formats import MASKED, OPTIONS, MaskedFrameTask, World
from jaxlab.envs.autumn.tasks.generation.rollouts import (
    LANES,
    Rollouts,
    Run,
    curious,
    draws,
    given,
    spread,
)

#: Frames that are seen in full after the first one.
SEEN = 32
#: Frames masked at the end and the part of the mask's sides that is used, tried in this order:
#: where much is random, only a short future of a small place can be told.
HIDDEN = ((6, 1.0), (3, 1.0), (2, 1.0), (1, 1.0), (1, 0.5), (1, 0.3))
#: The mask is at most so large, and about a third and half of the grid on small ones.
ROWS, COLUMNS = 5, 7
#: Places of a mask that are tried for each number of masked frames.
TRIES = 16
#: Share of the futures that agree with all that is seen which must show the right patch.
LEAST_LIKELY = 0.02
#: Futures that must agree with what is seen outside the mask.
LEAST_CONSISTENT = 8


def masked_frame_task(
    world: World, key: jax.Array, *, id: str = "", rollouts: Rollouts | None = None
) -> MaskedFrameTask:
    """A task whose right patch follows from what is seen, and whose others do not.

    The other patches come from other actions at the end of the same run, other runs and
    earlier frames. Where the program draws random numbers, none of them is what any of the
    futures sampled from the last frame seen in full shows behind the mask.

    Raises:
      DataError: too little changes for six different patches, or the future is too random.
      ProgramError: the program cannot be compiled.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    rollouts = rollouts or Rollouts(world)
    seeds = rng.integers(0, 2**32, LANES, np.uint32)
    policy = curious(world.source)
    start = rollouts.begin(seeds)
    seen = rollouts.run(start, seeds, SEEN, policy)
    past = np.concatenate([rollouts.first_frames(start)[:, None], seen.frames], axis=1)
    for hidden, part in HIDDEN:
        future = rollouts.run(seen.lanes, seeds, hidden, policy, start=SEEN)
        frames = np.concatenate([past, future.frames], axis=1)
        lanes = np.flatnonzero(~future.failed)
        for _ in range(TRIES if len(lanes) else 0):
            place = _place(frames[:, SEEN], frames[:, -1], lanes, part, rng)
            if place is None:
                break
            lane, rectangle = place
            choices = _choices(rollouts, seen, future, frames, seeds, lane, rectangle, rng)
            if choices is None:
                continue
            actions = np.concatenate([seen.actions[lane], future.actions[lane]])
            return _task(
                id, world, int(seeds[lane]), actions, frames[lane], hidden, rectangle, choices, rng
            )
    raise DataError(
        f"{world.name}: no masked-frame task was found; expected a program in which some part "
        "of the picture changes in a way that can be told from what is seen"
    )


def _task(
    id: str,
    world: World,
    seed: int,
    actions: np.ndarray,
    frames: np.ndarray,
    hidden: int,
    rectangle: tuple[slice, slice],
    choices: list[np.ndarray],
    rng: np.random.Generator,
) -> MaskedFrameTask:
    masked = frames.copy()
    masked[len(frames) - hidden :, rectangle[0], rectangle[1]] = MASKED
    order = rng.permutation(len(choices))
    return MaskedFrameTask(
        id=id or f"{world.name}_mfp",
        world=dataclasses.replace(world, seed=seed),
        actions=actions.astype(np.int32),
        frames=masked,
        choices=np.stack([choices[n] for n in order]),
        answer=int(np.flatnonzero(order == 0)[0]),
        floor=1 / len(choices),
    )


def _place(
    before: np.ndarray,
    after: np.ndarray,
    lanes: np.ndarray,
    part: float,
    rng: np.random.Generator,
) -> tuple[int, tuple[slice, slice]] | None:
    """A lane and a rectangle in which something changed while it was hidden."""
    size = before.shape[-1]
    rows = max(round(part * min(ROWS, max(size // 3, 2))), 1)
    columns = max(round(part * min(COLUMNS, max(size // 2 - 1, 3))), 2)
    moved = (before != after)[lanes]
    windows = np.lib.stride_tricks.sliding_window_view(moved, (rows, columns), axis=(1, 2))
    counts = windows.sum(axis=(3, 4)).astype(float)
    if not counts.any():
        return None
    # A lane first, so that one with much movement does not supply all tasks.
    moving = np.flatnonzero(counts.any(axis=(1, 2)))
    index = int(moving[rng.integers(len(moving))])
    weights = counts[index].reshape(-1)
    flat = int(rng.choice(len(weights), p=weights / weights.sum()))
    top, left = divmod(flat, counts.shape[2])
    return int(lanes[index]), (slice(top, top + rows), slice(left, left + columns))


def _choices(
    rollouts: Rollouts,
    seen: Run,
    future: Run,
    frames: np.ndarray,
    seeds: np.ndarray,
    lane: int,
    rectangle: tuple[slice, slice],
    rng: np.random.Generator,
) -> list[np.ndarray] | None:
    """The right patch, then five wrong ones; None where that cannot be."""
    rows, columns = rectangle
    hidden = future.actions.shape[1]
    right = frames[lane, -1, rows, columns]
    last_seen = frames[lane, SEEN, rows, columns]
    if (right == last_seen).all():
        return None
    start = spread(seen.lanes, lane, LANES)
    same = np.full(LANES, seeds[lane], np.uint32)
    possible = {right.tobytes()}
    if draws(rollouts.world.source):
        told = _possible(rollouts, start, future, frames, lane, rectangle, rng)
        if told is None:
            return None
        possible |= told
    others = rollouts.run(
        start,
        same,
        hidden,
        curious(rollouts.world.source),
        start=SEEN,
        choices=rng.integers(0, 2**32, LANES, np.uint32),
    )
    pools = (
        last_seen[None],
        others.frames[~others.failed, -1, rows, columns],
        frames[lane, : SEEN + 1, rows, columns],
        frames[~future.failed, -1, rows, columns],
        frames[~future.failed, ::4, rows, columns].reshape(-1, *right.shape),
        _altered(right, np.unique(frames[lane]), rng),
    )
    wrong: list[np.ndarray] = []
    known = set(possible)
    for pool in pools:
        # Those most like the right one first: they are what a guess confuses.
        for n in np.argsort((pool != right).sum(axis=(1, 2)), kind="stable"):
            if pool[n].tobytes() not in known and len(wrong) < OPTIONS - 1:
                known.add(pool[n].tobytes())
                wrong.append(pool[n])
    return [right, *wrong] if len(wrong) == OPTIONS - 1 else None


def _altered(right: np.ndarray, colours: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Patches with one cell of another colour, where a world shows too few of its own."""
    patches = np.repeat(right[None], 4 * OPTIONS, axis=0)
    places = rng.integers(0, right.size, len(patches))
    patches.reshape(len(patches), -1)[np.arange(len(patches)), places] = rng.choice(
        colours, len(patches)
    )
    return patches


def _possible(
    rollouts: Rollouts,
    start: Any,
    future: Run,
    frames: np.ndarray,
    lane: int,
    rectangle: tuple[slice, slice],
    rng: np.random.Generator,
) -> set[bytes] | None:
    """What may be behind the mask at the end; None if the truth is too unlikely among it."""
    rows, columns = rectangle
    hidden = future.actions.shape[1]
    drawn = rng.integers(0, 2**32, LANES, np.uint32)
    sampled = rollouts.run(start, drawn, hidden, given(), start=SEEN, actions=future.actions[lane])
    outside = np.ones(frames.shape[-2:], bool)
    outside[rows, columns] = False
    same = (sampled.frames == frames[lane, -hidden:]) | ~outside
    consistent = same.all(axis=(1, 2, 3))
    if consistent.sum() < LEAST_CONSISTENT:
        return None
    right = frames[lane, -1, rows, columns]
    patches = sampled.frames[:, -1, rows, columns]
    if (patches[consistent] == right).all(axis=(1, 2)).mean() < LEAST_LIKELY:
        return None
    return {patch.tobytes() for patch in patches}
