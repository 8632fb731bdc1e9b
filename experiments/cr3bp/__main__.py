"""Commands of the three-body problem; `--help` lists them, `COMMAND --help` its options."""

from __future__ import annotations

from collections.abc import Sequence

import experiments.cr3bp
from experiments.cr3bp.options import OrbitOptions, PropagateOptions
from experiments.cr3bp.solve_options import SolveOptions
from experiments.cr3bp.study_options import PRESETS, StudyOptions
from jaxlab.core import commands
from jaxlab.core.commands import Command


def propagate(options: PropagateOptions) -> None:
    """Propagate as the options say; heavy imports come after the choice of devices."""
    from experiments.cr3bp.propagating import main

    main(options)


def orbit(options: OrbitOptions) -> None:
    """Correct an orbit and follow its family as the options say."""
    from experiments.cr3bp.orbits import main

    main(options)


def solve(options: SolveOptions) -> None:
    """Find a transfer as the options say."""
    from experiments.cr3bp.solving import main

    main(options)


def study(options: StudyOptions) -> None:
    """Compare samplers as the options say."""
    from experiments.cr3bp.study_report import main

    main(options)


COMMANDS = {
    "propagate": Command(PropagateOptions, propagate),
    "orbit": Command(OrbitOptions, orbit),
    "solve": Command(SolveOptions, solve),
    "study": Command(StudyOptions, study, PRESETS),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; see `jaxlab.core.commands`."""
    commands.main("cr3bp", experiments.cr3bp.__doc__, COMMANDS, argv, default="study")


if __name__ == "__main__":
    main()
