"""Ctrl-C and SIGTERM as one exception, raised once, where the work is."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from lake.core.errors import StoppedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KILLED_BY = 3


class SignalHandlers:
    """Handlers for the length of one command.

    The first signal raises `StoppedError` in the work; while things are cleaned up afterwards a
    second one is ignored and a third kills. After `release` a signal ends the process at once, but with the code
    that tells how the command ended.

    Args:
        own_process: whether the process is nothing but the command, which the signals are not given back to.
    """

    def __init__(self, *, own_process: bool = False) -> None:
        self._to_the_end = own_process
        self._before: dict[signal.Signals, Any] = {}
        self._received: list[int] = []
        self._working = True

    def __enter__(self) -> Self:
        """Take the signals over; outside the main thread its owner keeps them."""
        try:
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._stop)
        except ValueError:
            self._before.clear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        if self._to_the_end:
            # The interpreter gives up its handlers long before it ends, but goes on ignoring.
            for number in self._before:
                atexit.register(signal.signal, number, signal.SIG_IGN)
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def first(self) -> int | None:
        """The number of the signal that stopped the work, if one did."""
        return self._received[0] if self._received else None

    def replay_early(self, early: Sequence[int]) -> None:
        """Do as if signals that came before came now."""
        for number in early:
            self._stop(number, None)

    def ignore(self) -> None:
        """Ignore further signals: the work is over."""
        self._working = False

    def release(self, code: int) -> None:
        """Let signals end the process at once with an exit code."""
        for number in self._before:
            signal.signal(number, lambda *_: os._exit(code))

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        if len(self._received) >= _KILLED_BY:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self._working and len(self._received) == 1:
            raise StoppedError(number)
