"""Signals that must wait, waiting."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from lake.core.base.errors import StoppedError
from lake.core.base.interrupts import Interrupts, uninterrupted


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
    """A signal whose handler raises `StoppedError`."""

    def handler(number: int, _frame: object) -> None:
        raise StoppedError(number)

    before = signal.signal(request.param, handler)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_waits_for_the_end_of_the_block_whatever_threads_there_are(
    stop: signal.Signals, other_thread: None
) -> None:
    done = []

    with pytest.raises(StoppedError), uninterrupted():
        os.kill(os.getpid(), stop)
        time.sleep(0.1)
        done.append("block")

    assert done == ["block"]


def test_a_signal_waits_for_the_end_of_the_outermost_block(stop: signal.Signals) -> None:
    done = []

    with pytest.raises(StoppedError), uninterrupted():
        with uninterrupted():
            os.kill(os.getpid(), stop)
        done.append("outer")

    assert done == ["outer"]


def test_a_signal_after_the_block_is_handled_as_before_it(stop: signal.Signals) -> None:
    with uninterrupted():
        pass

    with pytest.raises(StoppedError):
        signal.raise_signal(stop)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_after_a_commit_waits_until_the_commit_is_recorded(stop: signal.Signals) -> None:
    interrupts, done = Interrupts(), []

    with interrupts.several_commits():
        with interrupts.recorded():
            interrupts.hold()
            os.kill(os.getpid(), stop)
        interrupts.checkpoint()
        done.append("recorded")
        interrupts.release()
        done.append("reported")
        with pytest.raises(StoppedError):
            interrupts.checkpoint()

    assert done == ["recorded", "reported"]
    with pytest.raises(StoppedError):
        signal.raise_signal(stop)


def test_a_signal_that_interrupts_a_commit_holds_back_later_ones(stop: signal.Signals) -> None:
    interrupts = Interrupts()

    with interrupts.several_commits(), interrupts.recorded():
        interrupts.defer(StoppedError(stop))
        os.kill(os.getpid(), stop)
        interrupts.checkpoint()
        interrupts.release()
        with pytest.raises(StoppedError):
            interrupts.checkpoint()


def test_a_signal_before_a_commit_does_not_wait(stop: signal.Signals) -> None:
    interrupts = Interrupts()

    with pytest.raises(StoppedError), interrupts.several_commits(), interrupts.recorded():
        signal.raise_signal(stop)


def test_signals_wait_no_longer_than_until_the_command_has_made_all_its_commits(
    stop: signal.Signals,
) -> None:
    interrupts = Interrupts()

    with interrupts.several_commits():
        with interrupts.several_commits(), interrupts.recorded():
            interrupts.hold()
        signal.raise_signal(stop)

    with pytest.raises(StoppedError):
        signal.raise_signal(stop)
