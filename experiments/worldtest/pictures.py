"""A plan as an animated picture: the world on the left, its goal on the right."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.worldtest.sessions import TRANSCRIPTS
from jaxlab.core import runfolder
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.pictures import write_gif
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.formats import PlanningTask, Task
from jaxlab.envs.autumn.tasks.running import RunningWorld

GAP, PALE = COLOURS.index("white"), COLOURS.index("gray")
#: Frames that the end is shown for.
LINGER = 8


def draw_plan(
    run_dir: pathlib.Path, rows: Sequence[Mapping[str, Any]], tasks: Sequence[Task]
) -> pathlib.Path | None:
    """Draw the longest of the plans that reached their goals; None where there is none.

    Places of the goal that do not count are gray.
    """
    planned = {task.id: task for task in tasks if isinstance(task, PlanningTask)}
    solved = [
        row
        for row in rows
        if row["agent"] == "simulator" and row["task"] in planned and row["score"] == 1
    ]
    if not solved:
        return None
    row = max(solved, key=lambda row: row["acts"])
    name = f"{row['task']}-{row['seed']}.json"
    told = json.loads((run_dir / TRANSCRIPTS / "simulator" / name).read_text(encoding="utf-8"))
    task = planned[row["task"]]
    world = RunningWorld(task.world)
    frames = [world.frame]
    for phase, kind, *place in told["transcript"]:
        if phase == "test":
            world.step((ACTIONS.index(kind), *(place or (0, 0))))
            frames.append(world.frame)
    goal = np.where(task.mask == 1, task.goal, PALE)
    gap = np.full((len(goal), 1), GAP, np.int32)
    pictures = [np.concatenate([frame, gap, goal], axis=1) for frame in frames]
    path = run_dir / runfolder.FIGURES / "plan.gif"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gif(path, pictures + pictures[-1:] * LINGER, COLOURS, scale=10, frame_rate=6)
    return path
