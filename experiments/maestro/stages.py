"""Stages: between chunks the policies are measured, and what comes next is designed.

Every seed has its own curriculum and its own designs, moved by its own success: seeds
stay independent repetitions, and a seed's course does not depend on which others run
beside it.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import numpy as np

from experiments.maestro.designing import Designing
from experiments.maestro.evaluation import (
    BASE_PLACE,
    MEASURES,
    NEWEST_PLACE,
    Trials,
    check_capacity,
)
from experiments.maestro.options import Options
from experiments.maestro.problem import EARLIER, NEW, restart, steps_per_episode
from experiments.maestro.shaping import ShapingParams, stacked_shaping
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

        {"chunks": 3, "step": 270, "curricula": [{"history": [...], "scenario": {...},
          "difficulty": 0.2, "design": {...}, "template": {...}, "canary": {...}}]}

    `design` is what the architect said, `template` what is trained with; `canary` holds the
    scores that led from one to the other. They are None where nothing is designed.
    """

    def __init__(
        self,
        env: TrafficSignalControl,
        options: Options,
        trials: Trials | None,
        designing: Designing | None = None,
    ):
        self.env, self.options = env, options
        self.seeds = [options.seed + n for n in range(options.seeds)]
        space = curricula.Space(
            scenario_schema(env), lambda scenario: scenario_from_json(env, scenario)
        )
        stages = options.steps // (steps_per_episode(options, env) * options.stage_episodes)
        chosen = options.plan.scenarios
        self.curricula = [
            curricula.make_curriculum(
                # With an architect, what it is asked for tells the difficulty.
                "none" if chosen == "architect" else chosen,
                space,
                seed=seed,
                stages=max(stages, 1),
            )
            for seed in self.seeds
        ]
        self._draw = jax.jit(jax.vmap(functools.partial(_draw, env)))
        self._restart = jax.jit(jax.vmap(functools.partial(_restart, options, env)))
        self.trials, self.designing = trials, designing

    def begin(self) -> Json:
        """Host data before the first chunk."""
        return {"chunks": 0, "step": 0, "curricula": self._entries([[] for _ in self.seeds], None)}

    def _entries(self, histories: list[list[Json]], state: Any) -> list[Json]:
        """The next stage of every seed, designed where the options ask for it."""
        entries = [
            {"history": history, **self.curricula[n](history)._asdict()}
            for n, history in enumerate(histories)
        ]
        if self.designing is None:
            return entries
        return self.designing.entries(self.seeds, entries, state)

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

    def shaping(self, host: Json) -> ShapingParams | None:
        """What is added to the rewards of the seeds, numpy arrays `[seeds, ...]`."""
        if self.designing is None:
            return None
        entries = host["curricula"]
        return stacked_shaping(
            [entry["template"] for entry in entries],
            [entry["difficulty"] for entry in entries],
            self.options.hyper.gamma,
        )

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
        step = host["step"] + steps_per_episode(self.options, self.env)
        host = host | {"chunks": host["chunks"] + 1, "step": min(step, self.options.steps)}
        if host["chunks"] % self.options.stage_episodes:
            return state, host
        measured = self.measure(state)
        histories = []
        for n, entry in enumerate(host["curricula"]):
            mine = {name: values[n] for name, values in measured.items()}
            done = curricula.record(_proposal(entry), mine)
            for name in ("design", "template", "canary"):
                if name in entry:
                    done[name] = entry[name]
            histories.append([*entry["history"], done])
        for name in ("return", "reference", "average_travel_time", "base_average_travel_time"):
            metrics[f"greedy_{name}"] = measured[name]
        if host["step"] >= self.options.steps:
            # Nothing follows that would need a design.
            ended = [e | {"history": h} for e, h in zip(host["curricula"], histories, strict=True)]
            return state, host | {"curricula": ended}
        entries = self._entries(histories, state)
        metrics["difficulty"] = np.array([e["difficulty"] for e in entries])
        host = host | {"curricula": entries}
        state = self.restart(state, host)
        if self.designing is not None:
            host = host | {"curricula": self.designing.probe(entries, state, host["step"])}
            state = self._with_shaping(state, host)
        return state, host

    def measure(self, state: Any) -> dict[str, np.ndarray]:
        """Greedy policies on their newest scenario and on the base, by name, `[seeds]`."""
        played = [
            ("learned", NEWEST_PLACE),
            (REFERENCE, NEWEST_PLACE),
            ("learned", BASE_PLACE),
            (REFERENCE, BASE_PLACE),
        ]
        assert self.trials is not None
        found = {key: values.astype(float) for key, values in self.trials(state, played).items()}
        measured = {key: found[key][:, 0] for key, _, _ in MEASURES}
        measured |= {"reference": found["return"][:, 1], "base_reference": found["return"][:, 3]}
        return measured | {f"base_{key}": found[key][:, 2] for key, _, _ in MEASURES}

    def restart(self, state: Any, host: Json) -> Any:
        """The state with the tasks of the host data and new episodes on them."""
        state = self._with_shaping(state.replace(tasks=self.tasks(host)), host)
        env, obs = self._restart(*self._numbers(host), state.replace(replay=None))
        return state.replace(env=env, obs=obs)

    def _with_shaping(self, state: Any, host: Json) -> Any:
        shaping = self.shaping(host)
        return state.replace(shaping_params=shaping, prior_params=shaping)


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
    options: Options, env: TrafficSignalControl, seed: jax.Array, stage: jax.Array, state: Any
) -> tuple[Any, Any]:
    """Fresh episodes and their first observations."""
    state = restart(options, env, state, jax.random.fold_in(jax.random.key(seed), stage))
    return state.env, state.obs
