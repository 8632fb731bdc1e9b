"""The suite of programs: texts, heads, and a few of them run."""

import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.checker import check
from jaxlab.envs.autumn.syntax import parse


@pytest.mark.parametrize("name", suite.programs())
def test_programs_are_sound_and_described(name):
    entry = suite.describe(name)
    assert entry.family in suite.FAMILIES
    assert 40 < len(entry.description) < 400
    assert entry.description.endswith(".")
    findings = check(parse(suite.source(name)))
    assert all("may grow" in finding.message for finding in findings), findings


def test_loaded_program_runs():
    environment = suite.load("bbq")
    assert environment.grid_size == 7
    assert {"pink", "tan"} <= set(environment.palette)


def test_unknown_program_is_named():
    with pytest.raises(ConfigError, match="'bqb' is not in the suite; expected one of ants"):
        suite.load("bqb")
