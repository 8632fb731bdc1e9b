"""What a small language model is told before it designs, in a tenth of the words.

A model of some hundred million parameters loses the thread of a long prompt, copies what
looks like an example, and on a CPU every token costs. It is told the task, the fields in a
line each and the last stage in a few numbers. What it may write is narrower too: free
texts, long lists and maps are left out, and the weight of a reward's term has the sign
that its feature asks for, which a larger model is expected to see by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxlab.core.errors import ConfigError
from jaxlab.shaping import curricula, prompts, reward_filling
from jaxlab.shaping.architect import Json, Request
from jaxlab.shaping.design_space import DesignSpace
from jaxlab.shaping.feature_catalogue import FeatureCatalogue

#: Characters of the reason, and of each of the problems that are sent back.
LONGEST_REASON, LONGEST_PROBLEM = 160, 200
#: Items of a list, alike properties of a map, and the width of an integer's range, at most.
_ITEMS, _ALIKE, _RANGE = 2, 8, 10**6
#: Metrics of a stage that are told, where they are there.
_METRICS = ("average_travel_time", "base_average_travel_time", "queue")

_STRATEGY = {
    "A": (
        "Choose what is a little harder than what they master: near the last scenario if success "
        "was low, one step further if it was high."
    ),
    "B": (
        "Find the one condition that costs them most and train that: change one or two fields of "
        "the normal scenario, strongly."
    ),
}


class BriefBriefing:
    """Makes the messages for a request, as `prompts.Briefing` does.

    Args:
      space: What is designed.
      variant: One of `prompts.CURRICULUM_PROMPTS`.
      records: Stages of the history that are told.

    Raises:
      ConfigError: the variant is unknown.
    """

    def __init__(self, space: DesignSpace, variant: str, records: int = 2):
        if variant not in _STRATEGY:
            raise ConfigError(
                f"curriculum prompt '{variant}' is unknown; choose from {', '.join(_STRATEGY)}"
            )
        self.space, self.variant, self.records = space, variant, records
        self._schema = brief_schema(space)
        self._system = self._instructions(variant)

    @property
    def schema(self) -> Json:
        """What an answer must keep to; every answer that does also keeps to the space's."""
        return self._schema

    def messages(self, request: Request) -> list[prompts.Message]:
        """The conversation that asks for the design of a stage."""
        parts = [
            *self._history(request.history),
            f"Target difficulty: {self.space.difficulty(request.history):.2g}.",
            _best_term(request.components),
            "The last reward did not help; design another one." if request.rejections else "",
            "Give the JSON for the next stage.",
        ]
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": "\n".join(part for part in parts if part)},
        ]

    def repair(self, problems: Sequence[str]) -> str:
        """The message that sends an answer back."""
        first = " ".join(problems[0].split())[:LONGEST_PROBLEM] if problems else ""
        return f"That was refused: {first}\nGive the whole JSON again, corrected."

    def _instructions(self, variant: str) -> str:
        space = self.space
        parts = self._schema["properties"]
        lines = [
            "You design the next stage of training for learning agents. "
            + str(space.card.get("task", "")),
            _STRATEGY[variant],
            "Answer with one JSON object. First the reason: what the numbers show and what you "
            "change.",
        ]
        if "scenario" in parts:
            lines.append("scenario, changes to the normal one, difficulty 0 easy to 1 hard:")
            lines += list(_fields(parts["scenario"]))
        if "reward" in parts:
            assert space.features is not None
            lines.append("reward, a sum of terms; pay for little of:")
            lines.append(_by_sign(space.features, -1))
            if better := _by_sign(space.features, 1):
                lines.append(f"and for much of:\n{better}")
        if "prior" in parts:
            lines.append("prior, weights of what makes an action good at the beginning:")
            lines += list(_fields(parts["prior"]))
        return "\n".join(lines)

    def _history(self, history: curricula.History) -> list[str]:
        if not history:
            return ["This is the first stage."]
        told = list(history)[-self.records :]
        return [_told(len(history) - len(told) + n + 1, record) for n, record in enumerate(told)]


def _told(number: int, record: Mapping[str, Any]) -> str:
    """A stage in a line: what was changed, and what came of it."""
    metrics = record["metrics"]
    changed = ", ".join(_changes(record["scenario"])) or "nothing changed"
    measured = ", ".join(
        f"{name.replace('_', ' ')} {metrics[name]:.3g}"
        for name in _METRICS
        if isinstance(metrics.get(name), int | float)
    )
    success = curricula.success(metrics)
    return (
        f"Stage {number} ({changed}; difficulty {record['difficulty']:.2g}): success {success:.2f}"
        + (f", {measured}." if measured else ".")
    )


