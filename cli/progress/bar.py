"""The progress bar of a terminal: phase, bar, amount, rows, time so far, and time left."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TextIO

from rich import progress
from rich.console import Console, RenderableType
from rich.text import Text

from lake.cli.progress.numbers import Estimate, amount_of, left_of, rows_of, step_of
from lake.core.base.clock import Clock
from lake.core.base.progress import Meter, Step, Work

# The work of a phase as parts of the bar.
_PARTS = 1000
_DELAY_SECONDS = 0.5


class ProgressBar:
    """Draws a bar while a phase is shown; nothing is drawn for a command that takes half a second."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self.meter: Meter | None = None
        self.step: Step | None = None
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._delay: threading.Timer | None = None
        self._bar: _Polled | None = None

    def show(self, meter: Meter | None) -> None:
        """Show a phase instead of the present one; None removes the bar."""
        with self._lock:
            self.meter = meter
            if meter is None:
                self._end()
            elif self._delay is None:
                self._delay = threading.Timer(_DELAY_SECONDS, self.draw)
                self._delay.daemon = True
                self._delay.start()

    def draw(self) -> None:
        """Draw the bar from now on."""
        with self._lock:
            if self.meter is not None and self._bar is None:
                console = Console(file=self._stream, markup=False, emoji=False, highlight=False)
                self._bar = _Polled(self, Estimate(self._clock), console)
                self._bar.start()

    def _end(self) -> None:
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class _Polled(progress.Progress):
    """Reads the meter each time that Rich draws the bar, ten times a second."""

    def __init__(self, shown: ProgressBar, estimate: Estimate, console: Console) -> None:
        # Rich draws once while it is set up.
        self._source = shown
        self._estimate = estimate
        super().__init__(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[numbers]}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[left]}", markup=False),
            console=console,
            transient=True,
        )
        self.add_task("", total=None, numbers="", left="")

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar with the present state of the meter."""
        meter = self._source.meter
        if meter is not None:
            for task in self.task_ids:
                self._update(task, meter.read())
        yield from super().get_renderables()
        if self._source.step is not None:
            yield Text(step_of(self._source.step), overflow="ellipsis", no_wrap=True)

    def _update(self, task: progress.TaskID, work: Work) -> None:
        left = self._estimate.seconds_left(work)
        self.update(
            task,
            description=work.phase,
            total=None if work.share is None else _PARTS,
            completed=int((work.share or 0) * _PARTS),
            numbers=" · ".join(filter(None, [amount_of(work), rows_of(work)])),
            left=left_of(left),
        )
