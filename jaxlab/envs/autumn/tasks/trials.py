"""The tests of the three families, step by step."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.formats import (
    ChangeDetectionTask,
    MaskedFrameTask,
    Mode,
    PlanningTask,
    Task,
)
from jaxlab.envs.autumn.tasks.running import RunningWorld
from jaxlab.envs.autumn.tasks.scoring import change_score, masked_frame_score, planning_score

#: Steps of a changed world before a change can be reported.
QUIET_STEPS = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """What of a world or a test is seen; see `protocol.Observation`."""

    frames: Int[np.ndarray, "frames size size"]
    number: int = 0
    recorded: tuple[str, int, int] | None = None
    goal: Int[np.ndarray, "size size"] | None = None
    mask: Int[np.ndarray, "size size"] | None = None
    choices: Int[np.ndarray, "options rows columns"] | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of a test.

    Attributes:
      score: See `scoring`; 0 where nothing was answered.
      choice: The patch that was chosen.
      reached: Whether the goal was reached.
      reported, trigger: Times of the report and of the first sign of the change.
    """

    score: float = 0.0
    choice: int | None = None
    reached: bool | None = None
    reported: int | None = None
    trigger: int | None = None


@runtime_checkable
class Trial(Protocol):
    """A test: what it offers, what an act does, whether it is over and what came of it."""

    over: bool

    @property
    def offered(self) -> tuple[str, ...]: ...

    def act(self, kind: str, x: int, y: int) -> Shown: ...

    def shown(self) -> Shown: ...

    def verdict(self) -> Verdict: ...


def make_trial(task: Task, mode: Mode) -> Trial:
    """The test of a task."""
    if isinstance(task, MaskedFrameTask):
        return MaskedFrameTrial(task, mode)
    if isinstance(task, PlanningTask):
        return PlanningTrial(task)
    return ChangeTrial(task, mode)


class MaskedFrameTrial:
    """Goes through the recorded frames; at the last one a patch is chosen."""

    def __init__(self, task: MaskedFrameTask, mode: Mode):
        self._task, self._mode = task, mode
        self._at = 0
        self._choice: int | None = None
        self.over = False

    @property
    def offered(self) -> tuple[str, ...]:
        last = self._at == len(self._task.actions)
        return ("rewind", "choose_option") if last else ("step",)

    def act(self, kind: str, x: int, y: int) -> Shown:
        if kind == "choose_option":
            self._choice, self.over = x, True
        else:
            self._at = self._at + 1 if kind == "step" else 0
        return self.shown()

    def shown(self) -> Shown:
        recorded = None
        if self._at:
            code, x, y = self._task.actions[self._at - 1].tolist()
            recorded = (ACTIONS[code], x, y)
        frames = self._task.frames[self._at][None]
        return Shown(frames, self._at, recorded, choices=self._task.choices)

    def verdict(self) -> Verdict:
        score = masked_frame_score(self._choice, self._task.answer, self._mode)
        return Verdict(score, choice=self._choice)


class PlanningTrial:
    """The world from its start, until the picture is as the goal asks after an action."""

    def __init__(self, task: PlanningTask):
        self._task = task
        self._world = RunningWorld(task.world)
        self._reached = self.over = False

    @property
    def offered(self) -> tuple[str, ...]:
        return ACTIONS

    def act(self, kind: str, x: int, y: int) -> Shown:
        self._world.step((ACTIONS.index(kind), x, y))
        self._reached = self.over = bool(self._task.reached(self._world.frame))
        return self.shown()

    def shown(self) -> Shown:
        return Shown(
            self._world.frame[None],
            self._world.number,
            goal=self._task.goal,
            mask=self._task.mask,
            error=self._world.error,
        )

    def verdict(self) -> Verdict:
        return Verdict(planning_score(self._reached), reached=self._reached)


class ChangeTrial:
    """The changed world from its start, until the change is reported.

    Time counts acts of all kinds. The trigger is the first of them at whose start the change
    is to be seen: by the task's condition, or (put right, where the task has a clock) because
    the frame is not the one by the old rules. As released, the time of the report is that of
    `submit`; put right, it is that of the frame that was chosen, by default the one that was
    seen when `found` was said.
    """

    def __init__(self, task: ChangeDetectionTask, mode: Mode):
        self._mode = mode
        self._clock = task.clock if mode == "fixed" else ""
        condition = None if self._clock else task.condition
        self._seed = task.changed.seed
        self._world = RunningWorld(task.changed, condition=condition, clock=self._clock)
        self._time = self._steps = self._last = 0
        self._found = self.over = False
        self._chosen = 0
        self._trigger = self._reported = None  # type: int | None

    @property
    def offered(self) -> tuple[str, ...]:
        if self._found:
            return ("choose_frame", "submit")
        found = ("found",) if self._steps > QUIET_STEPS else ()
        return (*ACTIONS, "reset", *found)

    def act(self, kind: str, x: int, y: int) -> Shown:
        self._time += 1
        if kind in ACTIONS:
            self._notice(self._clock == "" and self._world.holds())
            self._notice(self._world.step((ACTIONS.index(kind), x, y)))
        elif not self._clock:
            self._notice(self._world.holds())
        if kind in ACTIONS or kind == "reset":
            self._move_on(kind)
        elif kind == "found":
            self._found, self._chosen = True, self._last
        elif kind == "choose_frame":
            self._chosen = x
        else:
            released = self._mode == "released"
            self._reported = self._time - 1 if released else self._chosen + 1
            self.over = True
        return self.shown()

    def _move_on(self, kind: str) -> None:
        if kind == "reset":
            self._world.restart(self._seed)
        self._steps += 1
        self._last += 1
        if self._clock and self._world.differs and self._trigger is None:
            self._trigger = self._last + 1

    def _notice(self, holds: bool) -> None:
        if holds and self._trigger is None:
            self._trigger = self._time

    def shown(self) -> Shown:
        return Shown(self._world.frame[None], self._last, error=self._world.error)

    def verdict(self) -> Verdict:
        score = change_score(self._reported, self._trigger, self._mode)
        return Verdict(score, reported=self._reported, trigger=self._trigger)
