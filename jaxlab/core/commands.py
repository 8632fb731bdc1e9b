"""Experiments of several commands: `python -m experiments.NAME COMMAND [OPTIONS]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxlab.core import cli
from jaxlab.core.options import DeviceOptions


class Command(NamedTuple):
    """A command: its options, whose docstring describes it, what runs it, its presets."""

    options: type[DeviceOptions]
    body: Callable[[Any], None]
    presets: Mapping[str, Mapping[str, Any]] = {}

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (self.options.__doc__ or "").partition("\n")[0]


def main(
    experiment: str,
    description: str | None,
    commands: Mapping[str, Command],
    argv: Sequence[str] | None = None,
    *,
    default: str | None = None,
) -> None:
    """Run the command that the first argument names, with the others as its options.

    Args:
      experiment: Name of the experiment.
      description: What it is about, for its help text.
      commands: Its commands by name.
      argv: Arguments; those of the process by default.
      default: The command that is meant where the first argument is an option or there is none.

    Raises:
      SystemExit: There is no such command, or the command ended with an error.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else None
    if name in ("-h", "--help"):
        print(usage(experiment, description, commands, default))
        return
    if default is not None and (name is None or name.startswith("-")):
        name, arguments = default, [default, *arguments]
    if name is None or name not in commands:
        given = "no command is given" if name is None else f"'{name}' is no command"
        print(f"error: {given}: begin with {' or '.join(commands)}, or --help", file=sys.stderr)
        raise SystemExit(2)
    command = commands[name]
    cli.main(
        f"{experiment} {name}",
        command.options,
        command.body,
        presets=command.presets,
        argv=arguments[1:],
        program=f"{_program(experiment)} {name}",
    )


def usage(
    experiment: str,
    description: str | None,
    commands: Mapping[str, Command],
    default: str | None = None,
) -> str:
    """The commands, a line each."""
    program = _program(experiment)
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in commands.items()]
    return "\n".join(
        [
            f"usage: {program} COMMAND [OPTIONS]",
            "",
            description or "",
            "",
            *lines,
            "",
            f"{program} COMMAND --help names the options of a command.",
            *([] if default is None else [f"Without COMMAND it is {default}."]),
        ]
    )


def _program(experiment: str) -> str:
    return f"python -m experiments.{experiment}"
