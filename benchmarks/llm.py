"""Speed of language models, with Hugging Face's transformers beside it where installed.

    python -m benchmarks.llm [--model PATH] [--batches 1 8 32] [--json FILE]

Tokens per second of reading prompts and of decoding greedily, on the same weights, cores
and prompts, the two taking turns. Decoding is the time of `new_tokens` less that of one
token. Beside it stands what the memory allows: every step reads all weights once, so no
step is shorter than their bytes over the measured bandwidth.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jaxlab.core import cli
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

if TYPE_CHECKING:
    from jaxlab.llm.language_model import LanguageModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Tokens per second of prompts and of decoding, beside transformers where importable.

    Both use the cores that this process may use: `taskset -c 0 python -m benchmarks.llm`.
    """

    model: Path | None = None
    """Hugging Face folder or GGUF file; the embedded SmolLM2-135M-Instruct by default."""
    batches: tuple[int, ...] = (1, 8, 32)
    """Prompts answered at once."""
    prompt_tokens: int = 128
    """Tokens of a prompt."""
    new_tokens: int = 64
    """Tokens of an answer."""
    repeats: int = 5
    """Timed repetitions; the best is reported."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of weights and activations, on both sides."""
    peer: bool = True
    """Run transformers too."""
    json: Path | None = None
    """File for the results."""

    def check(self) -> None:
        super().check()
        for name, least in (("prompt_tokens", 1), ("new_tokens", 2), ("repeats", 1)):
            self.at_least(name, least)
        if any(batch < 1 for batch in self.batches):
            raise ConfigError(f"--batches {self.batches}: expected numbers of at least 1")


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting
    from jaxlab.llm.embedded import load_embedded
    from jaxlab.llm.language_model import load, save

    model = (
        load_embedded(options.dtype)
        if options.model is None
        else load(options.model, options.dtype)
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gigabytes = weight_bytes(model) / 1e9
    bandwidth = memory_bandwidth(options.repeats)
    with tempfile.TemporaryDirectory() as folder:
        peer = None
        if options.peer and _transformers_is_there():
            peer = Peer(save(model, folder), options, int(cores or 1))
        rows = [measure(options, model, peer, batch) for batch in options.batches]
        versions = {} if peer is None else peer.close()
    for row in rows:
        row["floor_ms"] = 1e3 * gigabytes / bandwidth
        row["of_floor"] = row["floor_ms"] / row["step_ms"]
    columns = ["batch", "prefill", "decode", "step_ms", "floor_ms", "of_floor"]
    if peer is not None:
        columns += ["peer_prefill", "peer_decode", "prefill_ratio", "decode_ratio"]
    reporting.print_table(
        columns,
        [[row[column] for column in columns] for row in rows],
        title=f"Tokens per second, {model.name}, {options.dtype}, prompts of "
        f"{options.prompt_tokens}, answers of {options.new_tokens}",
    )
    print(
        f"{jax.devices()[0].device_kind}, {cores} threads, jax {jax.__version__}; "
        f"weights {gigabytes:.3f} GB, memory {bandwidth:.1f} GB/s"
    )
    if peer is None:
        print("transformers was not run (the extra bench has it), so there is no ratio")
    else:
        print("transformers {transformers}, torch {torch}, {threads} threads".format(**versions))
    if options.json is not None:
        document = {
            "model": model.name,
            "rows": rows,
            "threads": cores,
            "weights_gb": gigabytes,
            "bandwidth_gb_s": bandwidth,
            "peer": versions,
            "provenance": reporting.provenance(),
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def weight_bytes(model: LanguageModel) -> int:
    """What one decoding step reads: all weights, an untied embedding's few rows aside."""
    import jax

    total = sum(leaf.nbytes for leaf in jax.tree.leaves(model.steps))
    return total if model.config.tied else total - model.steps.embedding[...].nbytes


def memory_bandwidth(repeats: int) -> float:
    """Gigabytes per second of a matrix times a vector, far larger than any cache."""
    import jax
    import jax.numpy as jnp

    matrix, vector = jnp.ones((2**14, 2**13), jnp.float32), jnp.ones(2**13, jnp.float32)
    product = jax.jit(lambda a, x: a @ x).lower(matrix, vector).compile()
    jax.block_until_ready(product(matrix, vector))
    seconds = [_seconds(lambda: product(matrix, vector)) for _ in range(max(repeats, 5))]
    return matrix.nbytes / 1e9 / min(seconds)


def _seconds(work: Any) -> float:
    import jax

    began = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - began


def measure(
    options: Options, model: LanguageModel, peer: Peer | None, batch: int
) -> dict[str, Any]:
    """Time one batch size; the peer takes its turn after each repetition of ours."""
    import numpy as np

    random = np.random.default_rng(batch)
    shape = (batch, options.prompt_tokens)
    prompts = random.integers(3, model.tokenizer.vocab_size, shape).tolist()

    def answer(new_tokens: int) -> Any:
        # No token stops an answer: both sides decode to the end.
        return model.generate(prompts, max_new_tokens=new_tokens, stop_ids=(-1,)).tokens

    lengths = (1, options.new_tokens)
    ours: dict[int, list[float]] = {length: [] for length in lengths}
    theirs: dict[int, list[float]] = {length: [] for length in lengths}
    agreement = None
    for length in lengths:
        tokens = np.asarray(answer(length))
        if peer is not None:
            said = np.array(peer.answer(prompts, length)["tokens"])
            agreement = float((said == tokens).mean())
    for _ in range(options.repeats):
        for length in lengths:
            ours[length].append(_seconds(lambda n=length: answer(n)))
            if peer is not None:
                theirs[length].append(peer.answer(prompts, length)["seconds"])
    row: dict[str, Any] = {"batch": batch, "agreement": agreement} | rates(options, batch, ours)
    if peer is not None:
        found = rates(options, batch, theirs)
        row |= {f"peer_{name}": value for name, value in found.items()}
        row |= {f"{name}_ratio": row[name] / found[name] for name in ("prefill", "decode")}
    return row


def rates(options: Options, batch: int, seconds: dict[int, list[float]]) -> dict[str, float]:
    """Tokens per second from the best times of one new token and of all."""
    first, all_tokens = min(seconds[1]), min(seconds[options.new_tokens])
    step = (all_tokens - first) / (options.new_tokens - 1)
    return {
        "prefill": batch * options.prompt_tokens / first,
        "decode": batch / step,
        "step_ms": 1e3 * step,
    }


def _transformers_is_there() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


_PEER = """
import json, sys, time
import torch, transformers
folder, dtype, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
transformers.utils.logging.disable_progress_bar()
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
model.eval()
model.generation_config.eos_token_id = None
model.generation_config.pad_token_id = 0
for line in sys.stdin:
    prompts, new_tokens = json.loads(line)
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        began = time.perf_counter()
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False
        )
        seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "tokens": out[:, ids.shape[1]:].tolist()}), flush=True)
print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__,
                  "threads": torch.get_num_threads()}), flush=True)
"""


class Peer:
    """transformers in a process of its own, which waits while the other side computes."""

    def __init__(self, folder: Path, options: Options, threads: int):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PEER, str(folder), options.dtype, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        """Seconds and tokens of one greedy answer to each prompt."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([prompts, new_tokens]) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> dict[str, Any]:
        """End the process; returns its versions and threads."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        versions = self._read()
        self._process.wait()
        return versions

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConfigError(
                f"transformers stopped with code {self._process.wait()}, see above; --no-peer "
                "measures without it"
            )
        return json.loads(line)


if __name__ == "__main__":
    cli.main("benchmarks.llm", Options, main)
