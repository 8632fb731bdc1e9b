"""Recorded runs of the reference interpreter, and the programs that belong to them."""

import json
import pathlib

import numpy as np

from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.replay import replay
from jaxlab.envs.autumn.syntax import parse

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "autumn"


def golden(name):
    """A program of the project's own."""
    return (GOLDEN / f"{name}.sexp").read_text()


def recorded(name):
    """Its recorded run."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def compiled(source, trace, **options):
    return CompiledProgram(
        parse(source), random="reference", next_order=trace.get("next_order"), **options
    )


def require_reproduced(program, trace, actions=None):
    """Replay a recorded run and compare frames, cells and the error."""
    ours = replay(program, trace["actions"] if actions is None else actions, trace["seed"])
    shades = [ours["palette"].index(name) for name in trace["palette"]]
    assert len(ours["frames"]) == len(trace["frames"])
    frames = np.array(shades)[np.array(trace["frames"])]
    different = np.flatnonzero((np.array(ours["frames"]) != frames).any(axis=(1, 2)))
    assert not len(different), f"frame {different[0]} differs"
    names = [ours["variables"].index(name) for name in trace["variables"]]
    for number, (mine, theirs) in enumerate(zip(ours["cells"], trace["cells"], strict=True)):
        cells = [[names[v], x, y, shades[c]] for v, x, y, c in theirs]
        assert mine == cells, f"cells after step {number}"
    return ours
