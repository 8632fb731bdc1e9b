"""Tasks in the layout of the released ones: `prompts`, `answers` and `programs`.

A prompt says what an agent is given, an answer what it is not. Tasks made here keep in their
answers what released ones leave to the harness: seed, kind of random numbers, a clock, a plan.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.replay import encoded, load_program
from jaxlab.envs.autumn.syntax import Assign, Literal, Program, parse_expression
from jaxlab.envs.autumn.tasks.formats import (
    FAMILIES,
    MASKED,
    ChangeDetectionTask,
    MaskedFrameTask,
    PlanningTask,
    Task,
    World,
    written_actions,
)

#: Endings of names of files by the three families; released prompts and answers differ in them.
_ENDINGS = {
    "masked_frame_prediction": ("mfp", "masked_frame_prediction"),
    "planning": ("planning", "pl"),
    "change_detection": ("cd", "change_detection"),
}


def read_tasks(folder: str | pathlib.Path, ids: Sequence[str] | None = None) -> tuple[Task, ...]:
    """The tasks of a folder, all of its prompts or those named.

    Raises:
      DataError: a file is missing or malformed, or does not fit its program.
      ProgramError: a program cannot be read.
    """
    prompts = pathlib.Path(folder) / "prompts"
    names = sorted(path.stem for path in prompts.glob("*.json")) if ids is None else list(ids)
    if not names:
        raise DataError(f"{prompts}: expected a folder with tasks, ID.json each")
    return tuple(read_task(folder, name) for name in names)


def read_task(folder: str | pathlib.Path, id: str) -> Task:
    """One task of a folder by its name.

    Raises:
      DataError: a file is missing or malformed, or does not fit its program.
      ProgramError: a program cannot be read.
    """
    root = pathlib.Path(folder)
    path = root / "prompts" / f"{id}.json"
    prompt = _object(path)
    family = prompt.get("type")
    if family not in FAMILIES:
        raise DataError(f"{path}: type: expected one of {', '.join(FAMILIES)}, got {family!r}")
    answer_path = _answer_path(root, id, family)
    answer = _object(answer_path)
    world, program = _world(root, path, prompt.get("program"), answer, answer_path)
    size = grid_size(program, world)
    if family == "masked_frame_prediction":
        return _masked_frame(id, path, answer_path, prompt, answer, world, size)
    if family == "planning":
        return _planning(id, path, answer_path, prompt, answer, world, size)
    return _change(id, root, path, answer_path, prompt, answer, world, size)


def write_tasks(folder: str | pathlib.Path, tasks: Iterable[Task]) -> None:
    """Write tasks in the released layout, with a manifest `tasks.json` of `{id, program}`.

    Raises:
      ConfigError: a file cannot be written, or two programs of one name differ.
    """
    root = pathlib.Path(folder)
    files: dict[pathlib.Path, str] = {}
    manifest = []
    for task in tasks:
        prompt, answer = written(task)
        manifest.append({"id": task.id, "program": task.world.name})
        files[root / "prompts" / f"{task.id}.json"] = _text(prompt)
        files[root / "answers" / f"{task.id}.json"] = _text(answer)
        changed = (task.changed,) if isinstance(task, ChangeDetectionTask) else ()
        for world in (task.world, *changed):
            path = root / "programs" / f"{world.name}.sexp"
            if files.setdefault(path, world.source) != world.source:
                raise ConfigError(f"{path}: two different programs have this name; rename one")
    files[root / "tasks.json"] = _text(manifest)
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error}") from None


def written(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """A task as its prompt and its answer."""
    world = task.world
    prompt: dict[str, Any] = {"type": task.family, "program": world.name}
    answer: dict[str, Any] = {}
    if isinstance(task, MaskedFrameTask):
        actions = [None, *written_actions(task.actions)]
        prompt["observations"] = [
            ({} if action is None else {"action": action}) | {"masked_grid": frame.tolist()}
            for action, frame in zip(actions, task.frames, strict=True)
        ]
        prompt["choices"] = task.choices.tolist()
        answer["correct_idx"] = task.answer
    elif isinstance(task, PlanningTask):
        prompt |= {"goal": task.goal.tolist(), "mask": task.mask.tolist()}
        if task.optimal_actions is not None:
            answer["optimal_actions_count"] = task.optimal_actions
        answer |= _listed("plan", task.plan)
    else:
        prompt["wrong_program"] = task.changed.name
        answer["condition"] = task.condition
        if task.clock:
            answer["clock"] = task.clock
        if task.changed.seed != world.seed:
            answer["changed_seed"] = task.changed.seed
        answer |= _listed("probe", task.probe)
    answer |= {"seed": world.seed, "random": world.random}
    if world.next_order:
        answer["next_order"] = list(world.next_order)
    if world.capacity:
        answer["capacity"] = world.capacity
    if task.floor is not None:
        answer["random_floor"] = task.floor
    return prompt, answer


def grid_size(program: Program, world: World) -> int:
    """GRID_SIZE of a program; it is compiled only where that is no plain number."""
    for statement in program.statements:
        if isinstance(statement, Assign) and statement.name == "GRID_SIZE":
            value = statement.value
            if isinstance(value, Literal) and type(value.value) is int:
                return value.value
    return world.compiled().grid_size


def _masked_frame(
    id: str,
    path: pathlib.Path,
    answer_path: pathlib.Path,
    prompt: dict[str, Any],
    answer: dict[str, Any],
    world: World,
    size: int,
) -> MaskedFrameTask:
    observations = prompt.get("observations")
    if not isinstance(observations, list) or len(observations) < 2:
        raise DataError(f"{path}: observations: expected a list of at least two")
    for n, observation in enumerate(observations):
        if not isinstance(observation, dict) or ("action" in observation) != (n > 0):
            raise DataError(
                f"{path}: observations[{n}]: expected an object with masked_grid, and with an "
                "action in all but the first"
            )
    frames = [
        _grid(path, f"observations[{n}].masked_grid", o.get("masked_grid"), (size, size), MASKED)
        for n, o in enumerate(observations)
    ]
    actions = _actions(path, [o["action"] for o in observations[1:]], size)
    choices = prompt.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        raise DataError(f"{path}: choices: expected a list of at least two patches")
    shape = mask_rectangle(frames[-1])
    if shape is None:
        raise DataError(f"{path}: the last frame: expected masked cells, index {MASKED}")
    rows, columns = shape
    sides = (rows.stop - rows.start, columns.stop - columns.start)
    patches = [_grid(path, f"choices[{n}]", c, sides, 1) for n, c in enumerate(choices)]
    index = answer.get("correct_idx")
    if type(index) is not int or not 0 <= index < len(patches):
        raise DataError(
            f"{answer_path}: correct_idx: expected an integer from 0 to {len(patches) - 1}, "
            f"got {index!r}"
        )
    return MaskedFrameTask(
        id=id,
        world=world,
        actions=actions,
        frames=np.stack(frames),
        choices=np.stack(patches),
        answer=index,
        floor=_floor(answer_path, answer),
    )


def _planning(
    id: str,
    path: pathlib.Path,
    answer_path: pathlib.Path,
    prompt: dict[str, Any],
    answer: dict[str, Any],
    world: World,
    size: int,
) -> PlanningTask:
    mask = _grid(path, "mask", prompt.get("mask"), (size, size), 0, 1)
    goal = _grid(path, "goal", prompt.get("goal"), (size, size), MASKED)
    if not mask.any():
        raise DataError(f"{path}: mask: expected a 1 where a cell counts; there is none")
    if (goal[mask == 1] == MASKED).any():
        raise DataError(f"{path}: goal: a cell that counts has no colour, index {MASKED}")
    count = answer.get("optimal_actions_count")
    if count is not None and (type(count) is not int or count < 0):
        raise DataError(
            f"{answer_path}: optimal_actions_count: expected a whole number, got {count!r}"
        )
    return PlanningTask(
        id=id,
        world=world,
        goal=goal,
        mask=mask,
        optimal_actions=count,
        plan=_actions(answer_path, answer.get("plan", []), size),
        floor=_floor(answer_path, answer),
    )


def _change(
    id: str,
    root: pathlib.Path,
    path: pathlib.Path,
    answer_path: pathlib.Path,
    prompt: dict[str, Any],
    answer: dict[str, Any],
    world: World,
    size: int,
) -> ChangeDetectionTask:
    name = prompt.get("wrong_program")
    if not isinstance(name, str):
        raise DataError(f"{path}: wrong_program: expected the name of a program, got {name!r}")
    names = (name, f"{world.name}_change_detection_wrong_program")
    files = [root / "programs" / f"{n}.sexp" for n in names]
    found = next((file for file in files if file.is_file()), files[0])
    program = load_program(found)
    changed = World(
        name=name,
        source=program.source,
        random=world.random,
        seed=_seed(answer_path, answer, "changed_seed", world.seed),
        capacity=world.capacity,
    )
    other = grid_size(program, changed)
    if other != size:
        raise DataError(
            f"{path}: {name} has a GRID_SIZE of {other}, {world.name} of {size}; expected one"
        )
    condition, clock = answer.get("condition"), answer.get("clock", "")
    if not isinstance(condition, str):
        raise DataError(f"{answer_path}: condition: expected an expression, got {condition!r}")
    parse_expression(condition)
    if not isinstance(clock, str):
        raise DataError(f"{answer_path}: clock: expected the name of a variable, got {clock!r}")
    return ChangeDetectionTask(
        id=id,
        world=world,
        changed=changed,
        condition=condition,
        clock=clock,
        probe=_actions(answer_path, answer.get("probe", []), size),
        floor=_floor(answer_path, answer),
    )


def mask_rectangle(frame: Any) -> tuple[slice, slice] | None:
    """Rows and columns of the smallest rectangle around the masked places, None without any."""
    rows, columns = np.nonzero(np.asarray(frame) == MASKED)
    if not len(rows):
        return None
    return (
        slice(int(rows.min()), int(rows.max()) + 1),
        slice(int(columns.min()), int(columns.max()) + 1),
    )


def _world(
    root: pathlib.Path,
    path: pathlib.Path,
    name: Any,
    answer: dict[str, Any],
    answer_path: pathlib.Path,
) -> tuple[World, Program]:
    if not isinstance(name, str) or not name or "/" in name or "\\" in name:
        raise DataError(f"{path}: program: expected the name of a program, got {name!r}")
    program = load_program(root / "programs" / f"{name}.sexp")
    random = answer.get("random", "reference")
    if random not in ("reference", "jax"):
        raise DataError(f"{answer_path}: random: expected reference or jax, got {random!r}")
    order = answer.get("next_order", [])
    if not isinstance(order, list) or not all(isinstance(n, str) for n in order):
        raise DataError(f"{answer_path}: next_order: expected a list of names")
    capacity = answer.get("capacity", 0)
    if type(capacity) is not int or capacity < 0:
        raise DataError(f"{answer_path}: capacity: expected a whole number, got {capacity!r}")
    world = World(
        name=name,
        source=program.source,
        random=random,
        seed=_seed(answer_path, answer, "seed", 0),
        next_order=tuple(order),
        capacity=capacity,
    )
    return world, program


def _answer_path(root: pathlib.Path, id: str, family: str) -> pathlib.Path:
    """The answer's file: of the prompt's name, or of one with another ending for the family."""
    names = [id]
    for ending in _ENDINGS[family]:
        if id.endswith(f"_{ending}"):
            stem = id.removesuffix(ending)
            names += [stem + other for other in _ENDINGS[family] if other != ending]
    paths = [root / "answers" / f"{name}.json" for name in names]
    return next((path for path in paths if path.is_file()), paths[0])


def _object(path: pathlib.Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise DataError(f"{path}: expected a JSON object")
    return data


def _grid(
    path: pathlib.Path,
    what: str,
    value: Any,
    shape: tuple[int, int],
    least: int,
    most: int = len(COLOURS) - 1,
) -> np.ndarray:
    rows, columns = shape
    good = (
        isinstance(value, list)
        and len(value) == rows
        and all(isinstance(row, list) and len(row) == columns for row in value)
        and all(type(cell) is int and least <= cell <= most for row in value for cell in row)
    )
    if not good:
        raise DataError(
            f"{path}: {what}: expected {rows} rows of {columns} integers from {least} to {most}"
        )
    return np.array(value, np.int32)


def _actions(path: pathlib.Path, actions: Any, size: int) -> np.ndarray:
    if not isinstance(actions, list):
        raise DataError(f"{path}: expected a list of actions")
    try:
        return encoded(actions, size)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _seed(path: pathlib.Path, answer: dict[str, Any], name: str, default: int) -> int:
    seed = answer.get(name, default)
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise DataError(f"{path}: {name}: expected an integer from 0 to 2^32 - 1, got {seed!r}")
    return seed


def _floor(path: pathlib.Path, answer: dict[str, Any]) -> float | None:
    floor = answer.get("random_floor")
    if floor is None:
        return None
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not -1 <= floor <= 1:
        raise DataError(f"{path}: random_floor: expected a number from -1 to 1, got {floor!r}")
    return float(floor)


def _listed(name: str, actions: np.ndarray) -> dict[str, Any]:
    return {name: written_actions(actions)} if len(actions) else {}


def _text(data: Any) -> str:
    return json.dumps(data, separators=(",", ":")) + "\n"
