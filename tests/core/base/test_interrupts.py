"""Signals that must wait, waiting."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from lake.core.base.interrupts import uninterrupted


class StopError(Exception):
    """What the handlers of these tests raise."""


@pytest.fixture
def other_thread() -> Iterator[None]:
    """Another thread that could be given the process's signals."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def stop(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal whose handler raises `StopError`."""

    def handler(number: int, _frame: object) -> None:
        raise StopError(number)

    before = signal.signal(request.param, handler)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_waits_for_the_end_of_the_block_whatever_threads_there_are(
    stop: signal.Signals, other_thread: None
) -> None:
    done = []

    with pytest.raises(StopError), uninterrupted():
        os.kill(os.getpid(), stop)
        time.sleep(0.1)
        done.append("block")

    assert done == ["block"]


def test_a_signal_waits_for_the_end_of_the_outermost_block(stop: signal.Signals) -> None:
    done = []

    with pytest.raises(StopError), uninterrupted():
        with uninterrupted():
            os.kill(os.getpid(), stop)
        done.append("outer")

    assert done == ["outer"]


def test_a_signal_after_the_block_is_handled_as_before_it(stop: signal.Signals) -> None:
    with uninterrupted():
        pass

    with pytest.raises(StopError):
        signal.raise_signal(stop)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
