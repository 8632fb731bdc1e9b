"""Simulate traffic from the command line; `--help` names every option."""

from __future__ import annotations

from experiments.traffic.options import Options
from jaxlab.core import cli


def body(options: Options) -> None:
    """Simulate as the options say; heavy imports come after the choice of devices."""
    from experiments.traffic.simulation import main

    main(options)


if __name__ == "__main__":
    cli.main("traffic", Options, body)
