"""Time and identifiers, passed as arguments. Only this module asks the system for them."""

from __future__ import annotations

import secrets
import time
import uuid
from typing import Protocol


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
        time.sleep(seconds)


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
