"""Pictures of frames: colours as RGB, and animated GIFs."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageColor

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.palette import RGB


def rgb_table(palette: Sequence[str]) -> np.ndarray:
    """RGB values of names, `[names, 3]`, uint8; magenta for what is no colour."""
    return np.array([_rgb(name) for name in palette], np.uint8).reshape(len(palette), 3)


def _rgb(name: str) -> tuple[int, ...]:
    if name in RGB:
        return RGB[name]
    try:
        return ImageColor.getrgb(name)[:3]
    except ValueError:
        return RGB["magenta"]


def picture(frame: Any, palette: Sequence[str], scale: int = 16) -> np.ndarray:
    """A frame `[size, size]` of palette indices as RGB, `[size * scale, size * scale, 3]`, uint8."""
    pixels = rgb_table(palette)[np.asarray(frame)]
    return pixels.repeat(scale, axis=0).repeat(scale, axis=1)


def write_gif(
    path: str | pathlib.Path,
    frames: Any,
    palette: Sequence[str],
    *,
    scale: int = 16,
    frame_rate: float = 8.0,
) -> None:
    """Write frames `[frames, size, size]` of palette indices as an animated GIF.

    Raises:
      ConfigError: the file cannot be written.
    """
    images = [Image.fromarray(picture(frame, palette, scale)) for frame in np.asarray(frames)]
    try:
        images[0].save(
            path,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=max(round(1000 / frame_rate), 20),
            loop=0,
        )
    except OSError as error:
        raise ConfigError(f"{path}: the picture cannot be written: {error}") from None
