"""Options of exact answers to constrained decision processes; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveOptions(DeviceOptions):
    """Solve a finite constrained decision process exactly, by linear programs.

    The model is P1 (5 states, a signal to be kept high), P2 (river with restarts: effort <=),
    P3 (queue, its mean length is minimised: service <= and admission >=), P4 (inventory: lost
    sales <=), or a file: npz or JSON with P [S, A, S], r [S, A], c [m, S, A], sense [m]
    (">=" or "<="), b [m], and objective ("minimise" or "maximise") where r is a cost.
    """

    model: str = ""
    """P1, P2, P3, P4, or the path of an npz or JSON file."""
    bound: tuple[float, ...] = ()
    """Bounds of the cost signals in their order, in place of the model's own; repeat the option
    or give several numbers."""
    json: bool = False
    """Print one JSON object instead of tables."""
    x64: bool = True
    """Compute with 64-bit floats, which exact answers need."""

    def check(self) -> None:
        super().check()
        if not self.model:
            raise ConfigError("--model: is missing; give P1, P2, P3, P4 or a file")
        for bound in self.bound:
            if not math.isfinite(bound):
                raise ConfigError(f"--bound {bound}: expected a finite number")


def joined(arguments: Sequence[str], flag: str = "--bound") -> list[str]:
    """The arguments with all values of a repeated option behind its first mention."""
    kept: list[str] = []
    values: list[str] = []
    place = None
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        if argument != flag and not argument.startswith(f"{flag}="):
            kept.append(argument)
            continue
        place = len(kept) if place is None else place
        if argument != flag:
            values.append(argument.removeprefix(f"{flag}="))
        while argument == flag and pending and not pending[0].startswith("--"):
            values.append(pending.pop(0))
    return kept if place is None else [*kept[:place], flag, *values, *kept[place:]]
