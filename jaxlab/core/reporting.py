"""What a run leaves on disk and prints: metrics, records, the summary, tables.

`metrics.jsonl` holds one JSON object per chunk: `step` (steps done), `seconds` (time
since the start, stops left out) and each metric as a list over seeds. Records lie in
`records/`, one file per chunk, an array `[kept steps, seeds, ...]` per leaf.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import json
import os
import pathlib
import platform
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxlab.core import runfolder
from jaxlab.core.errors import CheckpointError, ConfigError, DataError
from jaxlab.core.metrics import RESERVED

PyTree = Any
Row = dict[str, Any]


class MetricsLog:
    """Appends rows to `metrics.jsonl` and, if asked, to TensorBoard event files."""

    def __init__(self, run_dir: pathlib.Path, tensorboard: bool = False):
        self._path = run_dir / runfolder.METRICS
        self._board = _tensorboard_writer(run_dir / "tensorboard") if tensorboard else None

    def rewind(self, step: int, write: bool = True) -> list[Row]:
        """Drop what was written after `step` and return what is left.

        A process may die between a line and its checkpoint, or in the middle of a line.

        Raises:
          CheckpointError: The rows up to `step` are damaged.
        """
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            lines = []
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{self._path}: cannot be read ({error})") from error
        kept: list[Row] = []
        for line in lines:
            row = _parse(line)
            if row is None or row["step"] > step:
                break
            kept.append(row)
        if step > 0 and (not kept or kept[-1]["step"] != step):
            raise CheckpointError(
                f"{self._path}: the rows up to the checkpoint of step {step} are damaged or "
                "missing; restore the file or start a new run"
            )
        if write:
            text = "".join(runfolder.to_json(row) + "\n" for row in kept)
            runfolder.write_text(self._path, text)
        return kept

    def append(self, row: Row) -> None:
        """Write one row at once, so that it survives the process.

        Raises:
          CheckpointError: The disk is full.
        """
        line = runfolder.to_json(row) + "\n"
        with runfolder.writing(self._path), open(self._path, "ab") as file:
            file.write(line.encode())
        if self._board is not None:
            for name, value in row.items():
                if name not in RESERVED:
                    mean = _mean(np.asarray(value, float))
                    self._board.add_scalar(name, mean, row["step"])

    def close(self) -> None:
        """Flush the event files."""
        if self._board is not None:
            self._board.close()


def _mean(values: np.ndarray) -> float:
    present = values[~np.isnan(values)]
    return float(np.mean(present)) if present.size else float("nan")


def _parse(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def _tensorboard_writer(folder: pathlib.Path) -> Any:
    try:
        from tensorboard.summary import Writer
    except ImportError as error:
        raise ConfigError(
            "--tensorboard: the package 'tensorboard' is not installed; install "
            "jaxlab-suite[tensorboard], or leave the flag out (metrics.jsonl is always written)"
        ) from error
    return Writer(str(folder))


def read_metrics(run_dir: pathlib.Path | str) -> dict[str, np.ndarray]:
    """The metrics of a run by name: `step [rows]`, `seconds [rows]`, others `[rows, seeds, ...]`.

    Raises:
      DataError: There is no file, or a line in its middle is damaged.
    """
    path = pathlib.Path(run_dir) / runfolder.METRICS
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        row = _parse(line)
        if row is None:
            if number == len(lines):
                break  # The last line may be torn when the process was killed.
            raise DataError(f"{path}, line {number}: expected a JSON object with a 'step'")
        rows.append(row)
    return stack_rows(rows)


def stack_rows(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Arrays over rows by name; a metric that a row lacks is NaN there."""
    stacked: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [_array(row[name]) if name in row else None for row in rows]
        shape = next(v.shape for v in values if v is not None)
        if any(v is None for v in values):
            missing = np.full(shape, np.nan)
            values = [missing if v is None else v for v in values]
        arrays = [v for v in values if v is not None]
        if all(v.shape == shape for v in arrays):
            stacked[name] = np.stack(arrays)
        else:
            ragged = np.empty(len(arrays), object)
            ragged[:] = arrays
            stacked[name] = ragged
    return stacked


def _array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "US":
        array = array.astype(float)  # null is NaN, "Infinity" is what it says.
    return array


def write_records(run_dir: pathlib.Path, first: int, last: int, records: PyTree) -> None:
    """Write the records of the steps `first + 1 .. last` to one file.

    Raises:
      CheckpointError: The disk is full.
    """
    buffer = io.BytesIO()
    np.savez(buffer, **flatten_records(records))  # type: ignore[arg-type]
    path = run_dir / runfolder.RECORDS / f"{first:010d}-{last:010d}.npz"
    runfolder.write_bytes(path, buffer.getvalue())


