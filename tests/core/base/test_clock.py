"""The waits between the attempts of an operation."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.core.base.clock import Backoff, SystemClock, SystemIds


class Recorder:
    """A clock that records how long it was asked to wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class Chance(SystemIds):
    """Identifiers with a given random number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def jitter(self) -> float:
        return self.number


def test_each_wait_is_twice_the_one_before_up_to_the_limit() -> None:
    clock = Recorder()
    backoff = Backoff(0.2, 1.0, clock=clock)

    for attempt in range(1, 6):
        backoff.wait(attempt)

    assert clock.waits == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_wait_is_as_long_as_a_server_asks_for() -> None:
    clock = Recorder()

    Backoff(0.2, 1.0, clock=clock).wait(1, at_least=3.0)

    assert clock.waits == [3.0]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_keeps_a_wait_between_its_bounds(attempt: int, number: float) -> None:
    clock = Recorder()

    Backoff(0.1, 8.0, (0.5, 1.0), clock, Chance(number)).wait(attempt)

    base = min(0.1 * 2 ** min(attempt - 1, 32), 8.0)
    assert base / 2 <= clock.waits[0] <= base


class WokenError(Exception):
    """What the handler of a signal raises."""


def test_a_signal_that_another_thread_receives_ends_a_wait() -> None:
    def wake(*_: object) -> None:
        raise WokenError

    def send() -> None:
        # The wait begins meanwhile; a signal before that must come where it is expected too.
        assert waiting.wait(60)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGUSR1)

    over, waiting = threading.Event(), threading.Event()
    # Threads inherit the mask of signals, so these start before the signal is blocked.
    receiver = threading.Thread(target=over.wait)
    sender = threading.Thread(target=send)
    before = signal.signal(signal.SIGUSR1, wake)
    receiver.start()
    sender.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    started = time.monotonic()
    try:
        with pytest.raises(WokenError):
            waiting.set()
            SystemClock().sleep(60)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGUSR1, before)
        over.set()
        receiver.join()
        sender.join()

    assert time.monotonic() - started < 30
