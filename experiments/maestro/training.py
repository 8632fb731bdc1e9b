"""Training, evaluation and report of MADDPG under a curriculum."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from experiments.maestro import evaluation, reports
from experiments.maestro.architects import build_architect
from experiments.maestro.canary import CANDIDATES, Canaries
from experiments.maestro.designing import Designing
from experiments.maestro.designs import design_space, record_policies
from experiments.maestro.options import Options
from experiments.maestro.problem import (
    Start,
    build,
    make_env,
    make_learner,
    steps_per_episode,
)
from experiments.maestro.stages import Stages
from jaxlab.core import checkpointing, devices, reporting, runfolder
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner
from jaxlab.core.policies import load_state
from jaxlab.core.progress import say
from jaxlab.core.training import Result, run
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.shaping.architect_log import ARCHITECT_LOG, ArchitectLog


def train(options: Options) -> Result:
    """Train, evaluate and report into `options.run_dir`.

    Raises:
      CapacityError: more vehicles were on the road than there is room for.
    """
    env = make_env(options)
    learner = make_learner(options, env)
    trials = evaluation.Trials(env, learner, options.seeds)
    designing = make_designing(options, env, learner)
    stages = Stages(env, options, trials, designing)
    host = stages.begin()
    hyper = jax.tree.map(lambda x: np.full(options.seeds, x, np.float32), options.hyper)
    result = run(
        learner,
        hyper=Start(hyper, stages.tasks(host), stages.shaping(host)),
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


def make_designing(
    options: Options, env: TrafficSignalControl, learner: Learner
) -> Designing | None:
    """Who designs the stages; None where neither architect nor template is wanted."""
    plan = options.plan
    if not (plan.parts or plan.shapes):
        return None
    # Rewards are held against what scripted policies went through.
    recordings = record_policies(env) if "reward" in plan.parts else None
    try:
        space = design_space(env, options, plan.parts, recordings)
    except ConfigError as error:
        # In very light traffic good and bad signals do alike, and every reward would be refused.
        say(f"rewards are checked without scripted policies, whom this demand cannot rank: {error}")
        space = design_space(env, options, plan.parts, None)
    assert options.run_dir is not None
    log = ArchitectLog(options.run_dir / ARCHITECT_LOG if devices.is_primary() else None)
    architect = build_architect(options, space, log) if plan.parts else None
    canaries = None
    if "reward" in plan.parts and options.canary_steps > 0:
        policies = options.seeds * len(CANDIDATES)
        trials = evaluation.Trials(env, learner, policies, per_seed=2)
        canaries = Canaries(options, learner, trials)
    return Designing(options, space, architect, log, canaries)


def evaluate(options: Options) -> None:
    """Evaluate a finished or stopped run again.

    Raises:
      ConfigError: an option, or the run's `config.yaml`, is not what the run was trained with.
    """
    assert options.evaluate is not None
    document = checkpointing.read_document(options.evaluate / runfolder.CHECKPOINTS)
    changed = runfolder.differences(document["config"]["config"], options.config())
    if changed:
        raise ConfigError(
            f"--evaluate {options.evaluate}: was trained with other options: "
            f"{'; '.join(changed)}. Evaluate it with its own"
        )
    env = make_env(options)
    learner, state = load_state(options.evaluate, build)
    host = reports.saved_host(options.evaluate)
    trials = evaluation.Trials(env, learner, options.seeds)
    evaluated = evaluation.evaluate(trials, state)
    options = dataclasses.replace(options, run_dir=options.run_dir or options.evaluate)
    performance = reporting.read_performance(options.evaluate)
    reports.report(options, env, learner, state, evaluated, host, performance)
