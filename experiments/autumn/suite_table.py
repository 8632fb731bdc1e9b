"""Explores the programs of the suite, lists what they do and draws them."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
from PIL import Image, ImageDraw

from experiments.autumn.suite_options import SuiteOptions
from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn import suite
from jaxlab.envs.autumn.pictures import picture
from jaxlab.envs.autumn.suite.metadata import Exploration, Metadata, explore

#: Side of a picture on the contact sheet and height of the line under it, in pixels.
SIDE, LINE = 100, 14
#: Pictures in a row of the contact sheet.
COLUMNS = 10


def main(options: SuiteOptions) -> None:
    """Write the table and the pictures.

    Raises:
      ConfigError: a program is unknown, or the folder cannot be written.
    """
    assert options.out is not None
    names = options.programs or suite.programs()
    for name in names:
        suite.describe(name)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        table: dict[str, Metadata] = {}
        sheet = []
        print(_line("program", "family", "grid", "drifts", "random", "hidden", "covers", "actions"))
        for name in names:
            found = explore(name)
            if found.errors:
                print(f"{name}: failed in some run: {found.errors[0]}")
            table[name] = found.metadata
            print(_row(name, found.metadata), flush=True)
            _panels(found, 16).save(options.out / f"{name}.png", optimize=True)
            sheet.append((name, _last(found)))
            _write(options.out / "metadata.json", table)
        _contact_sheet(sheet).save(options.out / "contact_sheet.png", optimize=True)
    except OSError as error:
        raise ConfigError(f"--out {options.out}: cannot be written: {error}") from None


def _row(name: str, found: Metadata) -> str:
    flags = (found.drifts, found.random, found.hidden, found.occludes)
    return _line(
        name,
        suite.describe(name).family,
        str(found.grid_size),
        *("yes" if flag else "-" for flag in flags),
        " ".join(found.actions),
    )


def _line(*cells: str) -> str:
    widths = (15, 13, 5, 7, 7, 7, 7, 0)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _write(path: pathlib.Path, table: dict[str, Metadata]) -> None:
    rows = {name: dataclasses.asdict(found) for name, found in table.items()}
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    path.write_text("{\n" + text + "\n}\n", encoding="utf-8")


def _last(found: Exploration) -> Image.Image:
    """The last picture of the run, as large as fits on the sheet."""
    pixels = picture(found.frames[-1], found.palette, 1)
    return Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.NEAREST)


def _panels(found: Exploration, scale: int) -> Image.Image:
    """The first and the last picture side by side."""
    shots = [picture(found.frames[n], found.palette, scale) for n in (0, -1)]
    gap = np.full((shots[0].shape[0], scale // 2, 3), 255, np.uint8)
    return Image.fromarray(np.concatenate([shots[0], gap, shots[1]], axis=1))


def _contact_sheet(shots: list[tuple[str, Image.Image]]) -> Image.Image:
    """All pictures with their names in rows."""
    rows = -(-len(shots) // COLUMNS)
    step_x, step_y = SIDE + 8, SIDE + LINE + 6
    sheet = Image.new("RGB", (COLUMNS * step_x + 8, rows * step_y + 4), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (name, image) in enumerate(shots):
        x, y = 8 + number % COLUMNS * step_x, 4 + number // COLUMNS * step_y
        sheet.paste(image, (x, y))
        draw.rectangle((x - 1, y - 1, x + SIDE, y + SIDE), outline="silver")
        draw.text((x, y + SIDE + 2), name, fill="black")
    return sheet
