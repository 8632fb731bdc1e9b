"""One small program with a task of each family, written by hand."""

import numpy as np

from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.tasks.formats import (
    MASKED,
    ChangeDetectionTask,
    MaskedFrameTask,
    PlanningTask,
    World,
)

SIZE = 4
SOURCE = """
(program
  (= GRID_SIZE 4)
  (object Dot (Cell 0 0 "red"))
  (: ticks Number)
  (= ticks (initnext 0 (+ (prev ticks) 1)))
  (: dot Dot)
  (= dot (initnext (Dot (Position 0 1)) (prev dot)))
  (on right (= dot (moveRightNoCollision (prev dot))))
  (on left (= dot (moveLeftNoCollision (prev dot))))
  (on clicked (= dot (Dot (Position (.. click x) (.. click y))))))
"""
CHANGED = SOURCE.replace(
    "(moveRightNoCollision (prev dot))",
    "(if (> (prev ticks) 4) then (moveLeftNoCollision (prev dot)) else "
    "(moveRightNoCollision (prev dot)))",
)
LEFT, RIGHT, CLICK = 1, 2, 5
BLACK, RED = COLOURS.index("black"), COLOURS.index("red")


def picture(x, y):
    """The world with its dot there."""
    frame = np.full((SIZE, SIZE), BLACK, np.int32)
    frame[y, x] = RED
    return frame


def tasks():
    """A task of each family."""
    world = World(name="dot", source=SOURCE, random="jax")
    actions = np.array([[RIGHT, 0, 0], [CLICK, 1, 3], [RIGHT, 0, 0]], np.int32)
    frames = np.stack([picture(0, 1), picture(1, 1), picture(1, 3), picture(2, 3)])
    frames[3, 2:, 1:] = MASKED
    choices = np.stack(
        [picture(x, y)[2:, 1:] for x, y in [(1, 2), (2, 2), (2, 3), (3, 3), (1, 3), (3, 2)]]
    )
    mask = np.zeros((SIZE, SIZE), np.int32)
    mask[3] = 1
    changed = World(name="dot-changed", source=CHANGED, random="jax")
    return (
        MaskedFrameTask(
            id="dot-mfp", world=world, actions=actions, frames=frames, choices=choices, answer=2
        ),
        PlanningTask(id="dot-planning", world=world, goal=picture(3, 3), mask=mask),
        ChangeDetectionTask(
            id="dot-cd", world=world, changed=changed, condition="false", clock="ticks"
        ),
    )
