"""Progress of a run on the terminal, and clean stops on SIGINT and SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from jaxlab.core.reporting import format_value

#: Seconds between two lines when the output is no terminal; it doubles up to the last.
_FIRST_INTERVAL, _LAST_INTERVAL = 10.0, 300.0


def say(message: str) -> None:
    """Tell the person at the terminal; results go to standard output, this does not."""
    from jaxlab.core import devices

    if devices.is_primary():
        print(message, file=sys.stderr, flush=True)


class Progress:
    """A bar with rate, time left and key metrics; sparse lines without a terminal."""

    def __init__(
        self,
        total: int,
        *,
        start: int = 0,
        label: str = "",
        show: Sequence[str] = (),
        enabled: bool = True,
    ):
        self._total, self._start, self._step = total, start, start
        self._label, self._show = label or "steps", tuple(show)
        self._enabled = enabled
        self._began = self._told = time.monotonic()
        self._interval = _FIRST_INTERVAL
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._enabled and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=24),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                progress.TextColumn("left"),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.fields[metrics]}"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(
                self._label, total=self._total, completed=self._start, metrics="compiling"
            )
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bar as it is, so that other lines may follow."""
        if self._bar is not None:
            self._bar.stop()

    def update(self, step: int, rates: Mapping[str, float], metrics: Mapping[str, Any]) -> None:
        """Show that `step` steps are done, with rates per second and metrics `[seeds, ...]`."""
        self._step = step
        if not self._enabled:
            return
        text = "  ".join(
            [f"{format_value(rate)} {unit}/s" for unit, rate in rates.items()]
            + [f"{name} {format_value(_mean(metrics[name]))}" for name in self._names(metrics)]
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=step, metrics=text)
            return
        now = time.monotonic()
        if now - self._told >= self._interval or step == self._total:
            left = (now - self._began) / max(step - self._start, 1) * (self._total - step)
            say(f"{self._label} {step}/{self._total}  {_clock(left)} left  {text}")
            self._told = now
            self._interval = min(2 * self._interval, _LAST_INTERVAL)

    def _names(self, metrics: Mapping[str, Any]) -> list[str]:
        if self._show:
            return [name for name in self._show if name in metrics]
        scalars = [n for n, v in metrics.items() if np.ndim(v) == 1 and n != "env_steps"]
        return scalars[:3]


def _mean(value: Any) -> float:
    array = np.asarray(value, float)
    present = array[~np.isnan(array)]
    return float(present.mean()) if present.size else float("nan")


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class StopSignal:
    """While entered, the first SIGINT or SIGTERM only sets `requested`.

    A second one interrupts at once, as without this class. Outside the main thread,
    where Python cannot catch signals, nothing changes.
    """

    def __init__(self, enabled: bool = True):
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._previous: dict[int, Any] = {}
        self.requested: str | None = None

    def __enter__(self) -> StopSignal:
        if self._enabled:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested is not None:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name
        # print() is not safe in a handler that may interrupt another print().
        with contextlib.suppress(OSError):
            os.write(
                2, f"{self.requested}: stopping after this chunk; again to stop now\n".encode()
            )
