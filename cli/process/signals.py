"""Turn Ctrl-C and SIGTERM into one exception, raised once in the main thread."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from threading import Thread
from types import FrameType, TracebackType
from typing import Any, Self

from lake.core.base.errors import StoppedError
from lake.core.base.interrupts import STOPPED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KILLED_BY = 3


class SignalHandlers:
    """Signal handlers for the duration of one command.

    From `accept` on, the first signal raises `StoppedError` in the command. During the clean-up that follows, a
    second signal is ignored and a third kills the process. After `release` a signal ends the process at once, with
    the command's exit code.

    Args:
        own_process: whether the process runs only this command, so that the previous handlers need
        not be restored.
    """

    def __init__(self, *, own_process: bool = False) -> None:
        self._own_process = own_process
        self._before: dict[signal.Signals, Any] = {}
        self._received: list[int] = []
        # Nothing reports an exception that is raised while the handlers are installed.
        self._working = False
        self._wakeup = -1
        self._watch: Thread | None = None

    def __enter__(self) -> Self:
        """Install the handlers. Outside the main thread, where that is not possible, do nothing."""
        try:
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._stop)
        except ValueError:
            self._before.clear()
        else:
            STOPPED.clear()
            self._begin_watch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous handlers, unless the process ends with the command."""
        if self._own_process:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._watch:
            signal.set_wakeup_fd(-1)
            os.close(self._wakeup)
            self._watch.join()
            STOPPED.clear()

    def _begin_watch(self) -> None:
        """Let a thread note signals: the main thread handles none while native code waits for other threads."""
        # Without it, a command that waits for a store ends later.
        try:
            received, wakeup = os.pipe()
        except OSError:
            return
        os.set_blocking(wakeup, False)
        watch = Thread(target=_note_stops, args=(received,), name="signals", daemon=True)
        try:
            watch.start()
        except (MemoryError, RuntimeError):
            os.close(received)
            os.close(wakeup)
            return
        self._watch, self._wakeup = watch, wakeup
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    @property
    def first(self) -> int | None:
        """The number of the signal that stopped the command; None if none did."""
        return self._received[0] if self._received else None

    def replay_early(self, early: Sequence[int]) -> None:
        """Let signals stop the command, also those that were received before the handlers were installed.

        Raises:
            StoppedError: there was one.
        """
        for number in early:
            self._stop(number, None)
        self.accept()

    def ignore(self) -> None:
        """Ignore further signals, because the command's work is done."""
        self._working = False

    def accept(self) -> None:
        """Let signals stop the command again; one that was ignored stops it now.

        Raises:
            StoppedError: there was one.
        """
        self._working = True
        if self.first is not None:
            raise StoppedError(self.first)

    def release(self, code: int) -> None:
        """End the process at once, with an exit code, when a signal is received."""
        for number in self._before:
            signal.signal(number, lambda *_: os._exit(code))

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        if len(self._received) >= _KILLED_BY:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        STOPPED.set()
        if self._working and len(self._received) == 1:
            raise StoppedError(number)


def _note_stops(received: int) -> None:
    """Note the stop signals whose numbers arrive, until the other end is closed."""
    while numbers := os.read(received, 1):
        if numbers[0] in _SIGNALS:
            STOPPED.set()
    os.close(received)
