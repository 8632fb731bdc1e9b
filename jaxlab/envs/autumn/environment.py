"""Autumn programs as an environment: reward-free, the picture as the observation."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxlab.core.environment import Env, TimeStep, select
from jaxlab.core.errors import ConfigError, ProgramError
from jaxlab.core.spaces import Box, Discrete
from jaxlab.envs.autumn import syntax
from jaxlab.envs.autumn.compiler import CompiledProgram, ProgramState
from jaxlab.envs.autumn.pictures import picture
from jaxlab.envs.autumn.stepping import ACTIONS

#: Actions by index; those from `len(SIMPLE)` on are clicks, row by row.
SIMPLE = ("noop", "left", "right", "up", "down", "reset")


@struct.dataclass
class AutumnParams:
    """A task: which of the environment's programs runs, and from which seed.

    Attributes:
      variant: Index of the program, int32 `[]`.
      seed: Seed of everything that is random at the start (in reference mode, of the whole
        episode), uint32 `[]`.
    """

    variant: jax.Array
    seed: jax.Array


@struct.dataclass
class AutumnState:
    """State of an episode: one state for each program, of which one is seen."""

    programs: tuple[ProgramState, ...]


@dataclasses.dataclass(frozen=True)
class Autumn(Env[AutumnState, AutumnParams]):
    """Programs of one grid size as an environment without reward.

    Actions are `Discrete(6 + size * size)`: noop, left, right, up, down, reset (back to the
    start, with the same seed), then a click on each place, row by row. The observation is the
    grid of colours, int32 `[size, size]`, indices of `palette`. An episode ends where the
    program fails (`info["error"]`, the code in `messages`) and never otherwise.

    Attributes:
      sources: Texts of the programs; a task picks one.
      random: Draw from keys, or as the reference interpreter does.
      capacity: Places that a list gets that grows; 0 for the default.
      next_order: Order of the next-expressions, by default that of declaration; one program.
    """

    name: ClassVar[str] = "autumn"

    sources: tuple[str, ...]
    random: Literal["jax", "reference"] = "jax"
    capacity: int = 0
    next_order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.sources, str) or not self.sources:
            raise ConfigError("sources: expected a tuple with the text of at least one program")
        if self.next_order and len(self.sources) > 1:
            raise ConfigError("next_order: expected one program with it")
        sizes = {compiled.grid_size for compiled in self.compiled}
        if len(sizes) > 1:
            raise ConfigError(f"sources: expected programs of one GRID_SIZE, got {sorted(sizes)}")

    @property
    def compiled(self) -> tuple[CompiledProgram, ...]:
        """The compiled programs."""
        return _compiled(self.sources, self.random, self.capacity, self.next_order)

    @property
    def grid_size(self) -> int:
        """Rows, and columns, of the grid."""
        return self.compiled[0].grid_size

    @property
    def palette(self) -> tuple[str, ...]:
        """Names of colours by their index in observations."""
        return self.compiled[0].palette

    @property
    def messages(self) -> tuple[str, ...]:
        """Errors of the programs by their code."""
        return self.compiled[0].messages

    def click(self, x: int, y: int) -> int:
        """The action of a click on column `x` of row `y`.

        Raises:
          ConfigError: the place is outside the grid.
        """
        if not (0 <= x < self.grid_size and 0 <= y < self.grid_size):
            raise ConfigError(
                f"a click at {x}, {y} is outside the grid; expected 0 to {self.grid_size - 1}"
            )
        return len(SIMPLE) + y * self.grid_size + x

    def sample_params(self, key: jax.Array) -> AutumnParams:
        """Draw a program and a seed."""
        which, seed = jax.random.split(key)
        return AutumnParams(
            variant=jax.random.randint(which, (), 0, len(self.sources), jnp.int32),
            seed=jax.random.bits(seed, (), jnp.uint32),
        )

    def reset(self, key: jax.Array, params: AutumnParams) -> tuple[AutumnState, TimeStep]:
        """The start of the task; the key is not used, since the task's seed says it all."""
        del key
        state = self._begin(params)
        return state, self._timestep(state, params)

    def step(
        self, key: jax.Array, state: AutumnState, action: Any, params: AutumnParams
    ) -> tuple[AutumnState, TimeStep]:
        """One step; `action` is an index, int32 `[]`."""
        row = self._row(action)
        # All programs step: under vmap a switch would compute them all as well.
        after = tuple(
            compiled.step(key, program, row)
            for compiled, program in zip(self.compiled, state.programs, strict=True)
        )
        failed = self._running(state.programs, params).error > 0
        is_reset = (action == SIMPLE.index("reset")) & ~failed
        state = select(is_reset, self._begin(params), AutumnState(after))
        return state, self._timestep(state, params)

    def observation_space(self, params: AutumnParams) -> Box:
        """Grids of palette indices."""
        return Box(0, len(self.palette) - 1, (self.grid_size, self.grid_size), "int32")

    def action_space(self, params: AutumnParams) -> Discrete:
        """The six simple actions and a click on each place."""
        return Discrete(len(SIMPLE) + self.grid_size**2)

    def render(self, state: AutumnState, params: AutumnParams) -> np.ndarray:
        """The grid with 16 pixels along the side of a cell."""
        return picture(self._running(state.programs, params).frame, self.palette)

    def require_sound(self, timestep: TimeStep) -> None:
        """Raise where a program failed, on the host.

        Raises:
          ProgramError: says where and why; of a batch, the first one.
        """
        codes = np.asarray(timestep.info["error"]).reshape(-1)
        failed = np.flatnonzero(codes)
        if len(failed):
            raise ProgramError(f"the program failed: {self.messages[codes[failed[0]]]}")

    def _row(self, action: jax.Array) -> jax.Array:
        """An action as the compiled programs take it, `[kind, x, y]`."""
        place = jnp.maximum(action - len(SIMPLE), 0)
        is_click = action >= len(SIMPLE)
        simple = jnp.where(action < SIMPLE.index("reset"), action, ACTIONS.index("noop"))
        kind = jnp.where(is_click, ACTIONS.index("click"), simple)
        parts = (kind, place % self.grid_size, place // self.grid_size)
        return jnp.stack(parts).astype(jnp.int32)

    def _begin(self, params: AutumnParams) -> AutumnState:
        start = params.seed if self.random == "reference" else jax.random.key(params.seed)
        states = tuple(compiled.init(start) for compiled in self.compiled)
        return AutumnState(jax.tree.map(jnp.asarray, states))

    def _running(self, states: tuple[ProgramState, ...], params: AutumnParams) -> Any:
        """What all programs have in common, of the one that runs."""
        shown = [_Shown(frame=s.frame, error=s.error, triggered=s.triggered) for s in states]
        if len(shown) == 1:
            return shown[0]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *shown)
        return jax.tree.map(lambda leaf: leaf[params.variant], stacked)

    def _timestep(self, state: AutumnState, params: AutumnParams) -> TimeStep:
        shown = self._running(state.programs, params)
        return TimeStep(
            obs=shown.frame,
            reward=jnp.zeros((), jnp.float32),
            cost=jnp.zeros((0,), jnp.float32),
            terminated=shown.error > 0,
            truncated=jnp.zeros((), bool),
            info={"error": shown.error},
        )


@struct.dataclass
class _Shown:
    frame: jax.Array
    error: jax.Array
    triggered: jax.Array


@functools.lru_cache(maxsize=256)
def _compiled(
    sources: tuple[str, ...], random: Any, capacity: int, next_order: tuple[str, ...]
) -> tuple[CompiledProgram, ...]:
    compiled: list[CompiledProgram] = []
    for source in sources:
        compiled.append(
            CompiledProgram(
                syntax.parse(source),
                random=random,
                capacity=capacity or None,
                next_order=next_order or None,
                names=compiled[0].names if compiled else None,
            )
        )
    return tuple(compiled)
