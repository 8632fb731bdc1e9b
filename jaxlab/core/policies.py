"""Using what was trained: a policy from the folder of a run."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from jaxlab.core import checkpointing, devices, runfolder
from jaxlab.core.chunks import initialiser
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Hyper, Learner

PyTree = Any

#: From the options in `config.yaml` and the host data of the run to what it trained.
Build = Callable[[dict[str, Any], Any], tuple[Learner, Hyper]]


@dataclasses.dataclass(frozen=True, eq=False)
class Policy:
    """A trained policy; call it.

    Attributes:
      learner: The learner that trained it.
      state: The state of one seed.
    """

    learner: Learner
    state: PyTree

    def __call__(self, obs: PyTree, key: jax.Array) -> PyTree:
        """The action for an observation."""
        assert self.learner.act is not None
        return self.learner.act(self.state, obs, key)


def load_state(
    run_dir: pathlib.Path | str,
    build: Build,
    *,
    stage: str | None = None,
    step: int | None = None,
) -> tuple[Learner, PyTree]:
    """The learner of a run and its saved state, every leaf `[seeds, ...]`.

    Args:
      run_dir: Folder of the run.
      build: The experiment's builder, `(options, host) -> (learner, hyper)`.
      stage: The stage, where the run is a pipeline.
      step: Which checkpoint; the newest by default.

    Raises:
      CheckpointError: The folder holds no such checkpoint, or one of another program.
    """
    run_dir = pathlib.Path(run_dir)
    _, options = runfolder.read_config(run_dir)
    folder = (run_dir if stage is None else run_dir / stage) / runfolder.CHECKPOINTS
    document = checkpointing.read_document(folder, step)
    setting = document["config"]["run"]
    learner, hyper = build(options, document["host"]["between"])
    init = initialiser(learner, setting["seed"], setting["seeds"], hyper_axis=None)
    one_device = SingleDeviceSharding(devices.visible()[0])
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=one_device),
        jax.eval_shape(init, hyper),
    )
    restored = checkpointing.restore(folder, abstract, step=document["step"])
    return learner, restored.state


def load_policy(
    run_dir: pathlib.Path | str,
    build: Build,
    *,
    seed_index: int = 0,
    stage: str | None = None,
    step: int | None = None,
) -> Policy:
    """The policy of one seed of a run, as `policy(obs, key) -> action`.

    Arguments and errors are those of `load_state`; `seed_index` counts the seeds of the
    run from zero.

    Raises:
      ConfigError: The learner has no policy, or there is no such seed.
    """
    learner, state = load_state(run_dir, build, stage=stage, step=step)
    if learner.act is None:
        raise ConfigError(f"{run_dir}: this learner has no policy to load")
    seeds = jax.tree.leaves(state)[0].shape[0]
    if not 0 <= seed_index < seeds:
        raise ConfigError(f"seed_index = {seed_index}: the run has {seeds} seeds, from 0")
    return Policy(learner, jax.tree.map(lambda leaf: leaf[seed_index], state))
