"""Worlds that run step by step on the host, each step one call of a compiled program.

Step `n` (from 1) draws from `fold_in(key(seed), n)`, as `replay.run` does, so a run is the
same whichever of them it is made with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxlab.core.errors import DataError
from jaxlab.envs.autumn.compiler import CompiledProgram, ProgramState
from jaxlab.envs.autumn.tasks.formats import World, table_frames

#: What a clock is held at, so far below that it never arrives.
HELD = -(2**30)


class Steps(NamedTuple):
    """The compiled functions of a world.

    Attributes:
      init: From a seed, uint32, to the lanes' first states.
      step: From a seed, the number of the step, the lanes' states and an action `[3]` to the
        next states. With a clock there are two lanes, the second of which it is held in.
    """

    init: Callable[[Any], ProgramState]
    step: Callable[[Any, Any, ProgramState, Any], ProgramState]


def start_key(compiled: CompiledProgram, seed: Any) -> jax.Array:
    """What a program begins from."""
    seed = jnp.asarray(seed, jnp.uint32)
    return seed if compiled.random == "reference" else jax.random.key(seed)


def step_key(seed: Any, number: Any) -> jax.Array:
    """The key of step `number`, from 1."""
    return jax.random.fold_in(jax.random.key(jnp.asarray(seed, jnp.uint32)), number)


def held(compiled: CompiledProgram, state: ProgramState, clock: str) -> ProgramState:
    """A state whose clock, a variable with a whole number, never arrives.

    Raises:
      DataError: there is no such variable, or it does not count.
    """
    leaves = state.values.get(clock)
    if leaves is None or len(leaves) != 1 or leaves[0].dtype != np.int32 or leaves[0].ndim:
        raise DataError(
            f"'{clock}' is no variable with a changing number; a clock is one that counts, such "
            f"as (= {clock or 'clock'} (initnext 0 (+ (prev {clock or 'clock'}) 1)))"
        )
    values = {**state.values, clock: (jnp.full_like(leaves[0], HELD),)}
    return state.replace(values=values)  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=64)
def steps_of(compiled: CompiledProgram, clock: str = "") -> Steps:
    """The functions that run a program; the same ones for the same program."""

    def init(seed: Any) -> ProgramState:
        state = jax.tree.map(jnp.asarray, compiled.init(start_key(compiled, seed)))
        lanes = (state, held(compiled, state, clock)) if clock else (state,)
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)

    def step(seed: Any, number: Any, states: ProgramState, action: Any) -> ProgramState:
        key = step_key(seed, number)
        return jax.vmap(lambda state: compiled.step(key, state, action))(states)

    return Steps(jax.jit(init), jax.jit(step))


class RunningWorld:
    """One world from its start.

    Args:
      world: What runs.
      condition: An expression that is evaluated as each step begins.
      clock: Of a changed world; it is then known whether the change shows.

    Raises:
      ProgramError: the program cannot be compiled.
      DataError: it shows colours that tasks cannot say, or has no such clock.
    """

    def __init__(self, world: World, *, condition: str | None = None, clock: str = ""):
        self.compiled = world.compiled(condition)
        self._steps = steps_of(self.compiled, clock)
        self._has_condition = condition is not None
        self.restart(world.seed)

    def restart(self, seed: int) -> None:
        """Begin again, with draws from `seed`."""
        self.seed, self.number = np.uint32(seed), 0
        self._states = self._steps.init(self.seed)

    def step(self, action: Any) -> bool:
        """Take an action `[kind, x, y]`; whether the condition held as it began."""
        self.number += 1
        row = np.asarray(action, np.int32)
        self._states = self._steps.step(self.seed, np.uint32(self.number), self._states, row)
        return bool(self._states.triggered[0])

    def holds(self) -> bool:
        """Whether the condition holds now, without a step."""
        if not self._has_condition:
            return False
        number, row = np.uint32(self.number + 1), np.zeros(3, np.int32)
        after = self._steps.step(self.seed, number, self._states, row)
        return bool(after.triggered[0])

    @property
    def frame(self) -> Int[np.ndarray, "size size"]:
        """The picture, in indices of the table."""
        return table_frames(self.compiled, np.asarray(self._states.frame[0]))

    @property
    def differs(self) -> bool:
        """Whether the picture is not that of the world by its old rules; needs a clock."""
        frames = np.asarray(self._states.frame)
        return bool((frames[0] != frames[-1]).any())

    @property
    def error(self) -> str | None:
        """Why the program failed and stands still, or None."""
        code = int(self._states.error[0])
        return self.compiled.messages[code] if code else None