def _changes(scenario: Mapping[str, Any]) -> Iterator[str]:
    for name, value in scenario.items():
        if isinstance(value, int | float) and name != "seed":
            yield f"{name} {value:.3g}"
        elif isinstance(value, dict | list) and value:
            yield name


def _best_term(components: Mapping[str, Mapping[str, Any]]) -> str:
    """The term of the last reward that went with the return best, and the one that did not."""
    known = {
        name: values["correlation"]
        for name, values in components.items()
        if isinstance(values.get("correlation"), int | float)
    }
    if not known:
        return ""
    best, worst = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
    text = f"Of the last reward {best} went best with success ({known[best]:.2f})"
    return text + (f", {worst} least ({known[worst]:.2f})." if worst != best else ".")


def _by_sign(catalogue: FeatureCatalogue, sign: int) -> str:
    rows = zip(catalogue.names, catalogue.descriptions, catalogue.signs, strict=True)
    return "\n".join(f"- {name}: {text}" for name, text, s in rows if s == sign)


def _fields(schema: Json) -> Iterator[str]:
    """A property a line, with its bounds and its first sentence."""
    for name, part in schema["properties"].items():
        about = str(part.get("description", "")).split(". ")[0].rstrip(".")
        yield f"- {name}{_bounds(part)}: {about}"


def _bounds(schema: Json) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" ({schema['minimum']:g} to {schema['maximum']:g})"
    if properties := schema.get("properties"):
        return f" ({', '.join(properties)})"
    return ""


def brief_schema(space: DesignSpace) -> Json:
    """The schema of a whole design without what a small model would ramble in."""
    schema = space.schema()
    properties = {name: _shortened(part) for name, part in schema["properties"].items()}
    properties["reason"] = {"type": "string", "minLength": 20, "maxLength": LONGEST_REASON}
    if "reward" in properties:
        assert space.features is not None
        properties["reward"] = _signed_reward(space.features)
    return schema | {"properties": properties}


def _shortened(schema: Json) -> Json:
    schema = dict(schema)
    if schema.get("type") == "object":
        kept = {
            name: _shortened(part)
            for name, part in schema["properties"].items()
            if name in schema.get("required", ()) or not _rambling(part)
        }
        return schema | {"properties": kept}
    if schema.get("type") == "array":
        most = min(schema["maxItems"], max(_ITEMS, schema.get("minItems", 0)))
        return schema | {"items": _shortened(schema["items"]), "maxItems": most}
    for union in ("oneOf", "anyOf"):
        if union in schema:
            options = [_shortened(option) for option in schema[union] if not _long(option)]
            return schema | {union: options or schema[union]}
    return schema


def _rambling(schema: Json) -> bool:
    """Whether an optional property is free text, a large number or many alike."""
    kind = schema.get("type")
    if kind == "string":
        return "enum" not in schema
    if kind == "integer":
        return schema.get("maximum", _RANGE) - schema.get("minimum", 0) >= _RANGE
    return kind == "object" and len(schema.get("properties", {})) > _ALIKE


def _long(option: Json) -> bool:
    parts = option.get("properties", {}).values()
    return any(part.get("minItems", 0) > _ALIKE for part in parts)


def _signed_reward(catalogue: FeatureCatalogue) -> Json:
    """The form of a reward whose terms only pay for what is better, as far as that is known."""
    schema = reward_filling.reward_schema(catalogue)
    terms = schema["properties"]["terms"]
    options = []
    for sign, bounds in ((-1, {"maximum": -0.1}), (1, {"minimum": 0.1})):
        names = [n for n, s in zip(catalogue.names, catalogue.signs, strict=True) if s == sign]
        if not names:
            continue
        properties = dict(terms["items"]["properties"])
        properties["feature"] = {"enum": names}
        properties["weight"] = properties["weight"] | bounds
        options.append(terms["items"] | {"properties": properties})
    if not options:  # nothing is known of any feature
        return schema
    items = options[0] if len(options) == 1 else {"anyOf": options}
    return schema | {
        "properties": schema["properties"] | {"terms": terms | {"items": items, "maxItems": 3}}
    }
