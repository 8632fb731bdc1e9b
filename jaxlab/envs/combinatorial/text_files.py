"""Reading text files of numbers, with errors that name the file and the line."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from jaxlab.core.errors import DataError


class TextFile:
    """The lines of a text file.

    Attributes:
      path: Where it lies, for messages.
      lines: Its lines, stripped; line 1 is `lines[0]`.
    """

    def __init__(self, path: Any, lines: Iterable[str]):
        self.path = path
        self.lines = [line.strip() for line in lines]

    def fail(self, number: int, what: str) -> NoReturn:
        """Refuse a line (counted from 1); number 0 refuses the file as a whole.

        Raises:
          DataError: Always.
        """
        where = f"{self.path}, line {number}" if number else f"{self.path}"
        raise DataError(f"{where}: {what}")

    def numbered(self) -> list[tuple[int, str]]:
        """Lines that are not empty with their numbers."""
        return [(n, line) for n, line in enumerate(self.lines, 1) if line]

    def number(self, at: int, text: str, what: str, *, whole: bool = False) -> float:
        """A finite number of line `at`.

        Raises:
          DataError: The text is none; names the line and what it should be.
        """
        kind = "an integer" if whole else "a number"
        try:
            value = float(text)
        except ValueError:
            self.fail(at, f"expected {what} ({kind}), found {text!r}")
        if not math.isfinite(value) or (whole and value != int(value)):
            self.fail(at, f"expected {what} ({kind}), found {text!r}")
        return value

    def integer(self, at: int, text: str, what: str, low: int, high: int | None = None) -> int:
        """An integer from `low` to `high` of line `at`.

        Raises:
          DataError: As for `number`.
        """
        value = int(self.number(at, text, what, whole=True))
        if value < low or (high is not None and value > high):
            span = f"at least {low}" if high is None else f"from {low} to {high}"
            self.fail(at, f"expected {what} {span}, found {value}")
        return value

    def words(self, at: int, count: int | Sequence[int], what: str) -> list[str]:
        """The words of line `at`, of which there must be `count` (or one of several counts)."""
        found = self.lines[at - 1].split()
        counts = (count,) if isinstance(count, int) else tuple(count)
        if len(found) not in counts:
            expected = " or ".join(map(str, counts))
            self.fail(at, f"expected {what} ({expected} words), found {len(found)} words")
        return found


def read_text(path: pathlib.Path | str) -> TextFile:
    """Read a text file.

    Raises:
      DataError: It is missing, no text, or empty.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    file = TextFile(path, text.splitlines())
    if not file.numbered():
        file.fail(0, "the file is empty")
    return file
