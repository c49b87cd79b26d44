"""Progress of a command's phases, independent of a terminal.

The core counts what is done in a `Meter`; a display reads it whenever it draws. So a display moves while a task
runs, and no result has to arrive for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Work:
    """What is done of a phase at one moment.

    Args:
        phase: what the command does, e.g. ``"rewriting"``, or what it waits for, e.g. ``"starting Spark"``.
        tasks: the number of finished tasks.
        total_tasks: the number of tasks; 0 if it is not known.
        done_bytes: the bytes that were read.
        total_bytes: the bytes to read; 0 if they are not known.
        rows: the number of rows that were read.
    """

    phase: str
    tasks: int = 0
    total_tasks: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    rows: int = 0

    @property
    def share(self) -> float | None:
        """The part that is done, 0 to 1, by bytes where they are known and by tasks otherwise."""
        if self.total_bytes:
            return min(self.done_bytes / self.total_bytes, 1.0)
        if self.total_tasks:
            return min(self.tasks / self.total_tasks, 1.0)
        return None


class Meter:
    """Counts the work of one phase. All methods may be called from any thread.

    Tasks report totals of one attempt. A task that is attempted twice counts once, and what was counted
    never decreases.

    Args:
        phase: what the command does.
        inputs: the bytes that each task reads, if the phase consists of an engine's tasks.
        tasks: the number of tasks, if `inputs` is empty.
        total_bytes: the bytes to read, if `inputs` is empty.
        then: the name of the second stage, if the tasks are those of an exchange.
    """

    def __init__(
        self,
        phase: str,
        *,
        inputs: Sequence[int] = (),
        tasks: int = 0,
        total_bytes: int = 0,
        then: str = "writing",
    ) -> None:
        self._lock = threading.Lock()
        self._phase, self._then = phase, then
        self._inputs = inputs
        self._total_tasks = len(inputs) or tasks
        self._total_bytes = sum(inputs) or total_bytes
        self._tasks = self._bytes = self._rows = 0
        # The rows and the share of each task that is not finished.
        self._running: dict[int, tuple[int, float]] = {}
        self._finished: set[int] = set()
        self._waiting: str | None = None
        self._poll: Callable[[], None] | None = None

    def advance(self, *, tasks: int = 0, done_bytes: int = 0, rows: int = 0) -> None:
        """Add work that was done since the last call."""
        with self._lock:
            self._tasks += tasks
            self._bytes += done_bytes
            self._rows += rows

    def report(self, task: int, rows: int, share: float) -> None:
        """Set what a running task has done: its rows, and the part of its input, 0 to 1."""
        with self._lock:
            if task not in self._finished:
                before_rows, before_share = self._running.get(task, (0, 0.0))
                share = max(before_share, min(share, 1.0))
                self._running[task] = (max(before_rows, rows), share)

    def finish(self, task: int, rows: int = 0) -> None:
        """Count a task as finished, with its rows if they were not reported. Counts a task once."""
        with self._lock:
            if task in self._finished:
                return
            self._finished.add(task)
            reported, _ = self._running.pop(task, (0, 0.0))
            self._tasks += 1
            self._rows += max(rows, reported)
            self._bytes += self._inputs[task] if self._inputs else 0

    def next_stage(self, tasks: int) -> None:
        """Begin the second stage, whose tasks are numbered from 0 again. May be called more than once."""
        with self._lock:
            if self._phase == self._then:
                return
            self._phase, self._total_tasks = self._then, tasks
            self._inputs, self._total_bytes = (), 0
            self._tasks = self._bytes = self._rows = 0
            self._running, self._finished = {}, set()

    @contextmanager
    def waiting_for(self, reason: str) -> Iterator[None]:
        """Show a reason instead of the phase while the block runs, e.g. ``"starting Spark"``."""
        self._waiting = reason
        try:
            yield
        finally:
            self._waiting = None

    @contextmanager
    def polled_by(self, poll: Callable[[], None]) -> Iterator[None]:
        """Call `poll`, which reports the running tasks, before each reading of the meter in the block."""
        self._poll = poll
        try:
            yield
        finally:
            self._poll = None

    def read(self) -> Work:
        """Return what is done."""
        if self._waiting:
            return Work(self._waiting)
        if self._poll:
            self._poll()
        with self._lock:
            done, rows = self._bytes, self._rows
            for task, (task_rows, share) in self._running.items():
                rows += task_rows
                done += int(self._inputs[task] * share) if self._inputs else 0
            return Work(self._phase, self._tasks, self._total_tasks, done, self._total_bytes, rows)


@dataclass(frozen=True, slots=True)
class Step:
    """The present step of a command that has several, each with phases of its own.

    Args:
        number: its number, from 1 on.
        total: how many steps are expected.
        text: what it does, such as ``compact db.t``.
        following: what the next step does; empty if it is the last one.
        seconds_left: the expected time until the command ends; None if it is not known.
    """

    number: int
    total: int
    text: str
    following: str = ""
    seconds_left: float | None = None


class Progress(Protocol):
    """Shows one phase of a command at a time; `shown` uses it."""

    meter: Meter | None
    step: Step | None

    def show(self, meter: Meter | None) -> None:
        """Show a phase instead of the present one; None shows nothing."""


class Silent:
    """Shows nothing."""

    meter: Meter | None = None
    step: Step | None = None

    def show(self, meter: Meter | None) -> None:
        """Ignore the phase."""


@contextmanager
def shown(progress: Progress, meter: Meter) -> Iterator[Meter]:
    """Show a phase while the block runs, and afterwards the phase that was shown before."""
    before = progress.meter
    progress.show(meter)
    try:
        yield meter
    finally:
        progress.show(before)


def showing(progress: Progress, meter: Meter, items: Iterator[T]) -> Iterator[T]:
    """Yield the items of a phase, which is shown until they end."""
    with shown(progress, meter):
        yield from items
