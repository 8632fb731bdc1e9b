"""A language model as an agent of the WorldTest protocol: transcripts and a ReAct loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.tasks.protocol import Act, Observation
from jaxlab.envs.autumn.tasks.transcript import (
    act_text,
    instructions,
    observation_text,
    parse_act,
)
from jaxlab.shaping.architects.language_model import LanguageModel
from jaxlab.shaping.react import ReactLoop

#: What is done where the model says nothing possible, the first that is offered.
FALLBACKS = ("noop", "step", "submit", "choose_option", "quit")


class LanguageAgent:
    """Takes sessions by asking a model.

    Args:
      model: `EndpointModel`, `LocalModel` or `react.RecordedModel`.
      history, scratchpad, repairs, seed, watch: Of the `ReactLoop`.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        history: int = 12,
        scratchpad: bool = True,
        repairs: int = 1,
        seed: int = 0,
        watch: Callable[[dict[str, Any]], None] | None = None,
    ):
        self._model = model
        self._options: dict[str, Any] = {
            "history": history,
            "scratchpad": scratchpad,
            "repairs": repairs,
            "seed": seed,
            "watch": watch,
        }
        self._loop: ReactLoop | None = None
        self.fallbacks = 0

    def begin(self, observation: Observation) -> None:
        """A new session, of which nothing is known."""
        self._loop = ReactLoop(self._model, instructions(observation.family), **self._options)
        self.fallbacks = 0

    def act(self, observation: Observation) -> Act:
        """What the model says, or a fallback.

        Raises:
          EndpointError: the model cannot be reached.
        """
        assert self._loop is not None
        offered = observation.offered

        def problem(text: str) -> str | None:
            try:
                observation.require(parse_act(text, offered))
            except ConfigError as error:
                return str(error)
            return None

        kind = next(kind for kind in FALLBACKS if kind in offered)
        decision = self._loop.decide(observation_text(observation), problem, act_text(Act(kind)))
        self.fallbacks += decision.verdict == "fallback"
        return parse_act(decision.action, offered)
