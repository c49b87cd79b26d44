"""Rules for when stop signals (Ctrl-C and SIGTERM) may interrupt a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lake.core.base.errors import StoppedError

_STOPS = (signal.SIGINT, signal.SIGTERM)
# Is set from a stop signal on, also while one is held back: no thread of the command waits for long any more.
STOPPED = threading.Event()


def _nothing() -> None:
    """Do nothing."""


class Interrupts:
    """The stop signals of one command: held back during a commit, and raised at the next safe point.

    Args:
        ignore_stops: is called when the command's last commit succeeded; stops that come later have no effect.
        accept_stops: is called before the next one of several commands; raises a stop that had no effect.
    """

    def __init__(
        self,
        ignore_stops: Callable[[], None] = _nothing,
        accept_stops: Callable[[], None] = _nothing,
    ) -> None:
        self._ignore_stops = ignore_stops
        self._accept_stops = accept_stops
        self._last = False
        self._continues = False
        self._is_recorded = False
        self._held: _Held | None = None
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
            if not before:
                self.release()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Declare that the command records a commit of the block: later stops are held back until `release`."""
        before, self._is_recorded = self._is_recorded, True
        try:
            yield
        finally:
            self._is_recorded = before

    def committed(self) -> None:
        """Record that a commit succeeded. If it was the command's last one, later stops are ignored."""
        if self._last and not self._continues:
            self._ignore_stops()

    def hold(self) -> None:
        """Hold back stops from now on, after a commit that the command still has to record, see `recorded`."""
        if self._is_recorded and self._held is None:  # check: stops-until-record
            self._held = _Held()

    def release(self) -> None:
        """Hold back stops no more; one that was held back is raised at the next checkpoint."""
        held, self._held = self._held, None
        if held is None:
            return
        try:
            held.deliver()
        except (StoppedError, KeyboardInterrupt) as stop:
            self._pending = stop

    def defer(self, stop: StoppedError | KeyboardInterrupt) -> None:
        """Keep a stop that came too late to prevent a commit, for `checkpoint`."""
        self._pending = stop
        self.hold()

    def request(self, stop: StoppedError) -> None:
        """Stop a command of another thread, which gets no signals, at its next checkpoint."""
        self._pending = stop

    def next_command(self) -> None:
        """Let stops have an effect again: another command begins.

        Raises:
            StoppedError: a stop signal came too late to stop the command before.
        """
        self.release()
        self._accept_stops()
        self.checkpoint()

    def checkpoint(self) -> None:
        """Raise the deferred stop, if there is one, unless stops are held back.

        Raises:
            StoppedError: a stop signal was deferred.
        """
        if self._pending is not None and self._held is None:
            raise self._pending


class _Held:
    """Stop signals that are held back from its construction on; only the main thread handles them."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._received: list[int] = []
        if threading.current_thread() is not threading.main_thread():
            return
        # Handlers are replaced, because a signal that the main thread's mask blocks is delivered to another
        # thread, and Python then runs the handler in the main thread all the same.
        for number in _STOPS:
            before = signal.getsignal(number)
            if before not in {None, signal.SIG_IGN}:
                self._handlers[number] = before
                signal.signal(number, self._receive)

    def _receive(self, number: int, _frame: object) -> None:
        self._received.append(number)
        STOPPED.set()

    def deliver(self) -> None:
        """Deliver the signals that were held back, and hold back no more."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._received:
            # A handler that stops the command sets it again.
            STOPPED.clear()
        for got in self._received:
            signal.raise_signal(got)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Deliver stop signals only after the block (only the main thread handles them)."""
    held = _Held()
    try:
        yield
    finally:
        held.deliver()
