"""Whether tasks hold: recorded frames are those of the program, plans reach their goals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from jaxlab.core.errors import DataError
from jaxlab.envs.autumn.replay import run
from jaxlab.envs.autumn.tasks.formats import (
    MASKED,
    ChangeDetectionTask,
    MaskedFrameTask,
    PlanningTask,
    World,
    table_frames,
)
from jaxlab.envs.autumn.tasks.reading import mask_rectangle
from jaxlab.envs.autumn.tasks.running import RunningWorld


@dataclasses.dataclass(frozen=True, eq=False)
class Replayed:
    """A masked-frame task against its program.

    Attributes:
      frames: Whether each frame is the program's outside the mask, `[steps + 1]`.
      choices: Whether each patch is what the program shows in the last mask, `[options]`.
    """

    frames: Bool[np.ndarray, " frames"]
    choices: Bool[np.ndarray, " options"]


def frames_of(world: World, actions: Any) -> Int[np.ndarray, "frames size size"]:
    """What a world shows from its start on, in indices of the table.

    Raises:
      DataError: it shows a colour that tasks cannot say.
    """
    compiled = world.compiled()
    states, _ = run(compiled, np.asarray(actions, np.int32), world.seed)
    return table_frames(compiled, states.frame)


def replay_masked_frames(task: MaskedFrameTask) -> Replayed:
    """Run the actions of a task and compare.

    Raises:
      DataError: the frames are not of the program's size.
    """
    frames = frames_of(task.world, task.actions)
    if frames.shape != task.frames.shape:
        raise DataError(
            f"{task.id}: the frames are {task.frames.shape[1:]}, {task.world.name} shows "
            f"{frames.shape[1:]}"
        )
    same = ((frames == task.frames) | (task.frames == MASKED)).all(axis=(1, 2))
    rectangle = mask_rectangle(task.frames[-1])
    assert rectangle is not None
    hidden = task.frames[-1][rectangle] == MASKED
    patch = frames[-1][rectangle]
    choices = ((task.choices == patch) | ~hidden).all(axis=(1, 2))
    return Replayed(same, choices)


def plan_reaches(task: PlanningTask, plan: Any = None) -> int | None:
    """Number of the action after which the goal is first reached, from 1; None if never."""
    frames = frames_of(task.world, task.plan if plan is None else plan)
    reached = np.flatnonzero(task.reached(frames[1:]))
    return int(reached[0]) + 1 if len(reached) else None


def change_shows(task: ChangeDetectionTask, probe: Any = None) -> int | None:
    """Number of the first frame that the old rules would not show; None if none, or no clock."""
    if not task.clock:
        return None
    world = RunningWorld(task.changed, clock=task.clock)
    for number, action in enumerate(task.probe if probe is None else probe, 1):
        world.step(action)
        if world.differs:
            return number
    return None


def require_sound(task: MaskedFrameTask | PlanningTask | ChangeDetectionTask) -> None:
    """Check a task against its programs.

    Raises:
      DataError: names the first thing that does not hold.
    """
    if isinstance(task, MaskedFrameTask):
        found = replay_masked_frames(task)
        if not found.frames.all():
            raise DataError(
                f"{task.id}: frame {int(np.flatnonzero(~found.frames)[0])} is not what "
                f"{task.world.name} shows; the task does not match the program"
            )
        fitting = np.flatnonzero(found.choices).tolist()
        if fitting != [task.answer]:
            raise DataError(
                f"{task.id}: the choices that fit are {fitting}, expected {[task.answer]} alone"
            )
    elif isinstance(task, PlanningTask):
        if len(task.plan) and plan_reaches(task) is None:
            raise DataError(f"{task.id}: the plan does not reach the goal in {task.world.name}")
    elif task.clock and len(task.probe) and change_shows(task) is None:
        raise DataError(f"{task.id}: the probe does not show the change of {task.changed.name}")
