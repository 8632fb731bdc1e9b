"""Runs a program on a list of actions and writes what it showed."""

from __future__ import annotations

import json
import sys
from typing import Any

from experiments.autumn.options import ProgramOptions, ReplayOptions
from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.autumn.checker import check
from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.replay import load_actions, load_program, replay


def main(options: ReplayOptions) -> None:
    """Write the run that the options describe as JSON.

    Raises:
      ConfigError, DataError, ProgramError: see the messages.
    """
    assert options.out is not None
    compiled, actions = prepared(options)
    result = {"program": str(options.program), **replay(compiled, actions, options.seed)}
    try:
        options.out.write_text(json.dumps(result, separators=(",", ":")) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {options.out}: cannot be written: {error}") from None
    print(
        f"{options.out}: {len(result['frames'])} frames of {compiled.grid_size} x "
        f"{compiled.grid_size}, {len(actions)} actions"
    )
    if result["error"] is not None:
        print(f"the program fails in step {len(result['frames'])}: {result['error']}")


def prepared(options: ProgramOptions) -> tuple[CompiledProgram, list[Any]]:
    """The compiled program and the actions; warnings go to the standard error."""
    assert options.program is not None
    assert options.actions is not None
    program = load_program(options.program)
    actions, rest = load_actions(options.actions)
    order = options.next_order or rest.get("next_order")
    if order is not None and not (
        isinstance(order, list | tuple) and all(isinstance(name, str) for name in order)
    ):
        raise DataError(f"{options.actions}: next_order must be a list of names")
    for finding in check(program):
        if finding.severity == "warning":
            print(f"{options.program}: warning: {finding}", file=sys.stderr)
    compiled = CompiledProgram(
        program, random=options.random, capacity=options.capacity, next_order=order
    )
    return compiled, actions
