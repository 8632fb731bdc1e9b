"""Commands of constrained decision processes; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import experiments.cmdp
from experiments.cmdp.options import SolveOptions, joined
from experiments.cmdp.study_options import PRESETS, StudyOptions
from jaxlab.core import commands
from jaxlab.core.commands import Command


def solve(options: SolveOptions) -> None:
    """Solve as the options say; heavy imports come after the choice of devices."""
    from experiments.cmdp.solving import main

    main(options)


def study(options: StudyOptions) -> None:
    """Run the study of sampled methods as the options say."""
    from experiments.cmdp.study_report import main

    main(options)


COMMANDS = {
    "solve": Command(SolveOptions, solve),
    "study": Command(StudyOptions, study, PRESETS),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; see `jaxlab.core.commands`."""
    arguments = joined(sys.argv[1:] if argv is None else argv)
    commands.main("cmdp", experiments.cmdp.__doc__, COMMANDS, arguments, default="study")


if __name__ == "__main__":
    main()
