"""Reward programs: bounded postfix programs as arrays, with their source kept beside them.

A program is data. It is evaluated by `stack_machine.evaluate` inside a compiled step; many
of them are one stacked pytree, and nothing in them can be executed.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import struct

from jaxlab.core.errors import ConfigError

#: Values that an evaluation can hold at a time, and instructions of a program.
STACK_DEPTH, LENGTH = 16, 128
_FORMAT = 1


class RewardError(ConfigError):
    """A reward program is refused; the message says why and what to write instead."""


class Op(enum.IntEnum):
    """Operations; each takes its arguments from the stack and leaves one value.

    Truth values are 0 and 1. Padding (`NOTHING`) leaves the stack as it is.
    """

    NOTHING = 0
    CONSTANT = 1
    FEATURE = 2
    ADD = 3
    SUBTRACT = 4
    MULTIPLY = 5
    DIVIDE = 6
    MIN = 7
    MAX = 8
    LESS = 9
    LESS_EQUAL = 10
    EQUAL = 11
    WHERE = 12
    NEGATE = 13
    ABS = 14
    SQUARE = 15
    SQRT = 16
    EXP = 17
    LOG = 18
    LOG1P = 19
    TANH = 20


def arity(op: int) -> int:
    """Values that an operation takes from the stack."""
    if op <= Op.FEATURE:
        return 0
    return 3 if op == Op.WHERE else 2 if op <= Op.EQUAL else 1


@struct.dataclass
class RewardProgram:
    """Instructions in postfix order, `[length]` each; stacked programs have leading axes.

    Attributes:
      code: Operations (`Op`), int32, padded with `Op.NOTHING`.
      feature: Column that `Op.FEATURE` reads, int32.
      constant: Value that `Op.CONSTANT` pushes, float32.
    """

    code: jax.Array | np.ndarray
    feature: jax.Array | np.ndarray
    constant: jax.Array | np.ndarray


Instruction = tuple[Op, float | int]


def assemble(
    instructions: Sequence[Instruction], num_features: int, length: int = LENGTH
) -> RewardProgram:
    """Arrays of a program.

    Raises:
      RewardError: It is too long, reads a feature that is not there, holds a number that is
        not finite, needs too deep a stack, or does not leave exactly one value.
    """
    if not 0 < len(instructions) <= length:
        raise RewardError(
            f"the reward takes {len(instructions)} operations, the limit is {length}; "
            "shorten it (local variables count each time they are used)"
        )
    code, feature = np.zeros(length, np.int32), np.zeros(length, np.int32)
    constant, height = np.zeros(length, np.float32), 0
    for n, (op, value) in enumerate(instructions):
        code[n] = op
        if height < arity(op):
            raise RewardError(f"instruction {n} ({op.name}) takes more values than there are")
        height += 1 - arity(op)
        if op == Op.NOTHING or height > STACK_DEPTH:
            raise RewardError(
                f"the reward holds more than {STACK_DEPTH} values at a time; nest less"
            )
        if op == Op.FEATURE:
            if not 0 <= value < num_features:
                raise RewardError(f"feature {value} does not exist; there are {num_features}")
            feature[n] = value
        elif op == Op.CONSTANT:
            if not abs(value) <= np.finfo(np.float32).max:
                raise RewardError(f"the constant {value} is not a finite number")
            constant[n] = value
    if height != 1:
        raise RewardError(f"the program leaves {height} values instead of one")
    return RewardProgram(code, feature, constant)


@dataclasses.dataclass(frozen=True)
class RewardFunction:
    """A program with the source that it was made from.

    Attributes:
      source: What the designer wrote, normalised.
      features: Names of all columns, whether used or not.
      instructions: The program.
    """

    source: str
    features: tuple[str, ...]
    instructions: tuple[Instruction, ...]

    def __post_init__(self) -> None:
        self.program()

    def program(self, length: int = LENGTH) -> RewardProgram:
        """The arrays, as numpy."""
        return assemble(self.instructions, len(self.features), length)

    @property
    def used(self) -> tuple[str, ...]:
        """Features that are read, in the order of the catalogue."""
        columns = {value for op, value in self.instructions if op == Op.FEATURE}
        return tuple(name for n, name in enumerate(self.features) if n in columns)

    @property
    def digest(self) -> str:
        """SHA-256 of the program and the names of its features; the source's layout is free."""
        meaning = [list(self.features), self._readable()]
        return hashlib.sha256(json.dumps(meaning).encode()).hexdigest()

    def _readable(self) -> list[list[Any]]:
        rows: list[list[Any]] = []
        for op, value in self.instructions:
            name = op.name.lower()
            if op == Op.FEATURE:
                rows.append([name, self.features[int(value)]])
            elif op == Op.CONSTANT:
                rows.append([name, float(np.float32(value))])
            else:
                rows.append([name])
        return rows

    def to_json(self) -> dict[str, Any]:
        """JSON value with the source, the readable program and its digest."""
        return {
            "format": _FORMAT,
            "source": self.source,
            "features": list(self.features),
            "program": self._readable(),
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, document: Any) -> RewardFunction:
        """Read what `to_json` wrote.

        Raises:
          RewardError: It is malformed, of another format, or was changed since.
        """
        if not isinstance(document, Mapping) or document.get("format") != _FORMAT:
            found = document.get("format") if isinstance(document, Mapping) else document
            raise RewardError(
                f"reward record of format {found!r:.40}: expected format {_FORMAT}; design it anew"
            )
        try:
            names = [str(name) for name in document["features"]]
            rows = [_instruction(row, names) for row in document["program"]]
            function = cls(str(document["source"]), tuple(names), tuple(rows))
            digest = document["digest"]
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise RewardError(
                f"reward record: malformed ({type(error).__name__}: {error}); design it anew"
            ) from error
        if digest != function.digest:
            raise RewardError(
                f"reward record: its program has digest {function.digest[:12]}, not "
                f"{digest!r:.14}; it was changed after it was written"
            )
        return function


def _instruction(row: Sequence[Any], names: list[str]) -> Instruction:
    op = Op[row[0].upper()]
    if op == Op.FEATURE:
        return op, names.index(row[1])
    return op, float(row[1]) if op == Op.CONSTANT else 0
