"""Small pictures of trajectories, drawn into arrays."""

from __future__ import annotations

import itertools

import numpy as np

#: Pixels along each side.
SIZE = 256
#: Part of the picture left free on every side.
MARGIN = 0.08
BACKGROUND = (12, 14, 24)


class Picture:
    """A square that shows all of some points, one scale for both axes, y upwards.

    Attributes:
      pixels: uint8 `[SIZE, SIZE, 3]`.
    """

    def __init__(self, points: np.ndarray):
        """Show the points `[count, 2]`."""
        low, high = points.min(0), points.max(0)
        self._middle = (low + high) / 2
        self._scale = (1 - 2 * MARGIN) * SIZE / max(float((high - low).max()), 1e-9)
        self.pixels = np.full((SIZE, SIZE, 3), BACKGROUND, np.uint8)

    def _places(self, points: np.ndarray) -> np.ndarray:
        """Columns and rows, not rounded."""
        shift = (points - self._middle) * self._scale
        return SIZE / 2 + shift * np.array([1, -1])

    def line(self, points: np.ndarray, colour: tuple[int, int, int]) -> None:
        """Join points `[count, 2]`."""
        places = self._places(points)
        for a, b in itertools.pairwise(places):
            count = 2 + int(np.abs(b - a).max())
            along = a + np.linspace(0, 1, count)[:, None] * (b - a)
            columns, rows = np.floor(along).astype(int).T
            seen = (columns >= 0) & (columns < SIZE) & (rows >= 0) & (rows < SIZE)
            self.pixels[rows[seen], columns[seen]] = colour

    def disc(self, centre: np.ndarray, radius: float, colour: tuple[int, int, int]) -> None:
        """Fill a circle, of two pixels at least."""
        column, row = self._places(centre)
        reach = max(radius * self._scale, 2.0)
        rows, columns = np.mgrid[:SIZE, :SIZE] + 0.5
        inside = (columns - column) ** 2 + (rows - row) ** 2 <= reach**2
        self.pixels[inside] = colour
