"""Training MADDPG on traffic signals: environment, learner, curriculum, run."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.maestro import evaluation, reports
from experiments.maestro.options import Options
from jaxlab.agents import maddpg
from jaxlab.core.autoreset import Tasks
from jaxlab.core.errors import CapacityError
from jaxlab.core.learner import Learner
from jaxlab.core.options import revive
from jaxlab.core.policies import load_state
from jaxlab.core.training import Result, run
from jaxlab.core.wrappers import TimeLimit
from jaxlab.envs.traffic.environment import (
    TrafficSignalControl,
    default_environment,
    make_environment,
)

#: Tasks that episodes are drawn from: new scenarios, earlier ones, the untouched demand.
NUM_TASKS = 10


def make_env(options: Options) -> TrafficSignalControl:
    """The environment that the options name."""
    common: dict[str, Any] = {
        "duration": options.duration,
        "capacity": options.capacity,
        "reward": options.reward,
    }
    if options.roadnet is None or options.flow is None:
        return default_environment(**common)
    return make_environment(options.roadnet, options.flow, **common)


def make_learner(options: Options, env: TrafficSignalControl) -> tuple[Learner, maddpg.Hyper]:
    """MADDPG with shared networks whose critics see a junction and its neighbours."""
    config = maddpg.MADDPGConfig(
        num_envs=options.num_envs,
        decisions=options.decisions,
        updates=options.updates,
        batch_size=options.batch_size,
        buffer_size=options.buffer_size,
        learning_starts=options.learning_starts,
        actor_hidden=(options.hidden, options.hidden),
        critic_hidden=(options.hidden, options.hidden),
        critic_input="neighbourhood",
    )
    nominal = env.nominal_params()
    tasks = Tasks(
        jax.tree.map(lambda x: jnp.broadcast_to(x, (NUM_TASKS, *x.shape)), nominal),
        jnp.ones(NUM_TASKS, jnp.float32),
    )
    learner = maddpg.make(
        TimeLimit(env, decisions_per_episode(options, env)),
        config,
        tasks=tasks,
        neighbours=env.neighbours,
        episode_metrics=_episode_metrics,
    )
    return learner, maddpg.Hyper()


def decisions_per_episode(options: Options, env: TrafficSignalControl) -> int:
    """Decisions that cover the duration."""
    return max(round(options.duration / env.decision_interval), 1)


def _episode_metrics(info: Any) -> dict[str, jax.Array]:
    return {
        "average_travel_time": info["average_travel_time"],
        "throughput": info["finished"].astype(jnp.float32),
        "overflow": info["overflow"].astype(jnp.float32),
    }


def build(options: dict[str, Any], host: Any) -> tuple[Learner, maddpg.Hyper]:
    """Learner and hyper-parameters of a saved run, from its `config.yaml`."""
    known = revive(Options, options)
    return make_learner(known, make_env(known))


def train(options: Options) -> Result:
    """Train, evaluate and report into `options.run_dir`."""
    env = make_env(options)
    learner, hyper = make_learner(options, env)

    def between(state: Any, metrics: dict[str, np.ndarray], host: Any) -> tuple[Any, Any]:
        _check_capacity(env, metrics)
        return state, host

    result = run(
        learner,
        steps=options.steps,
        hyper=hyper,
        seeds=options.seeds,
        seed=options.seed,
        chunk=max(options.steps // 40, 1),
        between=between,
        run_dir=options.run_dir,
        resume=options.resume is not None,
        checkpoint_every=10 if options.preset != "smoke" else 1,
        config=options.config(),
        progress=options.progress,
        label="maestro",
        show=("average_travel_time", "episode_return", "entropy"),
        tensorboard=options.tensorboard,
        profile=options.profile,
    )
    reports.report(options, env, evaluate_state(options, env, learner, result.state), result)
    return result


def _check_capacity(env: TrafficSignalControl, metrics: dict[str, np.ndarray]) -> None:
    if np.nanmax(np.nan_to_num(metrics["overflow"]), initial=0.0) > 0:
        raise CapacityError(
            f"more than {env.simulator.capacity} vehicles were on the road at once, which is what "
            "the simulation has room for; raise it with --capacity"
        )


def evaluate_state(
    options: Options, env: TrafficSignalControl, learner: Learner, state: Any
) -> evaluation.Evaluation:
    """The policies of all seeds and the controllers on the untouched demand."""
    decisions = decisions_per_episode(options, env)
    return evaluation.evaluate(env, learner, state, decisions)


def evaluate(options: Options) -> None:
    """Evaluate a finished or stopped run again."""
    assert options.evaluate is not None
    env = make_env(options)
    learner, state = load_state(options.evaluate, build)
    options = dataclasses.replace(options, run_dir=options.run_dir or options.evaluate)
    reports.report(options, env, evaluate_state(options, env, learner, state), None)
