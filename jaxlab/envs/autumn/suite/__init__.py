"""The project's own suite of Autumn programs: their texts, families and metadata."""

from jaxlab.envs.autumn.suite.catalogue import (
    FAMILIES,
    Entry,
    describe,
    load,
    programs,
    source,
)

__all__ = ["FAMILIES", "Entry", "describe", "load", "programs", "source"]
