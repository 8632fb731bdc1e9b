"""Pictures to files: PNG, animated GIF, and MP4 where ffmpeg is installed."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from jaxlab.core.errors import ConfigError, DataError
from jaxlab.core.runfolder import replacing

#: Kinds of moving pictures by file name.
ANIMATIONS = (".gif", ".mp4")


def save_picture(path: str | Path, picture: np.ndarray) -> None:
    """Save one picture, uint8 `[height, width, 3]`, as PNG.

    Raises:
      DataError: where the file cannot be written; an older file stays as it was.
    """
    with replacing(Path(path)) as file:
        Image.fromarray(picture).save(file, "PNG")


def save_animation(path: str | Path, pictures: Iterable[np.ndarray], *, fps: int = 10) -> int:
    """Save pictures of one size, uint8 `[height, width, 3]`, as `.gif` or `.mp4`.

    Pictures may come from a generator and are not kept. A GIF has 256 colours, taken
    from its first picture, and its pace is a multiple of 1/100 s.

    Returns:
      The number of pictures written.

    Raises:
      ConfigError: for another kind of file, or for MP4 without ffmpeg.
      DataError: where there is no picture or the file cannot be written; an older file
        stays as it was.
    """
    path = Path(path)
    if path.suffix.lower() not in ANIMATIONS:
        raise ConfigError(f"{path}: an animation is saved as {' or '.join(ANIMATIONS)}")
    ffmpeg = shutil.which("ffmpeg")
    if path.suffix.lower() == ".mp4" and ffmpeg is None:
        raise ConfigError(f"{path}: MP4 needs the program ffmpeg; install it or save a .gif")
    counted = _Counted(pictures)
    first = next(counted, None)
    if first is None:
        raise DataError(f"{path}: there is no picture to save")
    with replacing(path) as file:
        if path.suffix.lower() == ".gif":
            _write_gif(file, first, counted, fps)
        else:
            _write_mp4(str(ffmpeg), file, first, counted, fps)
    return counted.number


class _Counted:
    def __init__(self, pictures: Iterable[np.ndarray]):
        self.pictures, self.number = iter(pictures), 0

    def __iter__(self) -> Iterator[np.ndarray]:
        return self

    def __next__(self) -> np.ndarray:
        picture = next(self.pictures)
        self.number += 1
        return picture


def _write_gif(file: Path, first: np.ndarray, rest: Iterable[np.ndarray], fps: int) -> None:
    start = Image.fromarray(first)
    palette = start.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)

    def reduced(picture: np.ndarray) -> Image.Image:
        return Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)

    reduced(first).save(
        file,
        "GIF",
        save_all=True,
        append_images=map(reduced, rest),
        duration=10 * max(2, round(100 / fps)),
        loop=0,
        disposal=1,
    )


def _write_mp4(
    ffmpeg: str, file: Path, first: np.ndarray, rest: Iterable[np.ndarray], fps: int
) -> None:
    height, width = first.shape[:2]
    command = [ffmpeg, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    # yuv420p, which all players know, has half as many colour samples: even sizes only.
    command += ["-vf", "crop=trunc(iw/2)*2:trunc(ih/2)*2", "-pix_fmt", "yuv420p", str(file)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # the exit status tells why
                for picture in itertools.chain([first], rest):
                    process.stdin.write(np.ascontiguousarray(picture).tobytes())
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            status = process.wait()
        log.seek(0)
        message = log.read().decode(errors="replace").strip().splitlines()
    if status:
        raise OSError(f"ffmpeg: {message[-1] if message else f'exit status {status}'}")
