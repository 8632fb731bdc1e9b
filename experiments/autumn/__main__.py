"""Commands on Autumn programs; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import experiments.autumn
from experiments.autumn.options import GifOptions, ReplayOptions
from jaxlab.core import cli
from jaxlab.core.options import DeviceOptions

PROGRAM = "python -m experiments.autumn"


class Command(NamedTuple):
    """A command: its options, whose docstring describes it, and what runs it."""

    options: type[DeviceOptions]
    body: Callable[[Any], None]

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (self.options.__doc__ or "").partition("\n")[0]


def replay(options: ReplayOptions) -> None:
    """Replay as the options say; heavy imports come after the choice of devices."""
    from experiments.autumn.replaying import main

    main(options)


def gif(options: GifOptions) -> None:
    """Draw as the options say."""
    from experiments.autumn.drawing import main

    main(options)


COMMANDS = {
    "replay": Command(ReplayOptions, replay),
    "gif": Command(GifOptions, gif),
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
    cli.main(f"{PROGRAM} {name}", command.options, command.body, argv=arguments[1:])


def usage() -> str:
    """The commands, a line each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [OPTIONS]",
            "",
            experiments.autumn.__doc__ or "",
            "",
            *lines,
            "",
            f"{PROGRAM} COMMAND --help names the options of a command.",
        ]
    )


if __name__ == "__main__":
    main()
