"""Send reports to a server on a thread of their own: they neither delay the work nor change how it ends."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

# More reports are dropped: the server is slower than the commits.
_MOST_WAITING = 100
# A server that refuses this many reports one after the other takes none.
_MOST_FAILURES = 3
# The thread ends if there is nothing to send for this time, and the end of the process waits this long for the rest.
_IDLE_SECONDS, _LAST_SECONDS = 5.0, 1.0


class Sender:
    """Sends reports one after the other, in the background.

    Args:
        send: sends a report to an address, and returns whether the server took it. It raises nothing.
    """

    def __init__(self, send: Callable[[str, Any], bool]) -> None:
        self._send = send
        self._waiting: deque[tuple[str, Any]] = deque()
        self._changed = threading.Condition()
        self._is_running = self._is_sending = False
        self._failures = 0
        self._is_registered = False

    def add(self, address: str, report: Any) -> None:
        """Send a report soon; drop it if the server takes none, or too many wait."""
        with self._changed:
            if self._failures >= _MOST_FAILURES or len(self._waiting) >= _MOST_WAITING:
                return
            self._waiting.append((address, report))
            if not self._is_running:
                try:
                    threading.Thread(target=self._run, name="lake-reports", daemon=True).start()
                except RuntimeError:
                    # The system starts no more threads.
                    self._waiting.clear()
                    return
                self._is_running = True
            self._changed.notify_all()
            if not self._is_registered:
                atexit.register(self.drain)
                self._is_registered = True

    def drain(self, seconds: float = _LAST_SECONDS) -> None:
        """Wait for the reports that were added, for a time at most."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._is_sending), seconds)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            is_taken = self._send(*item)
            with self._changed:
                self._failures = 0 if is_taken else self._failures + 1
                if self._failures >= _MOST_FAILURES:
                    self._waiting.clear()
                self._is_sending = False
                self._changed.notify_all()

    def _next(self) -> tuple[str, Any] | None:
        """Return the next report; None if the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS)
            self._is_sending = bool(self._waiting)
            if self._waiting:
                return self._waiting.popleft()
            self._is_running = False
            return None
