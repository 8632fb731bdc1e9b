"""What an environment offers to reward programs: features by name, range and meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxlab.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class FeatureCatalogue:
    """Named features of each agent (or of each action of each agent).

    Attributes:
      names: Identifiers, in the order of the columns of the feature array.
      descriptions: One sentence each, shown to whoever designs a reward.
      ranges: Lowest and highest usual value of each.
      signs: -1 where more is worse (a queue), +1 where more is better, 0 where it depends.
    """

    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...]
    signs: tuple[int, ...]

    def __post_init__(self) -> None:
        lengths = {len(column) for column in dataclasses.astuple(self)}
        if len(lengths) != 1 or not self.names:
            raise ConfigError(
                "feature catalogue: names, descriptions, ranges and signs must be as many, not none"
            )
        for name, (low, high), sign in zip(self.names, self.ranges, self.signs, strict=True):
            plain = name.isidentifier() and name.isascii() and not name.startswith("_")
            if not plain or self.names.count(name) > 1:
                raise ConfigError(
                    f"feature '{name}': expected an ASCII identifier of its own without a leading "
                    "underscore"
                )
            if not (np.isfinite([low, high]).all() and low < high) or sign not in (-1, 0, 1):
                raise ConfigError(
                    f"feature '{name}': expected a finite range low < high and a sign -1, 0 or 1, "
                    f"got {low:g} to {high:g} and {sign}"
                )

    @classmethod
    def of(cls, records: Iterable[Any]) -> FeatureCatalogue:
        """From records with the fields `name`, `description`, `low`, `high` and `sign`."""
        rows = [(r.name, r.description, (float(r.low), float(r.high)), r.sign) for r in records]
        names, descriptions, ranges, signs = zip(*rows, strict=True) if rows else ((),) * 4
        return cls(names, descriptions, ranges, signs)

    @property
    def bounds(self) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]:
        """Lowest and highest values."""
        low, high = np.array(self.ranges, float).T
        return low, high

    def text(self) -> str:
        """One line per feature, for a prompt."""
        meaning = {-1: "; more is worse", 0: "", 1: "; more is better"}
        rows = zip(self.names, self.descriptions, self.ranges, self.signs, strict=True)
        return "\n".join(
            f"{name}: {description} ({low:g} to {high:g}{meaning[sign]})"
            for name, description, (low, high), sign in rows
        )
