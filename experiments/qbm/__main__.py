"""Commands of quantum Boltzmann machines; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

from collections.abc import Sequence

import experiments.qbm
from experiments.qbm.options import EvaluateOptions
from jaxlab.core import commands
from jaxlab.core.commands import Command


def evaluate(options: EvaluateOptions) -> None:
    """Evaluate as the options say; heavy imports come after the choice of devices."""
    from experiments.qbm.evaluating import main

    main(options)


COMMANDS = {"evaluate": Command(EvaluateOptions, evaluate)}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; see `jaxlab.core.commands`."""
    commands.main("qbm", experiments.qbm.__doc__, COMMANDS, argv)


if __name__ == "__main__":
    main()
