"""Options of the commands on Autumn programs; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Literal

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramOptions(DeviceOptions):
    """Options of every command that runs a program."""

    program: pathlib.Path | None = None
    """File of the program, s-expressions (.sexp)."""
    actions: pathlib.Path | None = None
    """JSON file with a list of actions: ["noop"], ["left"], ["right"], ["up"], ["down"] or
    ["click", X, Y]; or an object with such a list under "actions", as a recorded trace."""
    seed: int = 0
    """Seed of the random numbers."""
    random: Literal["reference", "jax"] = "reference"
    """Draw as the reference interpreter does, or from JAX keys."""
    out: pathlib.Path | None = None
    """File to write."""
    capacity: int | None = None
    """Places that a list gets that grows; by default one a place of the grid, at most 256."""
    next_order: tuple[str, ...] = ()
    """State variables in the order in which their next-expressions run; by default the
    "next_order" of the actions file, or else the order of declaration."""

    def check(self) -> None:
        super().check()
        for name in ("program", "actions", "out"):
            if getattr(self, name) is None:
                raise ConfigError(f"--{name}: is missing; give the path of a file")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"--seed {self.seed}: expected an integer from 0 to 2^32 - 1")
        self.at_least("capacity", 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayOptions(ProgramOptions):
    """Run a program on a list of actions and write frames and cells as JSON.

    The layout is that of recorded traces: palette (index 0 is the background), frames (grids
    of palette indices, the state at the start first), cells (in the order of painting, as
    [variable, x, y, palette index], those off the grid too). Where the program fails the run
    ends before that step, and "error" says why.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class GifOptions(ProgramOptions):
    """Run a program on a list of actions and write an animated GIF."""

    scale: int = 16
    """Pixels along the side of a cell."""
    frame_rate: float | None = None
    """Frames a second; by default the program's FRAME_RATE."""

    def check(self) -> None:
        super().check()
        self.at_least("scale", 1)
        if self.frame_rate is not None and not 0 < self.frame_rate <= 50:
            raise ConfigError(f"--frame-rate {self.frame_rate:g}: expected a number in (0, 50]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TasksOptions(DeviceOptions):
    """Write tasks of the three families in the layout of the released ones.

    Prompts, answers and programs go to folders of these names. Without --seed and --program
    the tasks that the library ships are written; with them tasks are made anew: one of each
    family for the program, or for each program of the suite.
    """

    out: pathlib.Path | None = None
    """Folder to write."""
    program: pathlib.Path | None = None
    """File of a program, s-expressions (.sexp); by default the programs of the suite."""
    seed: int | None = None
    """Seed of the tasks that are made; with --program 0 by default."""
    random: Literal["reference", "jax"] = "jax"
    """How the worlds of the tasks draw: as the reference interpreter does, or from JAX keys."""
    capacity: int = 0
    """With --program: places that a list gets that grows; 0 for the default."""
    only: tuple[str, ...] = ()
    """Names of programs of the suite, by default all."""
    pack: pathlib.Path | None = None
    """Also keep the tasks in this file, as the library ships them; tasks that it holds for the
    same text of a program are not made again."""

    def check(self) -> None:
        super().check()
        if self.out is None:
            raise ConfigError("--out: is missing; give the path of a folder")
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ConfigError(f"--seed {self.seed}: expected an integer from 0 to 2^32 - 1")
        self.at_least("capacity", 0)
        if self.program is not None and self.only:
            raise ConfigError("--only: names programs of the suite; leave it or --program out")
        if self.pack is not None and (self.program is not None or self.seed is None):
            raise ConfigError("--pack: keeps tasks made for the suite; give --seed, no --program")
