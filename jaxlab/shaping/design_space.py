"""What may be designed: the schema of a design, and the checks that it must pass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxlab.core.errors import ConfigError, JaxlabError
from jaxlab.core.json_schemas import json_problems
from jaxlab.core.runfolder import config_hash
from jaxlab.shaping import curricula, reward_checks, reward_filling
from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_language import parse_reward
from jaxlab.shaping.reward_program import RewardFunction
from jaxlab.shaping.reward_template import LARGEST_LOGIT, RewardTemplate, linear_prior

Json = dict[str, Any]

#: What an architect may be asked for.
PARTS = ("scenario", "reward", "prior")
#: Situations that a playbook has an entry for, from the metrics alone (see `situation`).
SITUATIONS = ("start", "failing", "steady", "stalled", "succeeding")
#: Records of the history without progress after which training counts as stalled.
STALLED_AFTER = 3

#: Form and shape of the terms, their weights and those of the prior, by situation.
_BY_SIGNS = {
    "start": ("potential", "linear", 0.5, 2.0),
    "failing": ("direct", "linear", 0.5, 2.0),
    "steady": ("potential", "linear", 0.5, 1.0),
    "stalled": ("direct", "square", 0.5, 1.0),
    "succeeding": ("potential", "linear", 0.2, 0.5),
}
_REASON = {
    "type": "string",
    "maxLength": 1000,
    "description": "One short paragraph: why this design, from the numbers given.",
}
_SOURCE = {
    "type": "object",
    "description": "Shaping reward of an agent, written by hand.",
    "properties": {
        "source": {"type": "string", "description": "The function, with its line breaks."},
        "form": {
            "enum": list(reward_filling.FORMS),
            "description": "Paid as it is, or as a potential of which differences are paid.",
        },
    },
    "required": ["source", "form"],
    "additionalProperties": False,
}


def reward_check(
    catalogue: FeatureCatalogue, **options: Any
) -> Callable[[RewardFunction, bool], Sequence[str]]:
    """The check of rewards by `reward_checks.check_reward`, for a `DesignSpace`.

    Args:
      options: Of `reward_checks.check_reward`: recordings, weight, discount, limits, seed.
    """

    def check(function: RewardFunction, potential: bool) -> Sequence[str]:
        verdict = reward_checks.check_reward(function, catalogue, potential=potential, **options)
        return verdict.rejections

    return check


@dataclasses.dataclass(frozen=True)
class DesignSpace:
    """All that architects know of an environment, and the checks their designs must pass.

    Attributes:
      card: What is trained, as JSON for people and models to read; `task`, a sentence, is
        quoted first.
      scenarios: Schema and check of scenarios.
      features: Of an agent, what rewards are made of; needed where rewards are designed.
      prior_features: Of an action, what prior logits are a weighted sum of; needed where
        priors are designed. A sign says whether agents should prefer more of it.
      check_reward: From a reward, and whether it is used as a potential, to the reasons
        to refuse it. By default `reward_check(features)`, on a bank of states alone.
      playbook: What the rules design: for each of `SITUATIONS` a filled form and prior weights,
        `{"reward": ..., "prior": {...}}`. By default from the signs of the features.
      parts: Those of `PARTS` that are designed; the others stay empty.

    Raises:
      ConfigError: something is missing, or the playbook does not pass the checks.
    """

    card: Json
    scenarios: curricula.Space
    features: FeatureCatalogue | None = None
    prior_features: FeatureCatalogue | None = None
    check_reward: Callable[[RewardFunction, bool], Sequence[str]] | None = None
    playbook: Mapping[str, Json] | None = None
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        if unknown := [part for part in self.parts if part not in PARTS]:
            raise ConfigError(f"parts of a design: {unknown} unknown; choose from {PARTS}")
        for part, name in (("reward", "features"), ("prior", "prior_features")):
            if part in self.parts and getattr(self, name) is None:
                raise ConfigError(f"design space: to design the {part}, {name} are needed")
        if self.features is not None and self.check_reward is None:
            object.__setattr__(self, "check_reward", reward_check(self.features))
        if self.playbook is None:
            book = playbook_by_signs(self.features, self.prior_features)
            object.__setattr__(self, "playbook", book)
        if set(self.parts) - {"scenario"}:
            self._check_playbook()

    def _check_playbook(self) -> None:
        assert self.playbook is not None
        checked: list[Json] = []
        for name in SITUATIONS:
            if name not in self.playbook:
                raise ConfigError(f"playbook: no entry for '{name}'; needed are {SITUATIONS}")
            # A deep check is slow, so that equal entries are checked once.
            if self.playbook[name] in checked:
                continue
            if found := self.problems(self.by_the_book(name, {}, "")):
                raise ConfigError(f"playbook: the entry '{name}' is refused: {found[0]}")
            checked.append(self.playbook[name])

    def by_the_book(self, name: str, scenario: Json, reason: str) -> Json:
        """A design with the reward and the prior that the playbook has for a situation."""
        entry = (self.playbook or {}).get(name, {}) | {"scenario": scenario}
        return {"reason": reason} | {part: entry.get(part) for part in self.parts}

    def part_schema(self, part: str, *, sources: bool = False) -> Json:
        """JSON schema of one part of a design.

        Args:
          sources: Of the reward: a source text instead of a filled form.
        """
        if part == "scenario":
            schema = self.scenarios.schema
            return {name: value for name, value in schema.items() if not name.startswith("$")}
        if part == "reward":
            assert self.features is not None
            return _SOURCE if sources else reward_filling.reward_schema(self.features)
        assert self.prior_features is not None
        limit = {"type": "number", "minimum": -LARGEST_LOGIT, "maximum": LARGEST_LOGIT}
        described = zip(self.prior_features.names, self.prior_features.descriptions, strict=True)
        return {
            "type": "object",
            "description": "Weights of the prior logits of an action; absent means 0.",
            "properties": {name: limit | {"description": text} for name, text in described},
            "required": [],
            "additionalProperties": False,
        }

    def schema(self, *, sources: bool = False) -> Json:
        """JSON schema of a whole design, as an architect answers with it."""
        # The reason comes first, so that a model that writes from left to right thinks first.
        properties = {"reason": _REASON} | {
            part: self.part_schema(part, sources=sources) for part in self.parts
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def problems(self, document: Any, *, sources: bool = False) -> list[str]:
        """Why a design is refused, in words for its designer; empty if it is accepted."""
        found = json_problems(self.schema(sources=sources), document)
        return found or [
            line for part in self.parts for line in self._deep_problems(part, document[part])
        ]

    def part_problems(self, part: str, value: Any) -> list[str]:
        """Why one part of a design is refused."""
        found = [f"{part}: {line}" for line in json_problems(self.part_schema(part), value)]
        return found or self._deep_problems(part, value)

    def _deep_problems(self, part: str, value: Any) -> list[str]:
        """What is wrong with a part that keeps to its schema."""
        found: Sequence[str] = ()
        try:
            if part == "scenario":
                self.scenarios.check(value)
            elif part == "reward" and self.check_reward is not None:
                found = self.check_reward(self.reward_function(value), is_potential(value))
        except (ValueError, JaxlabError) as error:
            found = (str(error),)
        lines = [" ".join(text.split())[:600] for text in found]
        return [line if line.startswith(part) else f"{part}: {line}" for line in lines]

    def source(self, reward: Any) -> str:
        """Source of a designed reward, of a filled form or as it was written; empty of None."""
        if reward is None or self.features is None:
            return ""
        return reward.get("source") or reward_filling.write_reward(reward, self.features)

    def reward_function(self, reward: Any) -> RewardFunction:
        """A designed reward, parsed.

        Raises:
          RewardError: It is not in the reward language.
        """
        assert self.features is not None
        return parse_reward(self.source(reward), self.features)

    def template(
        self, reward: Any, prior: Mapping[str, float], weight: tuple[float, float] = (1.0, 1.0)
    ) -> RewardTemplate:
        """The reward and the prior of a design, ready for the compiled step.

        Args:
          weight: Of the shaping reward at difficulty 0 and 1.
        """
        return RewardTemplate(
            reward=None if reward is None else self.reward_function(reward),
            prior=linear_prior(prior, self.prior_features) if self.prior_features else None,
            potential=reward is not None and is_potential(reward),
            weight=weight,
        )

    def difficulty(self, history: curricula.History) -> float:
        """The difficulty that a design is asked for, moved by the band of success."""
        return curricula.Rules(self.scenarios).difficulty(history)

    @functools.cached_property
    def digest(self) -> str:
        """Tells spaces apart whose answers do not fit each other."""
        return config_hash([self.card, self.schema(), self.features])


def is_potential(reward: Json) -> bool:
    """Whether differences of a designed reward are paid, not its values."""
    return reward["form"] == "potential"


def playbook_by_signs(
    features: FeatureCatalogue | None, prior_features: FeatureCatalogue | None
) -> dict[str, Json]:
    """A playbook that pays for what is better and prefers what should be preferred.

    The first features with a sign count, all alike: as a potential as long as all goes
    well, directly where training fails or stalls; there the prior is strongest.
    """
    terms = _signed(features)[: reward_filling.MOST_TERMS]
    preferred = _signed(prior_features)
    return {
        situation: {
            "reward": {
                "terms": [
                    {
                        "feature": name,
                        "shape": shape,
                        "weight": round(sign * weight / len(terms), 4),
                    }
                    for name, sign in terms
                ],
                "form": form,
            },
            "prior": {name: round(sign * pull / len(preferred), 4) for name, sign in preferred},
        }
        for situation, (form, shape, weight, pull) in _BY_SIGNS.items()
    }


def _signed(catalogue: FeatureCatalogue | None) -> list[tuple[str, int]]:
    if catalogue is None:
        return []
    pairs = zip(catalogue.names, catalogue.signs, strict=True)
    return [(name, sign) for name, sign in pairs if sign]


def situation(history: curricula.History) -> str:
    """Where a training stands: one of `SITUATIONS`.

    It stalls when none of the last `STALLED_AFTER` records is better than the one before
    all of them, at a difficulty no higher.
    """
    if not history:
        return "start"
    low, high = curricula.BAND
    scores = [curricula.success(record["metrics"]) for record in history]
    if scores[-1] > high:
        return "succeeding"
    before = len(history) - STALLED_AFTER - 1
    if before >= 0 and all(
        scores[n] <= scores[before] and history[n]["difficulty"] <= history[before]["difficulty"]
        for n in range(before + 1, len(history))
    ):
        return "stalled"
    return "failing" if scores[-1] < low else "steady"
