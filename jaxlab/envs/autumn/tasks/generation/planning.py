"""Planning tasks: goals that actions reach and waiting does not."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from jaxlab.core.errors import DataError
from jaxlab.envs.autumn.tasks.formats import PlanningTask, World
from jaxlab.envs.autumn.tasks.generation.rollouts import (
    LANES,
    Rollouts,
    Run,
    curious,
    draws,
    given,
    idle,
    uniform,
)
from jaxlab.envs.autumn.tasks.protocol import Limits

#: Steps of the runs in which goals are looked for.
STEPS = 16
#: Goals that are looked at closely.
CANDIDATES = 12
#: Actions other than noop that a plan should have, least and most.
LEAST_ACTIONS, MOST_ACTIONS = 2, 10
#: Rounds in which actions are left out of a plan.
ROUNDS = 8
#: Share of curious runs that must reach a goal which no plan reaches whatever is drawn.
LEAST_FOUND = 0.6
#: A goal that the random agent reaches more often than this is taken if there is no other.
MOST_FOUND = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class _Search:
    """What was run from one seed.

    Attributes:
      first: The picture at the start.
      found: Curious runs, in which goals are looked for.
      idle: Runs without actions over the horizon; the first from the seed itself.
      random: Runs of the random agent over the horizon.
    """

    rollouts: Rollouts
    seed: int
    first: np.ndarray
    found: Run
    idle: Run
    random: Run
    is_random: bool


def planning_task(
    world: World,
    key: jax.Array,
    *,
    id: str = "",
    limits: Limits | None = None,
    rollouts: Rollouts | None = None,
) -> PlanningTask:
    """A goal that some plan reaches, that waiting never does, and chance rarely.

    Goals are pictures of curious runs. Where the program draws random numbers, what counts is
    the cells that the plan brings about whatever is drawn; where that is nothing, a few cells
    that curious runs bring about often.

    Raises:
      DataError: there is no such goal.
      ProgramError: the program cannot be compiled.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    rollouts = rollouts or Rollouts(world)
    limits = limits or Limits()
    search = _search(rollouts, limits.total - limits.interaction, rng)
    goals = _goals(search, rng)
    best: PlanningTask | None = None
    for lane, step in goals:
        task = _task(search, id, lane, step)
        if task is not None and (best is None or _rank(task) < _rank(best)):
            best = task
            if _rank(task)[0] == 0:
                break
    if search.is_random and (best is None or (best.floor or 0) > MOST_FOUND):
        found = _by_chance(search, id, limits.total - limits.interaction, rng)
        best = min((task for task in (best, found) if task is not None), key=_rank, default=None)
    if best is None:
        raise DataError(
            f"{world.name}: no goal was found that actions reach and waiting does not; expected "
            "a program that answers to actions"
        )
    return best


def _rank(task: PlanningTask) -> tuple[int, float]:
    """Smaller is better: a goal that chance rarely reaches, by a plan of some length."""
    assert task.floor is not None
    assert task.optimal_actions is not None
    rare = task.floor <= 0.1 and 3 <= task.optimal_actions <= MOST_ACTIONS
    return (0 if rare else 1, task.floor)


def _search(rollouts: Rollouts, horizon: int, rng: np.random.Generator) -> _Search:
    seeds = rng.integers(0, 2**32, LANES, np.uint32)
    same = np.full(LANES, seeds[0], np.uint32)
    start, others = rollouts.begin(same), rollouts.begin(seeds)
    policy = curious(rollouts.world.source)
    choices = rng.integers(0, 2**32, (2, LANES), np.uint32)
    return _Search(
        rollouts=rollouts,
        seed=int(seeds[0]),
        first=rollouts.first_frames(start)[0],
        found=rollouts.run(start, same, STEPS, policy, choices=choices[0]),
        idle=rollouts.run(others, seeds, horizon, idle()),
        random=rollouts.run(start, same, horizon, uniform(), choices=choices[1]),
        is_random=draws(rollouts.world.source),
    )


