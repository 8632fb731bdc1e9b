"""Commands of the three-body problem; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import experiments.cr3bp
from experiments.cr3bp.options import OrbitOptions, PropagateOptions
from experiments.cr3bp.study_options import PRESETS, StudyOptions
from jaxlab.core import cli
from jaxlab.core.options import DeviceOptions

PROGRAM = "python -m experiments.cr3bp"


class Command(NamedTuple):
    """A command: its options, whose docstring describes it, what runs it, its presets."""

    options: type[DeviceOptions]
    body: Callable[[Any], None]
    presets: Mapping[str, Mapping[str, Any]] = {}

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (self.options.__doc__ or "").partition("\n")[0]


def propagate(options: PropagateOptions) -> None:
    """Propagate as the options say; heavy imports come after the choice of devices."""
    from experiments.cr3bp.propagating import main

    main(options)


def orbit(options: OrbitOptions) -> None:
    """Correct an orbit and follow its family as the options say."""
    from experiments.cr3bp.orbits import main

    main(options)


def study(options: StudyOptions) -> None:
    """Compare samplers as the options say."""
    from experiments.cr3bp.study import main

    main(options)


COMMANDS = {
    "propagate": Command(PropagateOptions, propagate),
    "orbit": Command(OrbitOptions, orbit),
    "study": Command(StudyOptions, study, PRESETS),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names, with the others as its options.

    Raises:
      SystemExit: there is no such command, or the command ended with an error.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else None
    if name in ("-h", "--help"):
        print(usage())
        return
    if name not in COMMANDS:
        given = "no command is given" if name is None else f"'{name}' is no command"
        print(f"error: {given}: begin with {' or '.join(COMMANDS)}, or --help", file=sys.stderr)
        raise SystemExit(2)
    command = COMMANDS[name]
    cli.main(
        f"cr3bp-{name}",
        command.options,
        command.body,
        presets=command.presets,
        argv=arguments[1:],
        program=f"{PROGRAM} {name}",
    )


def usage() -> str:
    """The commands, a line each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [OPTIONS]",
            "",
            experiments.cr3bp.__doc__ or "",
            "",
            *lines,
            "",
            f"{PROGRAM} COMMAND --help names the options of a command.",
        ]
    )


if __name__ == "__main__":
    main()
