"""Show progress to people and programs: a bar on a terminal, a dated line a minute elsewhere, or JSON lines."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TextIO, cast

from lake.cli.messages import line_start
from lake.cli.progress.numbers import Estimate, amount_of, left_of, rows_of, step_of
from lake.core.base.clock import Clock
from lake.core.base.progress import Meter, Progress, Silent, Step
from lake.core.base.units import iso_time

AUTO, BAR, LINES, JSON, NONE = "auto", "bar", "lines", "json", "none"
KINDS = (AUTO, BAR, LINES, JSON, NONE)
_SECONDS_BETWEEN_LINES = 60.0
_SECONDS_BETWEEN_DOCUMENTS = 1.0


def make_progress(
    kind: str, stream: TextIO, clock: Clock, about: Callable[[], str], *, quiet: bool
) -> Progress:
    """Return the progress display of a kind, or for AUTO the one that suits the stream.

    Args:
        kind: one of `KINDS`.
        stream: what it writes to, standard error.
        clock: measures the phases.
        about: returns the command and the table, for lines.
        quiet: show nothing unless a kind was chosen.
    """
    if kind == AUTO:
        kind = NONE if quiet else BAR if stream.isatty() else LINES
    if kind == NONE:
        return Silent()
    stream = cast("TextIO", _Unfailing(stream))
    if kind == BAR:
        from lake.cli.progress.bar import ProgressBar  # noqa: PLC0415 - door: only a terminal needs Rich

        return ProgressBar(stream, clock)
    return Documents(stream, clock) if kind == JSON else Lines(stream, clock, about)


class _Unfailing:
    """A stream whose errors are ignored: progress that no process can see must not fail a command, or a commit."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, if the stream takes it."""
        # A closed stream raises ValueError.
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, if it takes it."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Ticking(ABC):
    """Calls `tick` every second, in a thread of its own, because one task may take longer than that."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self.meter: Meter | None = None
        self.step: Step | None = None
        self._stream = stream
        self._clock = clock
        self._estimate = Estimate(clock)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, meter: Meter | None) -> None:
        """Show a phase instead of the present one; None shows nothing."""
        with self._lock:
            self._change(self.meter, meter)
            self.meter = meter
        if meter is None:
            self._ended.set()
        elif self._thread is None or self._ended.is_set():
            self._ended = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._ended,), name="progress", daemon=True
            )
            self._thread.start()

    def tick(self) -> None:
        """Write what is due."""
        with self._lock:
            if self.meter is not None:
                self._write(self.meter)

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(_SECONDS_BETWEEN_DOCUMENTS):
            self.tick()

    def _change(self, before: Meter | None, after: Meter | None) -> None:
        """React to a change of the phase; lines wait for their minute."""
        del before, after

    @abstractmethod
    def _write(self, meter: Meter) -> None:
        """Write what is due."""


class Lines(_Ticking):
    """Prints a line a minute while a phase lasts, for logs and the mail of cron."""

    def __init__(self, stream: TextIO, clock: Clock, about: Callable[[], str]) -> None:
        super().__init__(stream, clock)
        self._about = about
        self._printed = clock.monotonic()

    def _write(self, meter: Meter) -> None:
        work = meter.read()
        left = self._estimate.seconds_left(work)
        now = self._clock.monotonic()
        if now - self._printed < _SECONDS_BETWEEN_LINES:
            return
        self._printed = now
        text = ", ".join(filter(None, [amount_of(work), rows_of(work), left_of(left)]))
        start = line_start(self._clock, self._about())
        step = f" ({step_of(self.step)})" if self.step else ""
        self._stream.write(f"{start}{work.phase}{': ' if text else ''}{text}{step}\n")
        self._stream.flush()


class Documents(_Ticking):
    """Prints a JSON document a second on one line, for programs."""

    def _change(self, before: Meter | None, after: Meter | None) -> None:
        # The last state of a phase and the first one of the next.
        for meter in (before, after):
            if meter is not None:
                self._write(meter)

    def _write(self, meter: Meter) -> None:
        work = meter.read()
        left = self._estimate.seconds_left(work)
        document: dict[str, Any] = {
            "time": iso_time(self._clock.now_ms()),
            "phase": work.phase,
            "tasks": work.tasks,
            "total_tasks": work.total_tasks or None,
            "bytes": work.done_bytes,
            "total_bytes": work.total_bytes or None,
            "rows": work.rows,
            "seconds_left": None if left is None else round(left, 1),
        }
        if self.step is not None:
            document["step"] = asdict(self.step)
        self._stream.write(json.dumps(document) + "\n")
        self._stream.flush()
