"""Language models: a decoder, checkpoints, tokenisers and generation.

Names are imported when they are first used, so that importing the package stays cheap.
`jaxlab.llm.sampling.sampling` makes the options of sampling.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxlab.llm.config import ModelConfig as ModelConfig
    from jaxlab.llm.decoder import Decoder as Decoder
    from jaxlab.llm.decoder import decode_steps as decode_steps
    from jaxlab.llm.decoder import random_weights as random_weights
    from jaxlab.llm.embedded import ensure_embedded_model as ensure_embedded_model
    from jaxlab.llm.embedded import find_embedded_model as find_embedded_model
    from jaxlab.llm.embedded import load_embedded as load_embedded
    from jaxlab.llm.generation import Automaton as Automaton
    from jaxlab.llm.generation import Generation as Generation
    from jaxlab.llm.generation import generate as generate
    from jaxlab.llm.generation import token_log_probs as token_log_probs
    from jaxlab.llm.language_model import LanguageModel as LanguageModel
    from jaxlab.llm.language_model import load as load
    from jaxlab.llm.language_model import save as save
    from jaxlab.llm.numbers import NumberCodec as NumberCodec
    from jaxlab.llm.numbers import number_codec as number_codec
    from jaxlab.llm.sampling import Sampling as Sampling
    from jaxlab.llm.sharding import shard as shard
    from jaxlab.llm.tokenizer import Tokenizer as Tokenizer
    from jaxlab.llm.tokenizer import token_bytes as token_bytes

_HOMES = {
    "Automaton": "generation",
    "Decoder": "decoder",
    "Generation": "generation",
    "LanguageModel": "language_model",
    "ModelConfig": "config",
    "NumberCodec": "numbers",
    "Sampling": "sampling",
    "Tokenizer": "tokenizer",
    "decode_steps": "decoder",
    "ensure_embedded_model": "embedded",
    "find_embedded_model": "embedded",
    "generate": "generation",
    "load": "language_model",
    "load_embedded": "embedded",
    "number_codec": "numbers",
    "random_weights": "decoder",
    "save": "language_model",
    "shard": "sharding",
    "token_bytes": "tokenizer",
    "token_log_probs": "generation",
}
__all__ = [
    "Automaton",
    "Decoder",
    "Generation",
    "LanguageModel",
    "ModelConfig",
    "NumberCodec",
    "Sampling",
    "Tokenizer",
    "decode_steps",
    "ensure_embedded_model",
    "find_embedded_model",
    "generate",
    "load",
    "load_embedded",
    "number_codec",
    "random_weights",
    "save",
    "shard",
    "token_bytes",
    "token_log_probs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
