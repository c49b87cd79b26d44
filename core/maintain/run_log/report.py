"""The report about the run log: what each run bought, what each action is worth, and which actions wait."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from lake.core.base.facts import ErrorFacts
from lake.core.base.outcome import Detail, Outcome, Status, first_rows, report
from lake.core.base.units import iso_time, readable_time
from lake.core.maintain.run_log.entries import Entry, Measures
from lake.core.maintain.run_log.experience import (
    Experiences,
    expected_seconds,
    future_warning,
    saved_seconds,
)
from lake.core.maintain.run_log.facts import ActionFacts, LoggedRunFacts, RunsResult, WaitFacts
from lake.core.maintain.run_log.run_log import LoggedRuns
from lake.core.table.catalogs.patterns import matches

_GB = 1 << 30
# A terminal shows these before the other columns, and no more waiting actions than these.
_FIRST = ("ended (UTC)", "table", "action", "status", "saved_s", "seconds", "files")
_WAITING_SHOWN = 10
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions:
    """Which runs are shown.

    Args:
        log: the path of the log; None if a table is read.
        runs_table: the name of the table that is read instead; None for the log.
        patterns: globs of the tables' names, namespaces, and tables; none for all.
        catalog: the name of the tables' catalog; None for all.
        since_ms: only runs that ended at this time or later, in ms since 1970; None for all.
        actions: only these actions; empty for all.
        failed: only runs that failed.
        limit: the most runs that are listed; 0 for all.
    """

    log: str | None = None
    runs_table: str | None = None
    patterns: Sequence[str] = ()
    catalog: str | None = None
    since_ms: int | None = None
    actions: Collection[str] = ()
    failed: bool = False
    limit: int = 20

    def concerns(self, entry: Entry) -> bool:
        """Whether the entry is about the tables and actions that were asked for."""
        if self.catalog is not None and entry.catalog != self.catalog:
            return False
        if self.actions and entry.action not in self.actions:
            return False
        namespace = entry.table.rpartition(".")[0]
        return any(matches(entry.table, namespace, item) for item in self.patterns or (None,))

    def selects(self, entry: Entry) -> bool:
        """Whether the run of the entry is one of those that were asked for."""
        if self.failed and not entry.is_failure:
            return False
        if self.since_ms is not None and entry.at_ms < self.since_ms:
            return False
        return self.concerns(entry)


def runs(options: RunsOptions, logged: LoggedRuns, now_ms: int) -> Outcome:
    """Return what entries say about runs of `lake maintain`."""
    selected = [entry for entry in logged.entries if options.selects(entry)]
    # Clocks of machines differ, so the order of the log is not that of the times.
    selected.sort(key=attrgetter("at"))
    selected.reverse()
    shown = selected[: options.limit or None]
    result = RunsResult(
        log=options.log,
        runs_table=options.runs_table,
        found=logged.is_found,
        matching=len(selected),
        runs=[LoggedRunFacts(entry=entry, saved_seconds=saved_seconds(entry)) for entry in shown],
        actions=list(_actions(selected)),
        # The table decides nothing: each host has learned from its own log.
        waiting=[]
        if options.runs_table
        else _waiting(Experiences(logged.entries, now_ms), options),
        unreadable=logged.unreadable,
    )
    return Outcome(
        status=Status.DONE,
        result=result,
        details=[_runs_table(shown), _actions_table(result.actions)],
        notes=_notes(result, selected, every=not options.limit),
        warnings=_warnings(result, logged.entries, now_ms),
    )


def _actions(entries: Sequence[Entry]) -> Iterator[ActionFacts]:
    """Yield each action, the one first whose work took most seconds."""
    by_action: dict[str, list[Entry]] = {}
    for entry in entries:
        by_action.setdefault(entry.action, []).append(entry)
    found = [_action(action, of_action) for action, of_action in by_action.items()]
    yield from sorted(found, key=lambda row: (-row.seconds, row.action))


def _action(action: str, entries: Sequence[Entry]) -> ActionFacts:
    seconds = sum(entry.seconds for entry in entries)
    rewritten = sum(entry.bytes or 0 for entry in entries)
    gains = [gain for gain in map(saved_seconds, entries) if gain is not None]
    saved = sum(gains) if gains else None
    return ActionFacts(
        action=action,
        runs=len(entries),
        failed=sum(entry.is_failure for entry in entries),
        seconds=round(seconds, _DIGITS),
        bytes=rewritten,
        saved_seconds=None if saved is None else round(saved, _DIGITS),
        saved_per_gb=_per(saved, rewritten / _GB),
        saved_per_second=_per(saved, seconds),
    )


def _per(saved: float | None, work: float) -> float | None:
    return round(saved / work, _DIGITS) if saved is not None and work else None


def _waiting(experiences: Experiences, options: RunsOptions) -> list[WaitFacts]:
    """Return the actions that wait, the one first that is tried first."""
    waiting = [item for item in experiences.waiting() if options.concerns(item[0])]
    waiting.sort(key=lambda item: item[1].wait_until_ms or 0)
    return [
        WaitFacts(
            catalog=entry.catalog,
            table=entry.table,
            action=entry.action,
            until=iso_time(found.wait_until_ms or 0),
            reason=found.reason,
        )
        for entry, found in waiting
    ]


def _runs_table(entries: Sequence[Entry]) -> Detail:
    several = len({entry.catalog for entry in entries}) > 1
    columns: dict[str, list[Any]] = {
        "ended": [readable_time(entry.at) for entry in entries],
        "catalog": [entry.catalog if several else None for entry in entries],
        "table": [entry.table for entry in entries],
        "action": [entry.action for entry in entries],
        "status": [entry.error.kind if entry.error else entry.status for entry in entries],
        "seconds": [round(entry.seconds, 1) for entry in entries],
        "planned_s": [
            None if entry.forecast is None else _rounded(entry.forecast.work_seconds)
            for entry in entries
        ],
        "saved_s": [_rounded(saved_seconds(entry)) for entry in entries],
        "forecast_s": [
            None if entry.forecast is None else _rounded(expected_seconds(entry.forecast))
            for entry in entries
        ],
        "bytes_rewritten": [entry.bytes for entry in entries],
        "files": _changes(entries, attrgetter("files")),
        "delete_files": _changes(entries, attrgetter("delete_files")),
        "deleted_rows": _changes(entries, attrgetter("deleted_rows")),
        "snapshots": _changes(entries, attrgetter("snapshots")),
        "manifests": _changes(entries, attrgetter("manifests")),
    }
    return report("runs", columns, first=_FIRST)


def _changes(
    entries: Sequence[Entry], measure: Callable[[Measures], int | None]
) -> list[str | None]:
    """Return a measure before and after each run as ``36 → 6``; None if it is the same, or not known."""
    found = [
        (measure(entry.before or Measures()), measure(entry.after or Measures()))
        for entry in entries
    ]
    return [
        None if before is None or after is None or before == after else f"{before:,} → {after:,}"
        for before, after in found
    ]


def _actions_table(actions: Sequence[ActionFacts]) -> Detail:
    columns: dict[str, list[Any]] = {
        "action": [row.action for row in actions],
        "runs": [row.runs for row in actions],
        "failed": [row.failed or None for row in actions],
        "seconds": [round(row.seconds, 1) for row in actions],
        "bytes_rewritten": [row.bytes or None for row in actions],
        "saved_s": [_rounded(row.saved_seconds) for row in actions],
        "saved_s_per_gb": [row.saved_per_gb for row in actions],
        "saved_s_per_second": [row.saved_per_second for row in actions],
    }
    return report("actions", columns)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _notes(result: RunsResult, selected: Sequence[Entry], *, every: bool) -> list[str]:
    """Return what is not shown, why runs failed, and which actions wait."""
    hidden = result.matching - len(result.runs)
    notes = [f"{hidden:,} older {'run is' if hidden == 1 else 'runs are'} not listed"]
    notes = notes if hidden else []
    notes += _failures(selected, len(result.runs))
    waiting, more = first_rows(result.waiting, _WAITING_SHOWN, "waiting actions", every=every)
    notes += [_wait(row) for row in waiting]
    return [*notes, *more]


def _failures(entries: Sequence[Entry], listed: int) -> Iterator[str]:
    """Yield why the first runs failed; what failed several times for the same reason, also later, is one line."""
    alike: dict[tuple[str, str, ErrorFacts | None], list[Entry]] = {}
    for number, entry in enumerate(entries):
        key = (entry.table, entry.action, entry.error)
        if entry.is_failure and (number < listed or key in alike):
            alike.setdefault(key, []).append(entry)
    for (table, action, error), found in alike.items():
        if error is not None:
            times = f" {len(found):,} times, the last time" if len(found) > 1 else ""
            hint = f" ({error.hint})" if error.hint else ""
            when = readable_time(found[0].at)
            yield f"{table}: {action} failed{times} at {when}: {error.message}{hint}"


def _wait(row: WaitFacts) -> str:
    until = f" before {readable_time(row.until)}" if row.until else ""
    return f"{row.table}: lake maintain does not repeat {row.action}{until}: {row.reason}"


def _warnings(result: RunsResult, entries: Sequence[Entry], now_ms: int) -> list[str]:
    place = result.log or result.runs_table or ""
    found = []
    if result.unreadable:
        lines = "line is not a run" if result.unreadable == 1 else "lines are not runs"
        found.append(f"{result.unreadable:,} {lines} in {place}")
    if late := future_warning(entries, now_ms, place):
        found.append(late)
    return found
