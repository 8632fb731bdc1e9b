"""A small world for planners: a hero on a grid with a lamp and a door, written without any wing.

The hero moves left and right along the bottom row while the lamp is lit, which a click on the
lamp toggles and which cannot be seen; in the noisy variant a spark jumps about the top row.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.agents.simulator_planner import Simulator

SIZE = 5
WAIT, LEFT, RIGHT = 0, 1, 2
GROUND, HERO, LAMP, SPARK = 0, 1, 2, 3
LAMP_PLACE = 2 * SIZE + 2
CLICK_LAMP = 3 + LAMP_PLACE


def action_rows():
    """Waiting, left, right, then a click on each place."""
    return np.array([[0, 0], [1, 0], [2, 0], *([3, p] for p in range(SIZE * SIZE))], np.int32)


def make_world(noisy=False, jump_from=None, toggles=True):
    """The world; from frame `jump_from` on, the hero moves by two places.

    Without `toggles` a click on the lamp only lights it.
    """

    def init(key, index):
        return {
            "x": jnp.int32(0),
            "lit": jnp.zeros((), bool),
            "spark": jnp.int32(0),
            "t": jnp.int32(0),
        }

    def step(key, state, action):
        kind, place = action[0], action[1]
        stride = 1 if jump_from is None else jnp.where(state["t"] >= jump_from, 2, 1)
        move = jnp.where(kind == LEFT, -stride, jnp.where(kind == RIGHT, stride, 0))
        x = jnp.where(state["lit"], jnp.clip(state["x"] + move, 0, SIZE - 1), state["x"])
        touched = (kind == 3) & (place == LAMP_PLACE)
        lit = state["lit"] ^ touched if toggles else state["lit"] | touched
        spark = jax.random.randint(key, (), 0, SIZE, jnp.int32) if noisy else state["spark"]
        return {
            "x": x.astype(jnp.int32),
            "lit": lit,
            "spark": spark,
            "t": state["t"] + jnp.int32(1),
        }

    def frame(state):
        picture = jnp.zeros(SIZE * SIZE, jnp.int32).at[LAMP_PLACE].set(LAMP)
        picture = picture.at[state["spark"]].set(SPARK)
        return picture.at[SIZE * (SIZE - 1) + state["x"]].set(HERO).reshape(SIZE, SIZE)

    def fingerprint(state):
        return (state["x"] * 64 + state["lit"] * 8 + state["spark"] + 1).astype(
            jnp.uint32
        ) * np.uint32(2654435761)

    return Simulator(
        init=init,
        step=step,
        refresh=lambda key, state: state,
        frame=frame,
        failed=lambda state: jnp.zeros((), bool),
        fingerprint=fingerprint,
        features=lambda state: jnp.stack([state["lit"]]).astype(jnp.uint32),
        actions=action_rows(),
        places=np.array([-1, -1, -1, *range(SIZE * SIZE)], np.int32),
        colours=4,
    )


class Play:
    """The world as it is seen, one step after the other."""

    def __init__(self, simulator, seed=0):
        self._simulator, self._key, self._t = simulator, jax.random.key(seed), 0
        self._step = jax.jit(simulator.step)
        self.state = simulator.init(self._key, jnp.int32(0))

    @property
    def frame(self):
        return np.asarray(self._simulator.frame(self.state))

    def act(self, action):
        self._t += 1
        key = jax.random.fold_in(self._key, self._t)
        self.state = self._step(key, self.state, self._simulator.actions[action])
        return self.frame
