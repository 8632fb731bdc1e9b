"""The options that command lines share, as frozen dataclasses; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import pathlib
import types
import typing
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from jaxlab.core import devices, runfolder
from jaxlab.core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of every command that computes."""

    devices: str | None = None
    """Devices to run on: cpu, gpu or tpu, with an optional count (cpu:8 simulates eight).
    Without it the environment variable JAX_PLATFORMS holds."""
    x64: bool = False
    """Compute with 64-bit floats. Without it JAX_ENABLE_X64 holds."""
    distributed: bool = False
    """Join the other hosts; start the same command on each."""
    coordinator: str | None = None
    """Address host:port of the first process; Slurm, Kubernetes and TPU pods know it."""
    num_processes: int | None = None
    """Number of processes, where --coordinator is given."""
    process_id: int | None = None
    """Number of this process, from 0, where --coordinator is given."""
    debug: bool = False
    """Stop at the first NaN, log compilations, show tracebacks."""

    #: Options that may differ between a run and its continuation.
    volatile: ClassVar[frozenset[str]] = frozenset(
        {"devices", "distributed", "coordinator", "num_processes", "process_id", "debug"}
    )

    def check(self) -> None:
        """Refuse values that no program could run with.

        Subclasses extend it; it is called before any device is chosen.

        Raises:
          ConfigError: Names the option, what was expected and what to do.
        """
        if self.devices is not None:
            devices.parse_devices(self.devices)
        joined = [
            name
            for name in ("coordinator", "num_processes", "process_id")
            if getattr(self, name) is not None
        ]
        if joined and not self.distributed:
            raise ConfigError(f"--{joined[0].replace('_', '-')}: needs --distributed as well")
        self.at_least("num_processes", 1)
        self.at_least("process_id", 0)

    def at_least(self, name: str, least: float) -> None:
        """Refuse an option below `least`, or one that is not finite; None passes.

        Raises:
          ConfigError: Names the option.
        """
        value = getattr(self, name)
        if value is not None and not (math.isfinite(value) and value >= least):
            raise ConfigError(
                f"--{name.replace('_', '-')} {value}: expected a number of at least {least}"
            )

    def setup_devices(self) -> None:
        """Configure JAX as the options say; see `jaxlab.core.devices.setup`."""
        devices.setup(
            self.devices,
            x64=self.x64,
            debug=self.debug,
            distributed=self.distributed,
            coordinator=self.coordinator,
            num_processes=self.num_processes,
            process_id=self.process_id,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(DeviceOptions):
    """Options of every experiment that trains, samples or solves."""

    preset: Literal["smoke", "quick", "paper"] = "quick"
    """Sizes: smoke takes seconds, quick minutes, paper what the paper used. The other
    defaults below are those of the preset."""
    seeds: int = 1
    """Number of seeds, run as one batch."""
    seed: int = 0
    """The first seed; the others follow it."""
    steps: int = 1000
    """Steps of the learner."""
    run_dir: pathlib.Path | None = None
    """Folder for the results; by default a new one under runs/."""
    resume: pathlib.Path | None = None
    """Folder of a stopped run to continue, with the options it had."""
    evaluate: pathlib.Path | None = None
    """Folder of a run whose result is evaluated instead of training."""
    progress: bool = True
    """Show progress on standard error."""
    tensorboard: bool = False
    """Also write TensorBoard event files (needs the package tensorboard)."""
    profile: pathlib.Path | None = None
    """Folder for a profile of one chunk, to be opened with XProf or Perfetto."""

    volatile: ClassVar[frozenset[str]] = DeviceOptions.volatile | {
        *("run_dir", "resume", "evaluate", "progress", "tensorboard", "profile")
    }

    def check(self) -> None:
        super().check()
        self.at_least("seeds", 1)
        self.at_least("seed", 0)
        self.at_least("steps", 1)
        if self.seed + self.seeds > 2**32:
            raise ConfigError(f"--seed {self.seed}: expected seeds below 2^32")
        if self.steps >= 2**31:
            raise ConfigError(f"--steps {self.steps}: expected fewer than 2^31")
        given = [n for n in ("run_dir", "resume", "evaluate") if getattr(self, n) is not None]
        if len(given) > 1 and given != ["run_dir", "evaluate"]:
            names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError(f"{names} contradict each other; give one")

    def config(self) -> dict[str, Any]:
        """The options that a continuation must share with its run, as plain data."""
        return {
            field.name: runfolder.plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in self.volatile
        }

    def run_arguments(self) -> dict[str, Any]:
        """Arguments of `jaxlab.core.training.run` that follow from the options."""
        return {
            "steps": self.steps,
            "seeds": self.seeds,
            "seed": self.seed,
            "run_dir": self.run_dir,
            "resume": self.resume is not None,
            "config": self.config(),
            "progress": self.progress,
            "tensorboard": self.tensorboard,
            "profile": self.profile,
        }


def revive(value: Any, hint: Any) -> Any:
    """A value of the annotated type from plain data (paths, tuples, dataclasses).

    Raises:
      TypeError: The value does not fit the annotation.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return revive(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _revive_union(value, arguments)
    if origin is Literal:
        return _expect(value, value in arguments, hint)
    if origin in (tuple, list):
        items = _expect(value, isinstance(value, list), hint)
        each = arguments if origin is tuple and arguments[-1] is not ... else None
        kinds = each or (arguments[0],) * len(items)
        return origin(revive(item, kind) for item, kind in zip(items, kinds, strict=True))
    if origin is dict:
        items = _expect(value, isinstance(value, dict), hint)
        return {key: revive(item, arguments[1]) for key, item in items.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        items = _expect(value, isinstance(value, dict) and value.keys() <= hints.keys(), hint)
        return hint(**{name: revive(item, hints[name]) for name, item in items.items()})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint[_expect(value, value in hint.__members__, hint)]
    if isinstance(hint, type) and issubclass(hint, os.PathLike):
        return pathlib.Path(_expect(value, isinstance(value, str), hint))
    if hint is float:
        _expect(value, isinstance(value, (int, float)) and not isinstance(value, bool), hint)
        return float(value)
    return _expect(value, hint is Any or type(value) is hint, hint)


def _revive_union(value: Any, choices: Sequence[Any]) -> Any:
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        if choice is not type(None):
            try:
                return revive(value, choice)
            except (TypeError, ValueError, KeyError, AttributeError):
                continue
    raise TypeError(f"{value!r} is none of {choices}")


def _expect(value: Any, fits: bool, hint: Any) -> Any:
    if not fits:
        raise TypeError(f"{value!r} is no {getattr(hint, '__name__', hint)}")
    return value
