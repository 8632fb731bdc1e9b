"""The architect without semantics: it draws from the schemas, whatever the metrics say."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlab.core.errors import ScenarioError
from jaxlab.shaping.architect import Design, Json, Request, make_design
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.architects.entries import entry, question_of
from jaxlab.shaping.architects.ruled import ruled_design
from jaxlab.shaping.design_space import DesignSpace

#: Draws until a design passes the checks.
ATTEMPTS = 100


@dataclasses.dataclass(frozen=True)
class RandomArchitect:
    """Draws every value within its bounds and every optional one by the toss of a coin.

    It sees the same schemas and passes the same checks as the models, and reads neither
    descriptions nor metrics: what a model does better than this, it owes to their meaning.
    Draws that are refused are repeated, with ever fewer optional values; a part for which
    `ATTEMPTS` draws are in vain is left to the rules and the design counts as a fallback.
    """

    space: DesignSpace
    log: ArchitectLog
    name: str = "random"

    def design(self, requests: Sequence[Request]) -> list[Design]:
        """Designs that follow from seed, stage and the number of rejections alone."""
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Design:
        question = question_of(self.space, request, self.name)
        if (known := self.log.design(question)) is not None:
            return Design(**known)
        rng = np.random.default_rng([request.seed, request.stage, len(request.rejections), 3])
        document: Json = {"reason": "drawn at random"}
        verdict = "accepted"
        for part in self.space.parts:
            if (drawn := self._draw(part, rng)) is None:
                drawn = getattr(ruled_design(self.space, request, "fallback"), part)
                verdict = "fallback"
            document[part] = drawn
        made = make_design(self.space, request, document, self.name, verdict)
        self.log.append(entry(self.space, request, self.name, design=made))
        return made

    def _draw(self, part: str, rng: np.random.Generator) -> Any:
        schema = self.space.part_schema(part)
        for attempt in range(ATTEMPTS):
            drawn = sample(schema, rng, 0.5 * (1 - attempt / ATTEMPTS))
            if not self.space.part_problems(part, drawn):
                return drawn
        return None


def sample(schema: Json, rng: np.random.Generator, presence: float) -> Any:
    """Draw a value of a schema, uniform within its bounds.

    Args:
      schema: JSON schema with const, enum, oneOf, anyOf, and types with bounds.
      rng: Generator, advanced.
      presence: Probability that an optional property or a further item is there.

    Raises:
      ScenarioError: A part of the schema has no bounds or is of a kind that is not drawn.
    """
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return sample(schema[union][int(rng.integers(len(schema[union])))], rng, presence)
    kind = schema.get("type")
    if kind == "object":
        required = schema.get("required", ())
        return {
            name: sample(part, rng, presence)
            for name, part in schema.get("properties", {}).items()
            # Free texts say something to people alone.
            if name in required or (part.get("type") != "string" and rng.random() < presence)
        }
    if kind == "array" and "maxItems" in schema:
        least = schema.get("minItems", 0)
        count = least + int(rng.binomial(schema["maxItems"] - least, presence))
        return [sample(schema["items"], rng, presence) for _ in range(count)]
    if kind == "boolean":
        return bool(rng.random() < 0.5)
    if kind == "string":
        return ""
    if kind in ("number", "integer") and {"minimum", "maximum"} <= set(schema):
        low, high = schema["minimum"], schema["maximum"]
        if kind == "integer":
            return int(rng.integers(low, high, endpoint=True))
        # Four digits, as the rules draw them; rounded, a value must not leave its bounds.
        return min(max(float(f"{rng.uniform(low, high):.4g}"), low), high)
    raise ScenarioError(f"random architect: cannot draw from the schema {str(schema)[:120]}")
