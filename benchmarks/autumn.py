"""Speed of Autumn worlds, beside the reference interpreter where its module is installed.

    NPROC=1 taskset -c 1 python -m benchmarks.autumn [--programs P.sexp ...] [--json FILE]

Steps with their picture per CPU-second of one core under random actions, at several batch
sizes; tracing and compilation apart. Without `--programs` the project's own programs run,
and those of the data folder (`JAXLAB_DATA`, by default `../shared/data` beside the
repository) where it is present: some minutes. The interpreter takes the same kind of
actions one by one, and renders after each.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxlab.core import cli
from jaxlab.core.errors import ConfigError, DataError
from jaxlab.core.options import DeviceOptions

ROOT = Path(__file__).parents[1]
#: Programs of the project that fail on purpose.
FAILING = ("errors.sexp",)
#: Names under which the interpreter's module is installed or built.
MODULES = ("MARA.autumn_cpp.interpreter_module", "interpreter_module")
PACKAGED_LIBRARY = "MARA.autumn_cpp.autumnstdlib"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Steps with render per CPU-second, with the interpreter where it is importable."""

    programs: tuple[Path, ...] = ()
    """Files of programs (.sexp); by default the project's own and those of the data folder."""
    batches: tuple[int, ...] = (1, 64, 1024)
    """Worlds stepped at once."""
    steps: int = 64
    """Steps of a world in a timed run."""
    random: Literal["jax", "reference"] = "jax"
    """Draw from JAX keys, or as the reference interpreter does."""
    repeats: int = 5
    """Timed repetitions; the best is reported."""
    seed: int = 0
    """Of the actions and the random numbers."""
    peer_steps: int = 500
    """Steps of the interpreter in a timed run."""
    stdlib: Path | None = None
    """The interpreter's library (stdlib.sexp); by default the one that its package brings."""
    json: Path | None = None
    """File for the results."""

    def check(self) -> None:
        super().check()
        for name in ("steps", "repeats", "peer_steps"):
            self.at_least(name, 1)
        if not self.batches or min(self.batches) < 1:
            raise ConfigError(f"--batches {self.batches}: expected numbers of at least 1")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"--seed {self.seed}: expected an integer from 0 to 2^32 - 1")


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting

    interpreter = _interpreter()
    library = None if interpreter is None else _library(options)
    rows: list[dict[str, Any]] = []
    for path in options.programs or default_programs():
        own = measure(path, options)
        if interpreter is not None:
            size = own[0]["grid_size"]
            peer = measure_interpreter(interpreter, library or "", path, size, options)
            own = [row | peer | {"times": row["per_cpu_s"] / peer["peer_per_cpu_s"]} for row in own]
        rows += own
    columns = ["program", "batch", "per_cpu_s", "peer_per_cpu_s", "times"]
    columns += ["trace_cpu_s", "compile_cpu_s", "failed", "peer_failed"]
    table = [[row.get(c, "-") for c in columns] for row in rows]
    title = f"Steps with render per CPU-second, {jax.devices()[0].device_kind}"
    reporting.print_table(columns, table, title=title)
    print("failed: worlds that met a run-time error and were stepped on as they are;")
    print("peer_failed: the interpreter met one, and its rate is that of the steps before it")
    if interpreter is None:
        print("not importable here: the reference interpreter")
    if options.json is not None:
        document = {"rows": rows, "provenance": reporting.provenance()}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def default_programs() -> list[Path]:
    """The project's programs, and those of the data folder where it is present."""
    data = Path(os.environ.get("JAXLAB_DATA", ROOT.parent / "shared" / "data"))
    folders = (ROOT / "tests" / "golden" / "autumn", data / "autumn" / "programs")
    found = [path for folder in folders for path in sorted(folder.glob("*.sexp"))]
    programs = [path for path in found if path.name not in FAILING]
    if not programs:
        raise ConfigError("--programs: none are in the usual places; give paths of programs")
    return programs


def random_actions(seed: int, shape: tuple[int, ...], grid_size: int) -> np.ndarray:
    """Actions `[*shape, 3]`, int32: a kind drawn uniformly, and a place for it if it is a click."""
    from jaxlab.envs.autumn.stepping import ACTIONS

    bounds = (len(ACTIONS), grid_size, grid_size)
    return np.random.default_rng(seed).integers(0, bounds, (*shape, 3), dtype=np.int32)


