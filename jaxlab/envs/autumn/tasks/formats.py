"""The three families of tasks as data, and the worlds that they are set in.

Grids hold indices of `palette.COLOURS`, the benchmark's table, whose index 0 marks a masked
place. Actions are rows `[kind, x, y]`, as `CompiledProgram.step` takes them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int

from jaxlab.core.errors import DataError, ProgramError
from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.syntax import parse

#: Index of a masked place in grids.
MASKED = 0
#: Options of a masked-frame task.
OPTIONS = 6

#: How tasks are run and scored: as released, quirks included, or with those put right.
Mode = Literal["released", "fixed"]
RandomMode = Literal["reference", "jax"]
Family = Literal["masked_frame_prediction", "planning", "change_detection"]
FAMILIES: tuple[Family, ...] = ("masked_frame_prediction", "planning", "change_detection")


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """A program as a task runs it.

    Attributes:
      name: Of the program.
      source: Its text.
      random: How it draws; released tasks as the reference interpreter does.
      seed: Where its draws begin. Agents do not see it.
      next_order: Order of the next-expressions; empty for that of declaration.
      capacity: Places of a list that grows; 0 for the default.
    """

    name: str
    source: str = dataclasses.field(repr=False)
    random: RandomMode = "reference"
    seed: int = 0
    next_order: tuple[str, ...] = ()
    capacity: int = 0

    def compiled(self, condition: str | None = None) -> CompiledProgram:
        """The compiled program, the same object for the same world.

        Raises:
          ProgramError: the program cannot be compiled, or shows colours of no table.
        """
        try:
            return _compiled(self.source, self.random, self.next_order, self.capacity, condition)
        except ProgramError as error:
            raise ProgramError(f"{self.name}: {error}") from None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MaskedFrameTask:
    """Which of six patches fills the masked part of the last frame.

    Attributes:
      id: Name of the task.
      world: Where it was recorded, from its start.
      actions: What was done, `[steps, 3]`.
      frames: What was seen, `[steps + 1, size, size]`, `MASKED` where it is hidden.
      choices: Patches of the mask's bounding rectangle, `[6, rows, columns]`.
      answer: Index of the right one. Agents do not see it.
      floor: Mean score of an agent that acts at random; None if it is not known.
    """

    family: ClassVar[Family] = "masked_frame_prediction"

    id: str
    world: World
    actions: Int[np.ndarray, "steps 3"]
    frames: Int[np.ndarray, "frames size size"]
    choices: Int[np.ndarray, "options rows columns"]
    answer: int
    floor: float | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PlanningTask:
    """Make the picture equal the goal where the mask is 1.

    Attributes:
      id: Name of the task.
      world: Where it is set; the test begins at its start.
      goal: The picture asked for, `[size, size]`.
      mask: 1 where it counts, `[size, size]`.
      optimal_actions: Number of actions that some plan needs, other than noop, as the task
        says; None if it does not.
      plan: Actions known to reach the goal, `[steps, 3]`, empty if none is known. Agents do
        not see it.
      floor: Mean score of an agent that acts at random; None if it is not known.
    """

    family: ClassVar[Family] = "planning"

    id: str
    world: World
    goal: Int[np.ndarray, "size size"]
    mask: Int[np.ndarray, "size size"]
    optimal_actions: int | None = None
    plan: Int[np.ndarray, "steps 3"] = dataclasses.field(
        default_factory=lambda: np.zeros((0, 3), np.int32)
    )
    floor: float | None = None

    def reached(self, frame: Any) -> np.ndarray:
        """Whether pictures `[..., size, size]` of table indices meet the goal, bool `[...]`."""
        met = (np.asarray(frame) == self.goal) | (self.mask == 0)
        return np.asarray(met.all(axis=(-2, -1)))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ChangeDetectionTask:
    """Notice that the rules of a world have changed.

    Attributes:
      id: Name of the task.
      world: As it is explored.
      changed: As it is tested.
      condition: An expression of the language, true in the changed world from when on the
        change can be seen, as the task says it.
      clock: A variable of the changed world that counts up to the change; held at a number
        far below, the world goes on by its old rules. With it the first frame that differs is
        found exactly (`fixed` mode); empty if there is none, and then the condition counts.
      probe: Actions after which the change is seen, `[steps, 3]`, empty if none are known.
        Agents do not see them.
      floor: Mean score of an agent that acts at random; None if it is not known.
    """

    family: ClassVar[Family] = "change_detection"

    id: str
    world: World
    changed: World
    condition: str
    clock: str = ""
    probe: Int[np.ndarray, "steps 3"] = dataclasses.field(
        default_factory=lambda: np.zeros((0, 3), np.int32)
    )
    floor: float | None = None


Task = MaskedFrameTask | PlanningTask | ChangeDetectionTask


def table_indices(compiled: CompiledProgram) -> Int[np.ndarray, " palette"]:
    """Index in `COLOURS` of each name of a program's palette, -1 for what is no colour of it."""
    return _table(compiled.palette)


def table_frames(compiled: CompiledProgram, frames: Any) -> Int[np.ndarray, "..."]:
    """Frames of a compiled program as indices of `COLOURS`.

    Raises:
      DataError: a colour is not of the table, so that tasks cannot say it.
    """
    shown = table_indices(compiled)[np.asarray(frames)]
    if (shown <= MASKED).any():
        code = int(np.asarray(frames)[shown <= MASKED].flat[0])
        raise DataError(
            f"the program shows the colour '{compiled.palette[code]}', which tasks cannot say; "
            f"expected one of {', '.join(COLOURS[1:])}"
        )
    return shown


def written_actions(actions: Any) -> list[dict[str, Any]]:
    """Rows `[kind, x, y]` as released tasks write them."""
    written: list[dict[str, Any]] = []
    for kind, x, y in np.asarray(actions).tolist():
        name = ACTIONS[kind]
        written.append({"type": name, "x": x, "y": y} if name == "click" else {"type": name})
    return written


@functools.lru_cache(maxsize=256)
def _table(palette: tuple[str, ...]) -> Int[np.ndarray, " palette"]:
    table = np.array([_index(name) for name in palette], np.int32)
    table.setflags(write=False)
    return table


def _index(name: str) -> int:
    plain = name.strip().lower()
    return COLOURS.index(plain) if plain in COLOURS else -1


@functools.lru_cache(maxsize=256)
def _compiled(
    source: str,
    random: RandomMode,
    next_order: tuple[str, ...],
    capacity: int,
    condition: str | None,
) -> CompiledProgram:
    return CompiledProgram(
        parse(source),
        random=random,
        next_order=next_order or None,
        capacity=capacity or None,
        condition=condition,
    )
