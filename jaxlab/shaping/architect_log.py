"""The provenance of designs: every question, answer and verdict, one JSON line each.

A line is written whole and at once, and only ever appended. A run that is resumed finds
the answers it already has by the digest of the question, so nothing is asked or written
twice, and the log of a run is all that is needed to repeat its designs offline.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from jaxlab.core import runfolder
from jaxlab.core.errors import DataError

Json = dict[str, Any]

#: Name of the log in a run's folder.
ARCHITECT_LOG = "architect.jsonl"
#: Version of the records; a log of another one is refused.
VERSION = 1
_KEYS = frozenset(
    {"version", "hash", "architect", "space", "request", "question", "seed", "stage", "attempt"}
    | {"verdict", "design"}
)


class ArchitectLog:
    """Records of an architect, in a file or, without a path, in memory alone.

    Records hold at least: `version`, `hash` (of all else), `architect`, digests of the
    `space`, of the `request` and of the `question` (a request as one architect was asked it),
    `seed`, `stage`, `attempt` (0, and 1 for the repair), `verdict` ("accepted", "rejected" or
    "fallback") and `design` (None of a rejected answer).

    Raises:
      DataError: the file is no log, is damaged before its last line, or is of another version.
    """

    def __init__(self, path: os.PathLike[str] | str | None = None):
        self.path = None if path is None else pathlib.Path(path)
        self.records: list[Json] = []
        self._answers: dict[tuple[str, int], Json] = {}
        self._hashes: set[str] = set()
        if self.path is not None and self.path.exists():
            kept = 0
            for record, end in _parse(self.path, _bytes(self.path)):
                self._remember(record)
                kept = end
            # A process may have died in the middle of its last line.
            with runfolder.writing(self.path):
                os.truncate(self.path, kept)

    def append(self, record: Json) -> Json:
        """Write a record, with its version and hash, unless the same one is there already.

        Returns:
          The record as it is read back.

        Raises:
          CheckpointError: The disk is full; what was written before is intact.
          ConfigError: The file cannot be written.
        """
        record = {"version": VERSION} | {k: v for k, v in record.items() if k != "hash"}
        record = json.loads(runfolder.to_json(record | {"hash": _hash(record)}))
        if record["hash"] in self._hashes:
            return record
        if self.path is not None:
            self._write((runfolder.to_json(record) + "\n").encode())
        self._remember(record)
        return record

    def _write(self, line: bytes) -> None:
        assert self.path is not None
        with runfolder.writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab", buffering=0) as file:
                before = file.tell()
                try:
                    if file.write(line) < len(line):
                        raise OSError(28, "No space left on device")
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(before)
                    raise

    def _remember(self, record: Json) -> None:
        self.records.append(record)
        self._hashes.add(record["hash"])
        self._answers[record["question"], record["attempt"]] = record

    def find(self, question: str, attempt: int) -> Json | None:
        """The answer to a question that was asked before."""
        return self._answers.get((question, attempt))

    def design(self, question: str) -> Json | None:
        """The design that a question led to in the end."""
        attempt = 0
        while (record := self.find(question, attempt)) is not None:
            if record["design"] is not None:
                return record["design"]
            attempt += 1
        return None

    def summary(self) -> Json:
        """Who designed how much, and what it took: for the summary of a run.

        Returns:
          `designs`, of which `accepted` at once, `repaired` and `fallback`; `designed_by`, the
          number by architect; `rejected` answers; tokens and `cost`, resumed parts included.
        """
        made = [record["design"] for record in self.records if record["design"] is not None]
        verdicts = Counter(design["verdict"] for design in made)
        usage = [record.get("usage") or {} for record in self.records]

        def total(name: str) -> Any:
            return sum(entry.get(name) or 0 for entry in usage)

        return {
            "designs": len(made),
            **{name: verdicts[name] for name in ("accepted", "repaired", "fallback")},
            "designed_by": dict(sorted(Counter(design["architect"] for design in made).items())),
            "rejected": sum(record["verdict"] == "rejected" for record in self.records),
            "prompt_tokens": total("prompt_tokens"),
            "completion_tokens": total("completion_tokens"),
            "cost": total("cost"),
        }


def read_log(path: os.PathLike[str] | str) -> list[Json]:
    """The records of a log, which is left as it is.

    Raises:
      DataError: as for `ArchitectLog`, and where there is no file or no record.
    """
    path = pathlib.Path(path)
    records = [record for record, _ in _parse(path, _bytes(path))]
    if not records:
        raise DataError(f"{path}: holds no record; expected the {ARCHITECT_LOG} of a run")
    return records


def _bytes(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); expected the {ARCHITECT_LOG} "
            "of a run"
        ) from error


def _parse(path: pathlib.Path, data: bytes) -> Iterator[tuple[Json, int]]:
    """Records and where each one's line ends; half a line at the end is left out."""
    end = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        end += len(line) + 1
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        _check(path, number, record)
        yield record, end


def _check(path: pathlib.Path, number: int, record: Any) -> None:
    if not isinstance(record, dict) or "version" not in record:
        raise DataError(
            f"{path}: line {number} is no record of an architect; expected the {ARCHITECT_LOG} "
            "of a run, undamaged"
        )
    if record["version"] != VERSION:
        raise DataError(
            f"{path}: line {number} is of version {record['version']!r} of the log, but this "
            f"library reads version {VERSION}; use the release that wrote it, or design anew"
        )
    if missing := sorted(_KEYS - set(record)):
        raise DataError(f"{path}: line {number} lacks {', '.join(missing)}; the log is damaged")
    if record["hash"] != _hash({k: v for k, v in record.items() if k != "hash"}):
        raise DataError(
            f"{path}: line {number} is not what was written (its hash differs); restore the log"
        )


def _hash(record: Json) -> str:
    return runfolder.config_hash(record)
