"""What all command lines share: options, presets, run folders, errors as one line.

An experiment declares its options as a frozen dataclass on top of `RunOptions`, in a
file that imports neither jax nor flax, and hands its body to `main`:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(cli.RunOptions):
        '''What this experiment is.'''
        lanes: int = 3
        '''Lanes per road.'''

    PRESETS = {"smoke": {"steps": 20}, "quick": {"steps": 1000}, "paper": {"steps": 100_000}}

    if __name__ == "__main__":
        cli.main("roads", Options, train, presets=PRESETS)
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from jaxlab.core import devices, runfolder
from jaxlab.core.errors import CheckpointError, ConfigError, Interrupted, JaxlabError
from jaxlab.core.options import DeviceOptions, RunOptions, revive

Presets = Mapping[str, Mapping[str, Any]]
AnyOptions = TypeVar("AnyOptions", bound="DeviceOptions")


def main(
    experiment: str,
    options_type: type[AnyOptions],
    body: Callable[[AnyOptions], object],
    *,
    presets: Presets | None = None,
    evaluate: Callable[[AnyOptions], object] | None = None,
    argv: Sequence[str] | None = None,
    program: str | None = None,
) -> None:
    """Parse a command line, choose the devices, call the body, exit.

    The body gets options whose `run_dir` exists and holds `config.yaml`. An error of
    `jaxlab.core.errors` becomes one line on standard error and its exit code.

    Args:
      experiment: Name of the experiment, kept in its run folders.
      options_type: Its options.
      body: Runs it.
      presets: For each preset, the defaults that differ from those of the dataclass.
      evaluate: Evaluates the run `options.evaluate` instead, with that run's options.
      argv: Arguments; those of the process by default.
      program: How it is called, in messages of the parser; by default after the experiment.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    created: pathlib.Path | None = None
    try:
        options = parse(experiment, options_type, presets, arguments, program)
        options.setup_devices()
        chosen = body
        if isinstance(options, RunOptions):
            if options.evaluate is not None:
                if evaluate is None:
                    raise ConfigError(f"--evaluate: {experiment} has nothing to evaluate")
                chosen = evaluate
            else:
                begins = options.resume is None
                options = _with_run_dir(experiment, options)
                created = getattr(options, "run_dir", None) if begins else None
        chosen(options)
    except JaxlabError as error:
        if created is not None and devices.is_primary():
            # Bad input, most often: the same command must work once that is mended.
            runfolder.forget(created)
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        _exit(error.exit_code)
    except Interrupted:
        _exit(0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        _exit(130)
    except BrokenPipeError:
        # Whoever read the output has gone, as in `... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _exit(1)
    except OSError as error:
        if debug or not runfolder.is_full(error):
            raise
        print(
            f"error: the disk is full ({error}). What was saved before is intact; make room "
            "and continue with --resume",
            file=sys.stderr,
        )
        _exit(CheckpointError.exit_code)


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    raise SystemExit(code)


def parse(
    experiment: str,
    options_type: type[AnyOptions],
    presets: Presets | None = None,
    argv: Sequence[str] | None = None,
    program: str | None = None,
) -> AnyOptions:
    """Options from a command line, on top of a preset or of the run that is continued.

    Raises:
      ConfigError: A value is out of range, or options contradict each other.
      CheckpointError: `--resume` or `--evaluate` names no run of this experiment.
      SystemExit: The command line cannot be parsed, or help was asked for.
    """
    import tyro

    arguments = list(sys.argv[1:] if argv is None else argv)
    default = _defaults(experiment, options_type, presets or {}, arguments)
    options = tyro.cli(
        options_type,
        prog=program or (f"python -m experiments.{experiment}" if argv is None else experiment),
        args=arguments,
        default=default,
        registry=_registry(),
        config=(tyro.conf.HelptextFromCommentsOff,),
    )
    options.check()
    return options


def _defaults(
    experiment: str, options_type: type[AnyOptions], presets: Presets, arguments: Sequence[str]
) -> AnyOptions:
    if not issubclass(options_type, RunOptions):
        return options_type()
    for name in ("resume", "evaluate"):
        given = _peek(arguments, name)
        if given is not None:
            return _saved_options(experiment, options_type, pathlib.Path(given), name)
    preset = _peek(arguments, "preset") or "quick"
    changes = dict(presets.get(preset, {}))
    # An unknown preset is left for the parser to refuse.
    return options_type(**(changes | {"preset": preset} if preset in presets else changes))


def _peek(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option whose value decides on the defaults of others."""
    flag, value = f"--{name}", None
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            value = arguments[index + 1]
        elif argument.startswith(f"{flag}="):
            value = argument.removeprefix(f"{flag}=")
    return value


def _saved_options(
    experiment: str, options_type: type[AnyOptions], run_dir: pathlib.Path, flag: str
) -> AnyOptions:
    saved, values = runfolder.read_config(run_dir)
    if saved != experiment:
        raise CheckpointError(
            f"--{flag} {run_dir}: is a run of {saved}, not of {experiment}; use "
            f"python -m experiments.{saved}"
        )
    hints = get_type_hints(options_type)
    fields = {field.name for field in dataclasses.fields(options_type)}
    unknown = sorted(set(values) - fields)
    if unknown:
        raise CheckpointError(
            f"{run_dir / runfolder.CONFIG}: unknown option {unknown[0]!r}; use the version of "
            "jaxlab that wrote it"
        )
    try:
        kept = {
            name: revive(value, hints[name])
            for name, value in values.items()
            if name not in options_type.volatile
        }
        return options_type(**kept)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{run_dir / runfolder.CONFIG}: damaged ({error})") from error


def _with_run_dir(experiment: str, options: AnyOptions) -> AnyOptions:
    """The same options with the folder of a new run, or of the one that is continued."""
    assert isinstance(options, RunOptions)
    if options.resume is not None:
        return dataclasses.replace(options, run_dir=options.resume)
    folder = options.run_dir or runfolder.default_run_dir(experiment, options.preset, options.seed)
    folder = pathlib.Path(devices.share_text(str(folder)))
    options = dataclasses.replace(options, run_dir=folder)
    if devices.is_primary():
        values = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
        runfolder.create(folder, experiment, values)
    return options


def parse_int(text: str) -> int:
    """An integer, in exponent form too: `1e4`, `2.5e3`.

    Raises:
      ValueError: The text is no integer.
    """
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if not math.isfinite(value) or value != int(value):
        raise ValueError(f"{text!r} is no integer")
    return int(value)


def _registry() -> Any:
    """Integers in exponent form wherever an option is one."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

    registry = ConstructorRegistry()

    @registry.primitive_rule
    def integer(info: Any) -> Any:
        if info.type is not int:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda texts: parse_int(texts[0]),
            is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
            str_from_instance=lambda value: [str(value)],
        )

    return registry
