"""Architects: who designs the next stage of a training, and what a design consists of.

At the end of a stage an architect is told what came of the earlier ones and designs the
next: a scenario to train on, a reward that is added to the environment's own, and a prior
over the actions. Each is data (JSON within a schema, or a source text of the reward
language) that the library checks; nothing that an architect writes is ever executed.

An architect knows nothing of the environment but what a `DesignSpace` holds. Architects
themselves are in `jaxlab.shaping.architects`.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxlab.core.errors import ConfigError, JaxlabError
from jaxlab.core.json_schemas import json_problems
from jaxlab.core.runfolder import config_hash, to_json
from jaxlab.shaping import curricula

Json = dict[str, Any]

#: What an architect may be asked for.
PARTS = ("scenario", "reward", "prior")
#: Situations that a playbook has an entry for, from the metrics alone (see `situation`).
SITUATIONS = ("start", "failing", "steady", "stalled", "succeeding")
#: Records of the history without progress after which training counts as stalled.
STALLED_AFTER = 3
_REASON = {
    "type": "string",
    "maxLength": 1000,
    "description": "One short paragraph: why this design, from the numbers given.",
}


def _accept(source: str) -> None:
    """Every reward is fine."""


@dataclasses.dataclass(frozen=True)
class DesignSpace:
    """All that architects know of an environment, and the checks their designs must pass.

    Attributes:
      card: What is trained, as JSON for people and models to read; `task`, a sentence, is
        quoted first.
      scenarios: Schema and check of scenarios.
      features: What rewards are made of: name, description and range each
        (`{"name": "queue", "description": "...", "low": 0, "high": 1}`).
      reward_schema: JSON schema of a filled reward template.
      write_reward: The source, in the reward language, of a filled template.
      check_reward: Raises ValueError (or a JaxlabError) with a text for the designer when a
        source is refused: parser, bank of states, probes of hacks.
      prior_features: What prior logits of an action are a weighted sum of, with descriptions.
      largest_prior: Bound of a weight's magnitude.
      playbook: For each of `SITUATIONS` a fill of the template and prior weights,
        `{"reward": ..., "prior": {...}}`: what the rules design. It must pass the checks.
      reward_guide: Text on the reward language for models that write sources.
      parts: Those of `PARTS` that are designed; the others stay empty.

    Raises:
      ConfigError: parts or playbook are incomplete or do not pass the checks.
    """

    card: Json
    scenarios: curricula.Space
    features: Sequence[Json] = ()
    reward_schema: Json = dataclasses.field(default_factory=dict)
    write_reward: Callable[[Any], str] = str
    check_reward: Callable[[str], object] = _accept
    prior_features: Mapping[str, str] = dataclasses.field(default_factory=dict)
    largest_prior: float = 3.0
    playbook: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    reward_guide: str = ""
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        if unknown := [part for part in self.parts if part not in PARTS]:
            raise ConfigError(f"parts of a design: {unknown} unknown; choose from {PARTS}")
        if set(self.parts) <= {"scenario"}:
            return
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
        entry = self.playbook.get(name, {}) | {"scenario": scenario}
        return {"reason": reason} | {part: entry.get(part) for part in self.parts}

    def part_schema(self, part: str, *, sources: bool = False) -> Json:
        """JSON schema of one part of a design.

        Args:
          sources: Of the reward: a source text instead of a filled template.
        """
        if part == "scenario":
            schema = self.scenarios.schema
            return {name: value for name, value in schema.items() if not name.startswith("$")}
        if part == "reward":
            text = "Source of the reward in the reward language."
            return {"type": "string", "description": text} if sources else self.reward_schema
        limit = {"type": "number", "minimum": -self.largest_prior, "maximum": self.largest_prior}
        return {
            "type": "object",
            "description": "Weights of the prior logits of an action; absent means 0.",
            "properties": {
                name: limit | {"description": text} for name, text in self.prior_features.items()
            },
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
        try:
            if part == "scenario":
                self.scenarios.check(value)
            elif part == "reward":
                self.check_reward(self.source(value))
        except (ValueError, JaxlabError) as error:
            text = " ".join(str(error).split())[:600]
            return [text if text.startswith(part) else f"{part}: {text}"]
        return []

    def source(self, reward: Any) -> str:
        """The reward's source, of a filled template or as it was written."""
        if "reward" not in self.parts:
            return ""
        return reward if isinstance(reward, str) else self.write_reward(reward)

    def difficulty(self, history: curricula.History) -> float:
        """The difficulty that a design is asked for, moved by the band of success."""
        return curricula.Rules(self.scenarios).difficulty(history)

    @property
    def digest(self) -> str:
        """Tells spaces apart whose answers do not fit each other."""
        return config_hash([self.card, self.schema(), list(self.features), list(self.parts)])


