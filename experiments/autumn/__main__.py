"""Commands on Autumn programs; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

from collections.abc import Sequence

import experiments.autumn
from experiments.autumn.options import GifOptions, ReplayOptions, TasksOptions
from experiments.autumn.play_options import PlayOptions
from experiments.autumn.suite_options import SuiteOptions
from jaxlab.core import commands
from jaxlab.core.commands import Command


def replay(options: ReplayOptions) -> None:
    """Replay as the options say; heavy imports come after the choice of devices."""
    from experiments.autumn.replaying import main

    main(options)


def gif(options: GifOptions) -> None:
    """Draw as the options say."""
    from experiments.autumn.drawing import main

    main(options)


def tasks(options: TasksOptions) -> None:
    """Write tasks as the options say."""
    from experiments.autumn.tasking import main

    main(options)


def play(options: PlayOptions) -> None:
    """Serve the page as the options say."""
    from experiments.autumn.playing import main

    main(options)


def suite(options: SuiteOptions) -> None:
    """Explore the suite as the options say."""
    from experiments.autumn.suite_table import main

    main(options)


COMMANDS = {
    "replay": Command(ReplayOptions, replay),
    "gif": Command(GifOptions, gif),
    "play": Command(PlayOptions, play),
    "suite": Command(SuiteOptions, suite),
    "tasks": Command(TasksOptions, tasks),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; see `jaxlab.core.commands`."""
    commands.main("autumn", experiments.autumn.__doc__, COMMANDS, argv)


if __name__ == "__main__":
    main()
