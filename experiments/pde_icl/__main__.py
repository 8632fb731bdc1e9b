"""Studies of in-context extrapolation; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import experiments.pde_icl
from experiments.pde_icl import options
from jaxlab.core import commands
from jaxlab.core.commands import Command
from jaxlab.core.options import DeviceOptions


def _later(module: str, function: str) -> Callable[[Any], None]:
    """A study that is imported when it runs; heavy imports come after the choice of devices."""

    def body(chosen: Any) -> None:
        getattr(importlib.import_module(f"experiments.pde_icl.{module}"), function)(chosen)

    return body


def _command(name: str, kind: type[DeviceOptions], module: str, function: str) -> Command:
    return Command(kind, _later(module, function), options.PRESETS[name])


_STUDIES = (
    ("context", options.ContextOptions, "sweeping", "context"),
    ("resolution", options.ResolutionOptions, "sweeping", "resolution"),
    ("coefficients", options.CoefficientOptions, "sweeping", "coefficients"),
    ("rollout", options.RolloutOptions, "rolling", "rollout"),
    ("long", options.LongOptions, "rolling", "rollout"),
    ("conservation", options.ConservationOptions, "rolling", "rollout"),
    ("chebyshev", options.ChebyshevOptions, "rolling", "rollout"),
    ("uncertainty", options.UncertaintyOptions, "rolling", "rollout"),
    ("tokens", options.TokenOptions, "looking", "tokens"),
    ("curve", options.CurveOptions, "looking", "curve"),
    ("differences", options.DifferenceOptions, "looking", "differences"),
)
COMMANDS = {study[0]: _command(*study) for study in _STUDIES}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; see `jaxlab.core.commands`."""
    commands.main("pde_icl", experiments.pde_icl.__doc__, COMMANDS, argv, default="context")


if __name__ == "__main__":
    main()
