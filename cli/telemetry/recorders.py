"""All that records a command: its traces and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lake.cli.telemetry.measures import Measures
from lake.cli.telemetry.sending import send_rest
from lake.cli.telemetry.spans import Spans
from lake.cli.telemetry.trace import Ending, Trace
from lake.core.base.progress import Progress

# By the names of what they send.
RECORDERS: Mapping[
    str, Callable[[str, Mapping[str, str], str, Callable[[str], str]], Spans | Measures]
] = {"traces": Spans, "metrics": Measures}


class Recorders(Trace):
    """Gives each recorder what happens."""

    def __init__(self, recorders: Sequence[Spans | Measures]) -> None:
        self._all = recorders

    def progress(self, display: Progress) -> Progress:
        """Return a display that also records the phases."""
        for one in self._all:
            display = one.progress(display)
        return display

    def begin_table(self, command: str, table: str) -> None:
        """Begin the work on one of several tables."""
        for one in self._all:
            one.begin_table(command, table)

    def end_table(self, ending: Ending) -> None:
        """End the work on one of several tables."""
        for one in self._all:
            one.end_table(ending)

    def retried(self) -> None:
        """Count a commit that is tried again."""
        for one in self._all:
            one.retried()

    def end_round(self, ending: Ending) -> None:
        """End one of the rounds, and begin the next one."""
        for one in self._all:
            one.end_round(ending)

    def end(self, ending: Ending, code: int, facts: Mapping[str, str | None]) -> None:
        """End the command, and wait a little for what is not sent yet."""
        for one in self._all:
            one.end(ending, code, facts)
        send_rest([one.provider.shutdown for one in self._all])
