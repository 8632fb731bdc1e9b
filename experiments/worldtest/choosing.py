"""Which tasks an experiment is about."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.worldtest.options import Options
from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.autumn.tasks.formats import Task, World
from jaxlab.envs.autumn.tasks.generation.making import make_tasks, world_key
from jaxlab.envs.autumn.tasks.reading import read_tasks, write_tasks
from jaxlab.envs.autumn.tasks.suite import load_tasks

#: Folder of a run with the tasks that were made for it.
MADE = "tasks"


def chosen_tasks(options: Options) -> tuple[Task, ...]:
    """The tasks that the options name: of environments in alphabetical order.

    Raises:
      ConfigError: there is no such environment, or nothing is left.
      DataError, ProgramError: a file is wrong, or no task can be made for a program.
    """
    found = _tasks(options)
    names = sorted({task.world.name for task in found})
    unknown = sorted(set(options.environments) - set(names))
    if unknown:
        raise ConfigError(f"--environments {unknown[0]}: expected some of {', '.join(names)}")
    kept = options.environments or names[: options.limit]
    tasks = tuple(
        task for task in found if task.world.name in kept and task.family in options.families
    )
    if not tasks:
        raise ConfigError("--families: there are no such tasks in these environments")
    return tasks


def _tasks(options: Options) -> Sequence[Task]:
    if options.program is not None:
        return _made(options)
    return load_tasks() if options.tasks is None else read_tasks(options.tasks)


def _made(options: Options) -> Sequence[Task]:
    """Tasks for the user's program, kept in the folder of the run."""
    assert options.program is not None
    assert options.run_dir is not None
    folder = options.run_dir / MADE
    if (folder / "tasks.json").exists():
        return read_tasks(folder)
    try:
        source = options.program.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{options.program}: the program cannot be read: {error}") from None
    world = World(name=options.program.stem, source=source, random="jax")
    tasks = make_tasks(world, world_key(world.name, options.seed), options.families)
    write_tasks(folder, tasks)
    return tasks
