"""Hold back Ctrl-C and SIGTERM for the moments in which a half-known outcome would be worse than a wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Deliver stop signals only after the block (only the main thread handles any)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    try:
        # Handlers, not the thread's mask: the system then gives the signal to another thread, and
        # Python runs the handler in this one all the same.
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
