"""An amount that several threads share, such as the bytes that may be in memory at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

# A thread waits in steps, so that a stop reaches it.
_WAIT_SECONDS = 0.2


class Shares:
    """An amount of which each thread takes a part while it works.

    A thread that wants more than there is works alone. Threads get their parts in the order in which they ask, so
    that one that wants much is not passed over for ever.

    Args:
        limit: the whole amount.
        check: called while a thread waits; raises what ends the wait.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    @property
    def limit(self) -> int:
        """The whole amount, of which a part may be taken."""
        return self._limit

    def take(self, wanted: int | None, check: Callable[[], None]) -> int:
        """Wait for a part and return it: what is wanted, or the whole amount if that is less.

        Args:
            wanted: the part; None for the whole amount.
            check: called while the thread waits; raises what ends the wait.
        """
        me = object()
        with self._changed:
            self._waiting.append(me)
            try:
                while not (self._waiting[0] is me and self._has(wanted)):
                    self._changed.wait(_WAIT_SECONDS)
                    check()
                part = self._limit if wanted is None else min(wanted, self._limit)
                self._used += part
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()
        return part

    def give_back(self, part: int) -> None:
        """Give a part back that `take` returned."""
        with self._changed:
            self._used -= part
            self._changed.notify_all()

    def spend(self, amount: int) -> None:
        """Make the whole amount smaller; it does not become less than 0."""
        with self._changed:
            self._limit = max(self._limit - amount, 0)

    def _has(self, wanted: int | None) -> bool:
        return not self._used or (wanted is not None and self._used + wanted <= self._limit)
