"""Sessions of agents on tasks, one line each in a file, so that nothing is done twice."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxlab.core import reporting, runfolder
from jaxlab.core.errors import CheckpointError, Interrupted
from jaxlab.core.progress import Progress, StopSignal, say
from jaxlab.envs.autumn.tasks.formats import Mode, Task
from jaxlab.envs.autumn.tasks.protocol import (
    Act,
    Agent,
    Limits,
    Observation,
    Session,
    run_session,
)

SESSIONS = "sessions.jsonl"
TRANSCRIPTS = "transcripts"

#: `(agent, task, seed) -> agent for this session`.
MakeAgent = Callable[[str, Task, int], Agent]


class Job(NamedTuple):
    """One session to be held; `agent` is its name."""

    agent: str
    task: Task
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from others."""
        return self.agent, self.task.id, self.seed


def read_sessions(run_dir: pathlib.Path) -> list[dict[str, Any]]:
    """The sessions that a folder holds; a last line that was cut off is dropped.

    Raises:
      CheckpointError: another line is damaged.
    """
    path = run_dir / SESSIONS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = []
    for number, line in enumerate(lines):
        try:
            if not line.endswith("\n"):
                raise ValueError("cut off")
            rows.append(json.loads(line))
        except ValueError as error:
            if number < len(lines) - 1:
                raise CheckpointError(f"{path}: line {number + 1} is damaged ({error})") from None
            # What is appended next must begin on a line of its own.
            runfolder.write_text(path, "".join(lines[:-1]))
    return rows


def hold(
    jobs: Sequence[Job],
    make: MakeAgent,
    run_dir: pathlib.Path,
    *,
    mode: Mode,
    limits: Limits,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Hold the sessions that were not held yet; the rows of all of them.

    Raises:
      Interrupted: SIGINT or SIGTERM came; the session was finished and written.
    """
    done = {(row["agent"], row["task"], row["seed"]): row for row in read_sessions(run_dir)}
    left = [job for job in jobs if job.key not in done]
    held = len(jobs) - len(left)
    with (
        StopSignal() as stop,
        Progress(len(jobs), start=held, label="sessions", enabled=progress) as bar,
        runfolder.writing(run_dir / SESSIONS),
        open(run_dir / SESSIONS, "a", encoding="utf-8") as file,
    ):
        began = time.monotonic()
        for count, job in enumerate(left, 1):
            row = _hold_one(job, make(job.agent, job.task, job.seed), run_dir, mode, limits)
            file.write(runfolder.to_json(row) + "\n")
            file.flush()
            done[job.key] = row
            rate = count / max(time.monotonic() - began, 1e-9)
            bar.update(held + count, {"sessions": rate}, {})
            if stop.requested is not None and count < len(left):
                message = (
                    f"stopped after {held + count} of {len(jobs)} sessions; saved in {run_dir}. "
                    f"Continue with: {reporting.resume_command(run_dir)}"
                )
                bar.close()
                say(message)
                raise Interrupted(message)
    return [done[job.key] for job in jobs]


def _hold_one(
    job: Job, agent: Agent, run_dir: pathlib.Path, mode: Mode, limits: Limits
) -> dict[str, Any]:
    acts: list[list[Any]] = []

    def watch(observation: Observation, act: Act) -> None:
        place = [act.x, act.y] if act.kind == "click" else [act.x] if act.x else []
        acts.append([observation.phase, act.kind, *place])

    wall, cpu = time.monotonic(), time.process_time()
    result = run_session(Session(job.task, mode=mode, limits=limits), agent, watch)
    row = {
        "agent": job.agent,
        "task": result.task,
        "environment": job.task.world.name,
        "family": result.family,
        "seed": job.seed,
        "score": result.score,
        "acts": result.acts,
        "interaction": result.interaction,
        "resets": result.resets,
        "verdict": runfolder.plain(result.verdict),
        "seconds": round(time.monotonic() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
    }
    path = run_dir / TRANSCRIPTS / job.agent / f"{result.task}-{job.seed}.json"
    runfolder.write_text(path, runfolder.to_json(row | {"transcript": acts}) + "\n")
    return row


def jobs_of(tasks: Iterable[Task], agents: Sequence[str], counts: Mapping[Any, int]) -> list[Job]:
    """Sessions to be held, environment by environment: what is compiled for one is used at once."""
    ordered = sorted(tasks, key=lambda task: task.world.name)
    return [
        Job(agent, task, seed)
        for name in dict.fromkeys(task.world.name for task in ordered)
        for agent in agents
        for task in ordered
        if task.world.name == name
        for seed in range(counts[agent])
    ]
