"""Architects that are language models, behind an endpoint or on this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from jaxlab.core.errors import ConfigError, EndpointError
from jaxlab.llm.client import ChatClient
from jaxlab.shaping import prompts
from jaxlab.shaping.architect import Design, Json, Request, make_design
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.architects.entries import entry, question_of
from jaxlab.shaping.architects.ruled import ruled_design
from jaxlab.shaping.brief_prompts import BriefBriefing
from jaxlab.shaping.design_space import DesignSpace

Conversation = Sequence[Mapping[str, str]]
#: From conversations, a JSON schema that every answer must keep to, and a seed for each,
#: to the answers: one batch.
Generate = Callable[[Sequence[Conversation], Json, Sequence[int]], Sequence[str]]

#: Characters of an answer that are read at most.
LONGEST_ANSWER = 100_000
#: Problems of an answer that its writer is told.
_TOLD = 5


class Answer(NamedTuple):
    """What a model wrote, and the tokens and money it took where that is known."""

    text: str
    usage: Json


class LanguageModel(Protocol):
    """Answers a batch of conversations; `name` and `temperature` go into the log."""

    name: str
    temperature: float | None

    def answer(
        self, conversations: Sequence[Conversation], schema: Json, seeds: Sequence[int]
    ) -> Sequence[Answer | EndpointError]:
        """An answer, or why there is none, for each conversation."""
        ...


class EndpointModel:
    """A model behind a chat client, asked several things at a time."""

    def __init__(self, client: ChatClient, *, concurrency: int = 4):
        self.client, self.concurrency = client, concurrency
        self.name, self.temperature = client.model, client.temperature

    def answer(
        self, conversations: Sequence[Conversation], schema: Json, seeds: Sequence[int]
    ) -> Sequence[Answer | EndpointError]:
        def one(conversation: Conversation, seed: int) -> Answer | EndpointError:
            try:
                completion = self.client.chat(conversation, seed=seed)
            except EndpointError as error:
                return error
            usage = {
                "model": completion.model,
                "prompt_tokens": completion.prompt_tokens,
                "completion_tokens": completion.completion_tokens,
                "truncated": completion.truncated,
                "cost": self.client.cost(completion),
            }
            return Answer(completion.text, usage)

        with ThreadPoolExecutor(max(min(self.concurrency, len(seeds)), 1)) as pool:
            return list(pool.map(one, conversations, seeds))


class LocalModel:
    """A checkpoint on this machine, all conversations in one batch.

    Args:
      generate: Generates with the grammar of the schema.
      name: Of the model, for the log.
      temperature: That it samples with, for the log.
    """

    def __init__(self, generate: Generate, name: str, temperature: float | None = None):
        self.name, self.temperature, self._generate = name, temperature, generate

    def answer(
        self, conversations: Sequence[Conversation], schema: Json, seeds: Sequence[int]
    ) -> Sequence[Answer | EndpointError]:
        return [Answer(text, {}) for text in self._generate(conversations, schema, seeds)]


@dataclasses.dataclass
class _Dialogue:
    """The course of one request."""

    request: Request
    question: str
    messages: list[Mapping[str, str]]
    design: Design | None = None


class LanguageArchitect:
    """Asks a model, once more with the problems of its answer, and else leaves it to the rules.

    Args:
      name: Of the architect, for the log and the designs.
      space: What is designed.
      log: Every question, answer and verdict goes there; what is there is not asked again.
      model: Who answers.
      prompt: One of `prompts.CURRICULUM_PROMPTS`.
      records: Stages of the history that the model is told.
      sources: It writes rewards as sources instead of filling a template.
      longest_list: Names of a long list in the schema that the prompt shows, for models
        with a short context; all by default.
      brief: Ask in few words and for less (`brief_prompts`), for small models.

    Raises:
      ConfigError: the prompt is unknown, or `brief` and `sources` are both asked for.
    """

    def __init__(
        self,
        name: str,
        space: DesignSpace,
        log: ArchitectLog,
        model: LanguageModel,
        *,
        prompt: str = prompts.CURRICULUM_PROMPTS[0],
        records: int = 3,
        sources: bool = False,
        longest_list: int | None = None,
        brief: bool = False,
    ):
        if brief and sources:
            raise ConfigError("small models fill templates: brief prompts know no sources")
        self.name, self.space, self.log, self.model = name, space, log, model
        self.sources = sources
        self._briefing: prompts.Briefing | BriefBriefing = (
            BriefBriefing(space, prompt, records)
            if brief
            else prompts.Briefing(space, prompt, records, sources, longest_list)
        )

    def design(self, requests: Sequence[Request]) -> list[Design]:
        """Designs for all requests, asked for in one batch.

        Raises:
          EndpointError: the endpoint fails; answers that came are in the log.
        """
        dialogues = [self._begin(request) for request in requests]
        for attempt in range(2):
            self._ask([d for d in dialogues if d.design is None], attempt)
        for dialogue in dialogues:
            if dialogue.design is None:
                self._fall_back(dialogue)
        return [dialogue.design for dialogue in dialogues if dialogue.design is not None]

    def _begin(self, request: Request) -> _Dialogue:
        messages = self._briefing.messages(request)
        asked = (self.name, self.model.name, self.model.temperature, messages)
        question = question_of(self.space, request, *asked)
        known = self.log.design(question)
        return _Dialogue(request, question, messages, None if known is None else Design(**known))

    def _ask(self, dialogues: Sequence[_Dialogue], attempt: int) -> None:
        """One answer for each, from the log where it is there, and what is made of it."""
        unknown = [d for d in dialogues if self.log.find(d.question, attempt) is None]
        failures: list[EndpointError] = []
        if unknown:
            seeds = [_seed(d.request, attempt) for d in unknown]
            conversations = [d.messages for d in unknown]
            answers = self.model.answer(conversations, self._briefing.schema, seeds)
            for dialogue, answer in zip(unknown, answers, strict=True):
                if isinstance(answer, EndpointError):
                    failures.append(answer)
                else:
                    self._judge(dialogue, answer, attempt)
        if failures:
            raise failures[0]
        for dialogue in dialogues:
            record = self.log.find(dialogue.question, attempt)
            assert record is not None
            if record["design"] is not None:
                dialogue.design = Design(**record["design"])
            else:
                dialogue.messages = [
                    *record["messages"],
                    {"role": "assistant", "content": record["answer"]},
                    {"role": "user", "content": self._briefing.repair(record["problems"])},
                ]

    def _judge(self, dialogue: _Dialogue, answer: Answer, attempt: int) -> None:
        """Check an answer and write down what came of it."""
        design = None
        try:
            document = parse_answer(answer.text, ("reason", *self.space.parts))
        except ValueError as error:
            problems = [str(error)]
        else:
            problems = self.space.problems(document, sources=self.sources)[:_TOLD]
            if not problems:
                verdict = "repaired" if attempt else "accepted"
                design = make_design(self.space, dialogue.request, document, self.name, verdict)
        self._log(dialogue, attempt, design, answer=answer, problems=problems)

    def _fall_back(self, dialogue: _Dialogue) -> None:
        design = ruled_design(self.space, dialogue.request, "fallback")
        self._log(dialogue, 2, design)
        dialogue.design = design

    def _log(
        self,
        dialogue: _Dialogue,
        attempt: int,
        design: Design | None,
        *,
        answer: Answer | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        asked: Json = {}
        if answer is not None:
            asked = {
                "model": self.model.name,
                "temperature": self.model.temperature,
                "prompt": self._briefing.variant,
                "sampling_seed": _seed(dialogue.request, attempt),
                "messages": list(dialogue.messages),
                "answer": answer.text,
                "problems": list(problems),
                "usage": answer.usage,
            }
        record = entry(
            self.space,
            dialogue.request,
            self.name,
            question=dialogue.question,
            design=design,
            attempt=attempt,
            **asked,
        )
        self.log.append(record)


def _seed(request: Request, attempt: int) -> int:
    """Seed of the sampling: another one for each seed, stage, rejection and attempt."""
    numbers = (request.seed, request.stage, len(request.rejections), attempt)
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:4], "big") >> 1


def parse_answer(text: str, expected: Collection[str]) -> Json:
    """The JSON object in a model's answer, whatever stands around it.

    Thoughts in `<think>` are left out; of several objects the one with most of the expected
    keys counts, the last of equals.

    Raises:
      ValueError: there is none, or it breaks off; with a text for the model.
    """
    if len(text) > LONGEST_ANSWER:
        raise ValueError(f"the answer is longer than {LONGEST_ANSWER} characters")
    text = re.sub(r"<think>.*?(</think>|\Z)", "", text, flags=re.DOTALL).strip()
    if not text:
        raise ValueError("the answer is empty; expected one JSON object")
    found: list[Json] = []
    problems: list[str] = []
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            document, end = decoder.raw_decode(text, start)
            found.append(document)
        except json.JSONDecodeError as error:
            end = start + 1
            if error.pos >= len(text) or error.msg.startswith("Unterminated"):
                problems.append("it breaks off before its end")
                break
            problems.append(f"{error.msg} after '{text[max(error.pos - 40, 0) : error.pos]}'")
        except RecursionError:
            problems.append("it is nested too deeply")
            break
        except ValueError:
            problems.append("a number in it is too long")
            end = start + 1
        start = text.find("{", end)
    known = [sum(name in document for name in expected) for document in found]
    # What lies inside an object that cannot be read is not the answer.
    if not found or (problems and not max(known)):
        reason = problems[0] if problems else "no '{' is in it"
        raise ValueError(f"the answer is no complete JSON object: {reason}")
    return max(zip(known, range(len(found)), found, strict=True), key=lambda entry: entry[:2])[2]
