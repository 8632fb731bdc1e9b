"""Stages of a curriculum: between chunks the policies are measured and get new tasks.

Every seed has its own curriculum, moved by its own success: seeds stay independent
repetitions, and a seed's course does not depend on which seeds run beside it.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import numpy as np

from experiments.maestro.evaluation import (
    BASE_PLACE,
    MEASURES,
    NEWEST_PLACE,
    Trials,
    check_capacity,
)
from experiments.maestro.options import Options
from experiments.maestro.problem import EARLIER, NEW, restart, steps_per_episode
from jaxlab.core.autoreset import Tasks
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.params import TrafficParams
from jaxlab.envs.traffic.scenario import Scenario, scenario_params
from jaxlab.envs.traffic.scenario_schema import scenario_from_json, scenario_schema
from jaxlab.shaping import curricula

Json = dict[str, Any]

#: The controller whose return success is relative to.
REFERENCE = "max_pressure"


class Stages:
    """The curricula of all seeds of a run.

    What they remember is the host data of the run, plain JSON:

        {"chunks": 3, "curricula": [{"history": [...], "scenario": {...}, "difficulty": 0.2}]}
    """

    def __init__(self, env: TrafficSignalControl, options: Options, trials: Trials | None):
        self.env, self.options = env, options
        self.seeds = [options.seed + n for n in range(options.seeds)]
        space = curricula.Space(
            scenario_schema(env), lambda scenario: scenario_from_json(env, scenario)
        )
        stages = options.steps // (steps_per_episode(options, env) * options.stage_episodes)
        self.curricula = [
            curricula.make_curriculum(options.curriculum, space, seed=seed, stages=max(stages, 1))
            for seed in self.seeds
        ]
        self._draw = jax.jit(jax.vmap(functools.partial(_draw, env)))
        self._restart = jax.jit(jax.vmap(functools.partial(_restart, env)))
        self.trials = trials

    def begin(self) -> Json:
        """Host data before the first chunk."""
        return {"chunks": 0, "curricula": [self._entry(n, []) for n in range(len(self.seeds))]}

    def _entry(self, index: int, history: list[Json]) -> Json:
        proposal = self.curricula[index](history)
        return {"history": history, **proposal._asdict()}

    def tasks(self, host: Json) -> Tasks:
        """The mixtures that the seeds train on, numpy arrays `[seeds, tasks, ...]`."""
        parse = functools.lru_cache(lambda text: scenario_from_json(self.env, json.loads(text)))
        scenarios, weights = [], []
        for seed, entry in zip(self.seeds, host["curricula"], strict=True):
            mixed = curricula.mixture(
                entry["history"], _proposal(entry), new=NEW, earlier=EARLIER, seed=seed
            )
            scenarios += [parse(json.dumps(scenario)) for scenario in mixed.scenarios]
            weights.append(mixed.weights)
        stacked: Scenario = jax.tree.map(lambda *x: np.stack(x), *scenarios)
        places = len(scenarios) // len(self.seeds)
        seed, stage = (np.repeat(numbers, places) for numbers in self._numbers(host))
        place = np.tile(np.arange(places, dtype=np.uint32), len(self.seeds))
        params = jax.device_get(self._draw(stacked, seed, stage, place))
        params = jax.tree.map(lambda x: x.reshape(-1, places, *x.shape[1:]), params)
        return Tasks(params, np.array(weights, np.float32))

    def _numbers(self, host: Json) -> tuple[np.ndarray, np.ndarray]:
        """Seeds and the numbers of their stages, which together tell keys apart."""
        stages = [len(entry["history"]) for entry in host["curricula"]]
        return np.array(self.seeds, np.uint32), np.array(stages, np.uint32)

    def between(self, state: Any, metrics: dict[str, np.ndarray], host: Json) -> tuple[Any, Json]:
        """After a chunk; at the end of a stage also measure, and move on.

        Raises:
          CapacityError: more vehicles were on the road than there is room for.
        """
        check_capacity(self.env, metrics["overflow"])
        host = host | {"chunks": host["chunks"] + 1}
        if host["chunks"] % self.options.stage_episodes:
            return state, host
        measured = self.measure(state)
        entries = []
        for n, entry in enumerate(host["curricula"]):
            mine = {name: values[n] for name, values in measured.items()}
            done = curricula.record(_proposal(entry), mine)
            entries.append(self._entry(n, [*entry["history"], done]))
        for name in ("return", "reference", "average_travel_time", "base_average_travel_time"):
            metrics[f"greedy_{name}"] = measured[name]
        metrics["difficulty"] = np.array([e["difficulty"] for e in host["curricula"]])
        host = host | {"curricula": entries}
        return self.restart(state, host), host

    def measure(self, state: Any) -> dict[str, np.ndarray]:
        """Greedy policies on their newest scenario and on the base, by name, `[seeds]`."""
        played = [
            ("learned", NEWEST_PLACE),
            (REFERENCE, NEWEST_PLACE),
            ("learned", BASE_PLACE),
            (REFERENCE, BASE_PLACE),
        ]
        found = {key: values.astype(float) for key, values in self.trials(state, played).items()}
        measured = {key: found[key][:, 0] for key, _, _ in MEASURES}
        measured |= {"reference": found["return"][:, 1], "base_reference": found["return"][:, 3]}
        return measured | {f"base_{key}": found[key][:, 2] for key, _, _ in MEASURES}

    def restart(self, state: Any, host: Json) -> Any:
        """The state with the tasks of the host data and new episodes on them."""
        state = state.replace(tasks=self.tasks(host))
        env, obs = self._restart(*self._numbers(host), state.replace(replay=None))
        return state.replace(env=env, obs=obs)


def _proposal(entry: Json) -> curricula.Proposal:
    return curricula.Proposal(entry["scenario"], entry["difficulty"])


def _draw(
    env: TrafficSignalControl,
    scenario: Scenario,
    seed: jax.Array,
    stage: jax.Array,
    place: jax.Array,
) -> TrafficParams:
    key = jax.random.fold_in(jax.random.key(seed), stage)
    return scenario_params(env, scenario, jax.random.fold_in(key, place))


def _restart(
    env: TrafficSignalControl, seed: jax.Array, stage: jax.Array, state: Any
) -> tuple[Any, Any]:
    """Fresh episodes and their first observations."""
    state = restart(env, state, jax.random.fold_in(jax.random.key(seed), stage))
    return state.env, state.obs
