"""Records what Hugging Face's transformers computes on the tiny checkpoints of the tests.

Needs torch and transformers (the extra `bench`; torch 2.13.0 and transformers 5.24.0 were
used):

    python -m tests.golden.record_llm

writes `llm/logits.npz`, for each checkpoint the logits float32 `[2, 12, vocab]` of its
tokens, and `llm/sampling.npz`: logits, and what the library's filters leave of them.
"""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tests.llm import checkpoints

HERE = pathlib.Path(__file__).parent / "llm"


def logits() -> dict[str, np.ndarray]:
    """Logits of every checkpoint, by its name."""
    found = {}
    for name, settings in checkpoints.SETTINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = checkpoints.write_folder(pathlib.Path(folder), settings)
            model, loading = AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
        if any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")):
            raise RuntimeError(f"{name}: {loading}")
        with torch.no_grad():
            tokens = torch.from_numpy(checkpoints.TOKENS).long()
            found[name] = model.eval()(tokens).logits.numpy()
    return found


def filters() -> dict[str, np.ndarray]:
    """Logits before (`given`) and after each set of options."""
    given = np.random.RandomState(1).standard_normal((4, 40)).astype(np.float32) * 2
    found = {"given": given}
    for name, (temperature, top_k, top_p) in checkpoints.OPTIONS.items():
        steps = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
        if top_k:
            steps.append(TopKLogitsWarper(top_k))
        if top_p < 1:
            steps.append(TopPLogitsWarper(top_p))
        found[name] = steps(None, torch.from_numpy(given)).numpy()
    return found


def main() -> None:
    """Write both files."""
    HERE.mkdir(exist_ok=True)
    np.savez_compressed(HERE / "logits.npz", **logits())
    np.savez_compressed(HERE / "sampling.npz", **filters())


if __name__ == "__main__":
    main()