def flatten_records(records: PyTree) -> dict[str, np.ndarray]:
    """Arrays by path, as in `{"chain/position": ...}`."""
    import jax

    flat = jax.tree_util.tree_flatten_with_path(records)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in flat
    }


def rewind_records(run_dir: pathlib.Path, step: int) -> None:
    """Delete the records that were written after `step`."""
    for path in _record_files(run_dir):
        if int(path.stem.split("-")[1]) > step:
            path.unlink()


def _record_files(run_dir: pathlib.Path) -> list[pathlib.Path]:
    return sorted((run_dir / runfolder.RECORDS).glob("[0-9]*-[0-9]*.npz"))


def read_records(run_dir: pathlib.Path | str) -> dict[str, np.ndarray]:
    """The records of a run by path, `[kept steps, seeds, ...]`; `step` numbers the first axis.

    Raises:
      DataError: A file is damaged.
    """
    chunks = []
    for path in _record_files(pathlib.Path(run_dir)):
        try:
            with np.load(path) as data:
                chunks.append(dict(data))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: damaged ({error})") from error
    return join_records(chunks)


def join_records(chunks: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Chunks of records, one after the other."""
    names = chunks[0] if chunks else ()
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def read_performance(run_dir: pathlib.Path | str) -> dict[str, Any] | None:
    """Times, rates and memory in the summary of a run; None where it has none."""
    path = pathlib.Path(run_dir) / runfolder.SUMMARY
    if not path.exists():
        return None
    try:
        return dict(json.loads(path.read_text()).get("performance") or {})
    except ValueError as error:
        raise CheckpointError(f"{path}: is damaged ({error}); delete it and try again") from None


def write_summary(
    run_dir: pathlib.Path | str,
    results: Mapping[str, Any],
    performance: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Write `summary.json`: the results at top level, what produced them beside.

    `performance` holds times, rates and memory; `provenance` the command, versions,
    the commit if there is one, and the devices.

    Raises:
      ConfigError: A result is called `performance` or `provenance`.
      CheckpointError: The disk is full.
    """
    reserved = {"performance", "provenance"} & set(results)
    if reserved:
        raise ConfigError(f"results called {', '.join(sorted(reserved))}: the name is taken")
    path = pathlib.Path(run_dir) / runfolder.SUMMARY
    summary = dict(results) | {"performance": dict(performance or {}), "provenance": provenance()}
    runfolder.write_text(path, runfolder.to_json(summary, indent=2) + "\n")
    return path


def provenance() -> dict[str, Any]:
    """The command, time, versions, commit and devices of this process."""
    from importlib import metadata

    import jax

    from jaxlab import __version__
    from jaxlab.core import devices

    versions = {"python": platform.python_version(), "jaxlab": __version__, "jax": jax.__version__}
    for name in ("jaxlib", "flax", "optax", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "command": command(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "commit": _commit(),
        "devices": devices.describe(),
        "cpus": os.cpu_count(),
    }


def command() -> str:
    """The command line of this process, `python -m` form included."""
    return shlex.join([*_program(), *sys.argv[1:]])


def resume_command(run_dir: os.PathLike[str] | str) -> str:
    """How to continue a run of this process."""
    if "jaxlab.core.cli" not in sys.modules:
        return f"run(..., run_dir={os.fspath(run_dir)!r}, resume=True)"
    # What comes before all options names a command of the program.
    command = itertools.takewhile(lambda argument: not argument.startswith("-"), sys.argv[1:])
    return shlex.join([*_program(), *command, "--resume", os.fspath(run_dir)])


def _program() -> list[str]:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None:
        return ["python", sys.argv[0]]
    return ["python", "-m", spec.name.removesuffix(".__main__")]


def _commit() -> str | None:
    root = pathlib.Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def peak_memory() -> dict[str, float]:
    """Peak memory in MiB: of the process, and of the first device where it is counted."""
    import jax

    scale = 1024 if sys.platform != "darwin" else 1024**2  # ru_maxrss is KiB on Linux.
    memory = {"process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale}
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        memory["device_mib"] = stats["peak_bytes_in_use"] / 1024**2
    return {name: round(value, 1) for name, value in memory.items()}


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    file: Any = None,
) -> None:
    """Print a table; numbers are rounded to four digits and aligned to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    rows = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], (int, float, np.number)) for row in rows)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*[format_value(value) for value in row])
    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)


def format_value(value: Any) -> str:
    """A number in at most five characters or so; anything else as it is."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        magnitude = abs(float(value))
        if magnitude >= 1000 and magnitude < 1e6:
            return f"{float(value):.0f}"
        return f"{float(value):.4g}"
    return str(value)
