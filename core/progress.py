"""Progress reports of the core, independent of a terminal."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives a command's phases and the progress of each."""

    def start(self, phase: str, *, tasks: int, total_bytes: int) -> None:
        """Begin a phase, e.g. ``"rewriting"``; this ends the previous one."""

    def advance(self, *, tasks: int = 0, done_bytes: int = 0, rows: int = 0) -> None:
        """Report work done since the last call."""

    def finish(self) -> None:
        """End the phase."""


class Silent:
    """Reports nothing."""

    def start(self, phase: str, *, tasks: int, total_bytes: int) -> None:
        """Ignore."""

    def advance(self, *, tasks: int = 0, done_bytes: int = 0, rows: int = 0) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""
