"""What earlier entries say about an action on a table: when it was done last, and whether to wait before the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from lake.core.base.outcome import Status
from lake.core.maintain.run_log.entries import Entry, ExpectedFacts, Measures

# Fewer failures in a row may be bad luck. The wait doubles with each failure after this number.
PATIENCE = 3
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 15 * 60_000, 24 * 3_600_000
_MOST_DOUBLINGS = 16
# An action that read data and saved nothing, or whose time ended, is repeated after this time.
_COOL_DOWN_MS = 24 * 3_600_000
_CLOCKS_DIFFER_MS = 5 * 60_000
_ENDED = frozenset({Status.DONE, Status.NOTHING_TO_DO, Status.PARTIAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What is known of an action on a table.

    Args:
        done_ms: when it ended last without an error, in ms since 1970; None if it never did.
        failures: how many times it failed since then.
        seconds: how long it took last, or until its time ended; None if that is not known.
        is_unfinished: whether it left a part of its work then.
        wait_until_ms: the time before which it is not tried again; None for now.
        reason: why.
    """

    done_ms: int | None = None
    failures: int = 0
    seconds: float | None = None
    is_unfinished: bool = False
    wait_until_ms: int | None = None
    reason: str = ""


def future_warning(entries: Sequence[Entry], now_ms: int, place: str) -> str:
    """Return the warning about entries that ended after now by more than clocks differ; empty if there are none."""
    number = sum(entry.at_ms > now_ms + _CLOCKS_DIFFER_MS for entry in entries)
    if not number:
        return ""
    runs = "1 run has" if number == 1 else f"{number:,} runs have"
    return (
        f"{runs} a time in the future in {place}, and no effect: the clock of a machine was wrong"
    )


@dataclass(slots=True)
class Experiences:
    """The experience of all actions, by the UUID of the table and the action.

    Args:
        entries: the log, the oldest entry first. Those with a time after `now_ms` do not count: a clock was wrong.
        now_ms: the time.
    """

    entries: Sequence[Entry]
    now_ms: int
    _by_action: dict[tuple[str, str], list[Entry]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.at_ms <= self.now_ms:
                self._by_action.setdefault((entry.table_uuid, entry.action), []).append(entry)

    def of(self, table_uuid: str, action: str) -> Experience:
        """Return the experience of an action on a table."""
        return _experience(self._by_action.get((table_uuid, action), []))

    def waiting(self) -> Iterator[tuple[Entry, Experience]]:
        """Yield the last entry and the experience of each action that is not tried again now."""
        for entries in self._by_action.values():
            found = _experience(entries)
            if found.wait_until_ms is not None and found.wait_until_ms > self.now_ms:
                yield entries[-1], found


def _experience(entries: Sequence[Entry]) -> Experience:
    """Return the experience of the entries of one action on one table."""
    done = next(filter(_is_done, reversed(entries)), None)
    tried = next((entry for entry in reversed(entries) if _shows_time(entry)), None)
    known = Experience(
        done_ms=None if done is None else done.at_ms,
        seconds=None if tried is None else tried.seconds,
        is_unfinished=tried is not None
        and (tried.is_out_of_time or tried.status == Status.PARTIAL),
    )
    failed = list(_failed_since_done(entries))
    failures = len(failed)
    if failures >= PATIENCE:
        doublings = min(failures - PATIENCE, _MOST_DOUBLINGS)
        wait = min(_FIRST_WAIT_MS * 2**doublings, _LONGEST_WAIT_MS)
        return replace(
            known,
            failures=failures,
            wait_until_ms=failed[0].at_ms + wait,
            reason=f"it failed {failures:,} times in a row",
        )
    if not failures and tried is not None and (tried.is_out_of_time or bought_nothing(tried)):
        last = "its time ended" if tried.is_out_of_time else "it saved nothing"
        return replace(
            known,
            wait_until_ms=tried.at_ms + _COOL_DOWN_MS,
            reason=f"{last} last time",
        )
    return replace(known, failures=failures)


def _shows_time(entry: Entry) -> bool:
    return entry.is_out_of_time or _is_done(entry)


def _is_done(entry: Entry) -> bool:
    return entry.error is None and entry.status in _ENDED


def _failed_since_done(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the failures after the last end without an error, the newest first.

    An action that was stopped, or left to another run, says nothing about the next attempt.
    """
    for entry in reversed(entries):
        if _is_done(entry):
            return
        if entry.is_failure:
            yield entry


def bought_nothing(entry: Entry) -> bool:
    """Whether an action read data files to rewrite them, and a scan costs as much as before."""
    if not entry.bytes or entry.error is not None:
        return False
    gain = saved_seconds(entry)
    return gain is not None and gain <= 0


def saved_seconds(entry: Entry) -> float | None:
    """Return the seconds that a scan takes less than before, of a full scan or of one partition; None if unknown."""
    if entry.before is None or entry.after is None:
        return None
    gains = [
        before - after
        for before, after in (_pair(entry.before, entry.after, name) for name in _SCANS)
        if before is not None and after is not None
    ]
    return max(gains, default=None)


def expected_seconds(forecast: ExpectedFacts) -> float:
    """Return the seconds that a scan was expected to take less, of a full scan or of one partition."""
    return max(forecast.seconds, forecast.partition_seconds or 0.0)


_SCANS = ("scan_seconds", "partition_scan_seconds")


def _pair(before: Measures, after: Measures, name: str) -> tuple[float | None, float | None]:
    return getattr(before, name), getattr(after, name)
