"""Chat templates: ChatML, the features that checkpoints use, the sandbox."""

from __future__ import annotations

import pytest

from jaxlab.core.errors import PromptError
from jaxlab.llm import chat

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why <b>?"},
]


def test_chatml_without_a_template():
    assert chat.render(TALK) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhy <b>?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert chat.render(TALK, add_generation_prompt=False).endswith("?<|im_end|>\n")


def test_templates_of_checkpoints_get_what_they_expect():
    template = (
        "{{ bos_token }}\n"
        "{% for message in messages %}\n"
        "  {% if message.role == 'system' %}{% continue %}{% endif %}\n"
        "[{{ message.role | upper }}] {{ message.content | trim }} {{ message | tojson }}\n"
        "{% endfor %}\n"
        "{{ strftime_now('%Y') | length }}"
    )
    assert chat.render(TALK, template, bos_token="<s>") == (
        '<s>\n[USER] Why <b>? {"role": "user", "content": "Why <b>?"}\n4'
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no system turn') }}",
        "{% for %}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ missing.field }}",
    ],
)
def test_templates_that_fail_or_break_out_are_refused(template):
    with pytest.raises(PromptError, match="chat template"):
        chat.render(TALK, template)


def test_messages_without_a_role_or_content_are_named():
    with pytest.raises(PromptError, match="message 1: expected content"):
        chat.render([TALK[0], {"role": "user"}])
    with pytest.raises(PromptError, match="message 0: expected role"):
        chat.render([{"content": "x"}])
