"""What `lake runs` shows, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, inlined
from lake.core.maintain.run_log.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRunFacts(Facts):
    """An entry, and what it saved."""

    entry: Entry = inlined()
    saved_seconds: float | None
    """Seconds that a scan takes less than before; null if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFacts(Facts):
    """The runs of one action."""

    action: str
    """The command."""
    runs: int
    """Its runs."""
    failed: int
    """Runs that failed."""
    seconds: float
    """The seconds of all runs."""
    bytes: int
    """The bytes of all runs."""
    saved_seconds: float | None
    """Seconds that scans take less, as far as it is known; null if it is known for no run."""
    saved_per_gb: float | None
    """Seconds that are saved for each GB (2^30 bytes) that was rewritten; null without bytes."""
    saved_per_second: float | None
    """Seconds that are saved for each second of work; null without work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts(Facts):
    """An action that `lake maintain` does not try again before a time."""

    catalog: str
    table: str
    action: str
    """The command."""
    until: str | None
    """The time before which it is not tried again; null if it is not known."""
    reason: str
    """Why it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsResult(Facts):
    """The runs that were asked for."""

    log: str | None = ""
    """The path of the log; null if a table was read."""
    runs_table: str | None = None
    """The name of the table that was read; null if it was a log."""
    found: bool = True
    """Whether the log or the table exists."""
    matching: int = 0
    """How many runs were asked for, which may be more than are listed."""
    runs: Sequence[LoggedRunFacts] = ()
    """The newest runs, the newest first."""
    actions: Sequence[ActionFacts] = ()
    """The sums of all runs, by command."""
    waiting: Sequence[WaitFacts] = ()
    """Actions that wait."""
    unreadable: int = 0
    """Lines or rows that are not entries."""
