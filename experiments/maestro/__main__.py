"""Train and evaluate from the command line; `--help` names every option."""

from __future__ import annotations

from experiments.maestro.options import PRESETS, Options
from jaxlab.core import cli


def train(options: Options) -> None:
    """Train as the options say; heavy imports come after the choice of devices."""
    if options.study:
        from experiments.maestro.study import study

        study(options)
        return
    from experiments.maestro.training import train

    train(options)


def evaluate(options: Options) -> None:
    """Evaluate the run `options.evaluate` again."""
    from experiments.maestro.training import evaluate

    evaluate(options)


if __name__ == "__main__":
    cli.main("maestro", Options, train, presets=PRESETS, evaluate=evaluate)
