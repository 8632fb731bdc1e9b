"""WorldTest from the command line; `--help` names every option."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.worldtest.options import PRESETS, Options
from jaxlab.core import cli


def run(options: Options) -> None:
    """Hold the sessions; heavy imports come after the choice of devices."""
    from experiments.worldtest.running import main

    main(options)


def evaluate(options: Options) -> None:
    """Report the run `options.evaluate` again."""
    from experiments.worldtest.running import evaluate

    evaluate(options)


def main(argv: Sequence[str] | None = None) -> None:
    """Run as the arguments say, by default those of the process."""
    cli.main("worldtest", Options, run, presets=PRESETS, evaluate=evaluate, argv=argv)


if __name__ == "__main__":
    main()
