"""The numbers of a phase in words: how much is done, and the time left."""

from __future__ import annotations

from collections import deque

from lake.core.base.clock import Clock
from lake.core.base.progress import Step, Work
from lake.core.base.redaction import one_line
from lake.core.base.units import counted, format_duration, format_size

# The speed is that of the last minute; the time left is not shown before it means something.
_WINDOW_SECONDS = 60.0
_MIN_SECONDS = 3.0


class Estimate:
    """Estimates the time that a phase still takes, from the speed of the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._phase = ""
        self._points: deque[tuple[float, float]] = deque()

    def seconds_left(self, work: Work) -> float | None:
        """Return the seconds left; None if they cannot be estimated."""
        now, share = self._clock.monotonic(), work.share
        if work.phase != self._phase:
            self._phase, self._started = work.phase, now
            self._points.clear()
        if share is None:
            return None
        if not share:
            # Workers that start do not say how fast they will be.
            self._points.clear()
        self._points.append((now, share))
        while self._points[0][0] < now - _WINDOW_SECONDS:
            self._points.popleft()
        first, before = self._points[0]
        if now - self._started < _MIN_SECONDS or not before < share < 1:
            return None
        return (1 - share) * (now - first) / (share - before)


def amount_of(work: Work) -> str:
    """Return how much is done: ``1.2 GB of 3.0 GB``, or ``3 of 12 tasks``; empty if nothing is known."""
    if work.total_bytes:
        done = format_size(min(work.done_bytes, work.total_bytes))
        return f"{done} of {format_size(work.total_bytes)}"
    return f"{work.tasks:,} of {work.total_tasks:,}" if work.total_tasks else ""


def rows_of(work: Work) -> str:
    """Return the number of rows; empty if there are none."""
    return counted(work.rows, "row") if work.rows else ""


def left_of(seconds: float | None) -> str:
    """Return the time left; empty if it is not known."""
    return f"{format_duration(seconds)} left" if seconds else ""


def step_of(step: Step) -> str:
    """Return the present step and the next one: ``3 of 12: compact db.t, then clean db.t, 4m 00s left``."""
    following = f"then {step.following}" if step.following else ""
    parts = [
        f"{step.number:,} of {step.total:,}: {step.text}",
        following,
        left_of(step.seconds_left),
    ]
    return one_line(", ".join(filter(None, parts)))
