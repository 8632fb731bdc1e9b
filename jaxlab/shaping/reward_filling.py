"""Rewards as a form to fill in, for designers that do not write code, and a guide for those
that do.

A form is a few weighted terms, each a feature in one of some shapes. Its JSON schema can
be compiled to a grammar, so a small model fills it validly by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_language import FUNCTIONS
from jaxlab.shaping.reward_program import RewardError
from jaxlab.shaping.reward_source import Limits

#: Shapes of a term, u being the feature scaled to [0, 1].
SHAPES = {
    "linear": "{u}",
    "square": "{u} ** 2",
    "root": "sqrt({u})",
    "saturating": "tanh(3.0 * {u})",
    "excess": "max({u} - 0.5, 0.0)",
}
#: What is paid: the value itself, or differences of it, which keep the optimal policy.
FORMS = ("direct", "potential")
MOST_TERMS, LARGEST_WEIGHT = 4, 1.0


def reward_schema(catalogue: FeatureCatalogue) -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a filled form."""
    term = {
        "type": "object",
        "description": "A feature, the shape in which it counts, and its weight.",
        "properties": {
            "feature": {"enum": list(catalogue.names), "description": "Which feature."},
            "shape": {"enum": list(SHAPES), "description": "How it counts."},
            "weight": {
                "type": "number",
                "minimum": -LARGEST_WEIGHT,
                "maximum": LARGEST_WEIGHT,
                "description": "Negative for what is bad.",
            },
        },
        "required": ["feature", "shape", "weight"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "description": "Shaping reward of an agent: a sum of terms.",
        "properties": {
            "terms": {
                "type": "array",
                "items": term,
                "minItems": 1,
                "maxItems": MOST_TERMS,
                "description": "The terms.",
            },
            "form": {
                "enum": list(FORMS),
                "description": "Paid as it is, or as a potential of which differences are paid.",
            },
        },
        "required": ["terms", "form"],
        "additionalProperties": False,
    }


def write_reward(filled: Any, catalogue: FeatureCatalogue) -> str:
    """Source of the reward that a filled form describes.

    Raises:
      RewardError: It does not keep to `reward_schema`.
    """
    terms = filled.get("terms") if isinstance(filled, Mapping) else None
    if not isinstance(terms, list) or not 1 <= len(terms) <= MOST_TERMS:
        raise RewardError(f"reward: expected 1 to {MOST_TERMS} terms")
    used: dict[str, None] = {}
    texts = []
    for n, term in enumerate(terms):
        try:
            name, shape, weight = (term[key] for key in ("feature", "shape", "weight"))
            low, high = catalogue.ranges[catalogue.names.index(name)]
            pattern, weight = SHAPES[shape], float(weight)
        except (KeyError, TypeError, ValueError) as error:
            raise RewardError(
                f"reward: term {n} must have a feature, a shape ({', '.join(SHAPES)}) and a "
                f"weight ({error})"
            ) from error
        if not abs(weight) <= LARGEST_WEIGHT:
            raise RewardError(
                f"reward: term {n} has weight {weight:g}, expected +-{LARGEST_WEIGHT:g}"
            )
        used[name] = None
        scaled = name if (low, high) == (0, 1) else f"(({name} - {low!r}) / {high - low!r})"
        texts.append(f"{weight!r} * {pattern.format(u=scaled)}")
    return f"def reward({', '.join(used)}):\n    return {' + '.join(texts)}\n"


def reward_guide(
    catalogue: FeatureCatalogue, *, name: str = "reward", limits: Limits | None = None
) -> str:
    """What a language model must know to write a reward function itself."""
    limits = limits or Limits()
    shown = catalogue.names[:2]
    return f"""Write one Python function {name}(...) whose parameters are any of these features:
{catalogue.text()}
Each is one number for one agent. Local variables are allowed; the last line returns a number.
There are + - * / ** 2, ** 0.5, < <= > >= == !=, and, or, not, a if condition else b, and the
functions {", ".join(FUNCTIONS)} (mean and sum take their values as arguments).
There is nothing else of Python: no imports, attributes (write tanh, not np.tanh), loops, if
statements, strings, lists or inner functions. At most {limits.constants} constants within
+-{limits.largest_constant:g}, {limits.characters} characters, {limits.instructions} operations.
Example:
def {name}({", ".join(shown)}):
    return {" - ".join(f"0.5 * tanh({feature})" for feature in shown)}
"""