@dataclasses.dataclass(frozen=True)
class Request:
    """What an architect is told about one seed's training.

    Attributes:
      seed: Of the training, which also seeds the architect's own draws.
      stage: Number of the stage to design.
      history: Records of the earlier stages, as `curricula.record` makes them; those of a
        designed stage also hold `reward`, `prior` and `reason`.
      components: Statistics of the terms of the last reward, by term: anything of
        `mean`, `min`, `max`, `correlation` (with the environment's return), `values`.
      rejections: Why earlier designs of this stage were refused after they passed the
        checks of the space.
    """

    seed: int
    stage: int
    history: Sequence[Mapping[str, Any]] = ()
    components: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    rejections: Sequence[str] = ()

    def digest(self, space: DesignSpace) -> str:
        """Equal for the same question about the same space."""
        return config_hash([space.digest, dataclasses.asdict(self)])


class Design(NamedTuple):
    """What to train on next: plain JSON, so that it lives in checkpoints.

    Attributes:
      scenario: Within the schema; empty is the base scenario.
      difficulty: In [0, 1], the target that it was designed for.
      reward: The filled template, or the source itself.
      source: Source of the reward in the reward language; empty without one.
      prior: Weights of the prior logits.
      reason: In the designer's words.
      architect: Who designed it: "rules" where they had to step in for a model.
      verdict: "accepted", "repaired" (on the second attempt) or "fallback" (by the rules).
    """

    scenario: Json
    difficulty: float
    reward: Any
    source: str
    prior: Json
    reason: str
    architect: str
    verdict: str

    @property
    def proposal(self) -> curricula.Proposal:
        """For `curricula.mixture` and `curricula.record`."""
        return curricula.Proposal(self.scenario, self.difficulty)


@runtime_checkable
class Architect(Protocol):
    """Designs the next stage of several trainings at once, one design for each request."""

    name: str

    def design(self, requests: Sequence[Request]) -> list[Design]:
        """Designs that passed the checks of the space.

        Raises:
          EndpointError: A model cannot be reached; what it said before is in the log.
          DataError: A log to be replayed does not fit.
        """
        ...


def make_design(
    space: DesignSpace, request: Request, document: Json, architect: str, verdict: str
) -> Design:
    """A design from an answer that passed the checks."""
    document = json.loads(to_json(copy.deepcopy(document)))
    return Design(
        scenario=document.get("scenario", {}),
        difficulty=float(space.difficulty(request.history)),
        reward=document.get("reward"),
        source=space.source(document.get("reward")),
        prior=document.get("prior", {}),
        reason=document["reason"],
        architect=architect,
        verdict=verdict,
    )


def situation(history: curricula.History) -> str:
    """Where a training stands: one of `SITUATIONS`.

    It stalls when none of the last `STALLED_AFTER` records is better than the one
    before all of them, at a difficulty no higher.
    """
    if not history:
        return "start"
    low, high = curricula.BAND
    scores = [curricula.success(record["metrics"]) for record in history]
    if scores[-1] > high:
        return "succeeding"
    recent = range(len(history) - STALLED_AFTER, len(history))
    before = recent[0] - 1
    if before >= 0 and all(
        not scores[n] > scores[before] and history[n]["difficulty"] <= history[before]["difficulty"]
        for n in recent
    ):
        return "stalled"
    return "failing" if scores[-1] < low else "steady"
