"""Messages on standard error: errors, warnings, hints, and outcomes that are not data.

On a terminal, a message names the command and the table once. Elsewhere, every line begins with the time (UTC), the
command and the table: a log or the mail of a cron job mixes the lines of many runs.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TextIO

from lake.cli.display import Display
from lake.core.base.clock import Clock
from lake.core.base.redaction import one_line

# Styles of labels on a terminal (ECMA-48, "select graphic rendition").
_STYLES = {"error": "1;31", "warning": "33", "hint": "36"}


def subject(command: str | None, table: str | None) -> str:
    """Return what a message is about: ``lake compact db.t``, as far as it is known."""
    return one_line(" ".join(word for word in ("lake", command, table) if word))


def line_start(clock: Clock, about: str) -> str:
    """Return how a line begins that is not for a terminal: the time in UTC, and what the line is about."""
    now = datetime.fromtimestamp(clock.now_ms() // 1000, UTC)
    return f"{now:%Y-%m-%dT%H:%M:%SZ} {about}: "


class Messages:
    """Writes messages about one command to standard error.

    Args:
        clock: the time of each line.
        about: the command and the table; see `subject`.
        display: the user's choice of colors.
    """

    def __init__(self, clock: Clock, about: str, display: Display) -> None:
        self._clock = clock
        self._about = about
        self._display = display

    def error(self, message: str, details: dict[str, str | None]) -> None:
        """Write an error, and below it its details by their labels; empty ones are left out."""
        self._write("error", message, named=True)
        for label, text in details.items():
            if text:
                self._write(label, text, named=False)

    def warning(self, message: str) -> None:
        """Write a warning."""
        self._write("warning", message, named=True)

    def outcome(self, table: str, text: str) -> None:
        """Write what a command did to a table, one or several lines."""
        first = table
        for line in text.split("\n"):
            self._line(f"{first}: {line}" if first else line, line)
            first = ""

    def trace(self, text: str) -> None:
        """Write the trace of an exception."""
        for line in text.split("\n"):
            self._line(line, line)

    def _write(self, label: str, text: str, *, named: bool) -> None:
        name = f"{self._about}: " if named else ""
        self._line(f"{name}{self._styled(label)}: {text}", f"{label}: {text}")

    def _styled(self, label: str) -> str:
        style = _STYLES.get(label)
        return (
            f"\x1b[{style}m{label}\x1b[0m" if style and self._display.colors(sys.stderr) else label
        )

    def _line(self, on_terminal: str, elsewhere: str) -> None:
        stream: TextIO = sys.stderr
        if stream.isatty():
            stream.write(f"{on_terminal}\n")
        else:
            stream.write(f"{line_start(self._clock, self._about)}{elsewhere}\n")
        stream.flush()
