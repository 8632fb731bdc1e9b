"""Decision processes of users: npz and JSON files."""

from __future__ import annotations

import json
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxlab.core.errors import DataError, ScenarioError
from jaxlab.envs.cmdp.model import CMDP, cmdp

KEYS = ("P", "r", "c", "sense", "b", "objective")
OBJECTIVES = ("maximise", "minimise")


def read_cmdp(path: pathlib.Path | str) -> CMDP:
    """Read and check a decision process.

    The file is `.npz` or JSON with `P [S, A, S]`, `r [S, A]`, and for m cost signals
    `c [m, S, A]`, `sense [m]` (`>=` or `<=`), `b [m]`. `objective` may be `minimise`; then `r`
    is a cost.

    Raises:
      DataError: The file is missing, unreadable, or holds no decision process; says which part.
    """
    path = pathlib.Path(path)
    fields = _read_npz(path) if path.suffix == ".npz" else _read_json(path)
    try:
        return _parse(fields)
    except ScenarioError as error:
        raise DataError(f"{path}: {error}") from None


def write_cmdp(problem: CMDP, path: pathlib.Path | str) -> None:
    """Write an npz file that `read_cmdp` reads."""
    np.savez_compressed(
        path,
        P=problem.transitions,
        r=problem.own(np.asarray(problem.reward)),
        c=problem.costs,
        sense=np.where(np.asarray(problem.senses) > 0, ">=", "<="),
        b=problem.bounds,
        objective="minimise" if problem.minimise else "maximise",
    )


def _read_npz(path: pathlib.Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    # A TypeError: the file holds one plain array.
    except (OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as an npz archive ({error})") from None


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON ({error}); name an npz archive .npz") from None


def _parse(fields: Any) -> CMDP:
    if not isinstance(fields, Mapping):
        raise ScenarioError(f"expected an object with the keys {', '.join(KEYS)}")
    unknown = [key for key in fields if key not in KEYS]
    if unknown:
        raise ScenarioError(f"key {unknown[0]!r} is unknown; expected {', '.join(KEYS)}")
    needed = ("P", "r", "c", "sense", "b") if "c" in fields else ("P", "r")
    for key in needed:
        if key not in fields:
            raise ScenarioError(f"key {key!r} is missing")
    objective = str(fields.get("objective", "maximise"))
    if objective not in OBJECTIVES:
        raise ScenarioError(f"objective is {objective!r}, expected {' or '.join(OBJECTIVES)}")
    senses = fields.get("sense", [])
    if isinstance(senses, str) or np.ndim(senses) != 1:
        raise ScenarioError("sense: expected a list with '>=' or '<=' for each signal")
    return cmdp(
        fields["P"],
        fields["r"],
        fields.get("c", ()),
        [str(sense) for sense in senses],
        fields.get("b", ()),
        minimise=objective == "minimise",
    )
