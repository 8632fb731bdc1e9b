"""What tracing finds out about a program."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class Names:
    """Strings and messages by the numbers that stand for them in compiled programs."""

    strings: list[str]
    messages: list[str]


@dataclasses.dataclass
class Facts:
    """What is found out while tracing and needed from the start: one more trace then follows."""

    names: Names
    identified: frozenset[str] = frozenset()
    far_cells: bool = False
    liquids: bool = False

    def needs(self) -> tuple[Any, ...]:
        """What is needed."""
        return (self.identified, self.far_cells, self.liquids)

    def string(self, text: str) -> int:
        """The index of a string."""
        if text not in self.names.strings:
            self.names.strings.append(text)
        return self.names.strings.index(text)

    def message(self, text: str) -> int:
        """The code of an error, from 1."""
        if text not in self.names.messages:
            self.names.messages.append(text)
        return self.names.messages.index(text)