def _goals(search: _Search, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Lanes and steps of pictures that waiting does not show, those rare by chance first."""
    waiting = {search.first.tobytes()} | {f.tobytes() for f in search.idle.frames[0]}
    reached: dict[bytes, int] = {}
    for lane in search.random.frames:
        for frame in {frame.tobytes() for frame in lane}:
            reached[frame] = reached.get(frame, 0) + 1
    acting = (search.found.actions[:, :, 0] > 0).cumsum(axis=1)
    goals: dict[bytes, tuple[int, int]] = {}
    for lane in rng.permutation(LANES):
        if search.found.failed[lane]:
            continue
        for step, frame in enumerate(search.found.frames[lane]):
            picture = frame.tobytes()
            if picture in waiting or not LEAST_ACTIONS <= acting[lane, step] <= MOST_ACTIONS:
                continue
            goals.setdefault(picture, (int(lane), step))

    def order(picture: bytes) -> tuple[float, int]:
        lane, step = goals[picture]
        return (max(reached.get(picture, 0) / LANES, 0.05), abs(int(acting[lane, step]) - 6))

    return [goals[picture] for picture in sorted(goals, key=order)[:CANDIDATES]]


def _task(search: _Search, id: str, lane: int, step: int) -> PlanningTask | None:
    goal = search.found.frames[lane, step]
    plan = search.found.actions[lane, : step + 1]
    mask = np.ones(goal.shape, np.int32)
    if search.is_random:
        run = _replayed(search, plan[None], True)
        mask = (run.frames[:, step] == goal).all(axis=0).astype(np.int32)
        if not (mask * (goal != search.first)).any():
            return None
    else:
        plan = _shortened(search, plan, goal)
    task = _made(search, id, goal, mask, plan)
    # A shorter plan may reach it in a way that waiting does as well.
    if task.reached(search.first) or task.reached(search.idle.frames).any():
        return None
    return task if task.optimal_actions else None


def _made(
    search: _Search, id: str, goal: np.ndarray, mask: np.ndarray, plan: np.ndarray
) -> PlanningTask:
    world = search.rollouts.world
    task = PlanningTask(
        id=id or f"{world.name}_planning",
        world=dataclasses.replace(world, seed=search.seed),
        goal=goal,
        mask=mask,
        optimal_actions=int((plan[:, 0] > 0).sum()),
        plan=plan,
    )
    floor = float(task.reached(search.random.frames).any(axis=1).mean())
    return dataclasses.replace(task, floor=round(floor, 4))


def _replayed(search: _Search, plans: np.ndarray, draw_anew: bool) -> Run:
    """Plans `[plans, steps, 3]`, one a lane (the last in those left), from the seed or others."""
    rows = plans[np.minimum(np.arange(LANES), len(plans) - 1)]
    seeds = np.full(LANES, search.seed, np.uint32)
    if draw_anew:
        seeds = np.random.default_rng(search.seed).integers(0, 2**32, LANES, np.uint32)
    start = search.rollouts.begin(seeds)
    return search.rollouts.run(start, seeds, rows.shape[1], given(), actions=rows)


def _shortened(search: _Search, plan: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """A plan with as many actions made noop as can be, one after the other."""
    for _ in range(ROUNDS):
        acting = np.flatnonzero(plan[:, 0])
        if not len(acting):
            break
        plans = np.repeat(plan[None], len(acting), axis=0)
        plans[np.arange(len(acting)), acting] = 0
        run = _replayed(search, plans, False)
        reached = (run.frames[: len(acting)] == goal).all(axis=(2, 3))
        good = np.flatnonzero(reached.any(axis=1))
        if not len(good):
            break
        shorter = good[0]
        plan = plans[shorter, : int(reached[shorter].argmax()) + 1]
    return plan


def _by_chance(
    search: _Search, id: str, horizon: int, rng: np.random.Generator
) -> PlanningTask | None:
    """A few cells of a picture that curious runs with any draws bring about often."""
    seeds = rng.integers(0, 2**32, LANES, np.uint32)
    rollouts = search.rollouts
    run = rollouts.run(rollouts.begin(seeds), seeds, horizon, curious(rollouts.world.source))
    size = search.first.shape[0]
    best: PlanningTask | None = None
    for _ in range(256):
        lane, step = int(rng.integers(LANES)), int(rng.integers(STEPS))
        goal = search.found.frames[lane, step]
        changed = np.argwhere(goal != search.first)
        if not len(changed):
            continue
        y, x = changed[rng.integers(len(changed))]
        height, width = rng.integers(1, 3, 2)
        mask = np.zeros((size, size), np.int32)
        mask[y : y + height, x : x + width] = 1
        task = _made(search, id, goal, mask, search.found.actions[lane, : step + 1])
        found = task.reached(run.frames).any(axis=1).mean()
        waits = task.reached(search.idle.frames).any() or task.reached(search.first)
        if not waits and found >= LEAST_FOUND and (best is None or _rank(task) < _rank(best)):
            best = task
    return best
