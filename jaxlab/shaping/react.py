"""A language model that reasons and acts, turn by turn: ReAct with a scratchpad.

At each turn the model is told what it is about, its scratchpad, the last turns and what it
observes now, and answers with a thought, a new scratchpad and an action, as one JSON object
(Yao et al. 2023, "ReAct: Synergizing reasoning and acting in language models"). What actions
there are is the business of whoever observes: the loop knows them as texts alone.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jaxlab.core.errors import DataError, EndpointError
from jaxlab.core.runfolder import config_hash
from jaxlab.shaping.architect import Json
from jaxlab.shaping.architects.language_model import (
    Answer,
    Conversation,
    LanguageModel,
    parse_answer,
)

Verdict = Literal["accepted", "repaired", "fallback"]

#: Characters that are kept of a thought, of the scratchpad, of an observation in the history.
LONGEST_THOUGHT, LONGEST_SCRATCHPAD, LONGEST_PAST = 1000, 4000, 4000
_LONGEST_ACTION = 80


class Decision(NamedTuple):
    """What the model does.

    Attributes:
      action: Its text.
      thought: In the model's words; empty of a fallback.
      verdict: "accepted", "repaired" (on a later attempt) or "fallback".
    """

    action: str
    thought: str
    verdict: Verdict


class ReactLoop:
    """Asks a model for one action after the other.

    Args:
      model: Who answers.
      instructions: What it is about.
      history: Turns that the model is told.
      scratchpad: The model keeps notes that are shown to it again.
      repairs: How often an answer without a possible action is sent back.
      seed: Of the sampling.
      watch: Gets a record of every question and answer, as JSON.
    """

    def __init__(
        self,
        model: LanguageModel,
        instructions: str,
        *,
        history: int = 12,
        scratchpad: bool = True,
        repairs: int = 1,
        seed: int = 0,
        watch: Callable[[Json], None] | None = None,
    ):
        self.model, self.instructions = model, instructions
        self.repairs, self.seed = repairs, seed
        self.keeps_notes, self.notes = scratchpad, ""
        self._watch = watch
        self._turns: deque[tuple[str, Decision]] = deque(maxlen=max(history, 0))
        self._count = 0

    @property
    def schema(self) -> Json:
        """What an answer looks like."""
        sizes = {"thought": LONGEST_THOUGHT}
        if self.keeps_notes:
            sizes["scratchpad"] = LONGEST_SCRATCHPAD
        sizes["action"] = _LONGEST_ACTION
        return {
            "type": "object",
            "properties": {n: {"type": "string", "maxLength": size} for n, size in sizes.items()},
            "required": list(sizes),
            "additionalProperties": False,
        }

    def decide(
        self, observation: str, problem: Callable[[str], str | None], fallback: str
    ) -> Decision:
        """The next action.

        Args:
          observation: What is seen, and which actions there are.
          problem: What is wrong with an action, None if nothing is.
          fallback: The action that is taken where no answer has a possible one.

        Raises:
          EndpointError: the model cannot be reached.
        """
        messages = self._messages(observation)
        decision = Decision(fallback, "", "fallback")
        for attempt in range(self.repairs + 1):
            answer = self._asked(messages, attempt)
            try:
                document = _checked(answer.text, self.schema["required"])
                trouble = problem(document["action"])
            except ValueError as error:
                document, trouble = {}, str(error)
            self._note(messages, answer, attempt, trouble)
            if trouble is None:
                verdict: Verdict = "repaired" if attempt else "accepted"
                thought = document["thought"][:LONGEST_THOUGHT]
                self.notes = document.get("scratchpad", self.notes)[:LONGEST_SCRATCHPAD]
                decision = Decision(document["action"], thought, verdict)
                break
            messages = [
                *messages,
                {"role": "assistant", "content": answer.text},
                {"role": "user", "content": f"That cannot be used: {trouble}. Answer again."},
            ]
        self._turns.append((observation, decision))
        self._count += 1
        return decision

    def _messages(self, observation: str) -> list[Mapping[str, str]]:
        notes = '"scratchpad": "notes to yourself, which replace the old ones", '
        form = f'{{"thought": "...", {notes if self.keeps_notes else ""}"action": "..."}}'
        system = f"{self.instructions}\n\nAnswer with one JSON object and nothing else: {form}"
        parts = []
        if self.keeps_notes:
            parts.append(f"Your scratchpad:\n{self.notes or '(empty)'}")
        for seen, decision in self._turns:
            parts.append(
                f"Observation:\n{seen[:LONGEST_PAST]}\nThought: {decision.thought}\n"
                f"Action: {decision.action}"
            )
        parts.append(f"Observation now:\n{observation}")
        return [
            {"role": "system", "content": system},
            {"role": "user", "content": "\n\n".join(parts)},
        ]

    def _asked(self, messages: Conversation, attempt: int) -> Answer:
        (answer,) = self.model.answer([messages], self.schema, [self._seed(attempt)])
        if isinstance(answer, EndpointError):
            raise answer
        return answer

    def _seed(self, attempt: int) -> int:
        """Of the sampling: another one for each turn and attempt."""
        numbers = repr((self.seed, self._count, attempt)).encode()
        return int.from_bytes(hashlib.sha256(numbers).digest()[:4], "big") >> 1

    def _note(
        self, messages: Conversation, answer: Answer, attempt: int, trouble: str | None
    ) -> None:
        if self._watch is None:
            return
        self._watch(
            {
                "question": question_of(messages),
                "turn": self._count,
                "attempt": attempt,
                "model": self.model.name,
                "temperature": self.model.temperature,
                "sampling_seed": self._seed(attempt),
                "messages": [dict(message) for message in messages],
                "answer": answer.text,
                "problem": trouble,
                "usage": answer.usage,
            }
        )


class RecordedModel:
    """Answers as the records of an earlier loop say, offline and word for word.

    Args:
      records: What `watch` got, in its order.
    """

    def __init__(self, records: Iterable[Json]):
        self._answers: dict[tuple[str, int], str] = {}
        self.name, self.temperature = "recorded", None  # type: str, float | None
        for record in records:
            try:
                key = (record["question"], record["sampling_seed"])
                self._answers[key] = record["answer"]
                self.name, self.temperature = record["model"], record["temperature"]
            except (KeyError, TypeError):
                raise DataError(
                    "a record is none of a ReAct loop: expected question, sampling_seed, answer, "
                    "model and temperature"
                ) from None

    def answer(
        self, conversations: Sequence[Conversation], schema: Json, seeds: Sequence[int]
    ) -> Sequence[Answer | EndpointError]:
        """The recorded answers.

        Raises:
          DataError: a conversation was not recorded.
        """
        found = []
        for messages, seed in zip(conversations, seeds, strict=True):
            text = self._answers.get((question_of(messages), seed))
            if text is None:
                raise DataError(
                    "the records hold no answer to this conversation; repeat them with the same "
                    "task, options and seed"
                )
            found.append(Answer(text, {}))
        return found


def question_of(messages: Conversation) -> str:
    """Digest of a conversation."""
    return config_hash([dict(message) for message in messages])


def _checked(text: str, names: Sequence[str]) -> dict[str, Any]:
    """The texts of an answer.

    Raises:
      ValueError: it is no JSON object, or a text is missing.
    """
    document = parse_answer(text, names)
    wrong = [name for name in names if not isinstance(document.get(name), str)]
    if wrong:
        raise ValueError(f"'{wrong[0]}' must be a text")
    return document
