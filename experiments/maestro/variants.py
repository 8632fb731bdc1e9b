"""Variants of MAESTRO: who chooses scenarios, rewards and priors. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from jaxlab.core.errors import ConfigError

Scenarios = Literal["none", "static", "domain_randomisation", "rules", "architect"]


@dataclasses.dataclass(frozen=True)
class Variant:
    """What is designed, and by whom.

    Attributes:
      scenarios: A curriculum by name, or the architect.
      reward: Shaping reward: none, the same fixed fill of the template all through, or the
        architect's.
      prior: Prior over the actions: none or the architect's.
      prompt: Which of the curriculum prompts a model is given.
    """

    scenarios: Scenarios = "none"
    reward: Literal["none", "template", "architect"] = "none"
    prior: Literal["none", "architect"] = "none"
    prompt: str = "A"

    @property
    def parts(self) -> tuple[str, ...]:
        """What the architect is asked for."""
        asked = {"scenario": self.scenarios, "reward": self.reward, "prior": self.prior}
        return tuple(part for part, who in asked.items() if who == "architect")

    @property
    def shapes(self) -> bool:
        """Whether anything is added to the environment's reward or to the actors' loss."""
        return self.reward != "none" or self.prior != "none"


#: By name; the letters in brackets are those of the paper's ablation.
VARIANTS: dict[str, Variant] = {
    "no_curriculum": Variant(),
    "static": Variant("static"),
    "domain_randomisation": Variant("domain_randomisation"),
    "curriculum_only": Variant("architect"),
    "shaping_only": Variant("none", "architect", "architect"),
    # (A2) and (A8): an architect's curriculum and a template reward, with either prompt.
    "template": Variant("architect", "template"),
    "other_template": Variant("architect", "template", prompt="B"),
    # (A7)
    "full": Variant("architect", "architect", "architect"),
    "full_without_prior": Variant("architect", "architect"),
}
VariantName = Literal[
    "no_curriculum",
    "static",
    "domain_randomisation",
    "curriculum_only",
    "shaping_only",
    "template",
    "other_template",
    "full",
    "full_without_prior",
]
ArchitectName = Literal["smollm2", "model", "openai", "recorded", "rules", "random"]

#: Arms of the study, as `Arm.parse` reads them.
STUDY = (
    *("no_curriculum", "domain_randomisation", "template", "other_template", "full"),
    "full:random",
)


@dataclasses.dataclass(frozen=True)
class Arm:
    """A part of a study: a variant, and who designs in it (None: whom the options name)."""

    variant: VariantName
    architect: ArchitectName | None = None

    @classmethod
    def parse(cls, text: str) -> Arm:
        """From `variant` or `variant:architect`.

        Raises:
          ConfigError: there is no such variant or architect.
        """
        variant, _, architect = text.partition(":")
        for kind, value, known in (
            ("variant", variant, get_args(VariantName)),
            ("architect", architect or "rules", get_args(ArchitectName)),
        ):
            if value not in known:
                raise ConfigError(
                    f"--arms {text}: no {kind} '{value}'; choose from {', '.join(known)}"
                )
        return cls(variant, architect or None)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """As it is parsed."""
        return f"{self.variant}:{self.architect}" if self.architect else self.variant

    @property
    def folder(self) -> str:
        """Name of its folder in that of the study."""
        return self.name.replace(":", "_by_")
