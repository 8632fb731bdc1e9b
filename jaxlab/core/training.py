"""`run()`: the one loop around every learner.

Steps are compiled in chunks of `lax.scan` over all seeds at once. Between two chunks
the host writes metrics, shows progress, calls `between`, saves checkpoints and heeds
signals; nothing of that happens inside a step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxlab.core import checkpointing, devices, reporting, runfolder
from jaxlab.core.arguments import (
    check_additions,
    check_arguments,
    check_hyper,
    check_state,
    digest,
)
from jaxlab.core.chunks import Chunk, compile_chunk, initialiser
from jaxlab.core.errors import ConfigError, Interrupted
from jaxlab.core.learner import Hyper, Learner, State
from jaxlab.core.metrics import finish
from jaxlab.core.placement import Placement, place
from jaxlab.core.progress import Progress, StopSignal, say

PyTree = Any
Host = Any

#: `(state, metrics, host) -> (state or (learner, state), host)`
Between = Callable[[State, dict[str, np.ndarray], Host], tuple[Any, Host]]


@dataclasses.dataclass
class Result:
    """What a run leaves in memory.

    Attributes:
      learner: The learner, as `between` last returned it.
      state: Final state; every leaf is `[seeds, ...]`.
      step: Steps done.
      metrics: By name: `step [chunks]`, `seconds [chunks]`, others `[chunks, seeds, ...]`.
      host: The last value of `between`'s host data.
      run_dir: Folder of the run, if it has one.
      performance: Times in seconds, rates per second, memory in MiB.
    """

    learner: Learner
    state: State
    step: int
    metrics: dict[str, np.ndarray]
    host: Host
    run_dir: pathlib.Path | None
    performance: dict[str, Any]
    _records: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list, repr=False)

    def records(self) -> dict[str, np.ndarray]:
        """Records by path, `[kept steps, seeds, ...]`; `step` numbers the first axis."""
        if self.run_dir is not None:
            return reporting.read_records(self.run_dir)
        return reporting.join_records(self._records)

    def seed_state(self, index: int = 0) -> State:
        """The final state of one seed, without the axis of seeds."""
        return jax.tree.map(lambda leaf: leaf[index], self.state)


def run(
    learner: Learner | Callable[[Host], Learner],
    *,
    steps: int,
    hyper: Hyper = None,
    hyper_axis: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    chunk: int | None = None,
    thin: int = 1,
    between: Between | None = None,
    host: Host = None,
    run_dir: pathlib.Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 1,
    keep: int = 2,
    config: Any = None,
    mesh: Mesh | None = None,
    sharding: PyTree = None,
    progress: bool = True,
    label: str = "",
    show: Sequence[str] = (),
    tensorboard: bool = False,
    profile: pathlib.Path | str | None = None,
) -> Result:
    """Run a learner for a number of steps.

    Seed `s` gets the same random bits whichever seeds run beside it, on however many
    devices. A run that is stopped or killed and resumed ends with the same bits as one
    that is not.

    Args:
      learner: A learner, or a function from host data to one: needed where `between`
        returns new learners, so that a resumed run finds the right one again.
      steps: How many times `learner.step` is called.
      hyper: Pytree of numbers for `learner.init`.
      hyper_axis: 0 if the leaves of `hyper` are `[seeds, ...]` (a sweep).
      seeds: Number of seeds, run as one batch.
      seed: The first of the consecutive seeds.
      chunk: Steps per compiled chunk; by default about a fiftieth of the steps, adjusted
        to divide them. A last shorter chunk is compiled on its own.
      thin: Records are kept every so many steps; must divide `chunk` and `steps`.
      between: Host work after each chunk. It owns the state it is given and gives up
        the one it returns; what it adds to `metrics` is logged; `host` is JSON.
      host: The first value of the host data.
      run_dir: Folder for metrics, records and checkpoints; None keeps all in memory.
      resume: Continue from the newest checkpoint in `run_dir`; without one, start.
      checkpoint_every: Chunks between two checkpoints; the last chunk saves always.
      keep: How many checkpoints remain.
      config: Plain data that a resumed run must share with the one that saved.
      mesh: Mesh with the axis `"env"`; by default over the visible devices.
      sharding: See `jaxlab.core.placement.place`.
      progress: Show progress on standard error.
      label: Name of the run on the display.
      show: Metrics on the display; by default the first three.
      tensorboard: Also write event files.
      profile: Folder for a profile of one chunk after the first.

    Raises:
      ConfigError: An argument is wrong, or `run_dir` holds another run.
      CheckpointError: The checkpoint is of another configuration or damaged, or the
        disk is full.
      DeviceError: The mesh does not fit.
      Interrupted: SIGINT or SIGTERM came; the chunk was finished and saved.
    """
    chunk = check_arguments(steps, seeds, seed, chunk, thin, checkpoint_every, keep, run_dir)
    hyper = jax.tree.map(np.asarray, hyper)
    check_hyper(hyper, hyper_axis, seeds)
    setting: dict[str, Any] = {
        "steps": steps,
        "seeds": seeds,
        "seed": seed,
        "chunk": chunk,
        "thin": thin,
    }
    loop = _Loop(
        make=learner if not isinstance(learner, Learner) else None,
        learner=learner if isinstance(learner, Learner) else learner(_json(host)),
        placement=place(seeds, mesh, sharding),
        folder=None if run_dir is None else pathlib.Path(run_dir),
        config={"config": runfolder.plain(config), "run": setting, "hyper": digest(hyper)},
        host=_json(host),
        keep=keep,
        **setting,
    )
    if profile is not None:
        with runfolder.writing(profile):
            pathlib.Path(profile).mkdir(parents=True, exist_ok=True)
    loop.begin(hyper, hyper_axis, resume)
    if resume and loop.step == 0 and progress:
        say(f"{run_dir} holds no checkpoint: starting from the beginning")
    if loop.placement.note and progress:
        say(loop.placement.note)
    with loop.logging(tensorboard):
        loop.go(
            between=between,
            checkpoint_every=checkpoint_every,
            progress=Progress(steps, start=loop.step, label=label, show=show, enabled=progress),
            profile=profile,
        )
    return loop.result()


@dataclasses.dataclass
class _Loop:
    """The state of a run on the host."""

    make: Callable[[Host], Learner] | None
    learner: Learner
    placement: Placement
    folder: pathlib.Path | None
    config: dict[str, Any]
    host: Host
    keep: int
    steps: int
    seeds: int
    seed: int
    chunk: int
    thin: int

    step: int = 0
    state: State = None
    abstract: PyTree = None
    rows: list[reporting.Row] = dataclasses.field(default_factory=list)
    records: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)
    log: reporting.MetricsLog | None = None
    seconds: float = 0.0
    times: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"compile": 0.0, "run": 0.0, "host": 0.0, "save": 0.0}
    )
    steps_here: int = 0
    env_steps_here: float = 0.0
    programs: dict[int, Chunk] = dataclasses.field(default_factory=dict)

    @property
    def checkpoints(self) -> pathlib.Path | None:
        return None if self.folder is None else self.folder / runfolder.CHECKPOINTS

    def begin(self, hyper: Hyper, hyper_axis: int | None, resume: bool) -> None:
        """Restore the newest checkpoint, or initialise."""
        saved = None if self.checkpoints is None else checkpointing.latest(self.checkpoints)
        if saved is not None and not resume:
            raise ConfigError(
                f"{self.folder} already holds a run; continue it with --resume {self.folder}, "
                "or name a new folder"
            )
        if saved is not None:
            assert self.checkpoints is not None
            document = checkpointing.read_document(self.checkpoints, saved)
            self.host, self.seconds = document["host"]["between"], document["host"]["seconds"]
            if self.make is not None:
                self.learner = self.make(_json(self.host))
        init = initialiser(self.learner, self.seed, self.seeds, hyper_axis)
        self.abstract = self.placement.abstract(jax.eval_shape(init, hyper))
        if saved is None:
            with self._timed("compile"):
                shardings = jax.tree.map(lambda leaf: leaf.sharding, self.abstract)
                self.state = jax.jit(init, out_shardings=shardings)(hyper)
                jax.block_until_ready(self.state)
        else:
            assert self.checkpoints is not None
            restored = checkpointing.restore(
                self.checkpoints, self.abstract, config=self.config, step=saved
            )
            self.step, self.state = restored.step, restored.state

    @contextlib.contextmanager
    def logging(self, tensorboard: bool) -> Any:
        """Open the log, without what was written after the checkpoint."""
        if self.folder is None:
            yield
            return
        primary = devices.is_primary()
        self.log = reporting.MetricsLog(self.folder, tensorboard and primary)
        self.rows = self.log.rewind(self.step, write=primary)
        if primary:
            reporting.rewind_records(self.folder, self.step)
        try:
            yield
        finally:
            self.log.close()

    def go(
        self,
        between: Between | None,
        checkpoint_every: int,
        progress: Progress,
        profile: pathlib.Path | str | None,
    ) -> None:
        """Run chunk after chunk to the end or to a signal."""
        chunks = 0
        with StopSignal(self.folder is not None) as stop, progress:
            while self.step < self.steps:
                length = min(self.chunk, self.steps - self.step)
                program = self._program(length)
                profiled = profile is not None and (
                    chunks == 1 or (self.step + length == self.steps and chunks == 0)
                )
                with jax.profiler.trace(str(profile)) if profiled else contextlib.nullcontext():
                    metrics = self._run_chunk(program, length)
                chunks += 1
                if between is not None:
                    with self._timed("host"):
                        self._call_between(between, metrics)
                self._write_row(metrics)
                progress.update(self.step, self._rates(), metrics)
                stopping = self.folder is not None and devices.agree(stop.requested is not None)
                last = self.step == self.steps
                if last or stopping or chunks % checkpoint_every == 0:
                    self._save()
                if stopping and not last:
                    message = self._stopped()
                    progress.close()
                    say(message)
                    raise Interrupted(message)

    def _program(self, length: int) -> Chunk:
        if length not in self.programs:
            with self._timed("compile"):
                self.programs[length] = compile_chunk(
                    self.learner, self.abstract, self.placement, length, self.thin
                )
        return self.programs[length]

    def _run_chunk(self, program: Chunk, length: int) -> dict[str, np.ndarray]:
        with self._timed("run"):
            self.state, reduced, records = program(self.state, np.int32(self.step))
            metrics = finish(reduced)
            jax.block_until_ready(self.state)
        first, self.step = self.step, self.step + length
        self.steps_here += length
        self.env_steps_here += float(np.sum(metrics.get("env_steps", 0)))
        if records:
            kept = np.arange(first + self.thin, self.step + 1, self.thin)
            flat = reporting.flatten_records(records) | {"step": kept}
            if self.folder is None:
                self.records.append(flat)
            elif devices.is_primary():
                reporting.write_records(self.folder, first, self.step, flat)
        return metrics

    def _call_between(self, between: Between, metrics: dict[str, np.ndarray]) -> None:
        returned, host = between(self.state, metrics, _json(self.host))
        self.host = _json(host)
        check_additions(metrics)
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Learner):
            self.learner, state = returned
            self.programs.clear()
            self.abstract = self.placement.abstract(jax.eval_shape(lambda: state))
        else:
            state = returned
            check_state(self.abstract, state)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, self.abstract)
        self.state = jax.device_put(state, shardings)

    def _write_row(self, metrics: Mapping[str, Any]) -> None:
        spent = round(self.seconds + sum(self.times.values()), 3)
        row = {"step": self.step, "seconds": spent}
        row |= {name: np.asarray(value).tolist() for name, value in metrics.items()}
        self.rows.append(row)
        if self.log is not None and devices.is_primary():
            self.log.append(row)

    def _save(self) -> None:
        if self.checkpoints is None:
            return
        seconds = self.seconds + sum(self.times.values())
        with self._timed("save"):
            checkpointing.save(
                self.checkpoints,
                self.step,
                self.state,
                config=self.config,
                host={"between": self.host, "seconds": seconds},
                keep=self.keep,
            )

    def _stopped(self) -> str:
        assert self.folder is not None
        return (
            f"stopped at step {self.step} of {self.steps}; saved in {self.folder}. "
            f"Continue with: {reporting.resume_command(self.folder)}"
        )

    def _rates(self) -> dict[str, float]:
        seconds = max(self.times["run"], 1e-9)
        rates = {"steps": self.steps_here / seconds}
        if self.env_steps_here:
            rates["env steps"] = self.env_steps_here / seconds
        return rates

    @contextlib.contextmanager
    def _timed(self, name: str) -> Any:
        began = time.monotonic()
        try:
            yield
        finally:
            self.times[name] += time.monotonic() - began

    def result(self) -> Result:
        performance: dict[str, Any] = {
            f"{name}_seconds": round(value, 3) for name, value in self.times.items()
        }
        performance["total_seconds"] = round(self.seconds + sum(self.times.values()), 3)
        if self.steps_here:
            performance |= {
                f"{unit.replace(' ', '_')}_per_second": rate for unit, rate in self._rates().items()
            }
        performance |= reporting.peak_memory()
        return Result(
            learner=self.learner,
            state=self.state,
            step=self.step,
            metrics=reporting.stack_rows(self.rows),
            host=self.host,
            run_dir=self.folder,
            performance=performance,
            _records=self.records,
        )


def _json(host: Host) -> Host:
    """The host data as a checkpoint would give it back."""
    return json.loads(json.dumps(runfolder.plain(host)))
