"""What a language model is told before it designs: all of it, and its rejected answers, in words.

The two curriculum prompts say the same facts and ask for the same answer; they differ in
the strategy that the designer is asked to follow, so that the ablation over prompts compares
strategies and not the amount of information.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlab.core.errors import ConfigError
from jaxlab.core.runfolder import plain
from jaxlab.shaping import curricula, reward_filling
from jaxlab.shaping.architect import Json, Request
from jaxlab.shaping.design_space import DesignSpace

Message = Mapping[str, str]

CURRICULUM_PROMPTS = ("A", "B")

_ROLE = (
    "You design the training of learning agents. You never act in their place: between two stages "
    "of training you choose what they are trained on next. In the end they are judged on the base "
    "scenario, an empty object, and on the environment's own reward alone."
)
_STRATEGY = {
    "A": (
        "You are a curriculum designer. Think it through in this order, and put the essence into "
        "the reason: (1) What worked in the last stages, and what does it show the agents can do? "
        "(2) Under which conditions are they weak? (3) Which scenario is the logical next step: "
        "near enough to what they master to be learnt, different enough to teach something new? "
        "(4) Which concrete values express it at the target difficulty?"
    ),
    "B": (
        "You are a coach who looks for one weakness at a time. Find the single condition that "
        "costs the agents most, by comparing the stages given. Design a scenario that isolates "
        "this condition: change at most three fields of the base scenario, and make the change as "
        "strong as the target difficulty allows. When nothing is weak any more, combine two "
        "conditions that were mastered one by one. Name the condition in the reason."
    ),
}
_TIPS = (
    "How to read this: a term that is nearly constant teaches nothing, so rescale, replace or drop "
    "it; a term far larger than the others dominates, so scale it down; a term whose correlation "
    "with the environment's return is negative rewards the wrong thing; where success stays near "
    "zero, design the whole reward anew."
)


class Briefing:
    """Makes the messages for a request.

    Args:
      space: What is designed.
      variant: One of `CURRICULUM_PROMPTS`.
      records: Stages of the history that are told.
      sources: Rewards are written as sources instead of filled templates.
      longest_list: Names of a list in the schema that are shown, where it has more than
        twice as many; all by default.

    Raises:
      ConfigError: the variant is unknown.
    """

    def __init__(
        self,
        space: DesignSpace,
        variant: str,
        records: int = 3,
        sources: bool = False,
        longest_list: int | None = None,
    ):
        if variant not in CURRICULUM_PROMPTS:
            raise ConfigError(
                f"curriculum prompt '{variant}' is unknown; choose from "
                f"{', '.join(CURRICULUM_PROMPTS)}"
            )
        self.space, self.variant, self.records, self.sources = space, variant, records, sources
        self._longest = longest_list
        self._system = self._instructions()

    @property
    def schema(self) -> Json:
        """What an answer must keep to."""
        return self.space.schema(sources=self.sources)

    def messages(self, request: Request) -> list[Message]:
        """The conversation that asks for the design of a stage."""
        parts = [
            self._history(request.history),
            self._target(request.history),
            _statistics(request.components),
            _rejections(request.rejections),
            "Answer with the JSON object alone.",
        ]
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": "\n\n".join(part for part in parts if part)},
        ]

    def repair(self, problems: Sequence[str]) -> str:
        """The message that sends an answer back."""
        listed = "\n".join(f"- {problem}" for problem in problems)
        return (
            f"Your answer was refused:\n{listed}\n"
            "Answer again with the whole JSON object, corrected, and nothing else."
        )

    def _instructions(self) -> str:
        """What stays the same all through a run."""
        space = self.space
        card = dict(space.card)
        task = card.pop("task", "")
        sections = [f"{_ROLE}\n{_STRATEGY[self.variant]}", f"The task: {task}" if task else ""]
        if card:
            sections.append(f"The environment: {_text(card)}")
        for part in space.parts:
            schema = space.part_schema(part, sources=self.sources)
            lines = schema_lines(schema, part, self._longest)
            sections.append(_ABOUT[part] + "\n" + "\n".join(lines))
            if part == "reward":
                sections.append(self._features())
        keys = ", ".join(f'"{part}": ...' for part in space.parts)
        sections.append(
            f'Your answer is one JSON object and nothing else: {{"reason": ..., '
            f"{keys}}}. The reason is one short paragraph. Leave out what shall stay as in the base. "
            "Values outside their bounds and names that are not listed are refused."
        )
        return "\n\n".join(section for section in sections if section)

    def _features(self) -> str:
        assert self.space.features is not None
        if self.sources:
            return reward_filling.reward_guide(self.space.features)
        lines = "\n- ".join(self.space.features.text().splitlines())
        return f"Features that rewards are made of:\n- {lines}"

    def _history(self, history: curricula.History) -> str:
        if not history:
            return "This is the first stage; nothing has been trained yet."
        told = list(history)[-self.records :] if self.records else []
        first = len(history) - len(told)
        lines = [f"Stage {first + n}: {_text(record)}" for n, record in enumerate(told)]
        return "The last stages, each with what it was trained on and what came of it:\n" + (
            "\n".join(lines)
        )

    def _target(self, history: curricula.History) -> str:
        low, high = curricula.BAND
        text = (
            f"Target difficulty of the new stage: {_number(self.space.difficulty(history))} from 0 "
            "(easy) to 1 (hard). Success is the return relative to the reference: 1 is as good. The "
            f"target rises when success is above {high}, falls below {low}, else holds."
        )
        if history:
            text += f" Success of the last stage: {_number(_last_success(history))}."
        return text


_ABOUT = {
    "scenario": (
        "The scenario (`scenario`): changes to the base scenario, every field optional unless said "
        "otherwise. Fields and bounds:"
    ),
    "reward": (
        "The reward (`reward`): a signal for every agent and decision that is added to the "
        "environment's own reward, with a weight that depends on the difficulty. It must make good "
        "behaviour better paid than bad, and must not pay for standing still. Form:"
    ),
    "prior": (
        "The prior (`prior`): before they have learnt, agents are drawn towards actions with large "
        "prior logits, the sum of these features of an action times your weights. Its pull decays. "
        "Form:"
    ),
}


def schema_lines(schema: Json, name: str, longest_list: int | None = None) -> list[str]:
    """A schema as an indented list: far shorter than its JSON, and easier to read.

    Args:
      schema: JSON schema of what is called `name`.
      longest_list: Names of a list that are shown.
    """
    return list(_lines(schema, name, 0, longest_list))


def _lines(schema: Json, name: str, depth: int, longest: int | None) -> Any:
    start = f"{'  ' * depth}- {name}: "
    about = f". {schema['description'].rstrip('.')}." if schema.get("description") else ""
    if "oneOf" in schema or "anyOf" in schema:
        yield f"{start}one of{about}"
        for n, option in enumerate(schema.get("oneOf") or schema["anyOf"]):
            yield from _lines(option, f"form {n + 1}", depth + 1, longest)
        return
    kind = schema.get("type")
    if kind == "object":
        yield from _object_lines(schema, start + "object" + about, depth, longest)
    elif kind == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems", "any number of")
        yield f"{start}list of {f'{least} to {most}' if least != most else most} items{about}"
        yield from _lines(schema.get("items", {}), "item", depth + 1, longest)
    else:
        yield f"{start}{_value(schema, longest)}{about}"


def _object_lines(schema: Json, head: str, depth: int, longest: int | None) -> Any:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    kinds = {
        json.dumps({k: v for k, v in part.items() if k != "description"}, sort_keys=True)
        for part in properties.values()
    }
    simple = all("type" in part and part["type"] != "object" for part in properties.values())
    if len(properties) > 4 and len(kinds) == 1 and simple:
        # Many alike, such as one number for each place: said once.
        yield f"{head} Any of {_names(list(properties), longest)}, each:"
        part = next(iter(properties.values()))
        yield from _lines({**part, "description": ""}, "value", depth + 1, longest)
        return
    yield head
    for name, part in properties.items():
        label = f"{name} (required)" if name in required and "const" not in part else name
        yield from _lines(part, label, depth + 1, longest)


def _value(schema: Json, longest: int | None) -> str:
    if "const" in schema:
        return f"always {json.dumps(schema['const'])}"
    if "enum" in schema:
        return f"one of {_names(schema['enum'], longest)}"
    kind = schema.get("type", "any value")
    if "minimum" in schema and "maximum" in schema:
        return f"{kind} from {_number(schema['minimum'])} to {_number(schema['maximum'])}"
    if kind == "string" and "maxLength" in schema:
        return f"string of at most {schema['maxLength']} characters"
    return str(kind)


def _names(names: Sequence[Any], longest: int | None) -> str:
    if longest is not None and len(names) <= 2 * longest:
        longest = None  # Shortening would hide more than it saves.
    shown = [name if isinstance(name, str) else json.dumps(name) for name in names[:longest]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more of this kind" if rest else "")


def _last_success(history: curricula.History) -> float:
    return curricula.success(history[-1]["metrics"])


def _statistics(components: Mapping[str, Mapping[str, Any]]) -> str:
    if not components:
        return ""
    lines = [f"- {name}: {_text(values)}" for name, values in components.items()]
    return "Terms of the last reward during training:\n" + "\n".join(lines) + f"\n{_TIPS}"


def _rejections(rejections: Sequence[str]) -> str:
    if not rejections:
        return ""
    lines = [f"- {' '.join(text.split())}" for text in rejections]
    return "Earlier designs of this stage were refused; avoid this:\n" + "\n".join(lines)


def _text(value: Any) -> str:
    """JSON with numbers of four digits."""
    return json.dumps(_rounded(plain(value)), ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None if math.isnan(value) else ("infinite" if value > 0 else "-infinite")
        rounded = float(f"{value:.4g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 else rounded
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _number(value: float) -> str:
    return str(_rounded(value)) if math.isfinite(value) else "unknown"
