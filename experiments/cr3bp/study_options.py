"""Options of the study of samplers; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions

#: The samplers compared, with their steps for one of `--steps`. A gradient costs about two
#: values and HMC takes four a step, so that all cost about as much.
SAMPLERS = {
    "random_walk": 6,
    "mala": 3,
    "preconditioned_mala": 3,
    "barker": 3,
    "hmc": 1,
    "nuts": 1,
}
#: Those of the papers, which are compared unless told otherwise.
PUBLISHED = ("random_walk", "mala", "hmc", "nuts")
LEAPFROG_STEPS = 4
#: NUTS doubles its trajectory so many times at most.
MAX_DOUBLINGS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyOptions(RunOptions):
    """Compare samplers in search of low-thrust transfers: do gradients help, and fine-tuning?

    Chains of each sampler begin with samples of a diffusion model of a related transfer; then the
    model is fine-tuned with what they found, and chains begin with samples of that.

    The planar transfer leads from a circular orbit about Saturn to a distant retrograde orbit
    about Titan; the related one has the mass ratio of Jupiter and Europa, the same orbits and the
    same spacecraft in units of the system. Chains sample exp(-beta J*) in the initial costates.
    """

    x64: bool = True
    """Compute with 64-bit floats, which the three-body problem needs."""
    seeds: int = 3
    """Number of seeds; every one has a model and chains of its own."""
    steps: int = 100
    """Steps of HMC and NUTS; random walk takes six times and MALA, preconditioned or not, and
    Barker three times as many, for about the same cost."""
    thrust: float = 6.0
    """Newton, of a spacecraft of 25 t with a specific impulse of 7365 s."""
    radius: float = 0.85
    """Of the orbit about Saturn at the start, in distances of Titan."""
    duration: tuple[float, float] = (5.0, 30.0)
    """Shortest and longest time of flight, in units of the system."""
    weights: tuple[float, float] = (1e-2, 1e-4)
    """kappa1 of the burnt part of the mass and kappa2 of the time of flight in J."""
    beta: float = 3000.0
    """Inverse temperature of the chains on the transfer asked about."""
    source_beta: float = 1000.0
    """Inverse temperature of the chains on the related transfer."""
    samplers: tuple[str, ...] = PUBLISHED
    """Which samplers are compared: random_walk, mala, preconditioned_mala, barker, hmc, nuts."""
    chains: int = 64
    """Chains of each sampler, which begin with the best of the model's samples."""
    search_steps: int = 32
    """Steps of random search for the related transfer, of 2048 draws each."""
    source_chains: int = 256
    """Chains on the related transfer, which begin with the best draws."""
    source_steps: int = 300
    """Steps of these, the first half for adaptation."""
    training_steps: int = 2000
    """Gradient steps of the diffusion model, and of its fine-tuning."""
    width: int = 256
    """Of the layers of the diffusion model."""
    samples: int = 4096
    """Samples of a model that are valued."""
    temperature: float = 2e-3
    """Of the rewards -J* in fine-tuning."""
    solve: int = 64
    """Ends of chains, and samples, that are solved for a transfer, for each seed."""
    rounds: int = 30
    """Steps of Levenberg-Marquardt in solving."""

    def check(self) -> None:
        super().check()
        for name in ("thrust", "radius", "beta", "source_beta", "temperature"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(
                    f"--{name.replace('_', '-')} {value:g}: expected a positive, finite number"
                )
        known = len(set(self.samplers)) == len(self.samplers) and set(self.samplers) <= set(
            SAMPLERS
        )
        if not self.samplers or not known:
            raise ConfigError(
                f"--samplers {' '.join(self.samplers)}: expected different ones of "
                f"{', '.join(SAMPLERS)}"
            )
        if not 0 < self.duration[0] < self.duration[1] < math.inf:
            raise ConfigError(f"--duration {self.duration}: expected 0 < shortest < longest")
        if not all(0 <= weight < math.inf for weight in self.weights):
            raise ConfigError(f"--weights {self.weights}: expected numbers of at least 0")
        for name in ("chains", "search_steps", "source_chains", "training_steps", "width"):
            self.at_least(name, 1)
        for name in ("steps", "source_steps"):
            if getattr(self, name) < 8 or getattr(self, name) % 4:
                raise ConfigError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: expected a multiple of "
                    "4, at least 8"
                )
        for name in ("samples", "solve", "rounds"):
            self.at_least(name, 1)
        if self.chains > self.samples or self.solve > self.samples:
            raise ConfigError(
                f"--samples {self.samples}: expected at least --chains {self.chains} and --solve "
                f"{self.solve}"
            )


PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "seeds": 2,
        "samplers": ("random_walk", "preconditioned_mala", "barker"),
        "steps": 8,
        "chains": 4,
        "search_steps": 2,
        "source_chains": 16,
        "source_steps": 8,
        "training_steps": 40,
        "width": 16,
        "samples": 64,
        "solve": 4,
        "rounds": 4,
        "duration": (3.0, 8.0),
    },
    "quick": {},
    "paper": {
        "samplers": tuple(SAMPLERS),
        "steps": 400,
        "search_steps": 96,
        "source_steps": 800,
        "training_steps": 10_000,
    },
}
