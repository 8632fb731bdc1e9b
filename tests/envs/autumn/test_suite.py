"""The suite of programs: texts, heads, and what some of them do."""

import functools

import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.checker import RANDOM, check
from jaxlab.envs.autumn.compiler import CompiledProgram
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.replay import encoded, run
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.syntax import parse

#: Those of the benchmark whose behaviour is public, and the sizes of their grids.
DESCRIBED = {
    "ants": 16,
    "bbq": 7,
    "bottle": 11,
    "buoyancy": 7,
    "coins": 16,
    "disease": 16,
    "gravity": 17,
    "gravity_3": 21,
    "grow": 16,
    "hatch": 16,
    "ice": 16,
    "lights": 16,
    "magnets": 16,
    "mario": 12,
    "paint": 16,
    "particles": 16,
    "sand": 10,
    "space_invaders": 16,
    "waterplug": 16,
    "wind": 17,
}


@functools.cache
def compiled(name):
    return CompiledProgram(
        parse(suite.source(name)), capacity=suite.describe(name).capacity or None
    )


def frames(name, actions, seed=1):
    """Pictures as names of colours, `[steps + 1, size, size]`."""
    program = compiled(name)
    states, _ = run(program, encoded(actions, program.grid_size), seed)
    assert not states.error.any()
    return np.array(program.palette)[states.frame]


def held_actions(size, steps, seed):
    """Random actions, each held for up to 20 steps, so that what piles up does."""
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < steps:
        kind = int(rng.choice([0, 1, 2, 3, 4, 5, 5, 5]))
        row = (kind, *(rng.integers(0, size, 2) if ACTIONS[kind] == "click" else (0, 0)))
        rows += [row] * int(rng.choice([1, 1, 1, 2, 20]))
    return np.array(rows[:steps], np.int32)


def require_lively(name):
    """The program runs without an error, and what is done makes a difference."""
    program = compiled(name)
    quiet, _ = run(program, np.zeros((200, 3), np.int32), 5)
    differences = 0.0
    for seed in range(3):
        states, _ = run(program, held_actions(program.grid_size, 200, seed), 5)
        messages = {program.messages[code] for code in states.error.tolist() if code}
        assert not messages
        assert {program.palette[colour] for colour in np.unique(states.frame)} <= set(COLOURS)
        differences += float((states.frame != quiet.frame).any((1, 2)).mean())
    assert not quiet.error.any()
    assert differences > 0.1


@pytest.mark.parametrize("name", suite.programs())
def test_programs_are_sound_and_described(name):
    entry = suite.describe(name)
    assert entry.family in suite.FAMILIES
    assert 40 < len(entry.description) < 400
    assert entry.description.endswith(".")
    findings = check(parse(suite.source(name)))
    assert all("may grow" in finding.message for finding in findings), findings


def test_suite_is_as_large_and_as_random_as_the_benchmark():
    names = suite.programs()
    assert len(names) >= 43
    assert DESCRIBED.keys() <= set(names)
    for name, size in DESCRIBED.items():
        assert f"(= GRID_SIZE {size})" in suite.source(name)
    draws = [any(word in suite.source(name) for word in RANDOM) for name in names]
    assert 0.35 < np.mean(draws) < 0.5
    counts = [sum(suite.describe(n).family == family for n in names) for family in suite.FAMILIES]
    assert min(counts) >= 3


def test_loaded_program_runs():
    environment = suite.load("bbq")
    assert environment.grid_size == 7
    assert {"pink", "tan"} <= set(environment.palette)


def test_unknown_program_is_named():
    with pytest.raises(ConfigError, match="'bqb' is not in the suite; expected one of ants"):
        suite.load("bqb")


@pytest.mark.parametrize("name", ["coins", "doorbell", "snake"])
def test_programs_are_lively(name):
    require_lively(name)


def test_third_ring_opens_the_door_for_ten_steps():
    seen = frames("doorbell", [["click", 2, 2]] * 3 + [["noop"]] * 13)
    is_open = seen[:, 5, 4] == "black"
    assert np.flatnonzero(is_open).tolist() == list(range(3, 13))
    walk = frames("doorbell", [["click", 2, 2]] * 3 + [["right"]] * 5)
    assert walk[-1, 5, 6] == "limegreen"
    assert frames("doorbell", [["right"]] * 5)[-1, 5, 3] == "limegreen"


def test_safe_opens_with_the_right_colours():
    right = [["click", 1, 2]] * 2 + [["click", 3, 2]] + [["click", 5, 2]] * 3
    seen = frames("safe", [*right, ["click", 3, 4], ["click", 1, 2], ["click", 3, 4]])
    assert seen[:, 6, 1].tolist() == ["darkred"] * 7 + ["limegreen"] * 2 + ["darkred"]
    assert seen[-1, 2, [1, 3, 5]].tolist() == ["red"] * 3


def test_rival_takes_matches_as_the_best_strategy_says():
    seen = frames("matches", [["click", 9, 5], ["noop"], ["click", 5, 5], ["noop"], ["noop"]])
    left = (seen[:, 5] == "tan").sum(axis=1)
    # 9 left: the rival takes one, so that always four remain for each pair of moves.
    assert left.tolist() == [10, 9, 8, 5, 4, 4]
    won = frames("matches", [["click", 8, 5], ["noop"], ["click", 4, 5], ["noop"], ["click", 0, 5]])
    assert (won[:, 5] == "tan").sum(axis=1).tolist() == [10, 8, 7, 4, 3, 0]
    assert won[-1, 1, 5] == "green"


def test_gate_at_the_end_follows_a_step_later():
    seen = frames("gates", [["click", 1, 1], ["click", 1, 3], ["noop"], ["click", 1, 7], ["noop"]])
    lamps = seen[:, [2, 6, 4], [4, 4, 7]] == "gold"
    assert lamps[:, 0].tolist() == [False, False, True, True, True, True]
    assert lamps[:, 1].tolist() == [False] * 4 + [True] * 2
    assert lamps[:, 2].tolist() == [False, False, False, True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", suite.programs())
def test_all_programs_are_lively(name):
    require_lively(name)
