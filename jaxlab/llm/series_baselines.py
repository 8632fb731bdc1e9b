"""Forecasts of integer series that need no model, and errors of forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlab.core.errors import DataError
from jaxlab.llm.series import LARGEST


def persistence(context: Any, steps: int) -> np.ndarray:
    """The last row again and again, `[..., steps, columns]`."""
    rows = _context(context, 1)
    return np.repeat(rows[..., -1:, :], steps, axis=-2)


def last_token(context: Any, steps: int) -> np.ndarray:
    """The last number of the last row everywhere, `[..., steps, columns]`."""
    rows = _context(context, 1)
    return np.broadcast_to(rows[..., -1:, -1:], (*rows.shape[:-2], steps, rows.shape[-1])).copy()


def pooled_ar1(context: Any, steps: int) -> np.ndarray:
    """Linear regression on the row before, one slope and intercept for all columns of a series.

    Forecasts are rounded half to even and fed back. A context without variation repeats itself.

    Args:
      context: `[..., rows, columns]` with at least two rows.
      steps: Rows to forecast.

    Returns:
      Integers `[..., steps, columns]` within three digits.
    """
    rows = _context(context, 2)
    before = rows[..., :-1, :].reshape(*rows.shape[:-2], -1).astype(float)
    after = rows[..., 1:, :].reshape(*rows.shape[:-2], -1).astype(float)
    mean_before = before.mean(-1, keepdims=True)
    mean_after = after.mean(-1, keepdims=True)
    spread = ((before - mean_before) ** 2).sum(-1, keepdims=True)
    joint = ((before - mean_before) * (after - mean_after)).sum(-1, keepdims=True)
    slope = np.where(spread > 0, joint / np.where(spread > 0, spread, 1), 1.0)
    found, last = [], rows[..., -1, :]
    for _ in range(steps):
        guess = mean_after + slope * (last - mean_before)
        last = np.clip(np.round(guess), 0, LARGEST).astype(rows.dtype)
        found.append(last)
    return np.stack(found, axis=-2)


def _context(context: Any, least: int) -> np.ndarray:
    rows = np.asarray(context)
    if rows.ndim < 2 or rows.shape[-2] < least or rows.shape[-1] < 1:
        raise DataError(
            f"a context of shape {rows.shape}: expected [..., rows, columns] with at least {least} rows"
        )
    return rows


def rmse(forecast: Any, truth: Any) -> np.ndarray:
    """Root of the mean squared error over the last axis."""
    return np.sqrt(np.mean((np.asarray(forecast) - np.asarray(truth)) ** 2, axis=-1))


def max_error(forecast: Any, truth: Any) -> np.ndarray:
    """Largest absolute error over the last axis."""
    return np.max(np.abs(np.asarray(forecast) - np.asarray(truth)), axis=-1)
