"""Language models: a decoder, checkpoints, tokenisers and generation.

Names are imported when they are first used, so that importing the package stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxlab.llm.tokenizer import Tokenizer as Tokenizer

_HOMES = {
    "Tokenizer": "tokenizer",
}
__all__ = [
    "Tokenizer",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
