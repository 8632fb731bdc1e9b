"""Programs of the suite by name, and what the comment at the head of each says.

A program is a file `programs/NAME.sexp`. Its first lines are comments: `; family: NAME`, for
programs with short lists `; capacity: PLACES`, then what happens in a sentence or two.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from typing import Literal

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.environment import Autumn

#: What makes a program hard to understand or to steer.
FAMILIES = (
    "counters",
    "latches",
    "selection",
    "contagion",
    "liquids",
    "movers",
    "turn games",
    "logic",
    "hidden state",
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of a program without running it.

    Attributes:
      name: Of the program.
      family: Its kind of mechanism, one of `FAMILIES`.
      description: What happens in it.
      capacity: Places that a list needs that grows; 0 for the default.
    """

    name: str
    family: str
    description: str
    capacity: int = 0


def programs() -> tuple[str, ...]:
    """Names of the programs, in alphabetical order."""
    return tuple(sorted(_texts()))


def source(name: str) -> str:
    """The text of a program.

    Raises:
      ConfigError: there is no such program.
    """
    try:
        return _texts()[name]
    except KeyError:
        raise ConfigError(
            f"program '{name}' is not in the suite; expected one of {', '.join(programs())}"
        ) from None


@functools.lru_cache(maxsize=256)
def describe(name: str) -> Entry:
    """What the head of a program says about it.

    Raises:
      ConfigError: there is no such program, or its head names no known family.
    """
    words: list[str] = []
    settings: dict[str, str] = {}
    for line in source(name).splitlines():
        if not line.startswith(";"):
            break
        key, colon, value = line.lstrip("; ").partition(": ")
        if colon and key in ("family", "capacity"):
            settings[key] = value.strip()
        else:
            words.append(line.lstrip("; ").strip())
    family = settings.get("family", "")
    if family not in FAMILIES:
        raise ConfigError(
            f"program '{name}': expected '; family: NAME' at its head with one of "
            f"{', '.join(FAMILIES)}, got '{family}'"
        )
    return Entry(name, family, " ".join(words), int(settings.get("capacity", 0)))


def load(name: str, random: Literal["jax", "reference"] = "jax") -> Autumn:
    """A program as an environment.

    Args:
      name: Of the program.
      random: Draw from keys, or as the reference interpreter does.

    Raises:
      ConfigError: there is no such program.
    """
    return Autumn(sources=(source(name),), random=random, capacity=describe(name).capacity)


@functools.cache
def _texts() -> dict[str, str]:
    folder = importlib.resources.files(__package__) / "programs"
    return {
        file.name.removesuffix(".sexp"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sexp")
    }
