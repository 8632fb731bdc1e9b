"""Conversations as prompts, by the checkpoint's own template or ChatML."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jaxlab.core.errors import PromptError

Message = Mapping[str, Any]

#: What a checkpoint without a template gets.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def render(
    messages: Sequence[Message],
    template: str | None = None,
    *,
    add_generation_prompt: bool = True,
    **variables: Any,
) -> str:
    """A conversation as text.

    Templates come with checkpoints, so they run in a sandbox.

    Args:
      messages: Objects with `role` (system, user, assistant) and `content`.
      template: Jinja source as in `tokenizer_config.json`; ChatML by default.
      add_generation_prompt: End with what opens the assistant's turn.
      **variables: Further names for the template, such as `bos_token`.

    Raises:
      PromptError: A message lacks its role or content, or the template fails.
    """
    for place, message in enumerate(messages):
        for field in ("role", "content"):
            if not isinstance(message.get(field), str):
                raise PromptError(f"message {place}: expected {field} to be a string")
    try:
        return _compiled(CHATML if template is None else template).render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            **variables,
        )
    except jinja2.TemplateError as error:
        raise PromptError(f"the chat template cannot render this conversation: {error}") from error


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment.from_string(template)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Jinja's own filter escapes for HTML, which no chat template means."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
