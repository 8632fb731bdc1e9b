"""What is trained: the environment, and MADDPG that begins with given tasks."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.maestro.options import Options
from experiments.maestro.shaping import (
    ShapingParams,
    designed_arguments,
    nothing,
    stacked_shaping,
)
from jaxlab.agents import maddpg
from jaxlab.core.autoreset import AutoReset, Tasks
from jaxlab.core.environment import Env
from jaxlab.core.learner import Learner
from jaxlab.core.options import revive
from jaxlab.core.wrappers import LogEpisode, TimeLimit
from jaxlab.envs.traffic.construction import default_environment, make_environment
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.features import action_features, junction_features
from jaxlab.envs.traffic.scenario import nominal_scenario, scenario_params
from jaxlab.shaping.feature_view import ShowFeatures, hide_features

#: Places for tasks: of the new scenario (vehicles drawn anew in each), of earlier ones, the base.
NEW, EARLIER, BASE = 4, 3, 1


class Start(NamedTuple):
    """What a seed begins with: numbers of the learner, the first tasks and their shaping."""

    hyper: maddpg.Hyper
    tasks: Tasks
    shaping: ShapingParams | None = None


def make_env(options: Options) -> TrafficSignalControl:
    """The environment that the options name."""
    common: dict[str, Any] = {
        "duration": options.duration,
        "capacity": options.capacity,
        "max_demand": options.max_demand,
        "reward": options.reward,
    }
    if options.files is None:
        return default_environment(seed=options.demand_seed, **common)
    return make_environment(*options.files, **common)


def make_learner(options: Options, env: TrafficSignalControl) -> Learner:
    """MADDPG whose `init` takes a `Start`, so that every seed has tasks of its own."""
    learner = maddpg.make(
        training_env(options, env),
        options.maddpg,
        observe=_observe,
        tasks=base_tasks(env),
        neighbours=env.neighbours,
        episode_metrics=_episode_metrics,
        **(designed_arguments() if options.plan.shapes else {}),
    )

    def init(key: jax.Array, start: Start) -> maddpg.MADDPGState:
        state = learner.init(key, start.hyper).replace(
            tasks=start.tasks, shaping_params=start.shaping, prior_params=start.shaping
        )
        return restart(options, env, state, jax.random.fold_in(key, 1))

    return learner._replace(init=init)


def training_env(options: Options, env: TrafficSignalControl) -> Env:
    """The environment as it is trained on: with an end, and features where these are used."""
    shown = ShowFeatures(env, junction_features, action_features) if options.plan.shapes else env
    return TimeLimit(shown, decisions_per_episode(env))


def _observe(obs: Any) -> jax.Array:
    return maddpg.flatten_observation(hide_features(obs))


def restart(
    options: Options, env: TrafficSignalControl, state: maddpg.MADDPGState, key: jax.Array
) -> maddpg.MADDPGState:
    """The state with new episodes, on its tasks, in all copies of the network."""
    # The environment as `maddpg.make` wraps it.
    wrapped = LogEpisode(AutoReset(training_env(options, env)))
    copies = jax.tree.leaves(state.obs)[0].shape[0]
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(copies))
    started, timestep = jax.vmap(wrapped.reset, (0, None))(keys, state.tasks)
    return state.replace(env=started, obs=timestep.obs)


def decisions_per_episode(env: TrafficSignalControl) -> int:
    """Decisions that cover the demand."""
    return max(round(env.duration / env.decision_interval), 1)


def _episode_metrics(info: Any) -> dict[str, jax.Array]:
    return {
        "average_travel_time": info["average_travel_time"],
        "throughput": info["finished"].astype(jnp.float32),
        "overflow": info["overflow"].astype(jnp.float32),
    }


def steps_per_episode(options: Options, env: TrafficSignalControl) -> int:
    """Steps of the learner in which every copy of the network ends an episode."""
    return -(-decisions_per_episode(env) // options.maddpg.decisions)


def base_tasks(env: TrafficSignalControl) -> Tasks:
    """The untouched demand in every place."""
    places = NEW + EARLIER + BASE
    draw = jax.jit(scenario_params, static_argnums=0)
    base = draw(env, nominal_scenario(env), jax.random.key(0))
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (places, *x.shape)), base)
    return Tasks(params, jnp.ones(places, jnp.float32))


def build(options: dict[str, Any], host: Any) -> tuple[Learner, Start]:
    """Learner and start of one seed of a saved run, from its `config.yaml`."""
    known = revive(options, Options)
    env = make_env(known)
    shaping = None
    if known.plan.shapes:
        shaping = stacked_shaping([nothing(known.shaping_weight)], [0.0], known.hyper.gamma)
        shaping = jax.tree.map(lambda x: jnp.asarray(x[0]), shaping)
    return make_learner(known, env), Start(known.hyper, base_tasks(env), shaping)
