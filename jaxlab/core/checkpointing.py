"""Checkpoints of a run: `save`, `restore`, `latest`, behind orbax.

A checkpoint is a step's state (any pytree, typed keys included) and a JSON document:
the schema version, the configuration and its digest, the host data of `between`. It
appears under its name when it is complete, so a killed process leaves the previous one.
"""

from __future__ import annotations

import contextlib
import logging
import pathlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxlab.core import devices
from jaxlab.core.errors import CheckpointError, JaxlabError
from jaxlab.core.runfolder import config_hash, differences, is_full, plain

PyTree = Any

#: Version of what a checkpoint holds; another version is refused on restore.
SCHEMA = 1

#: How many differences an error message names.
_SHOWN = 12


class Checkpoint(NamedTuple):
    """What `restore` returns.

    Attributes:
      step: Number of steps done.
      state: The state, on the devices of the abstract tree.
      host: The JSON value that was saved beside it.
    """

    step: int
    state: PyTree
    host: Any


def save(
    folder: pathlib.Path,
    step: int,
    state: PyTree,
    *,
    config: Mapping[str, Any],
    host: Any = None,
    keep: int = 2,
) -> None:
    """Save atomically; afterwards the newest `keep` checkpoints remain.

    With several processes all must call it; the folder must be shared between them.

    Raises:
      CheckpointError: The disk is full or the folder cannot be written. Checkpoints
        saved before are untouched.
    """
    import orbax.checkpoint as ocp

    config = plain(config)
    document = {
        "schema": SCHEMA,
        "step": step,
        "config": config,
        "config_hash": config_hash(config),
        "leaves": _leaves(state),
        "host": plain(host),
    }
    try:
        with _manager(folder, keep=keep) as manager:
            manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(_stored(state)), run=ocp.args.JsonSave(document)
                ),
            )
    except Exception as error:
        _remove_unfinished(folder)
        previous = latest(folder)
        kept = "nothing was saved before" if previous is None else f"step {previous} is intact"
        if is_full(error):
            raise CheckpointError(
                f"the disk is full: could not save step {step} in {folder}; {kept}. Make room "
                "and continue with --resume"
            ) from error
        raise CheckpointError(
            f"could not save step {step} in {folder} ({_reason(error)}); {kept}"
        ) from error


def latest(folder: pathlib.Path) -> int | None:
    """The newest complete step in a folder, or None."""
    found = steps(folder)
    return found[-1] if found else None


def steps(folder: pathlib.Path) -> list[int]:
    """The complete steps in a folder, in order."""
    if not folder.is_dir():
        return []
    with _manager(folder, read_only=True) as manager:
        return sorted(manager.all_steps())


def restore(
    folder: pathlib.Path,
    abstract: PyTree,
    *,
    config: Mapping[str, Any] | None = None,
    step: int | None = None,
) -> Checkpoint:
    """Read a checkpoint onto the devices of an abstract tree.

    Args:
      folder: Where `save` wrote.
      abstract: The state as `jax.ShapeDtypeStruct`s that carry shardings.
      config: Configuration to insist on; None takes whatever was saved.
      step: Which step; the newest by default.

    Raises:
      CheckpointError: There is none, it is damaged, or it belongs to another
        configuration, another state or another version; the message lists what differs.
    """
    import orbax.checkpoint as ocp

    document = read_document(folder, step)
    step = document["step"]
    name = f"checkpoint of step {step} in {folder}"
    if config is not None:
        changed = differences(document["config"], plain(config))
        if changed:
            raise CheckpointError(
                f"{name} belongs to another configuration: {_list(changed)}. Resume with the "
                "saved values, or start a new run"
            )
    changed = differences(document["leaves"], _leaves(abstract))
    if changed:
        raise CheckpointError(
            f"{name} holds another state than this program expects: {_list(changed)}. Resume "
            "with the program and the precision that saved it"
        )
    try:
        with _manager(folder, read_only=True) as manager:
            restored = manager.restore(
                step, args=ocp.args.Composite(state=ocp.args.StandardRestore(_stored(abstract)))
            )
        state = _unstored(restored["state"], abstract)
    except Exception as error:
        raise _damaged(folder, step, error) from error
    return Checkpoint(step, state, document["host"])


