"""Change-detection tasks: a rule that changes while the world runs, and can be seen to."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import DataError, ProgramError
from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.tasks.formats import ChangeDetectionTask, World, table_indices
from jaxlab.envs.autumn.tasks.generation.mutations import (
    COUNTED,
    Counted,
    Mutation,
    changed_source,
    mutations,
)
from jaxlab.envs.autumn.tasks.generation.rollouts import (
    LANES,
    Rollouts,
    Run,
    curious,
    draws,
    names_of,
    uniform,
)
from jaxlab.envs.autumn.tasks.running import start_key
from jaxlab.envs.autumn.tasks.scoring import change_score
from jaxlab.envs.autumn.tasks.trials import QUIET_STEPS

#: Steps within which a change must show, under actions that look for something.
STEPS = 64
#: Changes that are tried for one task.
CANDIDATES = 24
#: Share of runs that must show the change, and share of these where no luck explains it.
LEAST_SHOWN, LEAST_UNLIKELY = 0.5, 0.8
#: Draws of the old rules that are compared with what the new ones showed.
DRAWS = 64
#: How much of what is counted passes before the change, least and most.
AFTER = {"steps": (8, 20), "clicks": (2, 4), "arrows": (3, 8)}
#: Acts that the random agent chooses from once it may report: six actions, reset, report.
_OFFERED = 8


def change_detection_task(world: World, key: jax.Array, *, id: str = "") -> ChangeDetectionTask:
    """A task with a change of one rule that can be seen in the world.

    Changes are tried in an order drawn from the key: each is run beside the world whose clock
    is held, with the same draws, and taken if most curious runs come to differ, none fails,
    and what is seen then could not have come about by the old rules.

    Raises:
      DataError: no change of the program can be seen.
      ProgramError: the program cannot be compiled.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    seeds = rng.integers(0, 2**32, LANES, np.uint32)
    for mutation, counted, after in _candidates(world.source, rng):
        source, clock, condition = changed_source(world.source, mutation, counted, after)
        changed = dataclasses.replace(
            world, name=f"{world.name}_changed", source=source, next_order=()
        )
        try:
            rollouts = Rollouts(changed, clock=clock)
            run = rollouts.run(rollouts.begin(seeds), seeds, STEPS, curious(world.source))
        except (ProgramError, DataError):
            # Some changes are no programs; there are others.
            continue
        lane = _chosen(rollouts, run)
        if lane is None:
            continue
        seed, first = int(seeds[lane]), int(run.differs[lane].argmax())
        return ChangeDetectionTask(
            id=id or f"{world.name}_cd",
            world=dataclasses.replace(world, seed=seed),
            changed=dataclasses.replace(changed, seed=seed),
            condition=condition,
            clock=clock,
            probe=run.actions[lane, : first + 1],
            floor=_floor(rollouts, seed, rng),
        )
    raise DataError(
        f"{world.name}: no change of a rule was found that shows within {STEPS} steps; expected "
        "a program whose rules answer to actions or time"
    )


def _candidates(source: str, rng: np.random.Generator) -> Iterator[tuple[Mutation, Counted, int]]:
    """Changes in a drawn order in which the kinds take turns, and when each happens."""
    kinds: dict[str, list[Mutation]] = {}
    found = mutations(source)
    for index in rng.permutation(len(found)):
        kinds.setdefault(found[index].kind, []).append(found[index])
    ordered = [list(kinds.values())[n] for n in rng.permutation(len(kinds))]
    turns = [
        kind[n]
        for n in range(max(map(len, ordered), default=0))
        for kind in ordered
        if n < len(kind)
    ]
    names = names_of(source)
    read = {
        "steps": True,
        "clicks": bool(names & {"clicked", "click", "objClicked"}),
        "arrows": bool(names & {"left", "right", "up", "down"}),
    }
    events = [event for event in COUNTED if read[event]]
    for mutation in turns[:CANDIDATES]:
        counted = events[int(rng.integers(len(events)))]
        least, most = AFTER[counted]
        yield mutation, counted, int(rng.integers(least, most + 1))


def _chosen(rollouts: Rollouts, run: Run) -> int | None:
    """A lane that shows the change at a middling time; None if the change will not do."""
    shown = run.differs.any(axis=1)
    if run.failed.any() or shown.mean() < LEAST_SHOWN:
        return None
    first = run.differs.argmax(axis=1)
    good = shown & (first > QUIET_STEPS)
    if draws(rollouts.world.source):
        good &= ~_explained(rollouts, run, first)
    if good.sum() < LEAST_UNLIKELY * shown.sum():
        return None
    lanes = np.flatnonzero(good)
    return int(lanes[np.argsort(first[lanes], kind="stable")[len(lanes) // 2]])


def _explained(rollouts: Rollouts, run: Run, first: np.ndarray) -> np.ndarray:
    """Lanes where some draw of the old rules shows the first frame that differs."""
    lanes = np.arange(len(first))
    compiled = rollouts.compiled
    same = _redrawn(compiled)(run.lanes.before, run.actions[lanes, first])
    frames = run.frames[lanes, first]
    redrawn = table_indices(compiled)[np.asarray(same)]
    return (redrawn == frames[:, None]).all(axis=(2, 3)).any(axis=1)


@functools.lru_cache(maxsize=2)
def _redrawn(compiled: CompiledProgram) -> Any:
    """Frames after one step from each state, under `DRAWS` different draws."""

    def lane(state: Any, action: jax.Array) -> jax.Array:
        def one(number: jax.Array) -> jax.Array:
            drawn = state
            if compiled.random == "reference":
                drawn = state.replace(random=start_key(compiled, number * 7919 + 1))
            return compiled.step(jax.random.key(number), drawn, action).frame

        return jax.vmap(one)(jnp.arange(DRAWS, dtype=jnp.uint32))

    return jax.jit(jax.vmap(lane))


def _floor(rollouts: Rollouts, seed: int, rng: np.random.Generator) -> float:
    """Mean score (put right) of reports at random times under random actions; no resets."""
    seeds = np.full(LANES, seed, np.uint32)
    choices = rng.integers(0, 2**32, LANES, np.uint32)
    run = rollouts.run(rollouts.begin(seeds), seeds, STEPS, uniform(), choices=choices)
    total = 0.0
    for differs in run.differs:
        trigger = int(differs.argmax()) + 2 if differs.any() else None
        chance = 1.0
        for frame in range(QUIET_STEPS + 1, STEPS + 1):
            seen = trigger if trigger is not None and trigger <= frame + 1 else None
            total += chance / _OFFERED * change_score(frame + 1, seen)
            chance *= 1 - 1 / _OFFERED
    return round(total / LANES, 4)
