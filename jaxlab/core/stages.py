"""Pipelines of runs: adaptation then frozen chains; sample, train, sample again."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxlab.core import runfolder
from jaxlab.core.errors import ConfigError, Interrupted
from jaxlab.core.learner import Hyper, Learner
from jaxlab.core.progress import say
from jaxlab.core.reporting import resume_command
from jaxlab.core.training import Result, run

Results = Mapping[str, Result]


class Stage(NamedTuple):
    """One run of a pipeline; a plain `(name, make, steps)` does as well.

    Attributes:
      name: Name of the stage and of its folder.
      make: Builds the learner from the results of the stages before, by name.
      steps: Steps of the stage.
      hyper: Hyper-parameters of the stage, or a function from the results before to them; None
        takes those of the pipeline.
      options: Arguments of `run` that differ from the pipeline's.
    """

    name: str
    make: Callable[[Results], Learner]
    steps: int
    hyper: Hyper | Callable[[Results], Hyper] = None
    options: Mapping[str, Any] = {}


def run_stages(
    stages: Sequence[Stage | tuple[str, Callable[[Results], Learner], int]],
    *,
    hyper: Hyper = None,
    run_dir: pathlib.Path | str | None = None,
    resume: bool = False,
    **options: Any,
) -> dict[str, Result]:
    """Run stages one after the other, each in the folder of its name.

    A resumed pipeline reads finished stages from their last checkpoint, continues the
    stage that was stopped, and goes on.

    Args:
      stages: The stages in order.
      hyper: Hyper-parameters of stages that name none.
      run_dir: Folder of the pipeline; None keeps everything in memory.
      resume: Continue what `run_dir` holds.
      **options: Further arguments of `run`, for every stage.

    Raises:
      ConfigError: Two stages share a name, a name is no folder name, or an argument of
        `run` is wrong.
      CheckpointError: As for `run`.
      Interrupted: As for `run`.
    """
    pipeline = [Stage(*stage) for stage in stages]
    names = [stage.name for stage in pipeline]
    for name in names:
        if name in _TAKEN or pathlib.PurePath(name).name != name:
            raise ConfigError(f"stage {name!r}: expected a name that can be a folder's")
        if names.count(name) > 1:
            raise ConfigError(f"stage {name!r}: the name is used twice")
    results: dict[str, Result] = {}
    for stage in pipeline:
        arguments = {"label": stage.name, **options, **stage.options}
        own = stage.hyper(dict(results)) if callable(stage.hyper) else stage.hyper
        try:
            results[stage.name] = run(
                stage.make(dict(results)),
                steps=stage.steps,
                hyper=hyper if own is None else own,
                run_dir=None if run_dir is None else pathlib.Path(run_dir) / stage.name,
                resume=resume,
                **arguments,
            )
        except Interrupted:
            # What the run says names its own folder alone.
            if run_dir is not None:
                say(f"the pipeline goes on with: {resume_command(run_dir)}")
            raise
    return results


_TAKEN = frozenset(
    {"", "..", runfolder.CHECKPOINTS, runfolder.RECORDS, runfolder.FIGURES, runfolder.SUMMARY}
)


def combined_performance(results: Results) -> dict[str, Any]:
    """Performance of a pipeline: seconds added up, the highest memory, and each stage."""
    stages = {name: result.performance for name, result in results.items()}
    total: dict[str, Any] = {}
    for performance in stages.values():
        for name, value in performance.items():
            if name.endswith("_seconds"):
                total[name] = round(total.get(name, 0.0) + value, 3)
            elif name.endswith("_mib"):
                total[name] = max(total.get(name, 0.0), value)
    return total | {"stages": stages}
