"""The steps that a round expects, for progress: which one is done, what comes next, and the time left."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from lake.core.base.progress import Step

if TYPE_CHECKING:
    from lake.core.base.clock import Clock
    from lake.core.maintain.rounds.decisions import Decision

# Less than this does not show how fast the work is.
_LEAST_SECONDS = 3.0
_LEAST_COST = 1e-6
# The actions that are named of those that run at a time.
_MOST_NAMED = 3
# A table and an action.
Work: TypeAlias = tuple[str, str]


class Agenda:
    """The actions that were due when the round began, in their order. Any thread may call its methods.

    Args:
        clock: measures the time.
        expected: the actions; others may follow from what these change.
    """

    def __init__(self, clock: Clock, expected: Sequence[Decision]) -> None:
        self._clock = clock
        self._begun = clock.monotonic()
        self._lock = threading.Lock()
        self._names = [(item.table, item.action) for item in expected]
        self._costs = [item.work_seconds for item in expected]
        # The positions of the actions that have not begun: for each table, and the first one of all.
        self._waiting: dict[str, list[int]] = {}
        for place, item in enumerate(expected):
            self._waiting.setdefault(item.table, []).append(place)
        self._is_waiting = [True] * len(expected)
        self._first = 0
        self._left, self._cost_left = len(expected), sum(self._costs)
        self._cost = self._cost_left
        # The actions that run, with their costs.
        self._running: dict[Work, float] = {}

    def running(self) -> list[Work]:
        """Return the actions that run, the one that began first before the others."""
        with self._lock:
            return list(self._running)

    def begin(self, decision: Decision) -> Step:
        """Return the step of an action that begins."""
        work = decision.table, decision.action
        with self._lock:
            waiting = self._waiting.get(decision.table, [])
            place = next((at for at in waiting if self._names[at] == work), None)
            self._running[work] = 0.0 if place is None else self._costs[place]
            # Those before it were not due any more.
            while place is not None and waiting and waiting[0] <= place:
                self._pass(waiting.pop(0))
            return self._step()

    def end(self, decision: Decision) -> Step | None:
        """Return the step after an action has ended; None if none runs."""
        with self._lock:
            self._running.pop((decision.table, decision.action), None)
            return self._step() if self._running else None

    def leave(self, table: str) -> None:
        """Note that nothing else is done to a table."""
        with self._lock:
            for place in self._waiting.pop(table, []):
                self._pass(place)

    def _pass(self, place: int) -> None:
        self._is_waiting[place] = False
        self._left -= 1
        self._cost_left -= self._costs[place]
        while self._first < len(self._names) and not self._is_waiting[self._first]:
            self._first += 1

    def _step(self) -> Step:
        names = [_text(work) for work in self._running]
        more = len(names) - _MOST_NAMED
        return Step(
            number=max(len(self._names) - self._left, 1),
            total=max(len(self._names), 1),
            text=", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else ""),
            following=_text(self._names[self._first]) if self._left else "",
            seconds_left=self._seconds_left(),
        )

    def _seconds_left(self) -> float | None:
        """Return the time for the present steps and those after them, at the speed so far."""
        took = self._clock.monotonic() - self._begun
        left = self._cost_left + sum(self._running.values())
        done = self._cost - left
        if took < _LEAST_SECONDS or done < _LEAST_COST:
            return None
        return round(took / done * left, 1)


def _text(work: Work) -> str:
    table, action = work
    return f"{action} {table}"
