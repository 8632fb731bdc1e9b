"""Figures and files of one transfer."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxlab.core import figures
from jaxlab.envs.cr3bp import exports
from jaxlab.envs.cr3bp.frames import to_inertial
from jaxlab.envs.cr3bp.low_thrust import throttle
from jaxlab.envs.cr3bp.systems import System
from jaxlab.envs.cr3bp.transfers import Transfer

#: Files that a transfer is written to, by their endings.
KINDS = ("csv", "npz", "oem")


def write(
    paths: Mapping[str, pathlib.Path | None],
    times: np.ndarray,
    state: np.ndarray,
    system: System,
    epoch: str,
    *,
    object_name: str,
    overwrite: bool,
) -> None:
    """Write a transfer to those of the files of `KINDS` that have a path.

    Raises:
      ConfigError: A file exists, or the epoch is no date.
    """
    flown = exports.trajectory(times, state, system)
    if (path := paths["csv"]) is not None:
        exports.write_csv(path, flown, overwrite=overwrite)
    if (path := paths["npz"]) is not None:
        exports.write_npz(path, flown, overwrite=overwrite)
    if (path := paths["oem"]) is not None:
        exports.write_oem(path, flown, epoch=epoch, object_name=object_name, overwrite=overwrite)


def draw(path: pathlib.Path, transfer: Transfer, times: np.ndarray, state: np.ndarray) -> None:
    """All of a transfer on one picture.

    Raises:
      CheckpointError: The disk is full.
    """
    figure, axes = figures.new_figure(9.0, 8.4, nrows=2, ncols=2)
    draw_paths(*axes[0], transfer, times, state)
    draw_throttle(*axes[1], transfer, times, state)
    figures.write_figure(figure, path)


def draw_paths(
    left: Any, right: Any, transfer: Transfer, times: np.ndarray, state: np.ndarray
) -> None:
    """A transfer in the turning frame and in one that does not turn, seen from above."""
    mu, axes = float(transfer.mu), transfer.target.shape[-1] // 2
    target = np.asarray(transfer.target)
    left.plot(*target[:, :2].T, color="tab:green", label="target orbit")
    left.plot(*state[:, :2].T, color="tab:blue", linewidth=1, label="transfer")
    left.scatter([-mu, 1 - mu], [0, 0], color="black", s=[40, 15])
    left.set(title="turning frame", xlabel="x", ylabel="y", aspect="equal")
    left.legend(fontsize="x-small")
    spatial = np.zeros((len(times), 2, 3))
    spatial[..., :axes] = state[:, : 2 * axes].reshape(-1, 2, axes)
    inertial = np.asarray(to_inertial(jnp.asarray(spatial.reshape(-1, 6)), jnp.asarray(times), mu))
    right.plot(*inertial[:, :2].T, color="tab:blue", linewidth=1)
    angle = np.linspace(0, 2 * np.pi, 200)
    right.plot((1 - mu) * np.cos(angle), (1 - mu) * np.sin(angle), ":", color="black", linewidth=1)
    right.scatter([0], [0], color="black", s=40)
    right.set(title="frame that does not turn", xlabel="X", ylabel="Y", aspect="equal")


def draw_throttle(
    top: Any, bottom: Any, transfer: Transfer, times: np.ndarray, state: np.ndarray
) -> None:
    """Throttle, and the primer vector with its length."""
    axes = transfer.target.shape[-1] // 2
    primer = state[:, 3 * axes + 1 : 4 * axes + 1]
    top.plot(times, throttle(jnp.asarray(state), transfer.thruster)[0])
    top.set(ylabel="throttle", ylim=(-0.05, 1.05))
    bottom.plot(times, np.linalg.norm(primer, axis=1), label="length of the primer vector")
    bottom.plot(times, primer, linewidth=0.8, label=[f"primer, {n}" for n in "xyz"[:axes]])
    for axis in (top, bottom):
        axis.set_xlabel("time (units of the system)")
    bottom.set(ylabel="primer vector")
    bottom.legend(fontsize="x-small")
