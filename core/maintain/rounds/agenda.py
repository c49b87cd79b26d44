"""The steps that a round expects, for progress: which one is done, what comes next, and the time left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lake.core.base.progress import Step
from lake.core.maintain.health.past import work_seconds

if TYPE_CHECKING:
    from lake.core.base.clock import Clock
    from lake.core.maintain.rounds.decisions import Decision

# Less than this does not show how fast the work is.
_LEAST_SECONDS = 3.0


class Agenda:
    """The actions that were due when the round began, in their order.

    Args:
        clock: measures the time.
        expected: the actions; others may follow from what these change.
    """

    def __init__(self, clock: Clock, expected: Sequence[Decision]) -> None:
        self._clock = clock
        self._begun = clock.monotonic()
        self._names = [(item.table, item.action) for item in expected]
        self._costs = [_work(item) for item in expected]
        self._position = 0

    def step(self, decision: Decision) -> Step:
        """Return the step of an action that begins."""
        name = (decision.table, decision.action)
        if name in self._names[self._position :]:
            self._position = self._names.index(name, self._position) + 1
        following = self._names[self._position : self._position + 1]
        return Step(
            number=max(self._position, 1),
            total=max(len(self._names), 1),
            text=_text(name),
            following=_text(following[0]) if following else "",
            seconds_left=self._seconds_left(),
        )

    def _seconds_left(self) -> float | None:
        """Return the time for the present step and those after it, at the speed so far."""
        before = sum(self._costs[: max(self._position - 1, 0)])
        took = self._clock.monotonic() - self._begun
        if not before or took < _LEAST_SECONDS:
            return None
        return round(took / before * (sum(self._costs) - before), 1)


def _work(item: Decision) -> float:
    forecast = item.forecast
    if forecast is None or forecast.work_seconds is None:
        return work_seconds(0)
    return forecast.work_seconds


def _text(name: tuple[str, str]) -> str:
    table, action = name
    return f"{action} {table}"
