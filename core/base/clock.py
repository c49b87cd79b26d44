"""Time, identifiers and waits, passed as arguments. Only this module asks the system for them."""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass, field
from typing import Protocol

from lake.core.base.interrupts import STOPPED

# The form of a UUID's text, a regular expression without groups.
UUID_FORM = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MAX_DOUBLINGS = 32
_LONGEST_SLEEP = 1.0


class Clock(Protocol):
    """A source of the time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, never going back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Ids(Protocol):
    """A source of names that must never repeat."""

    def uuid(self) -> str:
        """Return a new random UUID's text."""

    def snapshot_id(self) -> int:
        """Return a new positive 63-bit snapshot id."""

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, never going back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        until = time.monotonic() + seconds
        # The system may give a signal to another thread. The main thread handles it only when it does not sleep.
        while (rest := until - time.monotonic()) > 0:
            time.sleep(min(rest, _LONGEST_SLEEP))
            # What follows a stop is the clean-up.
            if STOPPED.is_set():
                return


class SystemIds:
    """Random identifiers from the operating system."""

    def uuid(self) -> str:
        """Return a new random UUID's text."""
        return str(uuid.uuid4())

    def snapshot_id(self) -> int:
        """Return a new positive 63-bit snapshot id."""
        return secrets.randbits(62) + 1

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return secrets.randbits(32) / 2**32


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between the attempts of an operation: each is twice the one before, up to a limit.

    Args:
        min_seconds: the wait after the first attempt.
        max_seconds: the longest wait.
        jitter: bounds of the random factor that each wait is multiplied by, so that clients that failed together
            do not repeat their requests together.
        clock: the clock that waits.
        ids: the source of random numbers.
    """

    min_seconds: float
    max_seconds: float
    jitter: tuple[float, float] = (1.0, 1.0)
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)

    def wait(self, attempt: int, *, at_least: float = 0.0) -> None:
        """Wait after the ``attempt``-th failure (from 1), for at least ``at_least`` seconds."""
        base = min(self.min_seconds * 2 ** min(attempt - 1, _MAX_DOUBLINGS), self.max_seconds)
        low, high = self.jitter
        factor = low + (high - low) * self.ids.jitter() if low < high else low
        self.clock.sleep(max(base * factor, at_least))
