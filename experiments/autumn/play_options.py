"""Options of the page to play in; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import pathlib

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayOptions(DeviceOptions):
    """Serve a page to play Autumn worlds in: freely, or in the three tests.

    Arrows and clicks are actions, the space bar waits, R goes back to the start. Without --program and
    --tasks the page offers the suite and its tasks.
    """

    program: pathlib.Path | None = None
    """File of a program (.sexp) to play freely."""
    tasks: pathlib.Path | None = None
    """Folder of tasks in the released layout."""
    seed: int = 0
    """Seed of free play."""
    host: str = "127.0.0.1"
    """Address to listen on; by default this machine alone reaches it."""
    port: int = 8350
    """Port to listen on; 0 takes any that is free."""

    def check(self) -> None:
        super().check()
        for name in ("program", "tasks"):
            path = getattr(self, name)
            if path is not None and not path.exists():
                raise ConfigError(f"--{name} {path}: there is no such file or folder")
        if not 0 <= self.port < 65536:
            raise ConfigError(f"--port {self.port}: expected a number from 0 to 65535")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"--seed {self.seed}: expected an integer from 0 to 2^32 - 1")
