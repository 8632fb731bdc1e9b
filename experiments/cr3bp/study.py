"""The study of samplers as a pipeline of runs.

search -> source_chains -> base -> chains of every sampler -> tuned -> chains again: the
self-supervised fine-tuning of Graebner and Beeson (2025, arXiv:2510.02527 and 2512.08705) with
a related transfer in the place of their Jupiter-Europa model.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cr3bp.instance import (
    OBJECTIVE,
    Instance,
    costs,
    density_with_metric,
    draw_costates,
    instance,
)
from experiments.cr3bp.study_options import (
    LEAPFROG_STEPS,
    MAX_DOUBLINGS,
    SAMPLERS,
    StudyOptions,
)
from jaxlab.agents import diffusion, mcmc, random_search
from jaxlab.core.learner import Learner
from jaxlab.core.stages import Results, Stage, run_stages
from jaxlab.envs.cr3bp.rendezvous import Cost

#: Step sizes that adaptation begins with.
STEP_SIZES = {
    "random_walk": 1e-3,
    "mala": 1e-7,
    "preconditioned_mala": 1e-2,
    "barker": 1e-3,
    "hmc": 1e-4,
    "nuts": 1e-4,
}
LEARNING_RATE = 1e-3
#: Chunks of a run of chains, whose CPU time is taken one by one.
CHUNKS = 4
#: States of a chain that are looked at and trained on.
KEPT = 40
#: The two halves of the study, named after the model that chains begin with.
MODELS = ("base", "tuned")


@dataclasses.dataclass(frozen=True)
class Study:
    """The transfers and options that all stages share."""

    options: StudyOptions
    source: Instance
    target: Instance
    _drawn: dict[str, tuple[np.ndarray, Cost]] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def config(self) -> diffusion.DiffusionConfig:
        """Of the diffusion model."""
        return diffusion.DiffusionConfig(shape=(4,), conditions=1, width=self.options.width)

    def stages(self) -> list[Stage]:
        """All runs in order."""
        options = self.options
        search = random_search.RandomSearchConfig(keep=options.source_chains)
        cost = lambda x: OBJECTIVE.cost(x, self.source.transfer).value  # noqa: E731
        stages = [
            Stage(
                "search",
                lambda results: random_search.make(cost, draw_costates, search),
                options.search_steps,
                # No hyper-parameters, which are mapped over seeds elsewhere.
                options={"hyper_axis": None},
            ),
            self._chains("source_chains", self.source, "random_walk", options.source_steps),
            self._training("base"),
            *(self._chains(f"base_{name}", self.target, name) for name in options.samplers),
            self._training("tuned"),
            *(self._chains(f"tuned_{name}", self.target, name) for name in options.samplers),
        ]
        return stages

    def _chains(self, name: str, of: Instance, sampler: Any, steps: int | None = None) -> Stage:
        options = self.options
        warmup = (steps or options.steps) // 2
        steps = steps or options.steps * SAMPLERS[sampler]
        config = mcmc.MCMCConfig(
            sampler, warmup=warmup, leapfrog_steps=LEAPFROG_STEPS, max_doublings=MAX_DOUBLINGS
        )
        density = lambda x: -OBJECTIVE(x, of.transfer)  # noqa: E731
        metric = sampler == "preconditioned_mala"
        fused = density_with_metric(of.transfer) if metric else None
        chunk = steps // CHUNKS
        thin = next(n for n in range(max(1, steps // KEPT), 0, -1) if chunk % n == 0)
        related = name == "source_chains"

        def hyper(results: Results) -> mcmc.Hyper:
            if related:
                starts = np.asarray(results["search"].state.positions)
            else:
                starts = self.screened(results, name.split("_")[0])
            one = np.ones(options.seeds)
            beta = options.source_beta if related else options.beta
            return mcmc.Hyper(one * STEP_SIZES[sampler], one * beta, starts)

        return Stage(
            name,
            lambda results: mcmc.make(density, config, fused=fused),
            steps,
            hyper,
            {"chunk": chunk, "thin": thin, "between": cpu_seconds},
        )

    def _training(self, name: str) -> Stage:
        def make(results: Results) -> Learner:
            return diffusion.make(self.config)

        def hyper(results: Results) -> diffusion.Hyper:
            one = np.ones(self.options.seeds, np.float32)
            default = diffusion.Hyper(learning_rate=LEARNING_RATE)
            numbers = {
                field.name: one * getattr(default, field.name)
                for field in dataclasses.fields(default)
                if field.name not in ("data", "start")
            }
            if name == "base":
                chains = [positions(results["source_chains"], 0.5)]
                return diffusion.Hyper(**numbers, data=self._data(chains, self.source, None))
            chains = [
                positions(results[f"base_{sampler}"], 0.5) for sampler in self.options.samplers
            ]
            data = self._data(chains, self.target, self.options.temperature)
            return diffusion.Hyper(
                **numbers, data=data, start=diffusion.model(results["base"].state)
            )

        return Stage(name, make, self.options.training_steps, hyper)

    def _data(self, chains: list[np.ndarray], of: Instance, temperature: float | None) -> Any:
        """What a model of each seed is trained on: samplers weigh alike, whatever they kept."""
        sets = []
        for seed in range(self.options.seeds):
            rows = [chain[seed].reshape(-1, chain.shape[-1]) for chain in chains]
            x = np.concatenate(rows)
            weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in rows])
            if temperature is not None:
                reward = -jnp.asarray(costs(x, of.transfer).value)
                weights = weights * np.asarray(diffusion.reward_weights(reward, temperature)[0])
            sets.append(diffusion.dataset(x, np.tile(of.condition, (len(x), 1)), weights))
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *sets)

    def samples(self, results: Results, name: str) -> tuple[np.ndarray, Cost]:
        """Of the model of each seed under the condition of the target, `[seeds, samples, 4]`.

        With their costs; drawn and valued once, though every sampler begins with them.
        """
        if name not in self._drawn:
            drawn = self._draw(results, name)
            self._drawn[name] = drawn, costs(drawn, self.target.transfer)
        return self._drawn[name]

    def _draw(self, results: Results, name: str) -> np.ndarray:
        keys = jax.random.split(jax.random.key(self.options.seed), self.options.seeds)
        draw = functools.partial(
            diffusion.sample, self.config, n=self.options.samples, cond=self.target.condition
        )
        models = diffusion.model(results[name].state)
        return np.asarray(jax.vmap(lambda model, key: draw(model, key))(models, keys), np.float64)

    def screened(self, results: Results, name: str) -> np.ndarray:
        """The best of these, `[seeds, chains, 4]`."""
        drawn, cost = self.samples(results, name)
        best = np.argsort(cost.value, 1)[:, : self.options.chains]
        return np.take_along_axis(drawn, best[..., None], 1)


def cpu_seconds(state: Any, metrics: dict[str, Any], host: Any) -> tuple[Any, Any]:
    """Between chunks: the CPU time of the process so far, without what ran before."""
    metrics["cpu_seconds"] = np.asarray(time.process_time())
    return state, host


def positions(result: Any, share: float = 0.0) -> np.ndarray:
    """Recorded positions `[seeds, draws, chains, 4]` behind a share of the steps."""
    records = result.records()
    kept = records["step"] > share * records["step"][-1]
    return np.moveaxis(records["chain/position"][kept], 0, 1)


def run_study(options: StudyOptions) -> tuple[Study, Results]:
    """Run all stages."""
    study = Study(options, instance(options, related=True), instance(options, related=False))
    arguments = options.run_arguments()
    arguments.pop("steps")
    return study, run_stages(study.stages(), hyper_axis=0, **arguments)
