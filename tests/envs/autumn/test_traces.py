"""Runs of the reference interpreter, reproduced cell by cell."""

import json

import pytest

from jaxlab.envs.autumn.checker import expressions_of
from jaxlab.envs.autumn.standard_library import natives
from jaxlab.envs.autumn.syntax import names_in, parse, walk
from tests.envs.autumn.traces import GOLDEN, compiled, golden, recorded, require_reproduced

OWN = (
    *("lists", "geometry", "moves", "objects", "randomness", "scopes", "identities", "cells"),
    *("painting", "liquids", "far_away", "loops", "rotations", "rectangles", "snake", "meetings"),
)
PROGRAMS = (
    *("ants", "bbq", "bottle", "gravity", "gravity_3", "grow", "ice", "lights", "magnets"),
    *("mario", "paint", "particles", "sand", "waterplug"),
)
MICRO = (
    *("addobj_ids", "adjacent", "arith", "click_lazy", "closest", "colour_snapshot"),
    *("dynamic_scope", "error_stops", "free_except_colour", "liquid", "next_order", "off_grid"),
    *("offset_field", "on_freezes_next", "on_sees_earlier", "paint_order", "random"),
    *("remove_one_global", "remove_one_in_list", "rotate", "short_circuit", "stale_occupancy"),
)


@pytest.mark.parametrize("name", OWN)
def test_own_programs_run_as_in_the_reference(name):
    trace = recorded(name)
    ours = require_reproduced(compiled(golden(name), trace), trace)
    assert ours["error"] is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("head", "line 9, column 34: head of an empty list"),
        ("at", "'at' outside the list"),
        ("empty_choice", "uniformChoice from an empty list"),
    ],
)
def test_a_program_fails_in_the_step_in_which_the_reference_fails(name, message):
    trace = recorded(f"errors_{name}")
    ours = require_reproduced(compiled(golden("errors"), trace), trace)
    assert trace["failed"]
    assert message in ours["error"]


def test_own_programs_call_the_whole_standard_library():
    called = set()
    for path in GOLDEN.glob("*.sexp"):
        program = parse(path.read_text())
        called |= {n for e in expressions_of(program) for part in walk(e) for n in names_in(part)}
    # Two names that this table gives to one function.
    assert set(natives()) - called == set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_the_benchmark_run_as_in_the_reference(name, shared_data):
    source = shared_data(f"autumn/programs/{name}.sexp").read_text()
    traces = [
        json.loads(shared_data(f"autumn/traces/{name}{kind}.json").read_text())
        for kind in ("", ".long")
    ]
    program = compiled(source, traces[0])
    for trace in traces:
        require_reproduced(program, trace)


@pytest.mark.parametrize("name", MICRO)
def test_small_programs_run_as_in_the_reference(name, shared_data):
    source = shared_data(f"autumn/micro/programs/{name}.sexp").read_text()
    trace = json.loads(shared_data(f"autumn/micro/traces/{name}.json").read_text())
    program = compiled(source, trace)
    actions = trace["actions"]
    if trace["error"]:
        # The step that raised is not in the list: clicks go on until there is no head.
        actions = [*actions, ["click", 0, 0], ["click", 0, 0], ["click", 0, 0]]
        ours = require_reproduced(program, {**trace}, actions)
        assert "head of an empty list" in ours["error"]
        return
    require_reproduced(program, trace)
