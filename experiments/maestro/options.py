"""Options of MAESTRO; imports nothing heavy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from experiments.maestro.variants import (
    STUDY,
    VARIANTS,
    ArchitectName,
    Arm,
    Variant,
    VariantName,
)
from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions

#: Of a designed prior at the start; it falls to zero within `hyper.prior_steps` transitions.
PRIOR_WEIGHT = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """MAESTRO: MADDPG learns to control traffic signals while an architect (rules, or a language
    model) designs its scenarios, its shaping reward and a prior; evaluated on the untouched
    demand over the full hour beside fixed time, max pressure and SOTL.

    Without files the network is a 4 x 4 grid of Hangzhou's geometry with demand drawn from
    published totals. One step of the learner takes `decisions` decisions in each of `num_envs`
    copies of the network, and then `updates` updates. Every seed has designs of its own.
    """

    steps: int = 1620
    """Steps of the learner, best a multiple of those in an episode (360 decisions by default)."""
    roadnet: Path | None = None
    """Road network in CityFlow's format; needs --flow."""
    flow: Path | None = None
    """Flow in CityFlow's format; needs --roadnet."""
    demand_seed: int = 0
    """Seed of the built-in demand."""
    duration: float = 3600.0
    """Seconds of an episode and of the evaluation."""
    variant: VariantName | None = None
    """What is designed: full (scenarios, reward and prior; the default), full_without_prior,
    curriculum_only, shaping_only, template and other_template (a fixed reward, and two prompts
    for the curriculum), domain_randomisation, static, no_curriculum."""
    curriculum: Literal["none", "static", "domain_randomisation", "rules"] | None = None
    """A curriculum without an architect, instead of a variant: the untouched demand only; a fixed
    ladder from easy to hard; drawn at random; difficulty moved by a success band."""
    architect: ArchitectName = "smollm2"
    """Who designs: smollm2 (embedded language model, downloaded once: 93 MB), rules and random
    (need nothing), model (any checkpoint, see --architect-model), openai (any compatible endpoint),
    recorded (repeats --architect-log)."""
    architect_model: str | None = None
    """Of model: folder or GGUF file of a checkpoint. Of openai: name of the model
    (OPENAI_MODEL)."""
    architect_url: str | None = None
    """Address of the endpoint up to /v1 (OPENAI_BASE_URL); the key is OPENAI_API_KEY."""
    architect_log: Path | None = None
    """The architect.jsonl that recorded repeats."""
    temperature: float = 0.7
    """With which a language model samples."""
    stage_episodes: int = 2
    """Episodes of every copy of the network until the next design."""
    shaping_weight: tuple[float, float] = (0.3, 0.6)
    """Weight of the shaping reward at difficulty 0 and at difficulty 1."""
    canary_steps: int = 15
    """Steps of the learner for which each candidate reward is tried; 0 adopts designs untried."""
    max_demand: float = 1.5
    """Largest demand of a scenario, relative to the untouched one."""
    capacity: int | None = None
    """Vehicles that fit on the road at once; by default all those of the largest scenario."""
    reward: Literal["waiting", "pressure", "queue", "delay", "travel_time"] = "waiting"
    """Reward of a junction and decision."""
    maddpg: MADDPGConfig = dataclasses.field(
        default_factory=lambda: MADDPGConfig(critic_input="neighbourhood", batch_size=128)
    )
    """Shapes and switches of the learner."""
    hyper: Hyper = dataclasses.field(default_factory=lambda: Hyper(prior_weight=PRIOR_WEIGHT))
    """Numbers of the learner."""
    animation_seconds: float = 300.0
    """Seconds of traffic in the animation; 0 for none."""
    study: bool = False
    """Run the arms of a study one after the other, paired by seed, and report on all of them;
    continue with --resume, also an arm at a time."""
    arms: tuple[str, ...] = STUDY
    """Arms of the study: a variant, or variant:architect."""
    json: bool = False
    """Print the summary as one JSON object instead of a table."""

    volatile: ClassVar[frozenset[str]] = RunOptions.volatile | {"animation_seconds", "json"}

    def check(self) -> None:
        super().check()
        if (self.roadnet is None) != (self.flow is None):
            given, missing = ("roadnet", "flow") if self.flow is None else ("flow", "roadnet")
            raise ConfigError(
                f"--{given} needs --{missing} as well; without both the built-in network is used"
            )
        if self.variant is not None and self.curriculum is not None:
            raise ConfigError("--variant and --curriculum both choose scenarios; give one")
        if self.study and self.curriculum:
            raise ConfigError("--study runs its --arms; --curriculum chooses one run")
        if self.study and (not self.arms or len(set(self.arms)) < len(self.arms)):
            raise ConfigError("--arms: expected different arms, at least one")
        if self.study:
            [Arm.parse(arm) for arm in self.arms]
        if self.architect == "recorded" and self.architect_log is None:
            raise ConfigError("--architect recorded needs --architect-log")
        log = self.architect_log
        if self.architect == "recorded" and self.evaluate is None and log and not log.is_file():
            raise ConfigError(f"--architect-log {log}: no such file; name a run's architect.jsonl")
        if self.architect == "model" and self.architect_model is None:
            raise ConfigError("--architect model needs --architect-model")
        for name in ("capacity", "stage_episodes"):
            self.at_least(name, 1)
        for name, value in dataclasses.asdict(self.hyper).items():
            if not 0 <= value < float("inf") or (name in ("gamma", "tau") and value > 1):
                bound = "0 to 1" if name in ("gamma", "tau") else "0 or more"
                raise ConfigError(
                    f"--hyper.{name.replace('_', '-')} {value}: expected a number of {bound}"
                )
        self.at_least("canary_steps", 0)
        self.at_least("temperature", 0)
        if not all(0 <= weight < 100 for weight in self.shaping_weight):
            raise ConfigError(
                f"--shaping-weight {self.shaping_weight}: expected two numbers from 0 to 100"
            )
        self.at_least("demand_seed", 0)
        self.at_least("duration", 10)
        self.at_least("max_demand", 1)
        self.at_least("animation_seconds", 0)

    @property
    def plan(self) -> Variant:
        """Who chooses scenarios, rewards and priors."""
        if self.curriculum is not None:
            return Variant(self.curriculum)
        return VARIANTS[self.variant or "full"]

    @property
    def variant_name(self) -> str:
        """For reports."""
        if self.curriculum is not None:
            return f"curriculum {self.curriculum}"
        return self.variant or "full"

    @property
    def files(self) -> tuple[Path, Path] | None:
        """Network and flow, where they are given."""
        if self.roadnet is None or self.flow is None:
            return None
        return self.roadnet, self.flow


PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "steps": 16,
        "duration": 240.0,
        "maddpg": MADDPGConfig(
            num_envs=2,
            decisions=3,
            updates=1,
            batch_size=16,
            buffer_size=100,
            learning_starts=12,
            critic_input="neighbourhood",
            actor_hidden=(16,),
            critic_hidden=(16,),
        ),
        "animation_seconds": 20.0,
        "variant": "curriculum_only",
        "architect": "rules",  # a language model alone takes longer than all of this
        "canary_steps": 2,
        "stage_episodes": 1,
    },
    "quick": {},
    "paper": {"steps": 10_800, "stage_episodes": 12},
}
