"""What architects of signal control design: scenarios, rewards over features, priors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.maestro.options import Options
from experiments.maestro.problem import decisions_per_episode
from experiments.maestro.shaping import JUNCTIONS, PHASES
from jaxlab.envs.traffic.controllers import make_controller
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.features import junction_features
from jaxlab.envs.traffic.scenario import origins_of
from jaxlab.envs.traffic.scenario_schema import scenario_from_json, scenario_schema
from jaxlab.shaping import curricula
from jaxlab.shaping.design_space import DesignSpace, reward_check
from jaxlab.shaping.reward_checks import Recording

Json = dict[str, Any]


def _terms(*terms: tuple[str, str, float], form: str = "direct") -> Json:
    keys = ("feature", "shape", "weight")
    return {"terms": [dict(zip(keys, term, strict=True)) for term in terms], "form": form}


#: What the rules design in each situation. Early on, standing vehicles and the greenest
#: phase are all that matters; with success the reward looks at what comes from upstream.
PLAYBOOK: dict[str, Json] = {
    "start": {
        "reward": _terms(("queue", "linear", -0.8), ("occupancy", "excess", -0.4)),
        "prior": {"pressure": 2.0, "is_current": 0.3},
    },
    "failing": {
        "reward": _terms(("queue", "saturating", -0.8), ("waiting", "linear", -0.3)),
        "prior": {"queue": 2.5, "is_current": 0.5},
    },
    "steady": {
        "reward": _terms(("queue", "root", -0.5), ("speed", "linear", 0.3)),
        "prior": {"pressure": 2.0, "queue": 1.0, "is_current": 0.5},
    },
    "stalled": {
        "reward": _terms(("queue", "linear", -0.8), form="potential"),
        "prior": {"pressure": 1.0},
    },
    "succeeding": {
        "reward": _terms(("queue", "linear", -0.5), ("neighbour_queue", "linear", -0.3)),
        "prior": {"pressure": 1.0, "count": 0.5},
    },
}
#: The fill of the variants with a template reward.
TEMPLATE = PLAYBOOK["start"]["reward"]


def card(env: TrafficSignalControl) -> Json:
    """The network in a few numbers, for people and models to read."""
    table, demand = env.table, env.demand.value
    vehicles = len(demand["depart_step"])
    origins = origins_of(env)
    return {
        "task": (
            "Signal controllers at the junctions of a road network share green time so that "
            "vehicles wait little; every junction is an agent that picks its next green phase."
        ),
        "junctions": env.num_agents,
        "roads": len(env.net.road_ids),
        "approach_lanes_per_junction": int((table["approach"] >= 0).sum(1).max()),
        "green_phases": env.num_actions,
        "seconds_between_decisions": env.decision_interval,
        "clearance_seconds": env.clearance,
        "seconds_of_demand": env.duration,
        "vehicles": vehicles,
        "vehicles_at_most": int(np.ceil(env.max_demand * vehicles)),
        "entries": len(origins.names),
    }


def design_space(
    env: TrafficSignalControl,
    options: Options,
    parts: tuple[str, ...],
    recordings: dict[str, Recording] | None,
) -> DesignSpace:
    """The space of designs; rewards are held against what scripted policies went through."""
    check = reward_check(
        JUNCTIONS,
        recordings=recordings,
        weight=max(options.shaping_weight),
        discount=options.hyper.gamma,
    )
    return DesignSpace(
        card=card(env),
        scenarios=curricula.Space(
            scenario_schema(env), lambda scenario: scenario_from_json(env, scenario)
        ),
        features=JUNCTIONS,
        prior_features=PHASES,
        check_reward=check,
        playbook=PLAYBOOK,
        parts=parts,
    )


def record_policies(env: TrafficSignalControl) -> dict[str, Recording]:
    """Features and rewards of scripted policies over an hour of the untouched demand."""
    controllers = {
        name: make_controller(
            name,
            env.simulator.network,
            dt=env.simulator.dt,
            interval=env.decision_interval,
            clearance=env.clearance,
        )
        for name in ("max_pressure", "random")
    }
    green = env.table["green_phases"][:, 0]
    acts = [controller.act for controller in controllers.values()]
    acts.append(lambda key, memory, detectors: (memory, jnp.asarray(green)))
    params = env.nominal_params()

    # All policies in one map, so that the simulator is traced once.
    @jax.jit
    def play(params: Any) -> tuple[jax.Array, jax.Array]:
        key = jax.random.key(0)
        start, _ = env.reset(key, params)

        def decide(states: Any, n: jax.Array) -> Any:
            act_key, step_key = jax.random.split(jax.random.fold_in(key, n))

            def one(state: Any, policy: jax.Array) -> Any:
                seen = env.detectors(state)
                phase = jax.lax.switch(policy, [lambda a=a: a(act_key, (), seen)[1] for a in acts])
                state, timestep = env.advance(step_key, state, phase, params)
                return state, (junction_features(env, state), timestep.reward)

            return jax.vmap(one)(states, jnp.arange(len(acts)))

        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(acts), *x.shape)), start)
        decisions = jnp.arange(decisions_per_episode(env), dtype=jnp.int32)
        return jax.lax.scan(decide, states, decisions)[1]

    features, reward = jax.device_get(play(params))
    names = (*controllers, "never_switch")
    return {
        name: Recording(features=features[:, n], reward=reward[:, n])
        for n, name in enumerate(names)
    }
