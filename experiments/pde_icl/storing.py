"""Parts of a study on disk, so that a stopped run goes on with the next part."""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxlab.core import reporting, runfolder
from jaxlab.core.errors import CheckpointError
from jaxlab.core.options import RunOptions

Arrays = dict[str, np.ndarray]


def stored(run_dir: pathlib.Path, name: str, compute: Callable[[], Arrays]) -> Arrays:
    """The arrays of a part: read if a run before wrote them, computed and written otherwise.

    Raises:
      CheckpointError: The file is damaged, or the disk is full.
    """
    path = run_dir / runfolder.RECORDS / f"{name}.npz"
    if path.exists():
        try:
            with np.load(path) as data:
                return dict(data)
        except (OSError, ValueError, EOFError) as error:
            raise CheckpointError(f"{path}: damaged ({error}); delete it and resume") from error
    arrays = compute()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    runfolder.write_bytes(path, buffer.getvalue())
    return arrays


def finish(
    options: RunOptions,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    arrays: Mapping[str, np.ndarray],
    results: Mapping[str, Any],
    title: str,
) -> None:
    """Write `arrays.npz`, `table.csv` and `summary.json`, and print the table."""
    folder = options.run_dir
    assert folder is not None
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    runfolder.write_bytes(folder / "arrays.npz", buffer.getvalue())
    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    runfolder.write_text(folder / "table.csv", text.getvalue())
    reporting.write_summary(folder, results, {"memory": reporting.peak_memory()})
    reporting.print_table(columns, rows, title=title)
    print(f"results: {folder}")


def speed(parts: Sequence[np.ndarray]) -> dict[str, float]:
    """Rates of a model from the costs of its parts."""
    read, written, seconds, cpu = np.sum(parts, axis=0)
    return {
        "tokens_read": read,
        "tokens_written": written,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "tokens_per_second": (read + written) / max(seconds, 1e-9),
        "tokens_per_cpu_second": (read + written) / max(cpu, 1e-9),
    }
