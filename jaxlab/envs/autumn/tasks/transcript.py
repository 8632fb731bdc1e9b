"""Sessions as text and as JSON: what a language model reads and writes.

Acts have the names of the released harness; grids are rows of names of colours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.tasks.formats import MASKED, Family
from jaxlab.envs.autumn.tasks.protocol import Act, Observation, Result

#: Acts whose texts are not their kinds.
_TEXTS = {"go_to_test": "go-to-test", "found": "I found the change!", "submit": "Submit choice"}
_NUMBERED = ("choose_option", "choose_frame")
#: How a place is written whose colour is hidden.
HIDDEN = "masked"

_PROTOCOL = (
    "You explore a small grid world whose rules you are not told. First comes an interaction "
    "phase without reward: act, watch what changes, reset to the start as often as you like, and "
    "go to the test when you understand the rules. Then comes one test, and only it is scored. "
    "The grid is a list of rows of colour names; in 'click x y', x is the column and y the row, "
    "both from 0 at the top left. The world moves one step with each of your actions, noop "
    "included."
)
_TESTS: dict[Family, str] = {
    "masked_frame_prediction": (
        "The test: you step through frames that were recorded in this world, each with the action "
        "that led to it. In the last ones a rectangle is masked. At the end you choose which of "
        "the given patches fills the mask in the last frame."
    ),
    "planning": (
        "The test: you are given a goal picture and a mask. Act so that the grid equals the goal "
        "at every place where the mask is 1. There is no reset."
    ),
    "change_detection": (
        "The test: the world starts again, but at some moment one of its rules changes. As soon "
        "as you see something that the old rules do not allow, say 'I found the change!', choose "
        "the first frame that shows it (frames count from 0, the start) and submit. A report "
        "before there is anything to be seen scores nothing, and a late one little."
    ),
}


def instructions(family: Family) -> str:
    """What a session is about, for the agent that takes it."""
    return f"{_PROTOCOL}\n\n{_TESTS[family]}"


def colour_names(frame: Any) -> list[list[str]]:
    """A grid of table indices as rows of names."""
    return [
        [HIDDEN if cell == MASKED else COLOURS[cell] for cell in row]
        for row in np.asarray(frame).tolist()
    ]


def act_text(act: Act) -> str:
    """An act as it is written."""
    if act.kind == "click":
        return f"click {act.x} {act.y}"
    if act.kind in _NUMBERED:
        return f"{act.kind}_{act.x}"
    return _TEXTS.get(act.kind, act.kind)


def parse_act(text: str, offered: Sequence[str]) -> Act:
    """The act of a text, of a kind that is offered.

    Raises:
      ConfigError: the text is no act, or none that is offered; the message says what is.
    """
    plain = " ".join(re.split(r"[\s,()]+", text.strip().strip("'\"`.").lower())).strip()
    for kind in offered:
        if kind == "click":
            match = re.fullmatch(r"click (\d{1,4}) (\d{1,4})", plain)
            if match:
                return Act("click", int(match.group(1)), int(match.group(2)))
        elif kind in _NUMBERED:
            match = re.fullmatch(kind + r"[_ ](\d{1,6})", plain)
            if match:
                return Act(kind, int(match.group(1)))
        elif plain in (kind, _TEXTS.get(kind, kind).lower().rstrip(".")):
            return Act(kind)
    raise ConfigError(
        f"'{text[:80]}' is no action that is offered; expected one of {offered_text(offered)}"
    )


def offered_text(offered: Sequence[str]) -> str:
    """The kinds that are offered, as they are written."""
    forms = {
        "click": "click x y",
        "choose_option": "choose_option_k",
        "choose_frame": "choose_frame_i",
    }
    return ", ".join(forms.get(kind, _TEXTS.get(kind, kind)) for kind in offered)


def observation_json(observation: Observation) -> dict[str, Any]:
    """All that an observation says, as JSON; what is not said is left out."""
    data: dict[str, Any] = {
        "phase": observation.phase,
        "frame": observation.number,
        "acts": observation.acts,
        "remaining": observation.remaining,
        "grids": [colour_names(frame) for frame in observation.frames],
        "actions": [_TEXTS.get(kind, kind) for kind in observation.offered],
    }
    if observation.recorded is not None:
        data["recorded_action"] = act_text(observation.recorded)
    if observation.goal is not None and observation.mask is not None:
        data["goal"] = colour_names(observation.goal)
        data["mask"] = observation.mask.tolist()
    if observation.choices is not None:
        data["choices"] = [colour_names(choice) for choice in observation.choices]
    if observation.error is not None:
        data["error"] = observation.error
    return data


def observation_text(observation: Observation) -> str:
    """An observation in words, with its grids as rows of names."""
    phase = "interaction phase" if observation.phase == "interaction" else "test"
    lines = [
        f"You are in the {phase}; {observation.remaining} actions are left in all.",
    ]
    if observation.recorded is not None:
        lines.append(f"The recorded action before this frame: {act_text(observation.recorded)}")
    last = observation.number
    for back, frame in zip(
        range(len(observation.frames) - 1, -1, -1), observation.frames, strict=True
    ):
        lines += [f"Frame {last - back}:", _rows(frame)]
    if observation.goal is not None and observation.mask is not None:
        lines += ["Goal:", _rows(observation.goal)]
        if not observation.mask.all():
            lines += ["Mask:", "\n".join(map(json.dumps, observation.mask.tolist()))]
    at_choice = "choose_option" in observation.offered
    if observation.choices is not None and at_choice:
        for n, choice in enumerate(observation.choices):
            lines += [f"Option {n}:", _rows(choice)]
    if observation.error is not None:
        lines.append(f"The world has failed and stands still until a reset: {observation.error}")
    lines.append(f"Actions: {offered_text(observation.offered)}")
    return "\n".join(lines)


def _rows(frame: Any) -> str:
    return "\n".join(json.dumps(row) for row in colour_names(frame))


class Transcript:
    """Collects a session as JSON; `watch` is for `protocol.run_session`."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []

    def watch(self, observation: Observation, act: Act) -> None:
        """Note what was seen and what was done then."""
        self.turns.append({**observation_json(observation), "action": act_text(act)})

    def json(self, result: Result) -> dict[str, Any]:
        """The whole session, for a file."""
        verdict = result.verdict
        return {
            "task": result.task,
            "family": result.family,
            "score": result.score,
            "choice": verdict.choice,
            "reached": verdict.reached,
            "reported": verdict.reported,
            "trigger": verdict.trigger,
            "turns": self.turns,
        }
