"""A design space that has nothing to do with any environment: robots on a hill."""

from __future__ import annotations

import re
from typing import Any

from jaxlab.core.errors import CapacityError
from jaxlab.shaping.curricula import Proposal, Space, record
from jaxlab.shaping.design_space import SITUATIONS, DesignSpace
from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_program import RewardFunction

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "slope": {
            "type": "number",
            "minimum": 0,
            "maximum": 40,
            "description": "Of the hill, degrees.",
            "difficulty": {"easy": [0, 10], "hard": [20, 39]},
        },
        "rain": {"type": "number", "minimum": 0, "maximum": 1},
        "ground": {"enum": ["sand", "snow"]},
        "stones": {
            "type": "array",
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"at": {"type": "integer", "minimum": 0, "maximum": 9}},
                "required": ["at"],
            },
        },
    },
}


def reward(feature: str = "slip", weight: float = -0.5, form: str = "direct") -> dict[str, Any]:
    """A filled form with one term."""
    return {"terms": [{"feature": feature, "shape": "linear", "weight": weight}], "form": form}


GOOD = {
    "reason": "they slip",
    "scenario": {"slope": 12.5},
    "reward": reward(),
    "prior": {"uphill": 1.5},
}
SOURCE = "def reward(slip):\n    return -0.5 * slip\n"
PLAYBOOK = {
    name: {"reward": reward("grip", round(0.1 * (n + 1), 1)), "prior": {"uphill": 1.0 + n / 2}}
    for n, name in enumerate(SITUATIONS)
}


def possible(scenario: dict[str, Any]) -> None:
    if scenario.get("slope", 0) > 39 and "rain" in scenario:
        raise CapacityError("the robots are washed away: less slope, or no rain")


def check_reward(function: RewardFunction, potential: bool) -> list[str]:
    """Quick, in place of the bank of states."""
    paid = re.search(r"(?<![-\d.])[\d.]+ \* slip", function.source)
    return ["it pays for slipping"] if paid and not potential else []


def space(**changes: Any) -> DesignSpace:
    """The space of the tests; `changes` replace its fields."""
    fields: dict[str, Any] = {
        "card": {"task": "Eight robots climb a hill.", "robots": 8},
        "scenarios": Space(SCHEMA, possible),
        "features": FeatureCatalogue(
            names=("slip", "grip"),
            descriptions=("slip of the wheels", "grip of the wheels"),
            ranges=((0, 1), (0, 2)),
            signs=(-1, 1),
        ),
        "check_reward": check_reward,
        "prior_features": FeatureCatalogue(
            ("uphill",), ("how far up an action leads",), ((-1, 1),), (1,)
        ),
        "playbook": PLAYBOOK,
    }
    return DesignSpace(**fields | changes)


def history(*successes: float, difficulty: float = 0.2) -> list[dict[str, Any]]:
    """Stages that ended with the given successes."""
    return [
        record(Proposal({"slope": float(n)}, difficulty), {"return": value, "reference": 1.0})
        for n, value in enumerate(successes)
    ]
