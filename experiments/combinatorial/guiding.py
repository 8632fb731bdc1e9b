"""A solution of one instance under a learnt value: of a run, or learnt on the instance itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from experiments.combinatorial.evaluating import scaled, solve_with
from experiments.combinatorial.learnt import learnt
from experiments.combinatorial.options import SolveOptions
from experiments.combinatorial.problems import PROBLEMS
from experiments.combinatorial.train_options import LEARNT, TrainOptions
from jaxlab.core import policies, runfolder
from jaxlab.core.errors import CheckpointError, ConfigError
from jaxlab.core.options import revive
from jaxlab.core.training import run
from jaxlab.envs.combinatorial.cuts import MaxCutFlip


def learned_solution(instance: Any, options: SolveOptions) -> list[int]:
    """Solve by beam search (or by flips, maxcut) under a learnt value, in 32 bits.

    Raises:
      ConfigError: Values of this problem are not learnt.
      CheckpointError: The run is none of this problem.
      CapacityError: The instance is larger than what the run was for.
    """
    if options.problem not in LEARNT:
        raise ConfigError(
            f"--method learned: values are learnt for {', '.join(LEARNT)}, not for "
            f"{options.problem}"
        )
    with jax.enable_x64(False):
        if options.policy is not None:
            return _with_policy(instance, options)
        return _learn_alone(instance, options)


def _learn_alone(instance: Any, options: SolveOptions) -> list[int]:
    """Learn on the instance, then solve it."""
    env: Any = PROBLEMS[options.problem].process(instance)
    if options.problem == "maxcut":
        env = MaxCutFlip(env.size)
    graph = "features" not in LEARNT[options.problem]
    chosen = TrainOptions(
        problem=options.problem,  # type: ignore[arg-type]
        size=env.size,
        algorithm="dqn" if options.problem == "maxcut" else "fitted",
        embedding="s2v" if graph else "features",
        steps=options.learning_steps,
        iterations=min(10, options.learning_steps),
        width=32,
        beam=options.beam,
        seed=options.seed,
    )
    of = learnt(chosen, env, env.params(scaled(instance)))
    result = run(
        of.learner,
        steps=of.steps,
        hyper=of.hyper,
        seed=options.seed,
        chunk=of.steps,
        progress=False,
    )
    return solve_with(of, chosen, result.seed_state().theta, instance)


def _with_policy(instance: Any, options: SolveOptions) -> list[int]:
    """Solve by the value of a run."""
    assert options.policy is not None
    experiment, values = runfolder.read_config(options.policy)
    if experiment != "combinatorial train":
        raise CheckpointError(f"--policy {options.policy}: is a run of {experiment}")
    trained: TrainOptions = revive(values, TrainOptions).resolved()
    if trained.problem != options.problem:
        raise CheckpointError(
            f"--policy {options.policy}: is a run of {trained.problem}, not of {options.problem}"
        )
    of = learnt(trained)
    _, states = policies.load_state(
        options.policy, lambda values, host: (of.learner, of.hyper), stage="trained"
    )
    theta = jax.tree.map(lambda leaf: leaf[0], states.theta)
    chosen = dataclasses.replace(trained, beam=options.beam, seed=options.seed)
    return solve_with(of, chosen, theta, instance)
