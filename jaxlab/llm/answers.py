"""Answers to conversations that keep to a JSON schema, by construction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxlab.llm.automaton import TokenAutomaton
from jaxlab.llm.chat import Message
from jaxlab.llm.json_schema import JsonLayout, compile_json_schema
from jaxlab.llm.language_model import LanguageModel
from jaxlab.llm.sampling import sampling
from jaxlab.llm.tokenizer import token_bytes

#: Two decimals and short strings: small models ramble, and every token costs a decoding step.
LAYOUT = JsonLayout(decimals=2, longest_string=120, characters="ascii")
#: Prompts are padded to a multiple of this many tokens, batches to a power of two: a program
#: takes half a minute to compile, and conversations have many lengths.
PROMPT_MULTIPLE = 256


class SchemaAnswers:
    """Answers batches of conversations with JSON texts of a schema.

    An answer that is cut at `max_new_tokens` is no complete JSON text; all others keep to
    the schema, up to `layout`.

    Args:
      model: Who answers.
      temperature, top_p: Of the sampling; temperature 0 is greedy.
      max_new_tokens: Length at which answers are cut.
      layout: What the schema leaves open.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        temperature: float = 0.7,
        top_p: float = 0.95,
        max_new_tokens: int = 512,
        layout: JsonLayout = LAYOUT,
    ):
        self.model, self.max_new_tokens, self.layout = model, max_new_tokens, layout
        self._sampling = sampling(temperature=temperature, top_p=top_p)
        self._automata: dict[str, TokenAutomaton] = {}

    def __call__(
        self,
        conversations: Sequence[Sequence[Message]],
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> list[str]:
        """One answer to each conversation, drawn with the seed of its own.

        Raises:
          ConfigError: The schema has no grammar.
          PromptError: A conversation is longer than the context.
        """
        prompts = [self.model.chat_prompt(conversation) for conversation in conversations]
        spare = (1 << (len(prompts) - 1).bit_length()) - len(prompts)
        keys = [jax.random.key(seed) for seed in seeds]
        generation = self.model.generate(
            prompts + prompts[-1:] * spare,
            max_new_tokens=self.max_new_tokens,
            key=jnp.stack(keys + keys[-1:] * spare),
            options=self._sampling,
            automaton=self.automaton(schema),
            prompt_multiple=PROMPT_MULTIPLE,
        )
        return self.model.texts(generation)[: len(conversations)]

    def automaton(self, schema: Mapping[str, Any]) -> TokenAutomaton:
        """The grammar of a schema over the model's tokens, made once."""
        name = json.dumps(schema, sort_keys=True)
        if name not in self._automata:
            tokenizer = self.model.tokenizer
            self._automata[name] = TokenAutomaton.build(
                compile_json_schema(schema, self.layout),
                token_bytes(tokenizer),
                tokenizer.eos_id,
                drop_missing=True,
            )
        return self._automata[name]
