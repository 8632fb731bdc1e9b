"""Worlds and tasks that a command offers: files of the user, or what the library ships."""

from __future__ import annotations

from experiments.autumn.play_options import PlayOptions
from jaxlab.core.errors import DataError
from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.tasks.formats import Task, World
from jaxlab.envs.autumn.tasks.reading import read_tasks
from jaxlab.envs.autumn.tasks.suite import load_tasks


def offered(options: PlayOptions) -> tuple[dict[str, World], tuple[Task, ...]]:
    """Worlds by name, and tasks.

    Raises:
      DataError, ProgramError: a file cannot be read.
    """
    tasks: tuple[Task, ...] = ()
    worlds: dict[str, World] = {}
    if options.tasks is not None:
        tasks = read_tasks(options.tasks)
        worlds |= {task.world.name: task.world for task in tasks}
    if options.program is not None:
        try:
            text = options.program.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{options.program}: the program cannot be read: {error}") from None
        world = World(name=options.program.stem, source=text, random="jax")
        # Compiled at once, so that what is wrong with it is said before anything is served.
        world.compiled()
        worlds[world.name] = world
    if options.tasks is None and options.program is None:
        worlds = {name: shipped_world(name) for name in suite.programs()}
        tasks = load_tasks()
    return worlds, tasks


def shipped_world(name: str) -> World:
    """A program of the suite as a world with keys for random numbers."""
    return World(
        name=name,
        source=suite.source(name),
        random="jax",
        capacity=suite.describe(name).capacity,
    )