def read_document(folder: pathlib.Path, step: int | None = None) -> dict[str, Any]:
    """The JSON document of a checkpoint (the newest by default), state left aside.

    Raises:
      CheckpointError: There is none, it is damaged, or of another schema version.
    """
    import orbax.checkpoint as ocp

    found = steps(folder)
    if not found or (step is not None and step not in found):
        wanted = "no checkpoint" if step is None else f"no checkpoint of step {step}"
        there = f" (there are: {', '.join(map(str, found))})" if found else ""
        raise CheckpointError(f"{folder}: {wanted}{there}")
    step = found[-1] if step is None else step
    try:
        with _manager(folder, read_only=True) as manager:
            restored = manager.restore(step, args=ocp.args.Composite(run=ocp.args.JsonRestore()))
        document = restored["run"]
        schema = document["schema"]
    except Exception as error:
        raise _damaged(folder, step, error) from error
    if schema != SCHEMA:
        raise CheckpointError(
            f"checkpoint of step {step} in {folder} has schema version {schema}, this library "
            f"reads version {SCHEMA}; use the version of jaxlab that saved it"
        )
    return document


def _damaged(folder: pathlib.Path, step: int, error: Exception) -> JaxlabError:
    others = [s for s in steps(folder) if s != step]
    advice = (
        f"delete the folder {folder / str(step)} to continue from step {others[-1]}"
        if others
        else "there is no other one; start a new run"
    )
    return CheckpointError(
        f"checkpoint of step {step} in {folder} is damaged ({_reason(error)}); {advice}"
    )


def _reason(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__


def _list(changed: list[str]) -> str:
    more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return "; ".join(changed[:_SHOWN]) + more


def _leaves(tree: PyTree) -> dict[str, str]:
    """Type and shape by path, as in `{'params/w': 'float32[3,4]'}`."""
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): (
            f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
        )
        for path, leaf in flat
    }


def _stored(tree: PyTree) -> dict[str, Any]:
    """The leaves by number: orbax refuses arrays of size zero, which states may hold."""
    return {f"{i:05d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree)) if leaf.size}


def _unstored(stored: Mapping[str, Any], abstract: PyTree) -> PyTree:
    leaves, treedef = jax.tree.flatten(abstract)
    full = [stored[f"{i:05d}"] if leaf.size else _empty_like(leaf) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(treedef, full)


def _empty_like(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        empty = jax.vmap(jax.random.key)(jnp.zeros(0, jnp.uint32)).reshape(leaf.shape)
    else:
        empty = jnp.zeros(leaf.shape, leaf.dtype)
    return empty if leaf.sharding is None else jax.device_put(empty, leaf.sharding)


@contextlib.contextmanager
def _manager(folder: pathlib.Path, keep: int = 2, read_only: bool = False) -> Iterator[Any]:
    _silence_repetitions()
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(
        max_to_keep=None if read_only else keep,
        save_interval_steps=0 if read_only else 1,
        create=not read_only,
        read_only=read_only,
        cleanup_tmp_directories=not read_only,
        # The next chunk would wait for the donated state anyway.
        enable_async_checkpointing=False,
    )
    manager = ocp.CheckpointManager(folder.absolute(), options=options)
    try:
        yield manager
    finally:
        manager.close()


def _silence_repetitions() -> None:
    """A failure is raised and told once.

    Orbax also logs its traceback, asyncio that of every write that failed beside it, and
    writes still under way complain to an event loop that has gone.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_not_from_orbax)
    previous = sys.unraisablehook
    if getattr(previous, "hides_abandoned_writes", False):
        return

    def hook(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            previous(unraisable)

    hook.hides_abandoned_writes = True  # type: ignore[attr-defined]
    sys.unraisablehook = hook


def _not_from_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname and "orbax" not in record.getMessage()


def _remove_unfinished(folder: pathlib.Path) -> None:
    if devices.is_primary() and folder.is_dir():
        for path in folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(path, ignore_errors=True)
