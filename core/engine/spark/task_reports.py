"""What the workers of this machine report of running tasks, in small files beside their locks.

A worker overwrites 16 bytes in place: the rows and the share of the input that a task has read. The driver reads them
for its display only, so a torn or wrong value does no harm. On a cluster the driver cannot see the files of the
executors, and progress moves when tasks end.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Self

from lake.core.base.clock import Clock, SystemClock
from lake.core.base.progress import Meter

_VALUES = struct.Struct("<Qd")
_TASK = ".task"
_SECONDS_BETWEEN = 0.2


class TaskReport:
    """Writes what a task of this process reports; use it in a ``with`` block around the task.

    Args:
        folder: the folder of the batch; empty on a cluster, where nothing is written.
        number: the task's number.
        clock: limits how often the file is written.
    """

    def __init__(self, folder: str, number: int, *, clock: Clock | None = None) -> None:
        self.rows = 0
        self._path = folder and os.path.join(folder, f"{number}{_TASK}")
        self._clock = clock or SystemClock()
        self._written = self._clock.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)

    def __call__(self, rows: int, share: float) -> None:
        """Report the rows and the share of the input that the task has read so far."""
        self.rows = rows
        now = self._clock.monotonic()
        if not self._path or now - self._written < _SECONDS_BETWEEN:
            return
        self._written = now
        # A full disk must not fail the task here.
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, _VALUES.pack(rows, share), 0)
            finally:
                os.close(descriptor)


def read_reports(folder: str, meter: Meter) -> None:
    """Report to the meter what the running tasks of a batch have reported."""
    with suppress(OSError):
        for name in os.listdir(folder):
            number, suffix = os.path.splitext(name)
            if suffix == _TASK:
                _read_report(os.path.join(folder, name), int(number), meter)


def _read_report(path: str, number: int, meter: Meter) -> None:
    try:
        with open(path, "rb") as file:
            rows, share = _VALUES.unpack(file.read(_VALUES.size))
    except (OSError, struct.error):
        # The task has just ended, or just begun.
        return
    if 0 <= share <= 1:
        meter.report(number, rows, share)
