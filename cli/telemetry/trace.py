"""What is recorded of a command: how it and its parts begin and end. Here, nothing is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from lake.core.base.errors import ReportedError
from lake.core.base.outcome import Outcome
from lake.core.base.progress import Progress

# How a command, or its work on one table, ended: an exception is a defect, and a number the exit code of help.
Ending: TypeAlias = Outcome | ReportedError | Exception | int


def described(ending: Ending) -> dict[str, str]:
    """Return the status, and of a failure the kind of its error, as attributes."""
    found = {}
    if isinstance(ending, Outcome | ReportedError):
        found["lake.status"] = str(ending.status)
    if isinstance(ending, ReportedError):
        found["error.type"] = ending.kind
    elif isinstance(ending, Exception):
        found["error.type"] = type(ending).__name__
    return found


class Trace:
    """Records nothing."""

    def progress(self, display: Progress) -> Progress:
        """Return the display, or one in its place that also records the phases."""
        return display

    def begin_table(self, command: str, table: str) -> None:
        """Begin the work on one of several tables."""

    def end_table(self, ending: Ending) -> None:
        """End the work on one of several tables."""

    def retried(self) -> None:
        """Count a commit that is tried again."""

    def end_round(self, ending: Ending) -> None:
        """End one of the rounds of a command that stays; the next one begins."""

    def end(self, ending: Ending, code: int, facts: Mapping[str, str | None]) -> None:
        """End the command.

        Args:
            ending: how it ended.
            code: the exit code.
            facts: its catalog and its table, by these names.
        """
