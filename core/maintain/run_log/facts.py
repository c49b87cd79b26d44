"""What `lake runs` shows, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, inlined
from lake.core.maintain.run_log.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRunFacts(Facts):
    """An entry, and the seconds that a scan takes less than before; None if that is not known."""

    entry: Entry = inlined()
    saved_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFacts(Facts):
    """The runs of one action.

    `seconds` and `bytes` are the sums over all of these runs, and `saved_seconds` the sum over those for which it is
    known; None if it is known for none. The last two fields are the seconds that are saved for each GB (2^30 bytes)
    that was rewritten, and for each second of work; None without such work.
    """

    action: str
    runs: int
    failed: int
    seconds: float
    bytes: int
    saved_seconds: float | None
    saved_per_gb: float | None
    saved_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts(Facts):
    """An action that `lake maintain` does not try again before a time."""

    catalog: str
    table: str
    action: str
    until: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsResult(Facts):
    """The newest runs that were asked for, the newest first, and the actions of all that were asked for.

    `log` is the path of the log, or `runs_table` the name of the table that was read; `found` is whether it exists.
    `matching` is the number of runs that were asked for, which may be more than are listed, and `unreadable` the
    number of lines or rows that are not entries.
    """

    log: str | None = ""
    runs_table: str | None = None
    found: bool = True
    matching: int = 0
    runs: Sequence[LoggedRunFacts] = ()
    actions: Sequence[ActionFacts] = ()
    waiting: Sequence[WaitFacts] = ()
    unreadable: int = 0
