"""Metadata of the suite: the stored table is what running the programs gives."""

import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.suite.metadata import explore, metadata, stored


def test_table_covers_the_suite():
    table = stored()
    assert tuple(table) == suite.programs()
    for found in table.values():
        assert set(found.colours) <= set(COLOURS)
        assert found.actions
        assert set(found.actions) < set(ACTIONS)


def test_findings_are_those_that_the_programs_were_written_for():
    assert not metadata("lights").drifts
    assert metadata("wind").drifts
    assert metadata("mines").random
    assert not metadata("sand").random
    assert metadata("paint").hidden
    assert not metadata("skater").random
    assert metadata("tunnel").occludes
    assert metadata("bbq").actions == ("click",)
    with pytest.raises(ConfigError, match="'bqb' has no metadata"):
        metadata("bqb")


@pytest.mark.parametrize("name", ["bbq", "mines"])
def test_table_is_what_running_gives(name):
    found = explore(name)
    assert found.metadata == metadata(name)
    assert not found.errors


@pytest.mark.slow
@pytest.mark.parametrize("name", suite.programs())
def test_whole_table_is_what_running_gives(name):
    found = explore(name)
    assert found.metadata == metadata(name)
    assert not found.errors
