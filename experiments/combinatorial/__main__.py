"""Commands of combinatorial problems; `--help` lists them, `COMMAND --help` its options.

Without a command, options are those of `train`.
"""

from __future__ import annotations

from collections.abc import Sequence

import experiments.combinatorial
from experiments.combinatorial.options import CheckOptions, SolveOptions
from experiments.combinatorial.train_options import PRESETS, TrainOptions
from jaxlab.core import commands
from jaxlab.core.commands import Command


def solve(options: SolveOptions) -> None:
    """Solve as the options say; heavy imports come after the choice of devices."""
    from experiments.combinatorial.solving import main

    main(options)


def check(options: CheckOptions) -> None:
    """Check a formulation as the options say."""
    from experiments.combinatorial.checking import main

    main(options)


def train(options: TrainOptions) -> None:
    """Train and evaluate as the options say."""
    from experiments.combinatorial.training import main

    main(options)


COMMANDS = {
    "train": Command(TrainOptions, train, PRESETS),
    "solve": Command(SolveOptions, solve),
    "check": Command(CheckOptions, check),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; see `jaxlab.core.commands`."""
    commands.main(
        "combinatorial", experiments.combinatorial.__doc__, COMMANDS, argv, default="train"
    )


if __name__ == "__main__":
    main()
