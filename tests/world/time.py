"""Time and names from a seed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from random import Random

START_MS = 1_900_000_000_000


class SimClock:
    """A clock that a world moves; an actor that sleeps lets others go on.

    Args:
        woken: called after each sleep.
    """

    def __init__(self, woken: Callable[[], None]) -> None:
        self.now = START_MS
        self._woken = woken

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1000)
        self._woken()


class SimIds:
    """Identifiers from a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def uuid(self) -> str:
        return str(self.uuid4())

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def snapshot_id(self) -> int:
        return self._random.getrandbits(62) + 1

    def jitter(self) -> float:
        return self._random.random()
