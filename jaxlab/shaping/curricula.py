"""Curricula: the scenario to train on next, from what came of the earlier ones.

A scenario is a JSON object within a schema that the environment gives; the empty object
is the base scenario, the one that is evaluated in the end. Beside the keywords of JSON
Schema a curriculum understands the annotation `difficulty` of a property:

    {"type": "number", ..., "difficulty": {"easy": [0.9, 1.1], "hard": [0.5, 2.0]}}

are the ranges from which a number (or a number of items) is drawn at difficulty 0 and 1,
with a straight line between their ends; `{"options": [0, 2]}` lists the alternatives of
a `oneOf` that are drawn. What is neither annotated nor required is left out.

The state of a curriculum is its history: a list of plain JSON records

    {"scenario": {...}, "difficulty": 0.3, "metrics": {"return": -9.1, "reference": -8.0}}

so a run that is resumed with its history goes on as if it had not stopped.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxlab.core.errors import CapacityError, ConfigError, ScenarioError

Json = dict[str, Any]
History = Sequence[Mapping[str, Any]]

#: Band of success in which the difficulty is held, relative to the reference.
BAND = (0.5, 0.8)
#: Parts of new, earlier and base scenarios in training.
SHARES = (0.7, 0.2, 0.1)
_ATTEMPTS = 100


class Proposal(NamedTuple):
    """A scenario to train on and its difficulty in [0, 1]."""

    scenario: Json
    difficulty: float


@runtime_checkable
class Curriculum(Protocol):
    """Proposes the next scenario; deterministic, so equal histories give equal scenarios."""

    def __call__(self, history: History) -> Proposal:
        """The scenario that follows those of the history."""
        ...


@dataclasses.dataclass(frozen=True)
class Space:
    """The scenarios of an environment.

    Attributes:
      schema: JSON schema of an object, with `difficulty` annotations.
      check: Raises ScenarioError or CapacityError for a scenario that keeps to the
        schema and is impossible all the same.
    """

    schema: Json
    check: Callable[[Json], object] = lambda scenario: None


def record(proposal: Proposal, metrics: Mapping[str, float]) -> Json:
    """What goes into the history once a scenario has been trained on.

    Args:
      metrics: At least `return`, of the policy on this scenario, and `reference`, the
        return of a known good policy on it; anything else that a designer may use.
    """
    return {
        "scenario": proposal.scenario,
        "difficulty": proposal.difficulty,
        "metrics": {name: float(value) for name, value in metrics.items()},
    }


def success(metrics: Mapping[str, float | None]) -> float:
    """Return relative to the reference: 1 is as good, less is worse, whatever their sign.

    Of two negative returns (costs) it is reference / return, of two positive ones
    return / reference. NaN where a return is missing or not finite.
    """
    given = [metrics.get(name) for name in ("return", "reference")]
    achieved, reference = (math.nan if value is None else float(value) for value in given)
    if not (math.isfinite(achieved) and math.isfinite(reference)):
        return math.nan
    if achieved < 0 and reference < 0:
        return reference / achieved
    if achieved > 0 and reference > 0:
        return achieved / reference
    if achieved == reference:
        return 1.0
    return math.inf if achieved > reference else 0.0


@dataclasses.dataclass(frozen=True)
class NoCurriculum:
    """Always the base scenario."""

    def __call__(self, history: History) -> Proposal:
        return Proposal({}, 0.0)


@dataclasses.dataclass(frozen=True)
class StaticLadder:
    """From easy to hard in a given number of stages, whatever the policy does."""

    space: Space
    seed: int = 0
    stages: int = 10

    def __call__(self, history: History) -> Proposal:
        difficulty = min(len(history) / max(self.stages - 1, 1), 1.0)
        return _propose(self.space, self.seed, len(history), difficulty, "static")


@dataclasses.dataclass(frozen=True)
class DomainRandomisation:
    """Every property at a difficulty of its own, uniform between easy and hard."""

    space: Space
    seed: int = 0

    def __call__(self, history: History) -> Proposal:
        name = "domain randomisation"
        return _propose(self.space, self.seed, len(history), 1.0, name, independent=True)


@dataclasses.dataclass(frozen=True)
class Rules:
    """Difficulty moved by a band of success: harder above it, easier below, else held.

    Attributes:
      start: Difficulty of the first scenario.
      step: By how much the difficulty moves.
      band: Success (see `success`) below and above which it moves.
    """

    space: Space
    seed: int = 0
    start: float = 0.2
    step: float = 0.1
    band: tuple[float, float] = BAND

    def __call__(self, history: History) -> Proposal:
        return _propose(self.space, self.seed, len(history), self.difficulty(history), "rules")

    def difficulty(self, history: History) -> float:
        """Difficulty of the scenario that follows the history."""
        if not history:
            return self.start
        last = history[-1]
        score, low_high = success(last["metrics"]), self.band
        move = self.step * (int(score > low_high[1]) - int(score < low_high[0]))
        return min(max(round(float(last["difficulty"]) + move, 9), 0.0), 1.0)


CURRICULA = ("none", "static", "domain_randomisation", "rules")


def make_curriculum(name: str, space: Space, *, seed: int = 0, stages: int = 10) -> Curriculum:
    """Build a curriculum by name.

    Args:
      name: One of `CURRICULA`.
      space: Scenarios to choose from.
      seed: Equal seeds and histories give equal scenarios.
      stages: Stages that the static ladder is climbed in.

    Raises:
      ConfigError: The name is unknown.
    """
    if name == "none":
        return NoCurriculum()
    if name == "static":
        return StaticLadder(space, seed, stages)
    if name == "domain_randomisation":
        return DomainRandomisation(space, seed)
    if name == "rules":
        return Rules(space, seed)
    raise ConfigError(f"curriculum '{name}' is unknown; choose from {', '.join(CURRICULA)}")


class Mixture(NamedTuple):
    """Scenarios to train on, always the same number, and their weights (sum 1).

    `new`, `earlier` and `base` name the part that each scenario belongs to; unused
    places hold the base scenario with weight 0.
    """

    scenarios: tuple[Json, ...]
    weights: np.ndarray
    parts: tuple[str, ...]


def mixture(
    history: History,
    proposal: Proposal,
    *,
    new: int = 4,
    earlier: int = 3,
    seed: int = 0,
    shares: tuple[float, float, float] = SHARES,
) -> Mixture:
    """The new scenario mixed with earlier ones and the base, so that nothing is forgotten.

    Earlier scenarios are drawn without replacement, those with little success rather
    than others. While there are none, their share goes to the new one.

    Args:
      history: Records of the earlier scenarios.
      proposal: The new scenario.
      new: Places of the new scenario (the environment may draw each differently).
      earlier: Places for earlier scenarios.
      seed: Of the draw of earlier scenarios.
      shares: Weights of the parts.
    """
    candidates = [r for r in history if r["scenario"] and r["scenario"] != proposal.scenario]
    rng = np.random.default_rng([seed, len(history), 1])
    chance = np.array([0.1 + _failure(r["metrics"]) for r in candidates])
    count = min(earlier, len(candidates))
    drawn = (
        rng.choice(len(candidates), count, replace=False, p=chance / chance.sum()) if count else []
    )
    part_new, part_earlier, part_base = shares
    if not count:
        part_new, part_earlier = part_new + part_earlier, 0.0
    places = [(proposal.scenario, part_new / new, "new")] * new
    places += [(candidates[i]["scenario"], part_earlier / count, "earlier") for i in drawn]
    places += [({}, part_base, "base")] + [({}, 0.0, "base")] * (earlier - count)
    scenarios, weights, parts = zip(*places, strict=True)
    return Mixture(
        tuple(copy.deepcopy(dict(s)) for s in scenarios), np.array(weights) / sum(weights), parts
    )


def _failure(metrics: Mapping[str, float | None]) -> float:
    score = success(metrics)
    return 1.0 if math.isnan(score) else min(max(1 - score, 0.0), 1.0)


def _propose(
    space: Space,
    seed: int,
    number: int,
    difficulty: float,
    kind: str,
    *,
    independent: bool = False,
) -> Proposal:
    """Draw until a scenario is possible, giving way a little each time it is not."""
    rng = np.random.default_rng([seed, number])
    for attempt in range(_ATTEMPTS):
        level = difficulty * (1 - attempt / _ATTEMPTS)
        scenario = draw(space.schema, rng, level, independent=independent)
        if "name" in space.schema.get("properties", {}):
            scenario["name"] = f"{kind} {number}"
        try:
            space.check(scenario)
        except (ScenarioError, CapacityError) as error:
            reason = error
        else:
            return Proposal(scenario, difficulty)
    raise ScenarioError(
        f"curriculum: no possible scenario in {_ATTEMPTS} draws (the last: {reason}); narrow "
        "the 'difficulty' ranges of the schema or give the environment more room"
    )


def draw(
    schema: Json, rng: np.random.Generator, difficulty: float, *, independent: bool = False
) -> Any:
    """Draw a value of a schema at a difficulty in [0, 1].

    Args:
      schema: JSON schema with `difficulty` annotations (see the module).
      rng: Generator, advanced.
      difficulty: Where between easy and hard.
      independent: Give every property its own difficulty, uniform up to `difficulty`.

    Raises:
      ScenarioError: A part of the schema cannot be drawn from.
    """
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    if "oneOf" in schema:
        options = schema.get("difficulty", {}).get("options", range(len(schema["oneOf"])))
        option = schema["oneOf"][int(rng.choice(list(options)))]
        return draw(option, rng, difficulty, independent=independent)
    kind = schema.get("type")
    if kind == "object":
        required = schema.get("required", ())
        return {
            name: draw(part, rng, difficulty, independent=independent)
            for name, part in schema.get("properties", {}).items()
            if name in required or _is_drawn(part)
        }
    level = rng.uniform(0, difficulty) if independent else difficulty
    if kind == "array":
        count = round(rng.uniform(*_range(schema, level, "minItems", "maxItems")))
        part = schema["items"]
        return [draw(part, rng, difficulty, independent=independent) for _ in range(count)]
    if kind in ("number", "integer"):
        value = float(rng.uniform(*_range(schema, level, "minimum", "maximum")))
        if kind == "integer":
            return round(value)
        # Four digits are read with ease; rounded, a value must not leave its bounds.
        value = max(float(f"{value:.4g}"), schema.get("minimum", -math.inf))
        return min(value, schema.get("maximum", math.inf))
    raise ScenarioError(f"curriculum: cannot draw from the schema {str(schema)[:120]}")


def _is_drawn(schema: Json) -> bool:
    return "difficulty" in schema or any(map(_is_drawn, schema.get("properties", {}).values()))


def _range(schema: Json, level: float, least: str, most: str) -> tuple[float, float]:
    if "difficulty" in schema:
        easy, hard = (np.array(schema["difficulty"][end], float) for end in ("easy", "hard"))
        low, high = easy + (hard - easy) * level
        return float(low), float(high)
    if most not in schema:
        raise ScenarioError(f"curriculum: '{most}' is missing in the schema {str(schema)[:120]}")
    return float(schema.get(least, 0)), float(schema[most])
