"""The architects, by name.

| name | designs by |
| --- | --- |
| `openai` | a model behind an OpenAI-compatible endpoint |
| `smollm2`, `model` | a language model on this machine: the embedded one, or any checkpoint |
| `rules` | fixed rules on the metrics: the control that needs nothing |
| `random` | drawing from the schemas: the control without semantics |
| `recorded` | repeating the log of an earlier run |
"""

from __future__ import annotations

import os

from jaxlab.core.errors import ConfigError
from jaxlab.llm.client import ChatClient
from jaxlab.shaping.architect import Architect
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.architects.language_model import (
    EndpointModel,
    Generate,
    LanguageArchitect,
    LocalModel,
)
from jaxlab.shaping.architects.recorded import RecordedArchitect
from jaxlab.shaping.architects.ruled import RulesArchitect
from jaxlab.shaping.architects.sampling import RandomArchitect
from jaxlab.shaping.design_space import DesignSpace
from jaxlab.shaping.prompts import CURRICULUM_PROMPTS

ARCHITECTS = ("openai", "smollm2", "model", "rules", "random", "recorded")
RECORDS, LONGEST_LIST = 3, 6


def make_architect(
    name: str,
    space: DesignSpace,
    log: ArchitectLog,
    *,
    client: ChatClient | None = None,
    generate: Generate | None = None,
    model: str = "",
    temperature: float = 0.7,
    prompt: str = CURRICULUM_PROMPTS[0],
    records: int | None = None,
    longest_list: int | None = None,
    brief: bool | None = None,
    recorded: os.PathLike[str] | str | None = None,
) -> Architect:
    """Build an architect by name.

    Args:
      name: One of `ARCHITECTS`.
      space: What is designed.
      log: Where everything that is asked and answered goes.
      client: For `openai`; by default one from the environment variables.
      generate: For `smollm2` and `model`.
      model: For these two, the name that goes into the log.
      temperature: Likewise; what `generate` samples with.
      prompt: One of `CURRICULUM_PROMPTS`.
      records: Stages of the history that a model is told, by default `RECORDS`.
      longest_list: Names of a long list that a model is shown, by default `LONGEST_LIST`
        on this machine, where every token of the prompt takes time, and all elsewhere.
      brief: Whether a model is asked in few words, as small ones must be; by default the
        embedded one is, and no other.
      recorded: For `recorded`, the log to repeat.

    Raises:
      ConfigError: An unknown name, or what an architect needs is missing.
      DataError: The log to repeat does not fit.
    """
    told = RECORDS if records is None else records
    if name == "rules":
        return RulesArchitect(space, log)
    if name == "random":
        return RandomArchitect(space, log)
    if name == "recorded":
        if recorded is None:
            raise ConfigError("architect 'recorded' needs the log that it is to repeat")
        return RecordedArchitect(space, log, recorded)
    if name == "openai":
        endpoint = EndpointModel(ChatClient() if client is None else client)
        return LanguageArchitect(
            name,
            space,
            log,
            endpoint,
            prompt=prompt,
            records=told,
            longest_list=longest_list,
            brief=bool(brief),
        )
    if name in ("smollm2", "model"):
        if generate is None:
            raise ConfigError(f"architect '{name}' needs a model to generate with")
        local = LocalModel(generate, model or name, temperature)
        shown = LONGEST_LIST if longest_list is None else longest_list
        return LanguageArchitect(
            name,
            space,
            log,
            local,
            prompt=prompt,
            records=told,
            longest_list=shown,
            brief=name == "smollm2" if brief is None else brief,
        )
    raise ConfigError(f"architect '{name}' is unknown; choose from {', '.join(ARCHITECTS)}")
