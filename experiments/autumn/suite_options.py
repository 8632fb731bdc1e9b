"""Options of the command on the suite of programs; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import pathlib

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteOptions(DeviceOptions):
    """Explore the programs of the suite; write a table of what they do, and pictures.

    The folder gets NAME.png for each program (its start, and a picture after some random
    actions), contact_sheet.png, and metadata.json, the table that is printed.
    """

    out: pathlib.Path | None = None
    """Folder to write to."""
    programs: tuple[str, ...] = ()
    """Names of programs; by default all."""

    def check(self) -> None:
        super().check()
        if self.out is None:
            raise ConfigError("--out: is missing; give the path of a folder")
