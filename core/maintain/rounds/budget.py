"""The limits of a round: seconds, and bytes of data files that it may rewrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from lake.core.base.units import format_duration, format_size
from lake.core.transaction.shares import Shares

if TYPE_CHECKING:
    from lake.core.base.clock import Clock
    from lake.core.maintain.rounds.decisions import Decision

# The actions that read data files to rewrite them; a compaction can do a part of its work.
_REWRITES, _DIVISIBLE = frozenset({"compact", "deletes"}), "compact"
# The shares of the time in which tables are read, before and after those with very many files, which take long.
_READING, READING_OF_LARGE = 0.5, 0.75


@dataclass(frozen=True, slots=True)
class Grant:
    """What an action may do.

    Args:
        refusal: why it does not begin; empty if it may.
        most_bytes: the most bytes that it may rewrite; None if it has no limit, or cannot do a part.
    """

    refusal: str = ""
    most_bytes: int | None = None


@dataclass(slots=True)
class Budget:
    """What is left of the limits.

    Args:
        clock: the clock.
        max_ms: the time after which nothing begins; None for no limit.
        max_bytes: the bytes that may be rewritten; None for no limit.
        begun: the monotonic time at which the time began; None for now.
        until: the end of the time, as the clock's monotonic time; None for no limit.
    """

    clock: Clock
    max_ms: int | None
    max_bytes: int | None
    begun: float | None = None
    until: float | None = field(init=False, default=None)
    _bytes: Shares = field(init=False)

    def __post_init__(self) -> None:
        if self.max_ms is not None:
            begun = self.clock.monotonic() if self.begun is None else self.begun
            self.until = begun + self.max_ms / 1000
        self._bytes = Shares(self.max_bytes or 0)

    @contextmanager
    def granted(
        self, decision: Decision, most: int | None, check: Callable[[], None]
    ) -> Iterator[Grant]:
        """Give an action its part of the bytes while the block runs, in which `spend` counts what it rewrote.

        Waits until the parts of other threads leave enough, so that all together keep the limit and none has less
        than it would have alone.

        Args:
            decision: the action.
            most: the most bytes that it could rewrite; None if that is not known.
            check: called while it waits; raises what ends the wait.
        """
        if self.max_bytes is None or decision.action not in _REWRITES:
            yield Grant(self._lateness(decision))
            return
        part = self._bytes.take(most, check)
        try:
            yield self._grant(decision, part)
        finally:
            self._bytes.give_back(part)

    def too_late_to_read(self, reading: float, work: float, share: float = _READING) -> str:
        """Return why no other table is read; empty if one is.

        Reading may take its share of the time, and more as long as it finds too little to do in the rest of the time.

        Args:
            reading: how many seconds the reading takes that has begun.
            work: how many seconds the work takes that was found.
            share: the share of the time.
        """
        left, whole = self._time()
        if left <= 0:
            return _passed(whole)
        if left - reading < min(work, whole * (1 - share)):
            return f"it was not read: the rest of the {format_duration(whole)} is for other tables"
        return ""

    def spend(self, rewritten: int | None) -> None:
        """Count what an action rewrote."""
        self._bytes.spend(rewritten or 0)

    def _lateness(self, decision: Decision) -> str:
        left, whole = self._time()
        if left <= 0:
            return _passed(whole)
        takes = decision.takes or 0.0
        # What needs more than half of the time would otherwise never begin.
        if decision.action != _DIVISIBLE and left < min(takes, whole / 2):
            return f"it takes about {format_duration(takes)}, and {format_duration(left)} are left"
        return ""

    def _time(self) -> tuple[float, float]:
        """Return the seconds that are left, and all that there were; infinite ones without a limit."""
        if self.until is None or self.max_ms is None:
            return inf, inf
        return self.until - self.clock.monotonic(), self.max_ms / 1000

    def _grant(self, decision: Decision, part: int) -> Grant:
        if late := self._lateness(decision):
            return Grant(late)
        needed = decision.forecast.bytes if decision.forecast else 0
        if part <= 0 or (decision.action != _DIVISIBLE and needed > part):
            left = format_size(self._bytes.limit)
            return Grant(f"it reads {format_size(needed)}, and {left} are left")
        return Grant(most_bytes=part if decision.action == _DIVISIBLE else None)


def _passed(whole: float) -> str:
    return f"the {format_duration(whole)} have passed"
