"""Commands of quantum Boltzmann machines; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

from collections.abc import Sequence

import experiments.qbm
from experiments.qbm.options import EvaluateOptions
from experiments.qbm.study_options import (
    EXPRESSIVITY_PRESETS,
    STUDY_PRESETS,
    VARIANCES_PRESETS,
    ExpressivityOptions,
    StudyOptions,
    VariancesOptions,
)
from jaxlab.core import commands
from jaxlab.core.commands import Command


def evaluate(options: EvaluateOptions) -> None:
    """Evaluate as the options say; heavy imports come after the choice of devices."""
    from experiments.qbm.evaluating import main

    main(options)


def study(options: StudyOptions) -> None:
    """Compare learners as the options say."""
    from experiments.qbm.study import main

    main(options)


def expressivity(options: ExpressivityOptions) -> None:
    """Compare kinds of machines as the options say."""
    from experiments.qbm.expressivity import main

    main(options)


def variances(options: VariancesOptions) -> None:
    """Scan variances of gradients as the options say."""
    from experiments.qbm.variances import main

    main(options)


COMMANDS = {
    "evaluate": Command(EvaluateOptions, evaluate),
    "study": Command(StudyOptions, study, STUDY_PRESETS),
    "expressivity": Command(ExpressivityOptions, expressivity, EXPRESSIVITY_PRESETS),
    "variances": Command(VariancesOptions, variances, VARIANCES_PRESETS),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; see `jaxlab.core.commands`."""
    commands.main("qbm", experiments.qbm.__doc__, COMMANDS, argv, default="study")


if __name__ == "__main__":
    main()
