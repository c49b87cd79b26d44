"""Show progress to people: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

from typing import Any, TextIO

from lake.core.clock import Clock
from lake.core.progress import Progress, Silent
from lake.core.units import format_duration, format_size

_SECONDS_BETWEEN_LINES = 10.0


def make_progress(stream: TextIO, clock: Clock, *, quiet: bool) -> Progress:
    """Return the progress display that suits the stream: none, a bar, or lines."""
    if quiet:
        return Silent()
    return Bar(stream) if stream.isatty() else Lines(stream, clock)


class Bar:
    """A Rich progress bar with bytes (or tasks), rows and remaining time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: Any = None
        self._task: Any = None
        self._rows = 0
        self._by_bytes = True

    def start(self, phase: str, *, tasks: int, total_bytes: int) -> None:
        """Begin a phase."""
        from rich import console, progress  # noqa: PLC0415 - only a terminal needs it

        self.finish()
        self._rows = 0
        self._by_bytes = total_bytes > 0
        self._shown = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True)
            if self._by_bytes
            else progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rows]:,} rows", markup=False),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console.Console(file=self._stream, markup=False, emoji=False, highlight=False),
            transient=True,
        )
        self._shown.start()
        self._task = self._shown.add_task(phase, total=total_bytes or tasks or None, rows=0)

    def advance(self, *, tasks: int = 0, done_bytes: int = 0, rows: int = 0) -> None:
        """Move the bar."""
        self._rows += rows
        if self._shown is not None:
            done = done_bytes if self._by_bytes else tasks
            self._shown.update(self._task, advance=done, rows=self._rows)

    def finish(self) -> None:
        """Remove the bar."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None


class Lines:
    """Print a line every ten seconds while a phase lasts, for cron mail and pipes."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._phase = ""
        self._tasks = self._total_tasks = self._bytes = self._total_bytes = self._rows = 0
        self._started = self._printed = 0.0

    def start(self, phase: str, *, tasks: int, total_bytes: int) -> None:
        """Start a phase; nothing is printed if it is short."""
        self._phase, self._total_tasks, self._total_bytes = phase, tasks, total_bytes
        self._tasks = self._bytes = self._rows = 0
        self._started = self._printed = self._clock.monotonic()

    def advance(self, *, tasks: int = 0, done_bytes: int = 0, rows: int = 0) -> None:
        """Add to the counters, and print a line if the last one is ten seconds old."""
        self._tasks += tasks
        self._bytes += done_bytes
        self._rows += rows
        now = self._clock.monotonic()
        if now - self._printed >= _SECONDS_BETWEEN_LINES:
            self._printed = now
            self._stream.write(self._line(now - self._started) + "\n")

    def _line(self, seconds: float) -> str:
        if self._total_bytes:
            done = self._bytes / self._total_bytes
            reached = f"{format_size(self._bytes)} of {format_size(self._total_bytes)}"
        else:
            done = self._tasks / max(self._total_tasks, 1)
            reached = f"{self._tasks} of {self._total_tasks}"
        parts = [reached, f"{self._rows:,} rows"]
        if 0 < done < 1:
            parts.append(f"{format_duration(seconds * (1 - done) / done)} left")
        return f"{self._phase}: {', '.join(parts)}"

    def finish(self) -> None:
        """End the phase."""
        self._phase = ""
