"""The architect that repeats the log of an earlier run, offline and bit for bit."""

from __future__ import annotations

import os
from collections.abc import Sequence

from jaxlab.core.errors import DataError
from jaxlab.shaping.architect import Design, Json, Request
from jaxlab.shaping.architect_log import ArchitectLog, read_log
from jaxlab.shaping.design_space import DesignSpace


class RecordedArchitect:
    """Answers every request with the design in a log and copies the records to its own.

    Args:
      path: The log to repeat.
      strict: Refuse a request whose history is not that of the recorded one. Otherwise
        the design of the same seed and stage is used (metrics of another machine may differ
        in their last digits), and `drifted` counts such requests.

    Raises:
      DataError: the log is of another version, damaged, of another space, or of several
        architects.
    """

    name = "recorded"

    def __init__(
        self,
        space: DesignSpace,
        log: ArchitectLog,
        path: os.PathLike[str] | str,
        *,
        strict: bool = True,
    ):
        self.space, self.log, self.path, self.strict = space, log, os.fspath(path), strict
        self.drifted = 0
        self._records = read_log(path)
        if spaces := {r["space"] for r in self._records} - {space.digest}:
            raise DataError(
                f"{self.path}: was written for another design space ({spaces.pop()}, now "
                f"{space.digest}): card, schema, features and parts must be the same"
            )
        asked: dict[str, str] = {}
        for record in self._records:
            if asked.setdefault(record["request"], record["question"]) != record["question"]:
                raise DataError(
                    f"{self.path}: seed {record['seed']}, stage {record['stage']} was designed by "
                    "several architects or prompts; repeat a log of one"
                )
        self._asked: dict[tuple[int, int], list[str]] = {}

    def design(self, requests: Sequence[Request]) -> list[Design]:
        """The recorded designs; the records are copied in their order.

        Raises:
          DataError: the log has no design for a request.
        """
        wanted = [self._recorded(request) for request in requests]
        made = {record["request"]: record for record in self._records if record["design"]}
        if unfinished := [name for name in wanted if name not in made]:
            raise DataError(
                f"{self.path}: the run that wrote it stopped before the design of request "
                f"{unfinished[0]} was there; continue that run first"
            )
        for record in self._records:
            if record["request"] in wanted:
                self.log.append(record)
        return [Design(**made[name]["design"]) for name in wanted]

    def _recorded(self, request: Request) -> str:
        """Digest of the recorded request that is answered with."""
        digest = request.digest(self.space)
        same_stage = [
            record
            for record in self._records
            if (record["seed"], record["stage"]) == (request.seed, request.stage)
        ]
        if not same_stage:
            raise DataError(
                f"{self.path}: has no design for seed {request.seed}, stage {request.stage}; it "
                f"holds {_held(self._records)}"
            )
        known = list(dict.fromkeys(record["request"] for record in same_stage))
        if digest in known:
            return digest
        if self.strict:
            raise DataError(
                f"{self.path}: seed {request.seed}, stage {request.stage} was designed after "
                "another history than this run's; repeat it with the same options and machine, or "
                "replay it without strictness"
            )
        self.drifted += 1
        asked = self._asked.setdefault((request.seed, request.stage), [])
        if digest not in asked:
            asked.append(digest)
        return known[min(asked.index(digest), len(known) - 1)]


def _held(records: Sequence[Json]) -> str:
    seeds = sorted({record["seed"] for record in records})
    stages = sorted({record["stage"] for record in records})
    return f"seeds {seeds[0]} to {seeds[-1]} and stages {stages[0]} to {stages[-1]}"
