"""A design space that has nothing to do with any environment: robots on a hill."""

from __future__ import annotations

from typing import Any

from jaxlab.core.errors import CapacityError
from jaxlab.shaping.architect import SITUATIONS, DesignSpace
from jaxlab.shaping.curricula import Proposal, Space, record

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
REWARD = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "feature": {"enum": ["slip", "grip"]},
        "weight": {"type": "number", "minimum": -1, "maximum": 1},
    },
    "required": ["feature", "weight"],
}
GOOD = {
    "reason": "they slip",
    "scenario": {"slope": 12.5},
    "reward": {"feature": "slip", "weight": -0.5},
    "prior": {"uphill": 1.5},
}


def possible(scenario: dict[str, Any]) -> None:
    if scenario.get("slope", 0) > 39 and "rain" in scenario:
        raise CapacityError("the robots are washed away: less slope, or no rain")


def check_reward(source: str) -> None:
    feature, _, weight = source.partition(" times ")
    if feature not in ("slip", "grip"):
        raise ValueError(f"line 1: '{feature}' is no feature")
    if (float(weight) > 0) != (feature == "grip"):
        raise ValueError(f"it pays for the wrong thing: {source}")


def space(**changes: Any) -> DesignSpace:
    """The space of the tests; `changes` replace its fields."""
    playbook = {
        name: {
            "reward": {"feature": "grip", "weight": round(0.1 * (n + 1), 1)},
            "prior": {"uphill": 1.0 + n / 2},
        }
        for n, name in enumerate(SITUATIONS)
    }
    fields: dict[str, Any] = {
        "card": {"task": "Eight robots climb a hill.", "robots": 8},
        "scenarios": Space(SCHEMA, possible),
        "features": [
            {"name": "slip", "description": "slip of the wheels", "low": 0, "high": 1},
            {"name": "grip", "description": "grip of the wheels", "low": 0, "high": 2},
        ],
        "reward_schema": REWARD,
        "write_reward": lambda fill: f"{fill['feature']} times {fill['weight']}",
        "check_reward": check_reward,
        "prior_features": {"uphill": "how far up an action leads"},
        "playbook": playbook,
    }
    return DesignSpace(**fields | changes)


def history(*successes: float, difficulty: float = 0.2) -> list[dict[str, Any]]:
    """Stages that ended with the given successes."""
    return [
        record(Proposal({"slope": float(n)}, difficulty), {"return": value, "reference": 1.0})
        for n, value in enumerate(successes)
    ]
