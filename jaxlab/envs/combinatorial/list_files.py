"""Files that are lists: knapsacks and job shops."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from jaxlab.envs.combinatorial.instances import JobShopInstance, KnapsackInstance
from jaxlab.envs.combinatorial.text_files import read_text


def load_knapsack(path: Any) -> KnapsackInstance:
    """Read `n capacity`, then n lines `value weight`.

    Raises:
      DataError: The file is malformed; names the line.
    """
    file = read_text(path)
    (at, _), *rows = file.numbered()
    words = file.words(at, 2, "'items capacity'")
    n = file.integer(at, words[0], "the number of items", 1)
    capacity = file.number(at, words[1], "the capacity")
    if capacity < 0:
        file.fail(at, f"the capacity is {capacity:g}, expected at least 0")
    items = []
    for number, _ in rows:
        value, weight = (
            file.number(number, word, what)
            for word, what in zip(
                file.words(number, 2, "'value weight'"), ("a value", "a weight"), strict=True
            )
        )
        if weight < 0:
            file.fail(number, f"the weight is {weight:g}, expected at least 0")
        items.append((value, weight))
    if len(items) != n:
        last = rows[-1][0] if rows else at
        file.fail(last, f"the header announces {n} items, the file has {len(items)}")
    values, weights = np.array(items).T
    return KnapsackInstance(pathlib.Path(str(path)).stem, values, weights, capacity)


def load_job_shop(path: Any) -> JobShopInstance:
    """Read `jobs machines`, then a line for each job: pairs `machine duration`, machines from 0.

    That is the format of the OR library; lines before the header that begin with a letter, `+`
    or `#` are comments.

    Raises:
      DataError: The file is malformed; names the line.
    """
    file = read_text(path)
    lines = [(n, line) for n, line in file.numbered() if not (line[0].isalpha() or line[0] in "+#")]
    if not lines:
        file.fail(0, "there is no line 'jobs machines'")
    at = lines[0][0]
    words = file.words(at, 2, "'jobs machines'")
    jobs, machines = (
        file.integer(at, word, what, 1)
        for word, what in zip(words, ("the number of jobs", "of machines"), strict=True)
    )
    table = np.zeros((jobs, machines, 2))
    if len(lines) - 1 != jobs:
        file.fail(lines[-1][0], f"expected {jobs} lines of jobs, the file has {len(lines) - 1}")
    for job, (number, _) in enumerate(lines[1:]):
        words = file.words(number, 2 * machines, f"{machines} pairs 'machine duration'")
        for k in range(machines):
            machine = file.integer(number, words[2 * k], "a machine", 0, machines - 1)
            duration = file.number(number, words[2 * k + 1], "a duration")
            if duration < 0:
                file.fail(number, f"a duration is {duration:g}, expected at least 0")
            if machine in table[job, :k, 0]:
                file.fail(number, f"the job is on machine {machine} twice")
            table[job, k] = machine, duration
    return JobShopInstance(
        pathlib.Path(str(path)).stem, table[..., 0].astype(int), table[..., 1].copy()
    )
