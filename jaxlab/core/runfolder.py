"""The folder of a run: its configuration, plain data, and writes that are all or nothing.

Light on purpose: command lines read a run folder before any device is chosen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import errno
import hashlib
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from jaxlab.core.errors import CheckpointError, ConfigError, DataError

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
RECORDS = "records"
CHECKPOINTS = "checkpoints"
FIGURES = "figures"
SUMMARY = "summary.json"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def plain(value: Any) -> Any:
    """Data that JSON and YAML can hold, from dataclasses, paths, tuples and arrays.

    Raises:
      ConfigError: A value has no plain form.
    """
    if value is None or isinstance(value, (bool, str, int, float)):
        if isinstance(value, enum.Enum):
            return value.name
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    raise ConfigError(
        f"a configuration holds {value!r} of type {type(value).__name__}, which cannot be "
        "written to a file; use numbers, strings, lists, dicts or dataclasses of them"
    )


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: NaN becomes null, infinities the strings "Infinity" and "-Infinity"."""
    return json.dumps(_finite(plain(value)), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def config_hash(config: Any) -> str:
    """A short digest of a configuration, independent of the order of its keys."""
    text = json.dumps(_finite(plain(config)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(saved: Any, current: Any) -> list[str]:
    """Lines `key: saved X, now Y` for all that differs between two plain values."""
    old, new = _flatten(saved), _flatten(current)
    absent = "absent"
    return [
        f"{key}: saved {old.get(key, absent)}, now {new.get(key, absent)}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key, absent) != new.get(key, absent)
    ]


def _flatten(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping) and value:
        flat: dict[str, str] = {}
        for key, item in value.items():
            flat |= _flatten(item, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: json.dumps(value)}


def is_full(error: BaseException) -> bool:
    """Whether an exception, or one that caused it, says that the disk is full."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return True
        if any(text in str(cause) for text in ("No space left", "Disk quota", "File too large")):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


@contextlib.contextmanager
def writing(path: os.PathLike[str] | str) -> Iterator[None]:
    """Turn a failure to write `path` into one clear message.

    Raises:
      CheckpointError: The disk is full; what was saved before is untouched.
      ConfigError: The path cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise CheckpointError(
                f"the disk is full: could not write {path}. What was saved before is intact; "
                "make room and continue with --resume"
            ) from error
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; choose a folder you may write to"
        ) from error


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a whole file or nothing of it.

    Raises:
      CheckpointError: The disk is full.
      ConfigError: The folder cannot be written.
    """
    write_bytes(path, text.encode())


def write_bytes(path: pathlib.Path, data: bytes) -> None:
    """Write a whole file or nothing of it; errors as for `write_text`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            # Also frees what a full disk let through.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def default_run_dir(experiment: str, preset: str, seed: int) -> pathlib.Path:
    """`runs/<experiment>/<time>-<preset>-s<seed>`, with a number behind it if taken.

    A command of an experiment, `"<experiment> <command>"`, has a folder below that of the experiment.
    """
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = pathlib.Path("runs", *experiment.split()) / f"{now}-{preset}-s{seed}"
    candidate, number = folder, 1
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def create(run_dir: pathlib.Path, experiment: str, options: Mapping[str, Any]) -> None:
    """Make the folder of a new run and write its configuration.

    Raises:
      ConfigError: The folder holds files already, or cannot be written.
    """
    if run_dir.exists() and not run_dir.is_dir():
        raise ConfigError(f"--run-dir {run_dir}: is a file; name a new folder")
    if run_dir.is_dir() and any(run_dir.iterdir()):
        raise ConfigError(
            f"--run-dir {run_dir}: is not empty. Continue that run with --resume {run_dir}, or "
            "name a new folder"
        )
    write_config(run_dir, experiment, options)


def forget(run_dir: pathlib.Path) -> None:
    """Remove the folder of a run that left nothing but its configuration."""
    with contextlib.suppress(OSError):
        if [path.name for path in run_dir.iterdir()] == [CONFIG]:
            (run_dir / CONFIG).unlink()
            run_dir.rmdir()


def write_config(run_dir: pathlib.Path, experiment: str, options: Mapping[str, Any]) -> None:
    """Write `config.yaml`: the experiment and every option it ran with."""
    import yaml

    text = yaml.safe_dump(
        {"experiment": experiment, "options": plain(options)}, sort_keys=False, allow_unicode=True
    )
    write_text(run_dir / CONFIG, text)


def read_config(run_dir: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """The experiment and the options of a run.

    Raises:
      CheckpointError: The folder is no run folder, or its configuration is damaged.
    """
    import yaml

    path = run_dir / CONFIG
    if not run_dir.is_dir():
        raise CheckpointError(f"{run_dir}: no such folder; expected the folder of a run")
    try:
        data = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{run_dir}: is not the folder of a run (it holds no {CONFIG}); name a folder that "
            "a run printed"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path}: unreadable ({str(error).splitlines()[0]})") from error
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("experiment"), str)
        or not isinstance(data.get("options"), dict)
    ):
        raise CheckpointError(f"{path}: damaged; expected the keys 'experiment' and 'options'")
    return data["experiment"], data["options"]


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new file beside `path` that takes its name once it is complete.

    Raises:
      DataError: it cannot be written.
    """
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix, delete=False
        ) as file:
            temporary = pathlib.Path(file.name)
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error})") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
