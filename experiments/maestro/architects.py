"""The architect that the options ask for."""

from __future__ import annotations

from typing import Any

from experiments.maestro.options import Options
from jaxlab.llm.client import ChatClient
from jaxlab.shaping.architect import Architect
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.architects import make_architect
from jaxlab.shaping.design_space import DesignSpace


def build_architect(options: Options, space: DesignSpace, log: ArchitectLog) -> Architect:
    """The architect, with its model where it has one.

    Raises:
      ConfigError, CheckpointError: the model cannot be had; the message says what needs none.
    """
    arguments: dict[str, Any] = {
        "temperature": options.temperature,
        "prompt": options.plan.prompt,
        "recorded": options.architect_log,
    }
    if options.architect == "openai":
        arguments["client"] = ChatClient(
            options.architect_url, options.architect_model, temperature=options.temperature
        )
    elif options.architect in ("smollm2", "model"):
        # Loading a model takes seconds and memory, which other architects do without.
        from jaxlab.llm.answers import SchemaAnswers
        from jaxlab.llm.embedded import load_embedded
        from jaxlab.llm.language_model import load

        model = load_embedded() if options.architect == "smollm2" else load(options.architect_model)
        answers = SchemaAnswers(model, temperature=options.temperature)
        arguments |= {"generate": answers, "model": model.name}
    return make_architect(options.architect, space, log, **arguments)
