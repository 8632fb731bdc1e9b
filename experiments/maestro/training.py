"""Training, evaluation and report of MADDPG under a curriculum."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from experiments.maestro import evaluation, reports
from experiments.maestro.options import Options
from experiments.maestro.problem import (
    Start,
    build,
    make_env,
    make_learner,
    steps_per_episode,
)
from experiments.maestro.stages import Stages
from jaxlab.core.policies import load_state
from jaxlab.core.training import Result, run


def train(options: Options) -> Result:
    """Train, evaluate and report into `options.run_dir`.

    Raises:
      CapacityError: more vehicles were on the road than there is room for.
    """
    env = make_env(options)
    learner = make_learner(options, env)
    trials = evaluation.Trials(env, learner, options.seeds)
    stages = Stages(env, options, trials)
    host = stages.begin()
    hyper = jax.tree.map(lambda x: np.full(options.seeds, x, np.float32), options.hyper)
    result = run(
        learner,
        hyper=Start(hyper, stages.tasks(host)),
        hyper_axis=0,
        chunk=min(steps_per_episode(options, env), options.steps),
        between=stages.between,
        host=host,
        checkpoint_every=options.stage_episodes,
        label="maestro",
        show=("average_travel_time", "episode_return", "entropy"),
        **options.run_arguments(),
    )
    evaluated = evaluation.evaluate(trials, result.state)
    reports.report(options, env, learner, result.state, evaluated, result.host, result.performance)
    return result


def evaluate(options: Options) -> None:
    """Evaluate a finished or stopped run again."""
    assert options.evaluate is not None
    env = make_env(options)
    learner, state = load_state(options.evaluate, build)
    host = reports.saved_host(options.evaluate)
    trials = evaluation.Trials(env, learner, options.seeds)
    evaluated = evaluation.evaluate(trials, state)
    options = dataclasses.replace(options, run_dir=options.run_dir or options.evaluate)
    reports.report(options, env, learner, state, evaluated, host, None)
