"""Small worlds for the tests of tasks."""

import numpy as np

from jaxlab.envs.autumn.tasks.formats import (
    ChangeDetectionTask,
    MaskedFrameTask,
    PlanningTask,
    World,
)

#: A cart that the arrows move, and up to five drops, which fall from the top on a click.
CART = """(program
  (= GRID_SIZE 6)
  (object Cart (Cell 0 0 "red"))
  (object Drop (Cell 0 0 "blue"))
  (: cart Cart)
  (= cart (initnext (Cart (Position 0 5)) (prev cart)))
  (: drops (List Drop))
  (= drops (initnext (list) (updateObj (prev drops) (--> drop (moveDownNoCollision drop)))))
  (on left (= cart (moveLeftNoCollision cart)))
  (on right (= cart (moveRightNoCollision cart)))
  (on (& clicked (< (length (prev drops)) 5))
    (= drops (addObj (prev drops) (Drop (Position (.. click x) 0))))))
"""
#: From the third step on the cart goes the other way.
CHANGED = CART.replace(
    "(on right (= cart (moveRightNoCollision cart)))",
    """(on right (= cart (if (< steps 3) then (moveRightNoCollision cart)
                                     else (moveLeftNoCollision cart))))
  (: steps Number)
  (= steps (initnext 0 (+ (prev steps) 1)))""",
)
#: A walker that steps left or right as it likes, and a lamp that a click switches.
WALKER = """(program
  (= GRID_SIZE 5)
  (object Walker (Cell 0 0 "green"))
  (object Lamp (: lit Bool) (Cell 0 0 (if lit then "yellow" else "gray")))
  (: walker Walker)
  (= walker (initnext (Walker (Position 2 4))
    (uniformChoice (list (moveLeftNoCollision (prev walker)) (moveRightNoCollision (prev walker))))))
  (: lamp Lamp)
  (= lamp (initnext (Lamp false (Position 2 0)) (prev lamp)))
  (: sign Lamp)
  (= sign (initnext (Lamp false (Position 4 1)) (prev sign)))
  (on (clicked lamp) (= lamp (updateObj lamp "lit" (! (.. lamp lit)))))
  (on up (= lamp (moveDownNoCollision lamp)))
  (on down (= sign (updateObj sign "lit" (! (.. sign lit))))))
"""
WORLD = World(name="cart", source=CART, random="jax", seed=5)
NOOP, LEFT, RIGHT, UP, DOWN = ([n, 0, 0] for n in range(5))


def click(x, y):
    return [5, x, y]


def rows(*actions):
    return np.array(actions, np.int32).reshape(-1, 3)


def planning():
    goal = np.full((6, 6), 1, np.int32)
    goal[5, 2], goal[5, 4] = 11, 10
    plan = rows(RIGHT, RIGHT, click(4, 0), *[NOOP] * 5)
    return PlanningTask(
        id="cart_planning",
        world=WORLD,
        goal=goal,
        mask=np.ones_like(goal),
        optimal_actions=3,
        plan=plan,
        floor=0.25,
    )


def masked_frames():
    """A drop falls behind the mask."""
    frames = np.full((5, 6, 6), 1, np.int32)
    frames[:, 5, 0] = 11
    for step in (1, 2, 3, 4):
        frames[step, step - 1, 3] = 10
    frames[3:, 1:4, 2:5] = 0
    choices = np.full((6, 3, 3), 1, np.int32)
    for n, (y, x) in enumerate([(0, 1), (1, 1), (2, 1), (2, 0), (0, 0), (1, 2)]):
        choices[n, y, x] = 10
    return MaskedFrameTask(
        id="cart_mfp",
        world=WORLD,
        actions=rows(click(3, 2), NOOP, NOOP, NOOP),
        frames=frames,
        choices=choices,
        answer=2,
    )


def change():
    return ChangeDetectionTask(
        id="cart_cd",
        world=WORLD,
        changed=World(name="cart_changed", source=CHANGED, random="jax", seed=5),
        condition=">= steps 4",
        clock="steps",
        probe=rows(*[RIGHT] * 4),
    )
