"""Rules for when stop signals (Ctrl-C and SIGTERM) may interrupt a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from lake.core.base.errors import StoppedError

_STOPS = (signal.SIGINT, signal.SIGTERM)


def _nothing() -> None:
    """Do nothing."""


class Interrupts:
    """The stop signals of one command: held back during a commit, and raised at the next safe point.

    Args:
        ignore_stops: is called when the command's last commit succeeded; stops that come later have no effect.
    """

    def __init__(self, ignore_stops: Callable[[], None] = _nothing) -> None:
        self._ignore_stops = ignore_stops
        self._last = False
        self._continues = False
        self._pending: StoppedError | KeyboardInterrupt | None = None

    @contextmanager
    def last_commit(self) -> Iterator[None]:
        """Declare that a commit inside the block is the last change that the command makes."""
        before, self._last = self._last, True
        try:
            yield
        finally:
            self._last = before

    @contextmanager
    def several_commits(self) -> Iterator[None]:
        """Declare that the command goes on after each commit inside the block, so that it can still be stopped."""
        before, self._continues = self._continues, True
        try:
            yield
        finally:
            self._continues = before

    def committed(self) -> None:
        """Record that a commit succeeded. If it was the command's last one, later stops are ignored."""
        if self._last and not self._continues:
            self._ignore_stops()

    def defer(self, stop: StoppedError | KeyboardInterrupt) -> None:
        """Keep a stop that came too late to prevent a commit, for `checkpoint`."""
        self._pending = stop

    def checkpoint(self) -> None:
        """Raise the deferred stop, if there is one.

        Raises:
            StoppedError: a stop signal was deferred.
        """
        if self._pending is not None:
            raise self._pending


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Deliver stop signals only after the block (only the main thread handles them)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    try:
        # Handlers are replaced, because a signal that the main thread's mask blocks is delivered to another
        # thread, and Python then runs the handler in the main thread all the same.
        with ExitStack() as restored:
            for number in _STOPS:
                before = signal.getsignal(number)
                if before not in {None, signal.SIG_IGN}:
                    restored.callback(signal.signal, number, before)
                    signal.signal(number, lambda one, _frame: received.append(one))
            yield
    finally:
        for got in received:
            signal.raise_signal(got)