def measure(path: Path, options: Options) -> list[dict[str, Any]]:
    """Rates of one program, a row for each batch size."""
    from jaxlab.envs.autumn.compiler import CompiledProgram
    from jaxlab.envs.autumn.replay import load_program

    program = load_program(path)
    clock = time.process_time()
    world = CompiledProgram(program, random=options.random)
    trace_s = time.process_time() - clock
    return [
        {
            "program": path.stem,
            "grid_size": world.grid_size,
            "batch": batch,
            "trace_cpu_s": trace_s,
        }
        | _measure_batch(world, batch, options)
        for batch in options.batches
    ]


def _measure_batch(world: Any, batch: int, options: Options) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    if options.random == "reference":
        starts: Any = jnp.arange(1, batch + 1, dtype=jnp.uint32) + np.uint32(options.seed)
    else:
        starts = jax.random.split(jax.random.key(options.seed), batch)
    states = jax.jit(jax.vmap(world.init))(starts)
    actions = jnp.asarray(random_actions(options.seed, (options.steps, batch), world.grid_size))

    def rollout(states: Any, actions: jax.Array, key: jax.Array) -> Any:
        def one(states: Any, now: tuple[jax.Array, jax.Array]) -> Any:
            action, number = now
            keys = jax.random.split(jax.random.fold_in(key, number), batch)
            after = jax.vmap(world.step)(keys, states, action)
            # Each step's picture is used, so that none is left out.
            return after, after.frame.sum()

        return jax.lax.scan(one, states, (actions, jnp.arange(options.steps)))

    keys = jax.random.split(jax.random.key(options.seed), options.repeats + 1)
    clock = time.process_time()
    run = jax.jit(rollout).lower(states, actions, keys[0]).compile()
    compile_s = time.process_time() - clock
    after, _ = jax.block_until_ready(run(states, actions, keys[0]))
    best = np.inf
    for key in keys[1:]:
        clock = time.process_time()
        jax.block_until_ready(run(states, actions, key))
        best = min(best, time.process_time() - clock)
    return {
        "per_cpu_s": batch * options.steps / best,
        "compile_cpu_s": compile_s,
        "failed": int((after.error > 0).sum()),
    }


def _interpreter() -> Any:
    """The class of the reference interpreter, or None where it is not installed."""
    for name in MODULES:
        try:
            return importlib.import_module(name).Interpreter
        except ModuleNotFoundError:
            continue
    return None


def _library(options: Options) -> str:
    """The text of the interpreter's own library.

    Raises:
      ConfigError: it is neither given nor part of the interpreter's package.
      DataError: the file cannot be read.
    """
    if options.stdlib is not None:
        return _text(options.stdlib)
    try:
        return importlib.import_module(PACKAGED_LIBRARY).autumnstdlib
    except ModuleNotFoundError:
        raise ConfigError(
            "--stdlib: is missing; the interpreter was found, give the path of its stdlib.sexp"
        ) from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def measure_interpreter(
    interpreter: Any, library: str, path: Path, grid_size: int, options: Options
) -> dict[str, Any]:
    """Rate of the interpreter on one program, the best of as many runs as ours.

    Raises:
      DataError: the interpreter cannot start the program.
    """
    from jaxlab.envs.autumn.stepping import ACTIONS

    text, best, failed = _text(path), 0.0, False
    actions = random_actions(options.seed, (options.peer_steps,), grid_size).tolist()
    for _ in range(options.repeats):
        world = interpreter()
        answer = world.run_script(text, library, "", options.seed)
        if "Error" in answer:
            raise DataError(f"{path}: the interpreter refuses it: {answer}")
        done = 0
        clock = time.process_time()
        try:
            for kind, x, y in actions:
                if ACTIONS[kind] == "click":
                    world.click(x, y)
                elif ACTIONS[kind] != "noop":
                    getattr(world, ACTIONS[kind])()
                world.step()
                world.render_all()
                done += 1
        except RuntimeError:
            failed = True
        best = max(best, done / (time.process_time() - clock))
    return {"peer_per_cpu_s": best, "peer_failed": failed}


if __name__ == "__main__":
    cli.main("benchmarks.autumn", Options, main)
