"""Writes tasks of the three families: those that the library ships, or new ones."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax

from experiments.autumn.options import TasksOptions
from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.replay import load_program
from jaxlab.envs.autumn.tasks.formats import Task, World
from jaxlab.envs.autumn.tasks.generation.making import make_tasks, world_key
from jaxlab.envs.autumn.tasks.reading import write_tasks
from jaxlab.envs.autumn.tasks.suite import digest, load_tasks, packed, unpacked


def main(options: TasksOptions) -> None:
    """Write the tasks that the options describe.

    Raises:
      ConfigError, DataError, ProgramError: see the messages.
    """
    assert options.out is not None
    if options.program is not None:
        world = World(
            name=options.program.stem,
            source=load_program(options.program).source,
            random=options.random,
            capacity=options.capacity,
        )
        tasks = make_tasks(world, world_key(world.name, options.seed or 0))
    elif options.seed is None:
        tasks = tuple(t for t in load_tasks() if not options.only or t.world.name in options.only)
    else:
        tasks = _suite_tasks(options)
    write_tasks(options.out, tasks)
    for task in tasks:
        floor = "unknown" if task.floor is None else f"{task.floor:.3f}"
        print(f"{task.id}: {task.family}, random agent {floor}")
    print(f"{options.out}: {len(tasks)} tasks")


def _suite_tasks(options: TasksOptions) -> tuple[Task, ...]:
    """Tasks for the programs of the suite; one that has none is named, and left out."""
    assert options.seed is not None
    kept = _kept(options.pack)
    tasks: list[Task] = []
    for name in options.only or suite.programs():
        source, started = suite.source(name), time.process_time()
        world = World(
            name=name, source=source, random=options.random, capacity=suite.describe(name).capacity
        )
        made: Sequence[Task] = kept.get((name, digest(source)), ())
        if not made:
            try:
                made = make_tasks(world, world_key(name, options.seed))
            except DataError as error:
                print(f"warning: {error}", file=sys.stderr)
            print(f"{name}: {time.process_time() - started:.0f} CPU-seconds", file=sys.stderr)
            # Compiled programs of one world are of no use to the next.
            jax.clear_caches()
        kept[name, digest(source)] = made
        tasks.extend(made)
        if options.pack is not None:
            _keep(options.pack, [task for group in kept.values() for task in group])
    return tuple(tasks)


def _kept(path: pathlib.Path | None) -> dict[tuple[str, str], Sequence[Task]]:
    """The tasks that a file holds for programs as they are, by name and text."""
    if path is None or not path.exists():
        return {}
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        known = {n for n in suite.programs() if data["programs"].get(n) == digest(suite.source(n))}
        data["programs"] = {name: data["programs"][name] for name in known}
        data["tasks"] = [row for row in data["tasks"] if row["program"] in known]
        tasks = unpacked(data, suite.source)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"--pack {path}: holds no tasks: {error!r}") from None
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.world.name, digest(task.world.source)), []).append(task)
    return dict(groups)


def _keep(path: pathlib.Path, tasks: Sequence[Task]) -> None:
    ordered = sorted(tasks, key=lambda task: task.world.name)
    data = packed(ordered)
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in data["tasks"])
    programs = json.dumps(data["programs"], separators=(",", ":"))
    text = f'{{"version":{data["version"]},"programs":{programs},"tasks":[\n{rows}\n]}}\n'
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--pack {path}: cannot be written: {error}") from None
