"""The shipped tasks: three for each program of the suite, from one small file.

The file keeps what the programs' texts do not say: seeds, actions, what changed between
frames, goals, and the lines of a program that a change of rules edits.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib.resources
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxlab.core.errors import DataError
from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.tasks.formats import (
    ChangeDetectionTask,
    MaskedFrameTask,
    PlanningTask,
    Task,
    World,
)

FILE = "suite.json"
VERSION = 1
Json = dict[str, Any]


def load_tasks() -> tuple[Task, ...]:
    """The shipped tasks, in the order of their programs.

    Raises:
      DataError: a program is not the one that its tasks were made with.
    """
    return _shipped()


@functools.cache
def _shipped() -> tuple[Task, ...]:
    text = (importlib.resources.files(__package__) / FILE).read_text(encoding="utf-8")
    return unpacked(json.loads(text), suite.source)


def digest(source: str) -> str:
    """Short hash of a program's text."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def packed(tasks: Iterable[Task]) -> Json:
    """Tasks as JSON, without the texts of their programs."""
    programs: dict[str, str] = {}
    rows = []
    for task in tasks:
        programs[task.world.name] = digest(task.world.source)
        rows.append(_packed(task))
    return {"version": VERSION, "programs": programs, "tasks": rows}


def unpacked(data: Json, source: Callable[[str], str]) -> tuple[Task, ...]:
    """Tasks from `packed`, with `source` giving the text of a program by its name.

    Raises:
      DataError: another version, or a program is not the one that its tasks were made with.
    """
    if data.get("version") != VERSION:
        raise DataError(f"tasks of version {data.get('version')}; expected version {VERSION}")
    for name, expected in data["programs"].items():
        if digest(source(name)) != expected:
            raise DataError(
                f"program '{name}' is not the one that its tasks were made with; make them anew"
            )
    return tuple(_unpacked(row, source(row["program"])) for row in data["tasks"])


def _packed(task: Task) -> Json:
    world = task.world
    row: Json = {
        "id": task.id,
        "family": task.family,
        "program": world.name,
        "random": world.random,
        "seed": world.seed,
        "capacity": world.capacity,
        "next_order": list(world.next_order),
        "floor": task.floor,
    }
    if isinstance(task, MaskedFrameTask):
        row |= {
            "actions": task.actions.tolist(),
            "first": task.frames[0].tolist(),
            "edits": [_cells(a, b) for a, b in zip(task.frames, task.frames[1:], strict=False)],
            "choices": task.choices.tolist(),
            "answer": task.answer,
        }
    elif isinstance(task, PlanningTask):
        row |= {
            "goal": task.goal.tolist(),
            "mask": None if task.mask.all() else task.mask.tolist(),
            "optimal_actions": task.optimal_actions,
            "plan": task.plan.tolist(),
        }
    else:
        row |= {
            "changed": task.changed.name,
            "lines": _lines(world.source, task.changed.source),
            "condition": task.condition,
            "clock": task.clock,
            "probe": task.probe.tolist(),
        }
    return row


def _unpacked(row: Json, source: str) -> Task:
    world = World(
        name=row["program"],
        source=source,
        random=row["random"],
        seed=row["seed"],
        next_order=tuple(row["next_order"]),
        capacity=row["capacity"],
    )
    if row["family"] == "masked_frame_prediction":
        frames = [np.array(row["first"], np.int32)]
        for cells in row["edits"]:
            frame = frames[-1].copy()
            frame.reshape(-1)[cells[::2]] = cells[1::2]
            frames.append(frame)
        return MaskedFrameTask(
            id=row["id"],
            world=world,
            actions=_actions(row["actions"]),
            frames=np.stack(frames),
            choices=np.array(row["choices"], np.int32),
            answer=row["answer"],
            floor=row["floor"],
        )
    if row["family"] == "planning":
        goal = np.array(row["goal"], np.int32)
        mask = row["mask"]
        return PlanningTask(
            id=row["id"],
            world=world,
            goal=goal,
            mask=np.ones_like(goal) if mask is None else np.array(mask, np.int32),
            optimal_actions=row["optimal_actions"],
            plan=_actions(row["plan"]),
            floor=row["floor"],
        )
    changed = World(
        name=row["changed"],
        source=_edited(source, row["lines"]),
        random=row["random"],
        seed=row["seed"],
        capacity=row["capacity"],
    )
    return ChangeDetectionTask(
        id=row["id"],
        world=world,
        changed=changed,
        condition=row["condition"],
        clock=row["clock"],
        probe=_actions(row["probe"]),
        floor=row["floor"],
    )


def _actions(rows: list[list[int]]) -> np.ndarray:
    return np.array(rows, np.int32).reshape(-1, 3)


def _cells(before: np.ndarray, after: np.ndarray) -> list[int]:
    """Places that changed and what they became, one after the other."""
    places = np.flatnonzero(before != after)
    return np.stack([places, after.reshape(-1)[places]], axis=1).reshape(-1).tolist()


def _lines(source: str, changed: str) -> list[list[Any]]:
    """Ranges of lines of a text, and the lines in their place."""
    old, new = source.splitlines(keepends=True), changed.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        [first, last, new[start:end]]
        for tag, first, last, start, end in matcher.get_opcodes()
        if tag != "equal"
    ]


def _edited(source: str, edits: list[list[Any]]) -> str:
    lines = source.splitlines(keepends=True)
    for first, last, new in reversed(edits):
        lines[first:last] = new
    return "".join(lines)
