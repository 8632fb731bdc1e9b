"""Runs the sessions that the options ask for and reports them."""

from __future__ import annotations

import dataclasses

import jax

from experiments.worldtest import report
from experiments.worldtest.agents import RandomAgent, SimulatorAgent
from experiments.worldtest.choosing import chosen_tasks
from experiments.worldtest.learning import LearnedAgent, Models
from experiments.worldtest.options import Options
from experiments.worldtest.pictures import draw_plan
from experiments.worldtest.sessions import hold, jobs_of, read_sessions
from jaxlab.core import devices
from jaxlab.envs.autumn.tasks.formats import Task
from jaxlab.envs.autumn.tasks.protocol import Agent, Limits


def main(options: Options) -> None:
    """Hold all sessions and report them.

    Raises:
      ConfigError, DataError, ProgramError, CheckpointError: see the messages.
      Interrupted: a signal came; what was held is kept.
    """
    assert options.run_dir is not None
    tasks = chosen_tasks(options)
    counts = dict.fromkeys(options.agents, options.seeds)
    if "random" in counts:
        counts["random"] = options.floor_sessions
    models = Models(options)
    simulators: dict[tuple[str, int], SimulatorAgent] = {}

    def make(agent: str, task: Task, seed: int) -> Agent:
        number = options.seed + seed
        if agent == "random":
            return RandomAgent(number)
        if agent == "learned":
            return LearnedAgent(*models.player(task.world), number)
        key = (task.world.source, number)
        if key not in simulators:
            # One world at a time: its compiled functions are large.
            simulators.clear()
            jax.clear_caches()
            simulators[key] = SimulatorAgent(task.world, options.planner, number)
        return simulators[key]

    rows = hold(
        jobs_of(tasks, options.agents, counts),
        make,
        options.run_dir,
        mode=options.mode,
        limits=Limits(interaction=options.interaction, total=options.total),
        progress=options.progress,
    )
    _report(options, rows, tasks)


def evaluate(options: Options) -> None:
    """Report the sessions that a run holds, finished or not."""
    assert options.evaluate is not None
    rows = read_sessions(options.evaluate)
    options = dataclasses.replace(options, run_dir=options.evaluate)
    _report(options, rows, chosen_tasks(options))


def _report(options: Options, rows: list[dict], tasks: tuple[Task, ...]) -> None:
    if not devices.is_primary():
        return
    assert options.run_dir is not None
    floors = {task.id: task.floor for task in tasks if task.floor is not None}
    report.write(options.run_dir, rows, options.agents, options.mode, floors)
    draw_plan(options.run_dir, rows, tasks)
    print(f"results in {options.run_dir}")
