"""Tasks of all families for one program."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import jax

from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.autumn.tasks.formats import FAMILIES, Family, Task, World
from jaxlab.envs.autumn.tasks.generation.changes import change_detection_task
from jaxlab.envs.autumn.tasks.generation.masked_frames import masked_frame_task
from jaxlab.envs.autumn.tasks.generation.planning import planning_task
from jaxlab.envs.autumn.tasks.generation.rollouts import Rollouts
from jaxlab.envs.autumn.tasks.verifying import require_sound

#: Keys that are tried for a task before a program is given up.
ATTEMPTS = 4


def world_key(name: str, seed: int) -> jax.Array:
    """The key of a program's tasks, whatever other programs there are."""
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))


def make_tasks(
    world: World, key: jax.Array, families: Sequence[str] = FAMILIES
) -> tuple[Task, ...]:
    """One task of each family, each checked against its program step by step.

    Raises:
      ConfigError: there is no such family.
      DataError: no task of a family was found.
      ProgramError: the program cannot be compiled.
    """
    wrong = sorted(set(families) - set(FAMILIES))
    if wrong:
        raise ConfigError(f"family '{wrong[0]}' is unknown; choose from {', '.join(FAMILIES)}")
    rollouts = Rollouts(world)
    tasks = []
    for family in (f for f in FAMILIES if f in families):
        own = jax.random.fold_in(key, FAMILIES.index(family))
        for attempt in range(ATTEMPTS):
            try:
                task = _made(family, world, jax.random.fold_in(own, attempt), rollouts)
                break
            except DataError:
                if attempt == ATTEMPTS - 1:
                    raise
        require_sound(task)
        tasks.append(task)
    return tuple(tasks)


def _made(family: Family, world: World, key: jax.Array, rollouts: Rollouts) -> Task:
    if family == "masked_frame_prediction":
        return masked_frame_task(world, key, rollouts=rollouts)
    if family == "planning":
        return planning_task(world, key, rollouts=rollouts)
    return change_detection_task(world, key)
